"""An export whose tokenizer does not load, or differs, does not get its name."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ropewalk.audit.examination import audit
from ropewalk.context_plan import ContextPlan
from ropewalk.errors import GateFailed, InputError
from ropewalk.exporting.manifest import MANIFEST, Manifest
from ropewalk.exporting.tokenizer_gate import NONE
from ropewalk.models.config import BUNDLED_FOLDER, present_plan
from ropewalk.planning.extension import extend_plan
from ropewalk.runtimes import targets
from tests.exporting.folders import TARGET, saved, spoil_exports

STOCK = targets()["transformers"]

FAST, SETTINGS = "tokenizer.json", "tokenizer_config.json"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A tiny model with the bundled model's tokenizer."""
    place = Path(saved(tmp_path / "source", vocab_size=1024))
    for name in (FAST, SETTINGS):
        shutil.copyfile(BUNDLED_FOLDER / name, place / name)
    return place


def planned(source: Path) -> ContextPlan:
    return extend_plan(present_plan(source), TARGET, "linear")


@pytest.mark.usefixtures("in_process")
def test_an_export_with_its_tokenizer_is_well_and_carries_a_manifest(
    source: Path, tmp_path: Path
) -> None:
    made = STOCK.write(str(source), planned(source), tmp_path / "out")
    assert made.warnings == ()
    manifest = Manifest.read(made.path)
    assert set(manifest.files) == {path.name for path in made.path.iterdir()} - {MANIFEST}
    assert manifest == Manifest.of(made.path, runtime="transformers")
    found = audit(made.path, runtimes=["vllm"], run=False)
    assert found.verdict == "OK"
    assert all(check.verdict == "OK" for check in found.checks)


def _without_a_merge(place: Path) -> None:
    value = json.loads((place / FAST).read_text(encoding="utf-8"))
    value["model"]["merges"] = value["model"]["merges"][1:]
    (place / FAST).write_text(json.dumps(value), encoding="utf-8")


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (
            lambda place: (place / FAST).write_text('{"garbage": 1}'),
            "its tokenizer cannot be loaded in stock transformers",
        ),
        (_without_a_merge, "its tokenizer makes other tokens than the source's: "),
    ],
)
def test_a_tokenizer_that_is_not_the_sources_fails_the_export(
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Path], Any],
    complaint: str,
) -> None:
    spoil_exports(monkeypatch, change)
    with pytest.raises(GateFailed, match=complaint) as caught:
        STOCK.write(str(source), planned(source), tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_source_whose_tokenizer_is_broken_is_refused_before_anything_is_written(
    source: Path, tmp_path: Path
) -> None:
    (source / FAST).write_text('{"garbage": 1}', encoding="utf-8")
    with pytest.raises(
        InputError, match=r"its tokenizer cannot be used .* copy the tokenizer files"
    ):
        STOCK.write(str(source), planned(source), tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


@pytest.mark.usefixtures("in_process")
def test_a_tokenizer_that_cannot_be_compared_is_said(source: Path, tmp_path: Path) -> None:
    settings = {"auto_map": {"AutoTokenizer": ["own.Own", None]}, "tokenizer_class": "Own"}
    (source / SETTINGS).write_text(json.dumps(settings), encoding="utf-8")
    (source / FAST).rename(source / "vocab.txt")
    made = STOCK.write(str(source), planned(source), tmp_path / "out")
    assert made.warnings[0].startswith("the tokenizer is copied and was not compared: ")
    (source / "vocab.txt").unlink()
    made = STOCK.write(str(source), planned(source), tmp_path / "none")
    assert made.warnings == (NONE,)
    assert audit(made.path, runtimes=["vllm"], run=False).verdict == "not established"
