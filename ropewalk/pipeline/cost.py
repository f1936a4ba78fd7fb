"""What a run will take: the model timed at two lengths, and its own arithmetic for all others.

A forward over n tokens multiplies each weight once a token and compares each pair of positions once
in every head. The first grows with n, the second with n². Two rates, seconds per multiplication of
either kind, follow from two lengths; timed several times after a warm-up, they give a range.
Comparing positions is never faster a multiplication than multiplying weights, so where the lengths
are too short to tell the second rate, the first stands for it.

A stage also draws samples, puts plans in and out, and draws figures. That is not modelled: the
upper end of the range allows half of the forwards' time for it, and benchmarks/cost_estimate.py
shows what it really takes.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ropewalk.evaluation.answering import TOKENS_PER_BATCH
from ropewalk.evaluation.scoring import Scorer
from ropewalk.models.load import LoadedModel
from ropewalk.pipeline.settings import ExtendSettings
from ropewalk.pipeline.stage import Cost
from ropewalk.pipeline.stages import stages
from ropewalk.values import Result

REPEATS = 5
BESIDES = 1.5
"""The upper end of a range, in parts of the slowest forwards."""
LONGEST_TIMED = 4096
"""A longer forward would take as long as what is estimated by it."""
_IMPORTS = "import torch, transformers; transformers.AutoModelForCausalLM"


class Range(NamedTuple):
    """The least, the middle and the most that several timings lead to."""

    low: float
    middle: float
    high: float

    def __str__(self) -> str:
        low, high = round(self.low), round(self.high)
        return f"{low} to {high} s" if high > low else f"{max(1, high)} s"


class StageCost(NamedTuple):
    stage: str
    does: str
    tokens: int
    """That the model will read, at most."""
    seconds: float
    seconds_low: float
    seconds_high: float

    @property
    def range(self) -> Range:
        return Range(self.seconds_low, self.seconds, self.seconds_high)


@dataclass(frozen=True, eq=False)
class Estimate(Result):
    """What `extend` would do, and what that would cost on this machine."""

    model: str
    target_length: int
    timed_at: tuple[int, int]
    """The two lengths at which a forward was timed."""
    stages: tuple[StageCost, ...]

    @property
    def total(self) -> Range:
        return Range(*(sum(each.range[i] for each in self.stages) for i in range(3)))

    def summary(self) -> str:
        tokens = sum(each.tokens for each in self.stages)
        return (
            f"{self.model}: {len(self.stages)} stages, {tokens:,} tokens to read at most, "
            f"{self.total} by forwards timed at {self.timed_at[0]:,} and "
            f"{self.timed_at[1]:,} tokens"
        )


class Rates(NamedTuple):
    """Seconds per multiplication, of weights and of positions, once for each repetition."""

    by_weight: tuple[float, ...]
    by_position: tuple[float, ...]


@dataclass(frozen=True)
class Arithmetic:
    """How many multiplications a forward takes."""

    weights: int
    """That every token is multiplied by: all but the table that tokens are looked up in."""
    attention: int
    """Layers times the width of all heads: what a pair of positions costs twice over."""

    @classmethod
    def of(cls, model: Any) -> Arithmetic:
        from ropewalk.models.anatomy import anatomy_of

        layers = len(anatomy_of(model).layers)
        config = model.config.get_text_config()
        heads = int(config.num_attention_heads)
        head = int(getattr(config, "head_dim", None) or config.hidden_size // heads)
        embedded = model.get_input_embeddings()
        tied = model.get_output_embeddings()
        weights = sum(p.numel() for p in model.parameters())
        if tied is None or tied.weight is not embedded.weight:
            weights -= embedded.weight.numel()
        return cls(weights, layers * heads * head)

    def by_weight(self, length: int) -> float:
        return float(self.weights) * length

    def by_position(self, length: int) -> float:
        return float(self.attention) * length**2  # scores and values, each for half of the pairs

    def seconds(self, length: int, rates: Rates) -> list[float]:
        """Of one forward, by each repetition."""
        return [
            weight * self.by_weight(length) + position * self.by_position(length)
            for weight, position in zip(*rates, strict=True)
        ]

    def fitted(self, timed: Sequence[tuple[int, Sequence[float]]]) -> Rates:
        """The rates that explain two lengths, for each repetition."""
        (short, first), (long, second) = timed
        table = np.array(
            [
                [self.by_weight(short), self.by_position(short)],
                [self.by_weight(long), self.by_position(long)],
            ]
        )
        by_weight, by_position = [], []
        for both in zip(first, second, strict=True):
            weight, position = np.linalg.solve(table, both)
            if position < weight:  # the lengths cannot tell: one rate for both
                weight = position = both[1] / table[1].sum()
            by_weight.append(float(weight))
            by_position.append(float(position))
        return Rates(tuple(by_weight), tuple(by_position))


def estimate(name: str, loaded: LoadedModel, settings: ExtendSettings) -> Estimate:
    """Time the model, and say what each stage would take."""
    arithmetic = Arithmetic.of(loaded.model)
    lengths = _timed_lengths(loaded.present_plan.target_length, settings.target_length)
    scorer = Scorer(loaded.model)
    rates = arithmetic.fitted([(length, _timed(scorer, length)) for length in lengths])
    to_do = stages(settings)
    costs = [each.cost() for each in to_do]
    start = _fresh_process() if any(cost.processes for cost in costs) else 0.0
    rows = []
    for each, cost in zip(to_do, costs, strict=True):
        spread = _seconds(cost, arithmetic, rates, start)
        rows.append(
            StageCost(each.name, each.does, cost.tokens, spread.middle, spread.low, spread.high)
        )
    return Estimate(name, settings.target_length, lengths, tuple(rows))


def _seconds(cost: Cost, arithmetic: Arithmetic, rates: Rates, start: float) -> Range:
    totals = np.full(len(rates.by_weight), start * cost.processes)
    for length, times in cost.forwards:
        totals += times * np.array(arithmetic.seconds(length, rates))
    return Range(float(totals.min()), float(np.median(totals)), BESIDES * float(totals.max()))


def _timed_lengths(window: int, target: int) -> tuple[int, int]:
    long = min(target, max(LONGEST_TIMED, 2 * min(window, LONGEST_TIMED)))
    return min(window, long // 2), long


def _timed(scorer: Scorer, length: int) -> list[float]:
    """Seconds for one sequence, in a batch as large as an evaluation's."""
    batch = max(1, TOKENS_PER_BATCH // length)
    tokens = [np.zeros(length, dtype=np.int64)] * batch
    starts = [length - 1] * batch
    scorer.score(tokens, starts)  # the first call of a shape is slow
    seconds = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        scorer.score(tokens, starts)
        seconds.append((time.perf_counter() - began) / batch)
    return seconds


def _fresh_process() -> float:
    """Seconds until a process of its own has loaded transformers."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", _IMPORTS], capture_output=True, check=False)
    return time.perf_counter() - began
