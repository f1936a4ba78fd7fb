"""`rw.search("file.gguf")`: over YaRN's ramp, by the flags of the real llama.cpp."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import ropewalk as rw
from ropewalk.errors import Unsupported
from ropewalk.gguf.flags import flags_of
from ropewalk.gguf.parts import read_model
from ropewalk.progress import unheard
from ropewalk.scaling import log_growth
from ropewalk.searching.model.results import Searched
from ropewalk.searching.strategies.yarn import FAST, SLOW
from tests.api.conformance import check_result
from tests.api.served import without_figures
from tests.evaluation.served import made

TARGET, BUDGET = 1024, 3
ROOT = Path(__file__).parents[2]
SMALL: dict[str, Any] = {"budget": BUDGET, "documents": (1, 2, 0), "short_limit": None}
SMALL["notice"] = unheard
KEPT = ("plan.json", "results.json", "search.jsonl", "search-measured.jsonl")


@pytest.fixture(autouse=True)
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    without_figures(monkeypatch)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made.gguf(tmp_path_factory.mktemp("gguf") / "plain.gguf", made.plain(), length=512)


@pytest.fixture(scope="module")
def whole(file: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Searched, Path]:
    run = tmp_path_factory.mktemp("runs") / "run"
    with pytest.MonkeyPatch.context() as patch:
        without_figures(patch)
        return rw.search(file, TARGET, run=run, **SMALL), run


def test_ramps_are_searched_that_flags_give(file: Path, whole: tuple[Searched, Path]) -> None:
    found, run = whole
    check_result(found)
    [leg] = found.legs
    assert (leg.length, found.model) == (TARGET, "plain.gguf")
    assert 1 <= leg.evaluations <= BUDGET
    lines = [json.loads(line) for line in (run / "search.jsonl").read_text().splitlines()]
    tried = [each["candidate"]["recipe"]["parameters"] for each in lines]
    assert len({(each["beta_fast"], each["beta_slow"]) for each in tried}) > 1
    for each in tried:
        assert each["beta_fast"] in FAST
        assert each["beta_slow"] in SLOW
        assert each["attention_factor"] == log_growth(TARGET / 512)
    flags = flags_of(read_model(file), found.plan.longest(), TARGET)
    assert (flags.ramp, flags.attention) == (True, 1.0) or found.legs[0].method != "yarn"
    assert found.plan.provenance["strategy"] == "yarn"


@pytest.mark.parametrize(
    ("target", "changes"),
    [
        (TARGET, {"strategy": "adaptive"}),
        (TARGET, {"as_published": True}),
        (512, {"recover": True}),
    ],
)
def test_lists_of_factors_are_refused_with_the_reason(
    target: int, changes: dict[str, Any], file: Path, tmp_path: Path
) -> None:
    with pytest.raises(Unsupported, match=r"only YaRN's ramp .*; search the unmodified"):
        rw.search(file, target, run=tmp_path / "run", notice=unheard, **changes)
    assert not (tmp_path / "run").exists()


def test_what_is_of_a_file_is_refused_for_a_folder() -> None:
    with pytest.raises(Unsupported, match="`cache` is for a GGUF file"):
        rw.search("bundled", 1024, cache="q8_0", notice=unheard)


def test_its_preview_counts_the_texts(file: Path) -> None:
    found = rw.search.preview(file, TARGET, budget=10)
    assert any(row.what.startswith("search, at most ") for row in found.rows)


@pytest.mark.slow
def test_it_is_killed_and_ends_with_the_same_bytes(
    file: Path, whole: tuple[Searched, Path], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    call = f"ropewalk.search({str(file)!r}, {TARGET}, run={str(run)!r}, short_limit=None, "
    call += f"budget={BUDGET}, documents=(1, 2, 0))"
    command = [sys.executable, "-c", f"import ropewalk; {call}"]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL) as process:
        journal, end = run / "search.jsonl", time.monotonic() + 300
        while not (journal.exists() and len(journal.read_bytes().splitlines()) >= 2):
            assert time.monotonic() < end
            assert process.poll() is None
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGKILL)
    assert not (run / "results.json").exists()
    rw.search(file, TARGET, run=run, **SMALL)
    for name in KEPT:
        assert (run / name).read_bytes() == (whole[1] / name).read_bytes(), name
