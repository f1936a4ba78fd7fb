"""`rw.evaluate("file.gguf")`: the file in the real llama.cpp, and what it cannot do."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import ropewalk as rw
from ropewalk.errors import InputError, InvalidValue, RopewalkError, Unsupported
from ropewalk.evaluation.conclusion import EvaluatedServer
from ropewalk.run_directory import RECORDS
from tests.api.conformance import check_command
from tests.api.served import (
    LENGTHS,
    REFUSED,
    SAMPLES,
    UNSUPPORTED,
    check_same_bytes,
    check_scores,
    without_figures,
)
from tests.cli.calling import ropewalk
from tests.evaluation.served import made
from tests.gguf.gguf_files import header_only

TASKS = ["needle"]
MANY = 40
"""Samples that take longer to draw and to answer than a signal takes to arrive."""
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made.gguf(tmp_path_factory.mktemp("gguf") / "planned.gguf", dtype="F16")


@pytest.fixture(autouse=True)
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    without_figures(monkeypatch)


def evaluated(path: Path, run: Path | None = None, **changes: Any) -> EvaluatedServer:
    settings = {"tasks": TASKS, "lengths": LENGTHS, "samples": SAMPLES, "run": run, **changes}
    found = rw.evaluate(path, **settings)
    assert isinstance(found, EvaluatedServer)
    return found


@pytest.fixture(scope="module")
def whole(file: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[EvaluatedServer, Path]:
    run = tmp_path_factory.mktemp("runs") / "whole"
    with pytest.MonkeyPatch.context() as patch:
        without_figures(patch)
        return evaluated(file, run), run


def test_the_scores_are_those_of_the_model_in_process(
    whole: tuple[EvaluatedServer, Path],
) -> None:
    found, run = whole
    check_scores(found, TASKS)
    assert found.dtype == "F16"
    assert found.server.length == 256
    assert found.original_length == 512
    configuration = json.loads((run / "run.json").read_text())["configuration"]
    assert configuration["weights_sha256"].startswith(found.results[0].subject.weights)
    assert "xllamacpp" in configuration["llama_cpp"]
    assert configuration["bos"] is bool(configuration["bos"])
    assert "127.0.0.1" not in (run / RECORDS).read_text()


def test_the_command_prints_the_same(file: Path, whole: tuple[EvaluatedServer, Path]) -> None:
    words = ("--tasks", "needle", "--lengths", "128,256", "--samples", SAMPLES)
    check_command(whole[0], "evaluate", file, *words)


def test_its_own_threshold_needs_no_refused_method(file: Path, tmp_path: Path) -> None:
    """That of an extended file comes from another file, that of an unmodified one from itself."""
    words = ("--tasks", "kv,needle", "--samples", 2, "--lengths")
    shown = ropewalk("evaluate", file, *words, 128)
    assert "--method" not in shown
    assert "needs the unmodified model's at 512: evaluate the file or server of that" in shown
    plain = made.gguf(tmp_path / "plain.gguf", made.plain())
    with pytest.raises(Unsupported, match="a GGUF file is measured as it is"):
        ropewalk("evaluate", plain, *words, 128, "--method", "yarn", "--to", 1024)
    shown = ropewalk("evaluate", plain, *words, 512)
    assert "(85% of unmodified" in shown
    assert "not measured" not in shown


def test_another_quantisation_is_compared_on_the_same_samples(
    whole: tuple[EvaluatedServer, Path], tmp_path: Path
) -> None:
    path = made.gguf(tmp_path / "planned.gguf", dtype="Q8_0")
    with pytest.raises(InputError, match=r"different configuration: configuration\.weights_sha256"):
        evaluated(path, whole[1])
    found = evaluated(path, tmp_path / "run")
    assert found.dtype == "Q8_0"
    compared = rw.compare_runs(whole[1], tmp_path / "run")
    assert {c.task for c in compared.comparisons} >= set(TASKS)
    assert all(c.comparison.pairs == SAMPLES for c in compared.comparisons if c.task in TASKS)


def test_its_run_is_reported(whole: tuple[EvaluatedServer, Path], tmp_path: Path) -> None:
    rw.report(whole[1], out=tmp_path / "report.html")
    assert "as served" in (tmp_path / "report.html").read_text()


def started(file: Path, run: Path, samples: int) -> subprocess.Popen[str]:
    words = ["evaluate", str(file), "--tasks", "needle", "--lengths", "128,256"]
    words += ["--samples", str(samples), "--run", str(run)]
    return subprocess.Popen(
        [sys.executable, "-m", "ropewalk", *words],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )


def children(process: int) -> list[int]:
    """The processes that a process has started."""
    listed = Path(f"/proc/{process}/task").glob("*/children")
    return [int(word) for each in listed for word in each.read_text().split()]


def until(happened: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.01)


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def asked(run: Path) -> Iterator[bytes]:
    records = run / RECORDS
    return iter(records.read_bytes().splitlines() if records.exists() else [])


@pytest.mark.parametrize(
    ("sent", "status", "told"),
    [
        (signal.SIGINT, 130, "interrupted; kept in"),
        (signal.SIGTERM, 143, "terminated; kept in"),
        (signal.SIGKILL, -signal.SIGKILL, ""),
    ],
)
def test_its_llama_cpp_ends_with_it_and_the_run_goes_on(
    sent: signal.Signals, status: int, told: str, file: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    with started(file, run, samples=MANY) as process:
        until(lambda: len(list(asked(run))) >= 3 or process.poll() is not None)
        (llama,) = children(process.pid)
        process.send_signal(sent)
        _, said = process.communicate(timeout=60)
    assert (process.returncode, told in said) == (status, True), said
    until(lambda: not is_running(llama), seconds=10)
    kept = list(asked(run))
    assert 3 <= len(kept) < MANY * len(LENGTHS)


def test_a_run_that_goes_on_ends_with_the_same_bytes(
    file: Path, whole: tuple[EvaluatedServer, Path], tmp_path: Path
) -> None:
    """The server has another port by then, and the file may be in another folder."""
    run = tmp_path / "run"
    shutil.copytree(whole[1], run)
    lines = (run / RECORDS).read_bytes().splitlines(keepends=True)
    (run / RECORDS).write_bytes(b"".join(lines[:3]))
    (run / "results.json").unlink()
    moved = tmp_path / "elsewhere" / file.name
    moved.parent.mkdir()
    moved.write_bytes(file.read_bytes())
    evaluated(moved, run)
    check_same_bytes(run, whole[1])


def test_an_end_of_llama_cpp_is_told_and_loses_nothing(file: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with started(file, run, samples=MANY) as process:
        until(lambda: len(list(asked(run))) >= 3 or process.poll() is not None)
        (llama,) = children(process.pid)
        os.kill(llama, signal.SIGKILL)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "planned.gguf: llama.cpp ended while it ran: no reason given, ended by SIGKILL" in said
    assert len(list(asked(run))) >= 3


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"plans": [made.plan()]}, "write it with the plan first"),
        ({"methods": ["yarn"], "to": "1k"}, "write it with the plan first"),
        *UNSUPPORTED,
        ({"mode": "teacher_forced"}, "llama.cpp's server does not give; choose generate"),
    ],
)
def test_what_llama_cpp_cannot_measure(changes: dict[str, Any], told: str, file: Path) -> None:
    with pytest.raises(Unsupported, match=told):
        evaluated(file, **changes)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"lengths": [128, 2048]}, "lengths = 2048: .* has a context of 1,024 tokens"),
        ({"device": "cuda"}, "ropewalk runs llama.cpp on the CPU"),
        ({"dtype": "float32"}, "computed in its own types"),
        ({"fingerprint": "file"}, "`fingerprint` is for a server"),
        *REFUSED,
        ({"lengths": [16]}, "there is nothing to measure"),
    ],
)
def test_what_else_is_refused(changes: dict[str, Any], told: str, file: Path) -> None:
    with pytest.raises(InputError, match=told):
        evaluated(file, **changes)


def test_its_own_file_is_no_place_for_a_run(file: Path) -> None:
    with pytest.raises(InputError, match="cannot be created in"):
        evaluated(file, file / "run")


def test_a_file_without_tensors_is_refused_in_llama_cpps_words(tmp_path: Path) -> None:
    with pytest.raises(RopewalkError, match=r"llama\.cpp cannot load it: .*block_count"):
        evaluated(header_only(tmp_path / "header.gguf"))


@pytest.mark.parametrize("architecture", ["gpt2", "mamba2", "jais"])
def test_an_architecture_without_rotation(architecture: str, tmp_path: Path) -> None:
    path = header_only(tmp_path / "still.gguf", architecture=architecture)
    with pytest.raises(Unsupported, match=f"architecture {architecture} has no rotation"):
        evaluated(path)


def test_more_than_memory_holds(tmp_path: Path) -> None:
    keys = {"block_count": 4096, "attention.head_count_kv": 4096, "context_length": 131072}
    with pytest.raises(InvalidValue, match=r"the cache of llama\.cpp takes .* GiB at that length"):
        evaluated(header_only(tmp_path / "large.gguf", keys=keys), lengths=[131072])
