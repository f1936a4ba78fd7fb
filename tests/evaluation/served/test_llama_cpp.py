"""The real llama.cpp: it answers like the plan, or does not, and why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ropewalk as rw
from benchmarks.llama_server import serving
from ropewalk.evaluation.served.fingerprint import Verdict
from tests.evaluation.served import made

LINEAR = "llama_rope_scaling_type.LLAMA_ROPE_SCALING_TYPE_LINEAR"


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made.gguf(tmp_path_factory.mktemp("gguf") / "planned.gguf")


def checked(path: Path, **settings: Any) -> Verdict:
    with serving(path, **{"n_ctx": made.TARGET, **settings}) as url:
        return rw.check_server(url, made.fingerprint())


@pytest.mark.parametrize("dtype", ["F16", "Q8_0"])
def test_healthy_servers(dtype: str, tmp_path: Path) -> None:
    verdict = checked(made.gguf(tmp_path / "m.gguf", dtype=dtype))
    assert verdict.status == "same", verdict.summary()
    assert verdict.server.kind == "llama.cpp"
    assert verdict.server.length == made.TARGET
    assert verdict.server.revealed["n_vocab"] == 1024
    assert all(probe.read == probe.length for probe in verdict.probes)


def test_faults_in_the_file(tmp_path: Path) -> None:
    own = made.plan().longest()
    for name, schedule in (
        ("no scaling", made.plain()),
        ("attention factor", replace(own, attention_scaling=1.0)),
        ("base", replace(own, geometry=replace(own.geometry, base=5e5))),
    ):
        verdict = checked(made.gguf(tmp_path / f"{name}.gguf", schedule))
        assert [cause.name for cause in verdict.causes] == [name], verdict.summary()
        assert verdict.causes[0].certain


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"rope_scaling_type": LINEAR, "rope_freq_scale": 0.5}, "applied twice"),
        ({"n_ctx": 512}, "context"),
    ],
)
def test_faults_of_flags(settings: dict[str, object], name: str, planned: Path) -> None:
    verdict = checked(planned, **settings)
    assert (verdict.status, [cause.name for cause in verdict.causes]) == ("deviates", [name])


def test_a_key_in_front_of_the_real_server(planned: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(planned, n_ctx=made.TARGET, api_keys=["a-key"]) as url:
        with pytest.raises(rw.RopewalkError, match="none is set"):
            rw.check_server(url, made.fingerprint())
        monkeypatch.setenv("ROPEWALK_API_KEY", "a-key")
        verdict = rw.check_server(url, made.fingerprint())
    assert verdict.status == "same"
    assert verdict.summary().startswith("llama.cpp, model "), "its build is unknown"
    assert "a-key" not in str(verdict.to_json())
