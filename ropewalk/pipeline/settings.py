"""The settings of `extend`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
STEPS = 200
"""The steps of a training that is chosen here: those of its study (docs/training.md)."""
SMALL, TOKENS_A_STEP = 1_000_000, 4096
"""Models of fewer parameters are trained as in that study."""
LEARNING_RATE, BATCH = 2e-5, 8
"""The settings of larger ones: AnchorAttention's (training/recipes/anchor.json)."""
AUTO = "auto"
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
    train_if_needed: bool = False
    """Train only if the schedule alone does not work at the target."""

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
    present: ContextPlan,
    target_length: int,
    *,
    documents: int = LOOKS[-1],
    search: bool = False,
    seed: int = 0,
    train_steps: int | str = 0,
    short_limit: float = SHORT_LIMIT,
) -> ExtendSettings:
    """Settings for a model."""
    window = present.target_length
    if isinstance(train_steps, str) and train_steps != AUTO:
        if not train_steps.isdecimal():
            raise InvalidValue(
                "train_steps",
                train_steps,
                f"must be a number of steps, or {AUTO!r}",
                f"write {STEPS}",
            )
        train_steps = int(train_steps)
    if target_length <= window:
        raise InvalidValue(
            "to",
            target_length,
            f"must be above {window}, the length that the model already serves",
            f"give a target above {format_length(window)}",
        )
    return ExtendSettings(
        target_length,
        documents,
        EVALUATIONS if search else 0,
        seed,
        STEPS if isinstance(train_steps, str) else train_steps,
        short_limit=short_limit,
        train_if_needed=train_steps == AUTO,
    )


def recipe(parameters: int, target_length: int) -> tuple[float, int]:
    """The learning rate of a training, and the windows of a step, each as long as the target."""
    if parameters < SMALL:
        return 3e-4, max(1, TOKENS_A_STEP // target_length)
    return LEARNING_RATE, BATCH


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
