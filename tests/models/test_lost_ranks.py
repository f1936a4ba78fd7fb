"""Ranks that were killed or stopped are named by those that wait for them, in real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ropewalk.models.ranks import SILENT
from ropewalk.run_directory import read_journal
from ropewalk.training.journal import JOURNAL
from tests.forks import Forks
from tests.searching.model.test_ranks import processes

PROGRAM = """
import os, sys, time
import torch
import torch.distributed as dist
import torch.distributed.tensor  # an import may hold up all threads for seconds
from pathlib import Path
from ropewalk.models.ranks import StoreRanks

out, waits_in, silent = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
with StoreRanks.of_environment(2 if waits_in == "a collective" else 1, silent) as ranks:
    if waits_in == "a collective":
        ranks.meet(torch.device("cpu"))
    for turn in range(10**6):
        if turn == 3:
            (out / f"{ranks.rank}").write_text("")
        if waits_in == "a collective":
            dist.all_reduce(torch.ones(1))
        else:
            ranks.put(f"{ranks.rank}/{turn}", "")
            ranks.awaited(f"{1 - ranks.rank}/{turn}")
        time.sleep(0.01)
"""
KILLED, STOPPED = "has ended without a word, as if it had been killed", "has been silent for"


@pytest.mark.parametrize(
    ("sent", "to", "waits_in", "told"),
    [
        (signal.SIGKILL, 1, "a collective", KILLED),
        (signal.SIGKILL, 0, "a collective", KILLED),
        (signal.SIGKILL, 1, "the store", KILLED),
        (signal.SIGSTOP, 1, "a collective", STOPPED),
        pytest.param(signal.SIGSTOP, 0, "a collective", STOPPED, marks=pytest.mark.slow),
        pytest.param(signal.SIGSTOP, 1, "the store", STOPPED, marks=pytest.mark.slow),
        (signal.SIGSTOP, 0, "the store", STOPPED),
    ],
)
def test_a_rank_that_says_nothing_is_named(
    sent: signal.Signals, to: int, waits_in: str, told: str, tmp_path: Path, fresh: Forks
) -> None:
    """Rank 0 holds the store that they meet in."""
    silent = SILENT if sent == signal.SIGKILL else 15.0
    ranks = processes(fresh, PROGRAM, [str(tmp_path), waits_in, str(silent)], 2)
    while not all((tmp_path / str(rank)).exists() for rank in (0, 1)):
        assert all(rank.poll() is None for rank in ranks), [rank.wait().stderr for rank in ranks]
        time.sleep(0.02)
    time.sleep(1)  # a beat is known
    os.kill(ranks[to].pid, sent)
    began = time.monotonic()
    ended = ranks[1 - to].wait()
    took = time.monotonic() - began
    os.kill(ranks[to].pid, signal.SIGKILL)
    ranks[to].wait()
    assert ended.returncode == 1, ended.stderr
    assert f"rank {to} {told}" in ended.stderr
    assert "run the same command again" in ended.stderr
    assert took < 40


def test_ranks_that_leave_at_different_times_are_not_missed(tmp_path: Path, fresh: Forks) -> None:
    program = """
import sys, time
from ropewalk.models.ranks import StoreRanks
with StoreRanks.of_environment(1, 0.5) as ranks:
    ranks.broadcast("begun")
    if ranks.rank == 0:
        time.sleep(3)
"""
    for rank in processes(fresh, program, [], 2):
        ended = rank.wait()
        assert ended.returncode == 0, ended.stderr


def test_a_rank_that_holds_up_its_threads_is_not_missed(tmp_path: Path, fresh: Forks) -> None:
    """As an import may on a busy machine."""
    program = """
import ctypes, time
from ropewalk.models.ranks import StoreRanks
with StoreRanks.of_environment(1, 1.0) as ranks:
    ranks.broadcast("begun")
    time.sleep(0.5)  # a beat is known
    if ranks.rank == 1:
        ctypes.PyDLL(None).sleep(4)  # which keeps the lock of the interpreter
        ranks.put("done", "")
    ranks.awaited("done")
"""
    for rank in processes(fresh, program, [], 2):
        ended = rank.wait()
        assert ended.returncode == 0, ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGSTOP])
def test_a_training_ends_by_name(sent: signal.Signals, tmp_path: Path) -> None:
    """Under the real torchrun, which itself takes half a minute to end a stopped rank."""
    (tmp_path / "text.txt").write_text("A long text, about nothing much. " * 4000)
    run = tmp_path / "run"
    words = ["train", "bundled", "--to", "2k", "--method", "yarn", "--run", run, "--device", "cpu"]
    words += ["--corpus", tmp_path / "text.txt", "--steps", 400, "--batch", 2]
    start = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "--"]
    with subprocess.Popen(
        [*start, "ropewalk", *map(str, words)],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    ) as process:
        while not (run / JOURNAL).exists() or len(read_journal(run / JOURNAL)) < 3:
            assert process.poll() is None
            time.sleep(0.05)
        listed = subprocess.run(
            ["ps", "--ppid", str(process.pid), "-o", "pid="], capture_output=True, text=True
        )
        os.kill(int(listed.stdout.split()[1]), sent)
        began = time.monotonic()
        _, errors = process.communicate(timeout=180)
    assert time.monotonic() - began < 120
    # torchrun may end this rank first: then it was terminated, and still names the other.
    lost = f"rank 1 {KILLED if sent == signal.SIGKILL else STOPPED}"
    assert f"error: {lost}" in errors or f"terminated; {lost}" in errors
    assert "please report" not in errors
