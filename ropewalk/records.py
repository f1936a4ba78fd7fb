"""What an evaluation leaves behind: scored samples, and the results they sum up to. No torch.

Length, depth and position are fields, never parts of a name, so that any cut through a set of
records is a filter. The two modes are never averaged together:

    teacher_forced    the answer is fed to the model; right when each token was its first choice
    generate          the model writes the answer itself, greedily
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal, get_args

from ropewalk.errors import InvalidValue
from ropewalk.untrusted import Fields, one_of, real_number

Mode = Literal["teacher_forced", "generate"]


@dataclass(frozen=True)
class EvalRecord:
    """One scored sample by one metric."""

    method: str
    plan_id: str
    task: str
    mode: Mode
    metric: str
    """`exact_match` (0 or 1), `nll` (nats a token), `next_token_accuracy` (a share), or
    `perplexity` where documents' perplexities are averaged."""
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
        one_of(self.mode, get_args(Mode), "mode")
        if not math.isfinite(self.score):
            raise InvalidValue(
                "score",
                self.score,
                f"{self.task} at {self.length} under {self.method} has no finite score",
                "the model's logits overflow there: check its dtype and its plan",
            )

    @property
    def key(self) -> tuple[object, ...]:
        """What makes a record one and the same: it stands in a run at most once."""
        return (self.plan_id, self.method, self.mode, self.metric, self.positions, self.sample)

    def to_json(self) -> dict[str, object]:
        value = asdict(self)
        value["positions"] = list(self.positions) if self.positions else None
        return value

    @classmethod
    def from_json(cls, value: Mapping[str, object], path: str) -> EvalRecord:
        fields = Fields(value, path)
        depth, positions, answer = (fields.take(key) for key in ("depth", "positions", "answer"))
        return fields.build(
            cls,
            method=fields.text("method"),
            plan_id=fields.text("plan_id"),
            task=fields.text("task"),
            mode=fields.text("mode"),
            metric=fields.text("metric"),
            length=fields.integer("length"),
            sample=fields.text("sample"),
            layout=fields.text("layout"),
            score=fields.number("score"),
            weight=fields.integer("weight"),
            depth=None if depth is None else real_number(depth, fields.of("depth")),
            positions=tuple(positions) if isinstance(positions, list) else None,
            answer=None if answer is None else str(answer),
        )


@dataclass(frozen=True)
class EvalResult:
    """All samples of one method, task, mode, length and metric, with the interval of their mean."""

    method: str
    plan_id: str
    task: str
    mode: Mode
    length: int
    metric: str
    """`exact_match`, `perplexity` or `next_token_accuracy`."""
    value: float
    low: float | None
    """The 95% interval; None where too few samples leave none."""
    high: float | None
    samples: int

    def to_json(self) -> dict[str, object]:
        return asdict(self)
