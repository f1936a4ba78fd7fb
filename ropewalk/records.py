"""What an evaluation leaves behind: scored samples, and the results they sum up to. No torch.

Length, depth and position are fields, never parts of a name, so that any cut through a set of
records is a filter. Records and results name their subject: the weights, the plan that they
followed, and the label that people read. The two modes are never averaged together:

    teacher_forced    the answer is fed to the model, and its first choice in each place is read
    generate          the model writes the answer itself, greedily

An answer is scored by up to three metrics:

    exact_match       the model's choices are the tokens of the answer, and then the answer ends
    prefix_match      the same, whatever comes then: "92633" begins "926333", so this overstates
    task_score        what the task itself makes of the written text (generate only)

Up to rounding, the first two are the same in both modes, since greedy writing makes the same
choices. A task accepts more than one wording, so exact_match is a lower bound of task_score.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

from ropewalk.errors import InvalidValue
from ropewalk.values import Value

Mode = Literal["teacher_forced", "generate"]
RATES = ("exact_match", "prefix_match", "task_score")
"""The metrics of answers: each is 0 or 1."""
MAIN = {"teacher_forced": "exact_match", "generate": "task_score"}
"""The one of them that tables, figures and comparisons show, by mode."""


class Subject(NamedTuple):
    """What was scored: two records speak of the same thing only where all three agree."""

    weights: str
    """The first 16 hex digits of the fingerprint of the model's weights."""
    plan_id: str
    method: str
    """The label of the plan."""


@dataclass(frozen=True, eq=False)
class EvalRecord(Value):
    """One scored sample by one metric."""

    method: str
    plan_id: str
    weights: str
    task: str
    mode: Mode
    metric: str
    """`exact_match`, `prefix_match` or `task_score` (0 or 1), `nll` (nats per token),
    `next_token_accuracy` (a share), or `perplexity` where documents' perplexities are averaged."""
    length: int
    """The context length: the budget that the sample was fitted to."""
    sample: str
    """The id of the sample: the same one under every method, so that methods can be paired."""
    layout: str
    """Samples of one layout are not independent: intervals are made over layouts."""
    score: float
    weight: int = 1
    """How many tokens the score is the mean of; 1 where the sample counts as a whole."""
    depth: float | None = None
    """Where the answer stood: 0 at the beginning, 1 at the end; None where nothing is hidden."""
    positions: tuple[int, int] | None = None
    """Only these positions of the window were scored; None where the task's own were."""
    answer: str | None = None
    """What the model wrote, in mode `generate`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not math.isfinite(self.score):
            raise InvalidValue(
                "score",
                self.score,
                f"{self.task} at {self.length} under {self.method} has no finite score",
                "the model's logits overflow there: check its dtype and its plan",
            )

    @property
    def subject(self) -> Subject:
        return Subject(self.weights, self.plan_id, self.method)

    @property
    def key(self) -> tuple[object, ...]:
        """What makes a record one and the same: it stands in a run at most once."""
        return (*self.subject, self.mode, self.metric, self.positions, self.sample)


def is_main(scored: EvalRecord | EvalResult) -> bool:
    """Whether it is shown where there is room for one score of an answer."""
    return scored.metric not in RATES or scored.metric == MAIN[scored.mode]


def is_compared(scored: EvalRecord) -> bool:
    """Whether methods are compared by it: each further test makes the others less sure.

    The difference of two next-token accuracies says less than that of the losses beside it.
    """
    return is_main(scored) and scored.metric != "next_token_accuracy"


@dataclass(frozen=True, eq=False)
class EvalResult(Value):
    """All samples of one subject, task, mode, length and metric, and the interval of their mean."""

    method: str
    plan_id: str
    weights: str
    task: str
    mode: Mode
    length: int
    metric: str
    """As in a record, with `perplexity` in place of `nll`."""
    value: float
    low: float | None
    """The 95% interval; None where too few samples leave none."""
    high: float | None
    samples: int

    @property
    def subject(self) -> Subject:
        return Subject(self.weights, self.plan_id, self.method)
