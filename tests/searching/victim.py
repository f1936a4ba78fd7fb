"""A search that dies when told to: `python -m tests.searching.victim JOURNAL STRATEGY WHERE N`.

It is killed by SIGKILL as it scores its Nth candidate (`scoring`), or with N bytes of a line of the
journal written (`writing`). Left alive, it prints what it found.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import warnings
from collections.abc import Sequence

from ropewalk.run_directory import Journal
from ropewalk.schedule import FloatArray, RotarySchedule
from ropewalk.searching.driver import search
from tests.searching.problems import EVERY_STRATEGY, Bowl, ramp, small_space

EVALUATIONS = 40


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Mortal(Bowl):
    """A bowl that is the last thing its process sees."""

    left = 0

    def losses(self, schedules: Sequence[RotarySchedule], documents: Sequence[int]) -> FloatArray:
        self.left -= 1
        if self.left == 0:
            die()
        return super().losses(schedules, documents)


def die_writing(after: int) -> None:
    """Make the process die once so many bytes are written, in the middle of a write if need be."""
    write = os.pwrite
    left = after

    def dying(descriptor: int, data: bytes, offset: int) -> int:
        nonlocal left
        if len(data) > left:
            write(descriptor, data[:left], offset)
            die()
        left -= len(data)
        return write(descriptor, data, offset)

    os.pwrite = dying  # type: ignore[assignment]


def main(journal: str, strategy: str, where: str = "", at: str = "0") -> None:
    warnings.simplefilter("ignore")  # of the torn line
    space = small_space()
    bowl = Mortal(space, ramp(space))
    if where == "writing":
        die_writing(int(at))
    elif where == "scoring":
        bowl.left = int(at)
    found = search(
        space,
        bowl,
        EVERY_STRATEGY[strategy],
        seed=11,
        evaluations=EVALUATIONS,
        journal=Journal(journal),
        at_once=2,
    )
    best, score = found.finalists[0]
    print(json.dumps([best.to_json(), score, found.history, found.tokens]))


if __name__ == "__main__":
    main(*sys.argv[1:])
