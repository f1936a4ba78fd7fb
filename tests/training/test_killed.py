"""A training that was killed and went on ends with the bytes of one that was not.

Compared is the last checkpoint: weights, optimizer, random states, what was not logged yet, and the
log of losses, gradient norms and learning rates.
"""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest

from ropewalk.training import checkpoint
from tests.training import tiny
from tests.training.killed import STEPS, Training, ended

LAST = f"checkpoint-{STEPS}"


def kill_and_compare(store: Path, folder: Path, ranks: int, kills: int, each: int) -> None:
    whole = Training(store, folder / "whole", ranks)
    whole.finish()  # and once more, since the first start is slower
    took = Training(store, folder / "timed", ranks).finish()
    expected = tiny.content(folder / "timed" / LAST)
    assert tiny.content(whole.run / LAST) == expected
    assert len(expected) > 80
    generator, done, run = random.Random(ranks), 0, 0
    while done < kills:
        run += 1
        killed = Training(store, folder / f"run-{run}", ranks)
        for _ in range(min(each, kills - done)):
            done += killed.kill(generator.uniform(0, took), generator)
        killed.finish()
        assert tiny.content(killed.run / LAST) == expected
        names = sorted(path.name for path in killed.run.iterdir())
        assert names == [f"checkpoint-{STEPS - 1}", LAST]


def test_killed_once(store: Path, tmp_path: Path) -> None:
    kill_and_compare(store, tmp_path, ranks=1, kills=1, each=1)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
def test_killed_twenty_five_times(store: Path, tmp_path: Path, ranks: int) -> None:
    kill_and_compare(store, tmp_path, ranks, kills=25, each=2)


@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_sigterm_on_one_rank_saves_on_all_and_exits_with_143(
    store: Path, tmp_path: Path, ranks: int
) -> None:
    training = Training(store, tmp_path / "run", ranks)
    processes = training.start()
    until = time.monotonic() + 120
    while not checkpoint.checkpoints_in(training.run) and time.monotonic() < until:
        time.sleep(0.01)
    assert processes[-1].pid
    at = checkpoint.checkpoints_in(training.run)[-1].name
    processes[-1].terminate()
    assert ended(processes) == [128 + signal.SIGTERM] * ranks
    left = checkpoint.checkpoints_in(training.run)[-1].name
    assert int(left.removeprefix("checkpoint-")) > int(at.removeprefix("checkpoint-"))
    assert int(left.removeprefix("checkpoint-")) < STEPS
    training.finish()
