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
from ropewalk.evaluation import in_llama_cpp
from ropewalk.evaluation.conclusion import Evaluated
from ropewalk.gguf.cache import cache_bytes
from ropewalk.gguf.header import read_header
from ropewalk.models.config import BUNDLED
from ropewalk.run_directory import RECORDS
from tests.api.conformance import check_command, check_result
from tests.api.served import (
    LENGTHS,
    REFUSED,
    SAMPLES,
    check_same_bytes,
    check_scores,
    without_figures,
)
from tests.cli.calling import ropewalk
from tests.evaluation.served import made
from tests.gguf.gguf_files import header_only, split
from tests.gguf.tiny_architectures import deep

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


def evaluated(path: Path, run: Path | None = None, **changes: Any) -> Evaluated:
    settings = {"tasks": TASKS, "lengths": LENGTHS, "samples": SAMPLES, "run": run, **changes}
    return rw.evaluate(path, **settings)


@pytest.fixture(scope="module")
def whole(file: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Evaluated, Path]:
    run = tmp_path_factory.mktemp("runs") / "whole"
    with pytest.MonkeyPatch.context() as patch:
        without_figures(patch)
        return evaluated(file, run), run


def test_the_scores_are_those_of_the_model_in_process(whole: tuple[Evaluated, Path]) -> None:
    found, run = whole
    check_scores(found, TASKS)
    assert found.dtype == "F16"
    assert found.original_length == 512
    assert "xllamacpp" in found.device
    configuration = json.loads((run / "run.json").read_text())["configuration"]
    assert configuration["weights_sha256"].startswith(found.results[0].subject.weights)
    assert "xllamacpp" in configuration["llama_cpp"]
    assert configuration["bos"] is bool(configuration["bos"])
    assert "127.0.0.1" not in (run / RECORDS).read_text()


def test_the_command_prints_the_same(file: Path, whole: tuple[Evaluated, Path]) -> None:
    words = ("--tasks", "needle", "--lengths", "128,256", "--samples", SAMPLES)
    check_command(whole[0], "evaluate", file, *words)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unmodified model, which serves 512."""
    return made.gguf(tmp_path_factory.mktemp("gguf") / "plain.gguf", made.plain(), length=512)


FACTS: dict[str, Any] = {"tasks": ["facts"], "lengths": [512, 2048], "samples": 2}
METHODS: dict[str, Any] = {"methods": ["none", "yarn"], "to": 2048}


def readings(found: Evaluated) -> dict[tuple[str, int, str], float]:
    return {(r.method, r.length, r.metric): r.value for r in found.results}


@pytest.fixture(scope="module")
def by_flags(plain: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Evaluated, Path]:
    run = tmp_path_factory.mktemp("runs") / "flags"
    with pytest.MonkeyPatch.context() as patch:
        without_figures(patch)
        return evaluated(plain, run, **FACTS, **METHODS, cache=["f32", "q8_0"]), run


def test_methods_and_caches_are_compared_without_a_new_file(
    by_flags: tuple[Evaluated, Path],
) -> None:
    """Beyond the file's own 512 tokens, each answers as the folder does under the same plan."""
    found, _ = by_flags
    check_result(found)
    here = readings(rw.evaluate(BUNDLED, **FACTS, **METHODS, dtype="float32", device="cpu"))
    own = readings(found)
    for (method, length, metric), value in here.items():
        # Flash attention rounds: 0.007 nats of the unmodified model beyond its window, whose
        # answers are a hundred times as unlikely as under YaRN.
        assert own[f"{method}, f32 cache", length, metric] == pytest.approx(value, rel=2e-2)
        assert own[f"{method}, q8_0 cache", length, metric] == pytest.approx(
            value, rel=0.2, abs=0.1
        )
    assert here["yarn", 2048, "exact_match"] > here["none", 2048, "exact_match"] + 0.5
    pairs = {(c.first.method, c.second.method) for c in found.comparisons}
    assert ("yarn, f32 cache", "yarn, q8_0 cache") in pairs
    assert all(c.comparison.pairs == 2 for c in found.comparisons)


def test_types_of_cache_are_compared_by_their_first_choices(
    by_flags: tuple[Evaluated, Path],
) -> None:
    """Of one plan, token by token; the unmodified model and YaRN differ in more than rounding."""
    found, run = by_flags
    records = [json.loads(line) for line in (run / RECORDS).read_text().splitlines()]
    chosen: dict[tuple[str, int], list[int]] = {}
    for each in records:
        if "choices" in each:
            chosen.setdefault((each["method"], each["length"]), []).extend(each["choices"])
    told = {(c.first.method, c.second.method, c.length): c for c in found.same_choices}
    assert {names[:2] for names in told} == {
        (f"{method}, f32 cache", f"{method}, q8_0 cache") for method in ("none", "yarn")
    }
    for (first, second, length), own in told.items():
        one, two = chosen[first, length], chosen[second, length]
        assert own.share.value == pytest.approx(sum(map(int.__eq__, one, two)) / len(one))
        assert 0.8 < own.share.value <= 1.0
        assert own.documents == 2
    rw.report(run, out=run.parent / "report.html")
    assert "The same first choice" in (run.parent / "report.html").read_text()


def test_a_document_is_read_once_for_all_its_questions(by_flags: tuple[Evaluated, Path]) -> None:
    events = [json.loads(line) for line in (by_flags[1] / "events.jsonl").read_text().splitlines()]
    [used] = [each for each in events if each.get("event") == "used"]
    once = 2 * 2 * 2 * (512 + 2048)
    assert once - 200 < used["tokens"] < 1.05 * once


def test_conditions_go_on_to_the_same_bytes(
    plain: Path, by_flags: tuple[Evaluated, Path], tmp_path: Path
) -> None:
    run = Path(shutil.copytree(by_flags[1], tmp_path / "run"))
    lines = (run / RECORDS).read_bytes().splitlines(keepends=True)
    (run / RECORDS).write_bytes(b"".join(lines[: len(lines) // 2]))
    (run / "results.json").unlink()
    evaluated(plain, run, **FACTS, **METHODS, cache=["f32", "q8_0"])
    check_same_bytes(run, by_flags[1])
    for changes in ({"cache": ["f32"]}, {"threads": 2}):
        with pytest.raises(InputError, match="different configuration"):
            evaluated(plain, run, **FACTS, **METHODS, **{"cache": ["f32", "q8_0"], **changes})


def own_server(path: Path, tells: str = "version: 1234 (abcdef)") -> Path:
    """A `llama-server`: the same llama.cpp behind the same flags."""
    script = Path(rw.__file__).parent / "gguf" / "llama_cpp_server.py"
    run = f'[ -n "$LLAMA_API_KEY" ] && exit 3\nexec {sys.executable} -P {script} "$@"'
    path.write_text(f'#!/bin/sh\n[ "$1" = --version ] && {{ echo "{tells}"; exit; }}\n{run}\n')
    path.chmod(0o755)
    return path


def test_a_users_own_llama_server_answers_the_same(
    plain: Path, by_flags: tuple[Evaluated, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMA_API_KEY", "of another server, which would refuse us")
    server = own_server(tmp_path / "llama-server")
    yarn: dict[str, Any] = {
        "methods": ["yarn"],
        "to": 2048,
        "cache": ["f32"],
        "llama_server": server,
    }
    found = evaluated(plain, **FACTS, **yarn, gpu_layers=0, threads=1)
    assert readings(found).items() <= readings(by_flags[0]).items()
    assert found.device == "llama-server 1234 (abcdef), 1 threads"


def test_what_is_no_llama_server_is_refused(plain: Path, tmp_path: Path) -> None:
    other = own_server(tmp_path / "other", tells="GNU coreutils 9.1")
    text = tmp_path / "text"
    text.write_text("hello")
    for path, told in (
        (other, "is not a llama-server: `--version` prints 'GNU coreutils 9.1'"),
        (text, r"cannot be run \(Permission denied\)"),
        (tmp_path / "absent", r"cannot be run \(No such file or directory\)"),
    ):
        with pytest.raises(InvalidValue, match=told):
            evaluated(plain, llama_server=path)


def test_a_cache_that_the_model_cannot_have_is_refused_in_llama_cpps_words(tmp_path: Path) -> None:
    """Blocks of 32 numbers do not divide heads of 16."""
    path = deep(tmp_path / "a.gguf", "llama", 2)
    with pytest.raises(RopewalkError, match="type q4_0"):
        evaluated(path, lengths=[64], cache=["q4_0"])


def test_a_file_in_parts_is_run_from_its_first(
    plain: Path, by_flags: tuple[Evaluated, Path], tmp_path: Path
) -> None:
    parts = split(plain, tmp_path / "parts", 2)
    found = evaluated(parts[1], **FACTS, methods=["yarn"], to=2048, cache=["f32"])
    assert readings(found).items() <= readings(by_flags[0]).items()
    parts[0].unlink()
    with pytest.raises(InputError, match=parts[0].name):
        evaluated(parts[1], **FACTS)


def test_an_architecture_that_llama_cpp_does_not_know(tmp_path: Path) -> None:
    path = header_only(tmp_path / "new.gguf", architecture="nonsense")
    with pytest.raises(RopewalkError, match="unknown model architecture: 'nonsense'"):
        evaluated(path)
    with pytest.raises(Unsupported, match="yarn: architecture 'nonsense': it is not known"):
        evaluated(path, methods=["yarn"], to="1M")


def test_its_own_threshold_needs_no_other_file(plain: Path) -> None:
    shown = ropewalk("evaluate", plain, "--tasks", "kv,needle", "--samples", 2, "--lengths", 512)
    assert "(85% of unmodified" in shown
    assert "not measured" not in shown


def test_another_quantisation_is_compared_on_the_same_samples(
    whole: tuple[Evaluated, Path], tmp_path: Path
) -> None:
    path = made.gguf(tmp_path / "planned.gguf", dtype="Q8_0")
    with pytest.raises(InputError, match=r"different configuration: configuration\.weights_sha256"):
        evaluated(path, whole[1])
    found = evaluated(path, tmp_path / "run")
    assert found.dtype == "Q8_0"
    compared = rw.compare_runs(whole[1], tmp_path / "run")
    assert {c.task for c in compared.comparisons} >= set(TASKS)
    assert all(c.comparison.pairs == SAMPLES for c in compared.comparisons if c.task in TASKS)


def test_its_run_is_reported(whole: tuple[Evaluated, Path], tmp_path: Path) -> None:
    rw.report(whole[1], out=tmp_path / "report.html")
    assert "unmodified" in (tmp_path / "report.html").read_text()


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
    file: Path, whole: tuple[Evaluated, Path], tmp_path: Path
) -> None:
    """The server has another port by then, and the file may be in another folder."""
    run = Path(shutil.copytree(whole[1], tmp_path / "run"))
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
    assert "planned.gguf: llama.cpp stopped unexpectedly: no reason given, ended by SIGKILL" in said
    assert len(list(asked(run))) >= 3


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"methods": ["linear"], "to": "2k"}, "linear: planned.gguf holds the tensor rope_freqs"),
        ({"methods": ["dynamic_ntk"], "to": "2k"}, "does not change factors with the length"),
    ],
)
def test_what_no_flag_says_is_refused_up_front(
    changes: dict[str, Any], told: str, file: Path
) -> None:
    with pytest.raises(Unsupported, match=told):
        evaluated(file, **changes)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"lengths": [128, 2048]}, "lengths = 2048: .* has a context of 1,024 tokens"),
        ({"device": "cuda"}, "say how many layers a GPU takes"),
        ({"cache": ["q9_9"]}, "cache = 'q9_9': is not one of the choices; choose f16 or "),
        ({"threads": 0}, "threads = 0: must lie between 1 and"),
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


def test_shared_contexts_keep_more_of_layers_with_a_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = deep(tmp_path / "windows.gguf", "gemma3", 8, context_length=8192)
    header = read_header(path)
    room, needed = (cache_bytes(header, 8192, keeps_prompts=kept) for kept in (False, True))
    assert room is not None
    assert needed is not None
    assert needed > 2 * room
    monkeypatch.setattr(in_llama_cpp, "free_memory", lambda: room)
    with pytest.raises(InvalidValue, match=r"the cache of llama\.cpp takes"):
        evaluated(path, tasks=["kv"], lengths=[8192], mode="shared_context")
