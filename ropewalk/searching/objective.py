"""The objective of a search: the losses of schedules on documents.

A schedule's score is the mean of its losses over all documents, so that a strategy may look at a
few documents first and stop there. Losses of different schedules on one document are paired: they
are computed from the same tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol, get_args

from ropewalk.schedule import FloatArray, RotarySchedule

Kind = Literal["mixed", "perplexity", "needle"]
"""The tokens whose losses count."""
KINDS: tuple[str, ...] = get_args(Kind)
Own = Callable[[float, float, float], float]
"""An objective of a user's: from nats a token of the text, nats a token of the answers and the
share of answers that were matched exactly, of one document, to its loss; lower is better."""


class Objective(Protocol):
    """Losses by schedule and document, lower is better."""

    @property
    def documents(self) -> int:
        """The number of documents a whole score is the mean of."""
        ...

    @property
    def tokens_per_document(self) -> int:
        """The cost of one document, in tokens."""
        ...

    def losses(self, schedules: Sequence[RotarySchedule], documents: Sequence[int]) -> FloatArray:
        """[schedules, documents]; a row that is not finite is a schedule that failed."""
        ...
