"""What `extend` is asked to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ropewalk.context_plan import ContextPlan
from ropewalk.data.corpora import Document
from ropewalk.errors import InvalidValue
from ropewalk.evaluation.select import SHORT_LIMIT
from ropewalk.evaluation.verdict import LOOKS
from ropewalk.lengths import check_measured, format_length
from ropewalk.untrusted import check_count, check_seed

TIMES = 8
"""How far a model is extended without a target."""
EVALUATIONS, SAMPLES = 24, 20
LEARNING_RATE, BATCH = 2e-5, 8
"""Of a training: AnchorAttention's (training/recipes/anchor.py)."""
SEARCH_SHARE = 0.55
"""Of the characters of the corpus; the rest is what the evaluation measures on."""


@dataclass(frozen=True)
class ExtendSettings:
    """A run of `extend`."""

    target_length: int
    evaluations: int
    """What the search may spend."""
    samples: int
    """For each task, length and method."""
    lengths: tuple[int, ...]
    """To evaluate at."""
    seed: int = 0
    train_steps: int = 0
    """0 for an extension without training."""
    learning_rate: float = LEARNING_RATE
    batch: int = BATCH
    looks: int = LOOKS
    """Of the verdict, at most."""
    short_limit: float = SHORT_LIMIT
    """Nats a token that the schedule may cost on short text, if another costs less."""

    def __post_init__(self) -> None:
        for key in ("evaluations", "samples", "batch"):
            check_count(getattr(self, key), key)
        if self.train_steps:
            check_count(self.train_steps, "train_steps")
        check_measured(self.target_length, "to")
        check_seed(self.seed)


def settings_for(
    present: ContextPlan,
    target_length: int,
    *,
    evaluations: int = EVALUATIONS,
    samples: int = SAMPLES,
    lengths: Sequence[int] = (),
    seed: int = 0,
    train_steps: int = 0,
    learning_rate: float = LEARNING_RATE,
    batch: int = BATCH,
    short_limit: float = SHORT_LIMIT,
) -> ExtendSettings:
    """Settings for a model; it is evaluated at its window, the doublings of that, and the target,
    where no lengths are given."""
    window = present.target_length
    if target_length <= window:
        raise InvalidValue(
            "to",
            target_length,
            f"must be above {window}, the length that the model already serves",
            f"give a target above {format_length(window)}",
        )
    if not lengths:
        doublings = []
        while window < target_length:
            doublings.append(window)
            window *= 2
        lengths = doublings
    at = tuple(sorted({*lengths, target_length}))
    if at[-1] > target_length:
        raise InvalidValue(
            "lengths",
            at[-1],
            f"the model is extended to {target_length} tokens",
            "extend further (`to`), or give shorter lengths",
        )
    return ExtendSettings(
        target_length,
        evaluations,
        samples,
        at,
        seed,
        train_steps,
        learning_rate,
        batch,
        short_limit=short_limit,
    )


def parted(documents: Sequence[Document]) -> tuple[list[Document], list[Document]]:
    """The corpus in two, for the search and for the evaluation; the cut may go through a text.

    Of equal texts only the first is kept: a second could stand on the other side.
    """
    documents = list({document.text: document for document in reversed(documents)}.values())[::-1]
    left = int(SEARCH_SHARE * sum(len(document.text) for document in documents))
    first, second = [], []
    for document in documents:
        if left >= len(document.text):
            first.append(document)
        elif left > 0:
            cut = document.text.rfind("\n", 0, left) + 1 or left
            name = document.name
            first.append(Document(f"{name} to {cut}", document.text[:cut]))
            second.append(Document(f"{name} from {cut}", document.text[cut:]))
        else:
            second.append(document)
        left -= len(document.text)
    return first, second
