"""A model in process that several ranks hold, or several copies of it that share the samples.

Every rank runs the same evaluation. Batches go around among the copies; the ranks of one copy read
a batch in step. Rank 0 gets the answers of the other copies through the store, in the order of the
batches, and it alone keeps records: the others go on with blanks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import numpy as np

from ropewalk.evaluation.answering import Answer, Batches, TokenScores
from ropewalk.evaluation.encoding import IntArray
from ropewalk.evaluation.in_process import InProcess
from ropewalk.evaluation.tasks import Task
from ropewalk.records import Mode
from ropewalk.torchrun import Ranks


class OverRanks(InProcess):
    """This rank's part in answering."""

    def __init__(self, ranks: Ranks, *model: Any) -> None:
        """`model`: the arguments of an answerer without ranks."""
        super().__init__(*model)
        self.ranks = ranks
        self._turns = count()

    def answers(self, task: Task, mode: Mode, batches: Batches) -> Iterator[Sequence[Answer]]:
        for batch in batches:
            turn = next(self._turns)
            answers: Sequence[Answer] = [
                Answer(None if mode == "teacher_forced" else "", sample.answer) for sample in batch
            ]
            if self._is_of_this_copy(turn):
                [answers] = super().answers(task, mode, [batch])
                self._send(turn, [[each.text, _listed(each.tokens)] for each in answers])
            elif self.ranks.rank == 0:
                received = self.ranks.received(f"answers/{turn}")
                answers = [Answer(text, np.array(tokens, np.int64)) for text, tokens in received]
            yield answers

    def losses(self, sequences: Sequence[IntArray], starts: Sequence[int]) -> Sequence[TokenScores]:
        turn = next(self._turns)
        if self._is_of_this_copy(turn):
            scores = super().losses(sequences, starts)
            self._send(turn, [[each.losses.tolist(), _listed(each.chosen)] for each in scores])
            return scores
        if self.ranks.rank == 0:
            received = self.ranks.received(f"answers/{turn}")
            return [TokenScores(np.array(a), np.array(b, np.int64)) for a, b in received]
        sizes = [len(row) - start for row, start in zip(sequences, starts, strict=True)]
        return [TokenScores(np.zeros(size), np.zeros(size, np.int64)) for size in sizes]

    def _is_of_this_copy(self, turn: int) -> bool:
        return turn % self.ranks.copies == self.ranks.copy

    def _send(self, turn: int, values: object) -> None:
        """Send rank 0 what it has not computed itself."""
        if self.ranks.copy > 0:
            self.ranks.send(f"answers/{turn}", values)


def _listed(tokens: IntArray | None) -> list[int]:
    listed: list[int] = [] if tokens is None else tokens.tolist()
    return listed
