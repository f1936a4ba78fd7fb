"""The cost of a run of `extend`: its stages' forwards, by the model's own timing.

A stage also draws samples, puts plans in and out, and draws figures. That is not modelled: the
upper end of the range allows half of the forwards' time for it, and benchmarks/cost_estimate.py
shows what it really takes.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ropewalk.blocks import Block, Paragraph
from ropewalk.evaluation.forward_time import Range, Timed
from ropewalk.models.load import LoadedModel
from ropewalk.pipeline.settings import ExtendSettings
from ropewalk.pipeline.stages import stages
from ropewalk.values import Result

_IMPORTS = "import torch, transformers; transformers.AutoModelForCausalLM"


class StageCost(NamedTuple):
    stage: str
    does: str
    tokens: int
    """The most tokens that the model will read."""
    least: int
    """The fewest: a verdict may come early, and what it makes needless is not done."""
    seconds: float
    seconds_low: float
    """The least, if it ends as early as it can."""
    seconds_high: float
    early: str = ""
    """Why it may take less than the most; empty if it reads all of its tokens."""

    @property
    def range(self) -> Range:
        return Range(self.seconds_low, self.seconds, self.seconds_high)


@dataclass(frozen=True, eq=False)
class Estimate(Result):
    """The stages of `extend`, and their cost on this machine."""

    rows_in = "stages"

    model: str
    target_length: int
    timed_at: tuple[int, int]
    """The two lengths at which a forward was timed."""
    stages: tuple[StageCost, ...]

    @property
    def total(self) -> Range:
        return Range(*(sum(each.range[i] for each in self.stages) for i in range(3)))

    def summary(self) -> str:
        least = sum(each.least for each in self.stages)
        most = sum(each.tokens for each in self.stages)
        return (
            f"{self.model}: {len(self.stages)} stages, {least:,} to {most:,} tokens to read, "
            f"{self.total} by forwards timed at {self.timed_at[0]:,} and "
            f"{self.timed_at[1]:,} tokens"
        )

    def blocks(self) -> Iterator[Block]:
        for row in self.stages:
            least = f"{row.least:,} to " if row.early else ""
            tokens = f"{least}{row.tokens:,} tokens, " if row.tokens else ""
            cost = f"{tokens}{row.range}" if row.seconds_high else "quick"
            cost += f": {row.early}" if row.early and row.tokens else ""
            yield Paragraph(f"{row.stage:>9}  {row.does} ({cost})")
        yield Paragraph(
            f"{self.total} in all, the least if each stage ends as early as it can, by forwards "
            f"timed at {self.timed_at[0]:,} and {self.timed_at[1]:,} tokens on this machine"
        )


def estimate(name: str, loaded: LoadedModel, settings: ExtendSettings) -> Estimate:
    """Time the model, and say what each stage would take."""
    window, target = loaded.present_plan.target_length, settings.target_length
    timed = Timed.of(loaded.model, window, target)
    to_do = stages(settings)
    costs = [each.cost(window) for each in to_do]
    start = _fresh_process() if any(cost.processes for cost in costs) else 0.0
    rows = []
    for each, cost in zip(to_do, costs, strict=True):
        besides = start * cost.processes
        spread = timed.range(cost.forwards, besides)
        low, early = spread.low, ""
        if cost.least is not None:
            low, early = timed.range(cost.least, besides).low, each.early
        rows.append(
            StageCost(
                *(each.name, each.does, cost.tokens, cost.fewest),
                *(spread.middle, low, spread.high, early),
            )
        )
    return Estimate(name, target, timed.at, tuple(rows))


def tokens_of(settings: ExtendSettings, window: int) -> int:
    """The most tokens that a run will read."""
    return sum(each.cost(window).tokens for each in stages(settings))


def seconds_of(loaded: LoadedModel, target: int) -> Callable[[ExtendSettings], float]:
    """The most seconds that runs will take, by the model's own timing, which is done once."""
    window = loaded.present_plan.target_length
    timed = Timed.of(loaded.model, window, target)
    start = _fresh_process()

    def seconds(settings: ExtendSettings) -> float:
        costs = [each.cost(window) for each in stages(settings)]
        forwards = [each for cost in costs for each in cost.forwards]
        return timed.range(forwards, start * sum(cost.processes for cost in costs)).high

    return seconds


def _fresh_process() -> float:
    """Seconds until a process of its own has loaded transformers."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", _IMPORTS], capture_output=True, check=False)
    return time.perf_counter() - began
