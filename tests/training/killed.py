"""A training that is killed and started again until it ends. See test_killed.py."""

from __future__ import annotations

import gc
import multiprocessing
import os
import random
import signal
import time
from collections.abc import Sequence
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import torch

from ropewalk.training import checkpoint
from ropewalk.training.execution import Division
from tests.training import sharded

STEPS = 6
PATIENCE = 240.0
"""Seconds within which processes end by themselves, on a busy machine."""


def train(rank: int, ranks: int, store: str, run: str, meeting: str) -> None:
    """Goes on where it was. Noise in the embeddings makes the random states count."""
    if ranks > 1:
        sharded.join(rank, ranks, Path(meeting))
    gc.freeze()
    torch.set_num_threads(1)
    trained = sharded.trainer(
        Path(store),
        Path(run),
        Division(ranks),
        STEPS,
        save_strategy="steps",
        save_steps=1,
        save_total_limit=2,
        logging_steps=4,
        neftune_noise_alpha=5,
    )
    trained.train(bool(checkpoint.checkpoints_in(Path(run))))


class Training:
    """On one process or several; each start is given up on, killed, or waited for."""

    def __init__(self, store: Path, run: Path, ranks: int) -> None:
        self.run, self._store, self._ranks = run, store, ranks
        self._starts = 0

    def start(self) -> list[ForkServerProcess]:
        multiprocessing.set_forkserver_preload(["tests.training.cases", __name__])
        context = multiprocessing.get_context("forkserver")
        self._starts += 1
        meeting = self.run.with_name(f"{self.run.name}-meeting-{self._starts}")
        processes = [
            context.Process(
                target=train,
                args=(rank, self._ranks, str(self._store), str(self.run), str(meeting)),
            )
            for rank in range(self._ranks)
        ]
        for process in processes:
            process.start()
        return processes

    def finish(self) -> float:
        """Seconds that it took."""
        begun = time.monotonic()
        codes = ended(self.start())
        assert codes == [0] * self._ranks, codes
        return time.monotonic() - begun

    def kill(self, after: float, generator: random.Random) -> bool:
        """One of the processes; the others must end by themselves. Whether it was still at work."""
        processes = self.start()
        time.sleep(after)
        victim = generator.choice(processes)
        at_work = victim.is_alive()
        victim.kill()
        ended(processes)
        return at_work


def ended(processes: Sequence[ForkServerProcess]) -> list[int | None]:
    """Their exit codes; none may be left waiting for another."""
    until = time.monotonic() + PATIENCE
    for process in processes:
        process.join(max(0.0, until - time.monotonic()))
    waiting = [process.pid for process in processes if process.is_alive()]
    for pid in waiting:
        assert pid
        os.kill(pid, signal.SIGKILL)
    assert not waiting, "a process waits for one that has left"
    return [process.exitcode for process in processes]
