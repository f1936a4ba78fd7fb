"""The settings of `extend`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ropewalk.context_plan import ContextPlan
from ropewalk.data.corpora import Document
from ropewalk.errors import InvalidValue
from ropewalk.evaluation.select import SHORT_LIMIT
from ropewalk.evaluation.statistics import FEWEST
from ropewalk.evaluation.verdict import LOOKS
from ropewalk.lengths import check_measured, format_length
from ropewalk.untrusted import check_count, check_seed

TIMES = 4
"""The multiple of a model's length that is the target by default."""
SHIPPED_UP_TO = 4096
"""The longest target for which the text that ships holds enough documents."""
CHARACTERS = 5
"""A token of code or prose has fewer characters than these."""
EVALUATIONS = 20
"""The budget of a search."""
LEARNING_RATE, BATCH = 2e-5, 8
"""AnchorAttention's (training/recipes/anchor.json), for every size: at higher rates, small models
forgot pass keys (benchmarks/README.md)."""
SEARCH_SHARE = 0.3
"""The share of the corpus, in characters, for a race or a search; the verdict reads the rest."""


@dataclass(frozen=True)
class ExtendSettings:
    """A run of `extend`."""

    target_length: int
    documents: int = LOOKS[-1]
    """The most documents of the target that a verdict reads."""
    evaluations: int | None = 0
    """The budget of a search; 0 for a race of the hand-designed methods if the first schedule
    fails, None for neither."""
    seed: int = 0
    train_steps: int = 0
    """0 for an extension without training."""
    learning_rate: float = LEARNING_RATE
    batch: int = BATCH
    short_limit: float = SHORT_LIMIT
    """Nats a token that the schedule may cost on short text, if another costs less."""

    def __post_init__(self) -> None:
        for key in ("documents", "batch"):
            check_count(getattr(self, key), key, usual=8 if key == "batch" else LOOKS[-1])
        if self.documents < FEWEST:
            raise InvalidValue(
                "budget",
                self.documents,
                f"is too small for any decision: {FEWEST} documents are the least",
                f"give {FEWEST} or more",
            )
        if self.train_steps:
            check_count(self.train_steps, "train_steps")
        check_measured(self.target_length, "to")
        check_seed(self.seed)


def settings_for(
    present: ContextPlan, target_length: int, *, search: bool = False, **options: Any
) -> ExtendSettings:
    """Settings for a model; a search has its usual budget."""
    window = present.target_length
    if target_length <= window:
        raise InvalidValue(
            "to",
            target_length,
            f"must be above {window}, the length that the model already serves",
            f"give a target above {format_length(window)}",
        )
    return ExtendSettings(target_length, evaluations=EVALUATIONS if search else 0, **options)


def parted(documents: Sequence[Document]) -> tuple[list[Document], list[Document]]:
    """The corpus in two, for the race or search and for the verdict; the cut may go through a text.

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
