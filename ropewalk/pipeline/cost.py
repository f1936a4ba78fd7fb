"""The cost of a run of `extend`, and the settings that fit a budget.

Every answer follows from the forwards of the stages: tokens by adding up, seconds by the model's
own timing here, memory and seconds of another machine by the formulas of costs/memory_and_time.py.

A stage also draws samples, puts plans in and out, and draws figures. That is not modelled: the
upper end of the range allows half of the forwards' time for it, and benchmarks/cost_estimate.py
shows what it really takes.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from ropewalk.blocks import Block, Paragraph
from ropewalk.budget import Budget
from ropewalk.costs import memory_and_time
from ropewalk.costs.forwards import Forwards, Needs, tokens_in
from ropewalk.costs.memory_and_time import Way, Workload
from ropewalk.errors import InvalidValue
from ropewalk.evaluation.forward_time import Range, Timed
from ropewalk.evaluation.verdict import LOOKS, TO_WORK
from ropewalk.pipeline.settings import EVALUATIONS, ExtendSettings
from ropewalk.pipeline.stages import stages
from ropewalk.pipeline.stages.train import Train
from ropewalk.progress import Notice
from ropewalk.run_directory import CONFIGURATION, read_configuration
from ropewalk.values import Result, decode

if TYPE_CHECKING:
    from ropewalk.searching.model.readers import PlantedReader

_IMPORTS = "import torch, transformers; transformers.AutoModelForCausalLM"
FEWER_EVALUATIONS = (10, 5, 0)


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


def forwards_of(settings: ExtendSettings, window: int) -> list[Forwards]:
    """The most forwards of a run, of a model that serves `window` tokens now."""
    return [each for stage in stages(settings) for each in stage.needs(window).forwards]


def tokens_of(settings: ExtendSettings, window: int) -> int:
    """The most tokens that a run will read."""
    return tokens_in(forwards_of(settings, window))


@dataclass(frozen=True)
class TimedHere:
    """A model's forwards and the start of a process, as they were timed on this machine."""

    forwards: Timed
    process: float
    """Seconds until a fresh process has loaded transformers."""

    @classmethod
    def of(cls, reader: PlantedReader, target: int) -> Self:
        timed = Timed.of(reader.clock, reader.present_plan.target_length, target)
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", _IMPORTS], capture_output=True, check=False)
        return cls(timed, time.perf_counter() - began)

    def range(self, needs: Needs) -> Range:
        """From the least, if it ends as early as it can, to the most."""
        besides = self.process * needs.processes
        most = self.forwards.range(needs.forwards, besides)
        if needs.least is None:
            return most
        return most._replace(low=self.forwards.range(needs.least, besides).low)


def estimate(name: str, reader: PlantedReader, settings: ExtendSettings) -> Estimate:
    """Time the model, and say what each stage would take."""
    window, target = reader.present_plan.target_length, settings.target_length
    timed = TimedHere.of(reader, target)
    rows = []
    for each in stages(settings):
        needs = each.needs(window)
        low, middle, high = timed.range(needs)
        early = each.early if needs.least is not None else ""
        rows.append(
            StageCost(*(each.name, each.does, needs.tokens, needs.fewest, middle, low, high, early))
        )
    return Estimate(name, target, timed.forwards.at, tuple(rows))


def ways(
    settings: ExtendSettings, work: Workload, ranks: int, *, least: bool = False
) -> dict[str, Callable[[Workload], Iterator[Way]]]:
    """Each stage that runs the model on the devices of another machine, and how it does; the
    `least`, if it ends as early as it can."""
    by_stage: dict[str, Callable[[Workload], Iterator[Way]]] = {}
    for stage in stages(settings):
        needs = stage.needs(work.original)
        ends_early = least and needs.least is not None
        forwards = [e for e in (needs.least or () if ends_early else needs.forwards) if e.times]
        if isinstance(stage, Train) and not ends_early:
            windows = stage.steps * stage.settings.batch  # which refuses what no training takes
            name = f"{stage.name}, {stage.steps:,} steps"
            by_stage[name] = memory_and_time.training_alone(windows, settings.target_length)
        elif forwards and stage.over_ranks:
            name = f"{stage.name}, {sum(each.times for each in forwards):,} forwards"
            by_stage[name] = memory_and_time.searching(forwards, ranks)
    return by_stage


def within(
    budget: Budget, settings: ExtendSettings, reader: PlantedReader, run: Path, notice: Notice
) -> ExtendSettings:
    """The settings, with as much as a budget of tokens or of time has room for.

    One in time depends on the machine, so a run that has begun keeps its settings.
    """
    window = reader.present_plan.target_length
    most = replace(settings, evaluations=settings.evaluations or EVALUATIONS)
    if budget.unit == "tokens":
        result = fitted(most, budget, lambda candidate: tokens_of(candidate, window))
    elif (run / CONFIGURATION).is_file():
        _, kept = read_configuration(run)  # where it is of another command, that is said later
        if "documents" not in kept or "evaluations" not in kept:
            return settings
        return replace(
            settings,
            documents=decode(int, kept["documents"], "documents"),
            evaluations=decode(int | None, kept["evaluations"], "evaluations"),
        )
    else:
        timed = TimedHere.of(reader, settings.target_length)

        def seconds(candidate: ExtendSettings) -> float:
            needs = [each.needs(window) for each in stages(candidate)]
            processes = sum(each.processes for each in needs)
            return timed.range(Needs(tuple(forwards_of(candidate, window)), processes)).high

        result = fitted(most, budget, seconds)
        notice("these settings fit the time on this machine; on another, the plan may differ")
    searched = {None: "no race of methods", 0: "a race of methods if the first schedule fails"}
    notice(
        f"within {budget}: up to {result.documents} documents for a verdict, "
        f"{searched.get(result.evaluations, f'a search of {result.evaluations} evaluations')}; at "
        f"most {tokens_of(result, window):,} tokens"
    )
    return result


def fitted(
    settings: ExtendSettings, budget: Budget, cost: Callable[[ExtendSettings], float]
) -> ExtendSettings:
    """The largest of these settings that cost no more than the budget, in its unit.

    The search goes first, then documents of the verdict, then the race of the hand-designed
    methods. The settings, not the budget, are a run's identity: a run resumes under any budget that
    leads to the same.
    """
    for smaller in _smaller(settings):
        if cost(smaller) <= budget.amount:
            return smaller
    needed = budget._replace(amount=cost(smaller))
    raise InvalidValue(
        "budget",
        str(budget),
        "is too small for any decision",
        f"give {needed} or more, or a shorter target (`to`)",
    )


def _smaller(settings: ExtendSettings) -> Iterator[ExtendSettings]:
    """These settings, and smaller ones, in the order in which they are given up."""
    most = settings.evaluations or 0
    for evaluations in (most, *(n for n in FEWER_EVALUATIONS if n < most)):
        yield replace(settings, evaluations=evaluations)
    for race in (0, None):
        for documents in (n for n in reversed(LOOKS) if TO_WORK <= n <= settings.documents):
            yield replace(settings, evaluations=race, documents=documents)
