"""Verdicts hold for the recorded release of a runtime; of another one, `verify` says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from ropewalk.errors import UnknownName
from ropewalk.runtimes.model_classes import recorded
from tests.audit.corpus import CLEAN, TRAPPED
from tests.audit.verified import verified

CONFIG = CLEAN["yarn"].config
NOT_CHECKED = f"recorded up to {recorded('vllm')}; not checked for 99.1"


def test_a_named_release_that_is_not_recorded_gets_no_verdict(tmp_path: Path) -> None:
    for name, config in (("clean", CONFIG), ("trapped", TRAPPED["cohere"].config)):
        found = verified(tmp_path / name, config, "sglang", "vllm==99.1")
        assert found.verdict_in("vllm") == "not established"
        assert f"vllm: {NOT_CHECKED}" in found.not_established
        assert found.verdict_in("sglang") == ("OK" if name == "clean" else "wrong")


def test_the_recorded_release_is_judged_under_its_name_too(tmp_path: Path) -> None:
    minor = recorded("vllm").rpartition(".")[0]
    for name in ("vllm", f"vllm=={recorded('vllm')}", f"vllm=={minor}"):
        found = verified(tmp_path / name, CONFIG, name)
        assert found.verdict_in("vllm") == "OK"
        assert not any("recorded" in note for note in found.notes)


def test_an_installed_release_that_is_not_recorded_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = tmp_path / "vllm-99.1.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 99.1+cu129\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = verified(tmp_path / "model", CONFIG, "vllm")
    assert found.verdict_in("vllm") == "OK"
    assert f"vllm: {NOT_CHECKED}" in found.notes


def test_a_release_of_a_runtime_without_recorded_rules_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="transformers==5"):
        verified(tmp_path, CONFIG, "transformers==5")
