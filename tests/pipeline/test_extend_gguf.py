"""`extend` on a GGUF file: read by llama.cpp, exported as a GGUF file, cut off and gone on."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import ropewalk as rw
from ropewalk.errors import InputError, Unsupported
from ropewalk.gguf.parts import read_model
from ropewalk.gguf.rotation import present_plan
from ropewalk.pipeline.extend import Extended
from ropewalk.pipeline.stages.export import Export
from ropewalk.pipeline.stages.judge import JudgeFirst
from ropewalk.pipeline.stages.verify import Verify
from ropewalk.progress import unheard
from tests.api.conformance import check_result
from tests.evaluation.served import made

TARGET, DOCUMENTS = 1024, 5
ROOT = Path(__file__).parents[2]
KEPT = ("plan.json", "first.json", "first.jsonl", "export.json", "model.gguf", "run.json")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made.gguf(tmp_path_factory.mktemp("gguf") / "plain.gguf", made.plain(), length=512)


@pytest.fixture(scope="module")
def whole(file: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Extended, Path]:
    run = tmp_path_factory.mktemp("runs") / "run"
    # No price is too high, so that no race follows.
    asked: dict[str, Any] = {"budget": DOCUMENTS, "short_limit": 9.0, "notice": unheard}
    return rw.extend(file, TARGET, run=run, **asked), run


def test_the_verdict_and_the_file_are_those_of_a_folder(whole: tuple[Extended, Path]) -> None:
    found, run = whole
    check_result(found)
    judged = found.result(JudgeFirst)
    assert (judged.chosen, judged.window, judged.length) == ("yarn", 512, TARGET)
    at_target = {m: judged.shares(m, TARGET).rate for m in ("none", "yarn")}
    assert at_target["yarn"] > 0.7
    assert judged.example is not None
    assert judged.example.after.strip() == judged.example.answer
    [written] = found.result(Export).written
    assert (written.target, written.path) == ("llama.cpp", run / "model.gguf")
    assert written.agreement is not None
    assert written.agreement.passed
    header = read_model(written.path)
    assert header.get("rope.scaling.type") == "yarn"
    assert header.count("context_length") == TARGET
    assert present_plan(header, "").rotates_like(judged.plan)
    assert [each.verdict for each in found.result(Verify).verified] == ["OK"]
    assert "yarn" in (run / "report.html").read_text()


@pytest.mark.slow
def test_it_is_killed_and_ends_with_the_same_bytes(
    file: Path, whole: tuple[Extended, Path], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    words = ["extend", str(file), "--to", str(TARGET), "--budget", str(DOCUMENTS)]
    words += ["--short-limit", "9", "--run", str(run)]
    command = [sys.executable, "-m", "ropewalk", *words]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL) as process:
        journal, end = run / "first.jsonl", time.monotonic() + 300
        while not (journal.exists() and len(journal.read_bytes().splitlines()) >= 3):
            assert time.monotonic() < end
            assert process.poll() is None
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGKILL)
    assert len(journal.read_bytes().splitlines()) >= 3
    assert not (run / "first.json").exists()
    other = tmp_path / "other.gguf"
    shutil.copy(made.gguf(tmp_path / "q8.gguf", made.plain(), "Q8_0", length=512), other)
    with pytest.raises(InputError, match=r"different configuration: .*weights_sha256"):
        rw.extend(other, TARGET, run=run, budget=DOCUMENTS, short_limit=9.0, notice=unheard)
    rw.extend(file, TARGET, run=run, budget=DOCUMENTS, short_limit=9.0, notice=unheard)
    for name in KEPT:
        one, two = ((each / name).read_bytes() for each in (run, whole[1]))
        if name == "export.json":
            one = one.replace(bytes(run), bytes(whole[1]))
        if name != "run.json":
            assert one == two, name


def test_what_is_refused_before_anything_is_kept(file: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    refused: tuple[tuple[dict[str, Any], str], ...] = (
        ({"search": True}, "schedules that llama.cpp takes only as factors in a file"),
        ({"train_steps": 1}, "llama.cpp runs this GGUF file, and is neither timed nor trained"),
    )
    for changes, told in refused:
        with pytest.raises(Unsupported, match=told):
            rw.extend(file, TARGET, run=run, budget=DOCUMENTS, notice=unheard, **changes)
    factors = made.gguf(tmp_path / "factors.gguf")
    with pytest.raises(Unsupported, match=r"factors.gguf holds the tensor rope_freqs"):
        rw.extend(factors, 2048, run=run, budget=DOCUMENTS, notice=unheard)
    with pytest.raises(Unsupported, match="`threads` is for a GGUF file"):
        rw.extend("bundled", 2048, run=run, threads=2)
    assert not run.exists()
