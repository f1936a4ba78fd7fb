"""The records of an evaluation: scored samples, and the results they sum up to. No torch.

Length, depth and position are fields, never parts of a name, so that any cut through a set of
records is a filter. Records and results name their subject: the weights, the plan that they
followed, and the label that people read. The modes are never averaged together:

    teacher_forced    the answer is fed to the model, and its first choice in each place is read
    generate          the model writes the answer itself, greedily
    shared_context    the same, with several questions on one context, which is read once

An answer is scored by up to three metrics, each from 0 to 1. Of an answer with several values each
gives the share of the values that are right:

    exact_match       the model's choices are the tokens of the value, and then the value ends
    prefix_match      the same, whatever comes then: "92633" begins "926333", so this overstates
    task_score, …     what the task itself makes of the written text (not when forced), under the
                      name that the task declares

Up to rounding, the first two are the same forced and written for an answer of one value, since
greedy writing makes the same choices. A task accepts more than one wording, so exact_match is a
lower bound of its score there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self, get_args

from ropewalk.errors import InputError, InvalidValue
from ropewalk.interval import Interval
from ropewalk.values import Value

Mode = Literal["teacher_forced", "generate", "shared_context"]
MODES: tuple[Mode, ...] = get_args(Mode)
WRITTEN: tuple[Mode, ...] = ("generate", "shared_context")
"""The modes in which the model writes its answers."""


AS_IT_IS = "none"
"""The method of an unmodified model."""
AS_SERVED = "as served"
"""The same for a file or server, which is measured as it is; other methods end with it."""
FACTS = "facts"
"""The task that is scored by its answers and by their loss (evaluation/facts.py)."""
UNKNOWN = "unknown"
"""The plan's id of a server that does not say what it follows."""


class Metric(NamedTuple):
    """The way in which the scores of one name are averaged, compared and shown."""

    name: str
    label: str
    is_answer: bool = False
    """Scores one answer, from 0 to 1; the others are means over tokens."""
    shown_in: tuple[Mode, ...] = MODES
    """The modes in which tables and pictures show it."""
    compared: bool = True
    """True if methods are compared by it: each further test makes the others less sure."""


EXACT_MATCH = Metric("exact_match", "answered exactly", True, ("teacher_forced",))
PREFIX_MATCH = Metric("prefix_match", "begun exactly", True, ())
TASK_SCORE = Metric("task_score", "answered right", True, WRITTEN)
MEAN_SCORE = Metric("mean_score", "mean of the tasks", True)
NLL = Metric("nll", "loss")
PERPLEXITY = Metric("perplexity", "perplexity")
# The difference of two accuracies says less than that of the losses next to it.
NEXT_TOKEN_ACCURACY = Metric("next_token_accuracy", "next token right", compared=False)

_METRICS = {
    metric.name: metric
    for metric in (
        *(EXACT_MATCH, PREFIX_MATCH, TASK_SCORE, MEAN_SCORE),
        *(NLL, PERPLEXITY, NEXT_TOKEN_ACCURACY),
    )
}


def metric_of(scored: EvalRecord | EvalResult) -> Metric:
    """The metric of a record or result; a name that is none of the above is a task's own."""
    name = scored.metric
    default = TASK_SCORE._replace(name=name, label=name.replace("_", " "))
    return _METRICS.get(name, default)


class Subject(NamedTuple):
    """The subject of a score: two records speak of the same thing only if all three agree."""

    weights: str
    """The first 16 hex digits of the fingerprint of the model's weights."""
    plan_id: str
    method: str
    """The label of the plan."""


@dataclass(frozen=True, eq=False)
class OfSubject(Value):
    """A score, or what follows from scores, of one subject."""

    method: str
    plan_id: str
    weights: str

    @classmethod
    def of(cls, subject: Subject, *others: Any) -> Self:
        """With the other fields in their order."""
        return cls(subject.method, subject.plan_id, subject.weights, *others)

    @property
    def subject(self) -> Subject:
        return Subject(self.weights, self.plan_id, self.method)


@dataclass(frozen=True, eq=False)
class EvalRecord(OfSubject):
    """One scored sample by one metric."""

    _optional = ("prompt", "server", "choices")  # which only a chat, a server or a reading has

    task: str
    mode: Mode
    metric: str
    """`exact_match`, `prefix_match` or the task's own (from 0 to 1), `nll` (nats per token),
    `next_token_accuracy` (a share), or `perplexity` if documents' perplexities are averaged."""
    length: int
    """The context length: the budget that the sample was fitted to."""
    sample: str
    """The id of the sample: the same one under every method, so that methods can be paired."""
    layout: str
    """Samples of one layout are not independent: intervals are made over layouts."""
    score: float
    weight: int = 1
    """The number of tokens the score is the mean of; 1 if the sample counts as a whole."""
    depth: float | None = None
    """The depth of the answer: 0 at the beginning, 1 at the end; None if nothing is hidden."""
    positions: tuple[int, int] | None = None
    """Only these positions of the window were scored; None if the task's own were."""
    answer: str | None = None
    """The text that the model wrote, in the modes in which it writes."""
    prompt: str | None = None
    """A SHA-256 of the tokens of a prompt that a chat template put; None if it was text."""
    server: str | None = None
    """The server that ran the model, with what it says of itself; None if it ran in process."""
    choices: tuple[int, ...] | None = None
    """The first choice in the place of each token of the answers, of a document of facts."""

    def __post_init__(self) -> None:
        super().__post_init__()
        is_answer = metric_of(self).is_answer
        if not is_answer and not math.isfinite(self.score):
            raise InvalidValue(
                "score",
                self.score,
                f"{self.task} at {self.length} under {self.method} has no finite score",
                "the model's logits overflow there: check its dtype and its plan",
            )
        if is_answer and not 0 <= self.score <= 1:
            raise InvalidValue(
                "score",
                self.score,
                f"{self.metric} must be from 0 to 1",
                f"check `score` of the task {self.task}",
            )

    @classmethod
    def of_lines(cls, lines: Iterable[object], path: str) -> list[EvalRecord]:
        """The records of a journal; each must stand there once."""
        records: list[EvalRecord] = []
        first_lines: dict[object, str] = {}
        for i, line in enumerate(lines, start=1):
            record = cls.from_json(line, f"{path}: record {i}")
            if (before := first_lines.setdefault(record.key, f"line {i}")) != f"line {i}":
                raise InputError(
                    f"{path}: line {i} scores sample {record.sample} by {record.metric} under "
                    f"{record.method}, as {before} does, and would count twice; remove one of "
                    "them, or restore the file"
                )
            records.append(record)
        return records

    @property
    def key(self) -> tuple[object, ...]:
        """The identity of a record, which occurs in a run at most once."""
        return (*self.subject, self.mode, self.metric, self.positions, self.sample)


def is_main(scored: EvalRecord | EvalResult) -> bool:
    """True if it is shown when there is room for one score of an answer."""
    return scored.mode in metric_of(scored).shown_in


def is_main_answer(scored: EvalRecord | EvalResult) -> bool:
    """True if it is the score of an answer that is shown."""
    return metric_of(scored).is_answer and is_main(scored)


def is_compared(scored: EvalRecord) -> bool:
    """True if methods are compared by it."""
    return is_main(scored) and metric_of(scored).compared


def named_task(task: str, metric: str) -> str:
    """A task where scores by several metrics stand side by side."""
    if metric == NLL.name:
        return f"{task} (loss)"
    return f"{task} (perplexity)" if (task, metric) == (FACTS, PERPLEXITY.name) else task


@dataclass(frozen=True, eq=False)
class EvalResult(OfSubject):
    """All samples of one subject, task, mode, length and metric, and the interval of their mean."""

    task: str
    mode: Mode
    length: int
    metric: str
    """The metric as in a record, with `perplexity` in place of `nll`."""
    estimate: Interval
    samples: int

    @property
    def value(self) -> float:
        return self.estimate.value
