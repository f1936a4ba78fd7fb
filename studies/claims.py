"""The common parts of the studies of papers' claims: kept cells, and the rule of their verdicts.

A study lists its cells and its claims. A cell is a model under a plan of `rw.plan`, evaluated by
`rw.evaluate`, or a study measures it in its own way; a finished one is a line of the study's
cells.jsonl and is not run again.
"""

from __future__ import annotations

import argparse
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import torch

import ropewalk as rw
from benchmarks.machine import machine, measured_on
from benchmarks.text import read_text
from docs.figures import Picture
from ropewalk.context_plan import ContextPlan
from ropewalk.evaluation.conclusion import Evaluated
from ropewalk.models.load import load
from studies.power import Effect, Power
from studies.ranking.cells import sampled_fingerprint
from studies.training.cells import SUBJECTS, TASKS, kept, run_missing
from studies.training.measure import RETRIEVES, Difference

MODELS = ("tall", "wide", "narrow", "high base", "bundled", "low base", "tall 2", "wide 3")
"""One model of a size before a second one."""
FEWEST = 4
"""Models without which nothing is seen or contradicted; an interval needs five sizes besides."""
SAMPLES = 24
TEXT, REPEATED = "perplexity", "repetition"
UNITS = {
    "next_token_accuracy": "share of tokens",
    "nats": "nats per token",
    "exact_match": "share of answers",
}
Verdict = Literal["seen", "not seen", "contradicted", "undecided", "withdrawn"]


class Arm(NamedTuple):
    method: str
    log_n: bool = False
    """Queries are scaled by log n beyond the window."""
    kept: int = 0
    """First positions without interpolation."""
    stretch: float = 1.0
    """The excess of the plan's reach, as a factor: a planted fault."""
    layout: str = ""
    """The layout of the windows that it is trained on."""
    steps: int = 0
    base: float = 0.0
    """In least bases that the target works with; 0 for the method's own."""


class Cell(NamedTuple):
    subject: str
    factor: int
    arm: Arm


class Measure(NamedTuple):
    task: str
    metric: Literal["next_token_accuracy", "nats", "exact_match"]


Known: TypeAlias = Mapping[Cell, Mapping[Measure, float]]


class Claim(NamedTuple):
    """The claim that one arm is better than another, by so much in the paper."""

    words: str
    source: str
    factor: int
    better: Arm
    worse: Arm
    measure: Measure
    size: float = math.nan
    """The paper's difference, in the measure's unit; nan where it gives none."""
    planted: tuple[Arm, Arm] | None = None
    """The positive control: two arms of which the first is better by construction."""
    margin: float = 0.0
    """How much worse the first arm may be and still count as no worse."""
    of_model: Callable[[Known, str], float | None] | None = None
    """A model's value, in place of the difference of the two arms, which it reads with others; not
    that of planted arms."""
    withdrawn: str = ""
    """The reason why these arms do not ask what the paper claims; its figures stay."""


def powers_of(
    claims: Sequence[Claim], spreads: Sequence[float], units: int, of: str, source: str
) -> list[Power]:
    """The power for each claim's own effect by itself, in nats per token."""
    return [
        Power((Effect(f"{claim.words}, nats per token", claim.size, spread),), units, of, source)
        for claim, spread in zip(claims, spreads, strict=True)
    ]


class Study(NamedTuple):
    folder: Path
    arms: Mapping[int, Sequence[Arm]]
    """By factor, in the order in which they run."""
    claims: Sequence[Claim]
    models: Sequence[str] = MODELS
    measured: Callable[[Cell, int], dict[str, Any]] | None = None
    """A cell's line of results, from so many samples; by default as `measured` does it."""
    samples: int = SAMPLES
    left_out: Sequence[Cell] = ()
    over: str = ""
    """The units of its intervals, if they are not models of several sizes."""
    powers: Sequence[Power] = ()
    """The simulations before the first run."""

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def file(self) -> Path:
        return self.folder / "cells.jsonl"

    @property
    def command(self) -> str:
        return f"make study NAME={self.name}"

    def cells(self) -> list[Cell]:
        """First the arms that claims compare, and all of a model before the next model."""
        compared = {
            arm
            for claim in self.claims
            for arm in (claim.better, claim.worse, *(claim.planted or ()))
        }
        found = [
            Cell(name, factor, arm)
            for name in self.models
            for factor, arms in self.arms.items()
            for arm in arms
            if Cell(name, factor, arm) not in self.left_out
        ]
        return sorted(found, key=lambda cell: cell.arm not in compared)


def main(study: Study) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--report", action="store_true", help="run nothing")
    if not parser.parse_args().report:
        logging.disable(logging.WARNING)
        torch.set_num_threads(1)
        run(study, study.file, study.cells(), study.samples)
    print(table(study))


def run(study: Study, file: Path, cells: Iterable[Cell], samples: int) -> None:
    """Append what is missing, a line each."""
    measure = study.measured or measured
    run_missing(file, cells, set(values(file)), lambda cell: measure(cell, samples))


def measured(cell: Cell, samples: int) -> dict[str, Any]:
    began = time.process_time()
    subject, arm = SUBJECTS[cell.subject], cell.arm
    target = cell.factor * subject.window
    plan = None
    if arm.method != "none":
        plan = rw.plan(
            subject.path,
            round(arm.stretch * target),
            arm.method,
            log_n="beyond" if arm.log_n else None,
            kept_initial_positions=arm.kept or None,
            notice=lambda _: None,
        ).plan
    found = evaluated(subject.path, [target], [TEXT, REPEATED], samples, plan)
    results = [[row.task, row.metric, round(row.value, 5)] for row in found.results]
    return line_of(cell, samples, results, time.process_time() - began)


def line_of(
    cell: Cell,
    samples: int,
    results: Sequence[Sequence[Any]],
    seconds: float,
    path: str | None = None,
) -> dict[str, Any]:
    """By default, the weights are those of the subject."""
    return {
        "subject": cell.subject,
        "factor": cell.factor,
        "arm": cell.arm._asdict(),
        "samples": samples,
        "weights": sampled_fingerprint(load(path or SUBJECTS[cell.subject].path).model),
        "results": results,
        "seconds": round(seconds, 1),
        "machine": {**machine(), "torch": torch.__version__},
    }


def values(file: Path) -> dict[Cell, dict[Measure, float]]:
    found: dict[Cell, dict[Measure, float]] = {}
    for line in kept(file):
        own = found[Cell(line["subject"], line["factor"], Arm(**line["arm"]))] = {}
        for task, metric, value in line["results"]:
            if metric == "perplexity":
                own[Measure(task, "nats")] = math.log(value)
            else:
                own[Measure(task, metric)] = value
    return found


def finding(known: Known, claim: Claim, arms: tuple[Arm, Arm] | None = None) -> Difference:
    names = list(dict.fromkeys([*SUBJECTS, *(cell.subject for cell in known)]))
    if claim.of_model is not None and arms is None:
        own_values = {name: claim.of_model(known, name) for name in names}
        return Difference({name: own for name, own in own_values.items() if own is not None})
    better, worse = arms or (claim.better, claim.worse)
    sign = -1 if claim.measure.metric == "nats" else 1
    found = {}
    for name in names:
        own, other = (Cell(name, claim.factor, arm) for arm in (better, worse))
        asked = _asked(known, name, claim) and _retrieve(known, name, claim)
        if own in known and other in known and asked:
            found[name] = sign * (known[own][claim.measure] - known[other][claim.measure])
            found[name] += claim.margin
    return Difference(found)


RETRIEVAL = Measure("retrieval", "exact_match")
"""The mean of the tasks of the study of training, in written answers."""


def asked_for_facts(found: Mapping[str, float]) -> list[list[Any]]:
    """The results of a cell: each task, the mean of those that are always asked, the perplexity."""
    return [
        *([task, RETRIEVAL.metric, round(found[task], 4)] for task in found if task != TEXT),
        retrieved(RETRIEVAL, found),
        [TEXT, TEXT, round(found[TEXT], 5)],
    ]


def retrieved(measure: Measure, found: Mapping[str, float]) -> list[Any]:
    """The mean of the tasks that are always asked, under the name of a measure."""
    return [*measure, round(sum(found[task] for task in TASKS) / len(TASKS), 5)]


def answers_and_text(
    model: str, length: int, samples: int, windows: int, plan: ContextPlan | None = None
) -> dict[str, float]:
    """By task, the share of answers in so many samples, and the perplexity of so many windows."""
    answers = evaluated(model, [length], TASKS, samples, plan)
    return by_task(answers) | by_task(evaluated(model, [length], [TEXT], windows, plan))


def evaluated(
    model: str | Path,
    lengths: Sequence[int],
    tasks: Sequence[str],
    samples: int,
    plan: ContextPlan | None = None,
    **others: Any,
) -> Evaluated:
    """By `rw.evaluate`, in written answers, on text that no model saw."""
    settings = {"mode": "generate", "corpus": read_text().reporting, **others}
    return rw.evaluate(
        model,
        plans=[] if plan is None else [plan],
        methods=["none"] if plan is None else [],
        lengths=lengths,
        tasks=tasks,
        samples=samples,
        notice=lambda _: None,
        **settings,
    )


def by_task(found: Evaluated, length: int | None = None) -> dict[str, float]:
    """The share of answers, or the perplexity; at the length, if it was not the only one."""
    return {
        row.task: row.value
        for row in found.results
        if row.metric in (RETRIEVAL.metric, TEXT) and length in (None, row.length)
    }


def reaching(plan: ContextPlan, target: int, **changes: Any) -> ContextPlan:
    """The plan's longest schedule, declared to reach the target, with its fields changed so."""
    step = plan.steps()[-1]
    schedule = replace(step.schedule, length=target, **changes)
    return plan.with_steps(
        plan.main_layer, (replace(step, up_to_length=target, schedule=schedule),)
    )


COPIES = 0.1
"""The least gain of repeated text over other text, under any arm, for a model to count."""


def _asked(known: Known, name: str, claim: Claim) -> bool:
    """True if a model can show the claim: a model that does not copy says nothing about copying."""
    if claim.measure.task != REPEATED:
        return True
    repeated, text = (Measure(task, "next_token_accuracy") for task in (REPEATED, TEXT))
    own = [each for cell, each in known.items() if cell[:2] == (name, claim.factor)]
    return any(each[repeated] - each[text] >= COPIES for each in own if repeated in each)


def _retrieve(known: Known, name: str, claim: Claim) -> bool:
    """True unless a model is known not to retrieve within its window and the claim is of beyond."""
    if claim.measure != RETRIEVAL or claim.factor == 1:
        return True
    both = [Cell(name, 1, arm) for arm in (claim.better, claim.worse)]
    if any(cell not in known for cell in both):
        return True
    return all(known[cell][RETRIEVAL] >= RETRIEVES for cell in both)


def verdict(found: Difference, planted: Difference | None, size: float) -> Verdict:
    """Seen and contradicted need four models and an interval without zero; not seen needs an
    interval below the paper's effect, and a control that finds a planted effect no larger than
    the paper's; else it is undecided."""
    if len(found.by_model) < FEWEST or found.interval is None:
        return "undecided"
    low, high = found.interval
    if low > 0:
        return "seen"
    if high < 0:
        return "contradicted"
    control = None if planted is None else planted.interval
    if planted is None or control is None or high >= size:
        return "undecided"
    return "not seen" if control[0] > 0 and planted.mean <= size else "undecided"


def judged(study: Study) -> list[tuple[Claim, Difference, Difference | None, Verdict]]:
    known = values(study.file)
    found: list[tuple[Claim, Difference, Difference | None, Verdict]] = []
    for claim in study.claims:
        own = finding(known, claim)
        control = None if claim.planted is None else finding(known, claim, claim.planted)
        said = "withdrawn" if claim.withdrawn else verdict(own, control, claim.size)
        found.append((claim, own, control, said))
    return found


def table(study: Study) -> str:
    rows = [line for power in study.powers for line in (power.shown(), "")]
    rows += ["| claim | paper | here | planted | verdict |", "|---|---|---|---|---|"]
    for claim, own, control, said in judged(study):
        planted = "–" if control is None else control.shown(1, "+.4f")
        paper = "–" if math.isnan(claim.size) else f"{claim.size:+.4f}"
        rows.append(f"| {claim.words} | {paper} | {own.shown(1, '+.4f')} | {planted} | {said} |")
    lines = kept(study.file)
    missing = len(study.cells()) - len(lines)
    rows += ["", f"Not measured yet: {missing} of {len(study.cells())} cells."]
    if lines:
        rows[-1] += f" {measured_on(lines[-1]['machine'], study.command)}."
    return "\n".join(rows)


def picture(study: Study) -> Picture:
    """Each claim's difference over models with its interval, and the paper's."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 1.2 + 0.45 * len(study.claims)), layout="constrained")
    axes = figure.add_subplot()
    for row, (claim, own, _, said) in enumerate(judged(study)):
        first = row == 0
        axes.plot([claim.size], [row], "D", color="tab:orange", label="paper" if first else None)
        for i, name in enumerate(own.by_model):
            label = "one model" if first and i == 0 else None
            axes.plot([own.by_model[name]], [row], ".", color="tab:gray", label=label)
        if own.interval is not None:
            axes.plot(own.interval, [row, row], color="tab:blue")
            label = "mean, 95% interval" if first else None
            axes.plot([own.mean], [row], "o", color="tab:blue", label=label)
        axes.annotate(said, (1.01, row), xycoords=("axes fraction", "data"), va="center")
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_yticks(range(len(study.claims)), [claim.words for claim in study.claims])
    axes.invert_yaxis()
    axes.set_xlabel("better arm less worse arm: " + UNITS[study.claims[0].measure.metric])
    axes.legend(fontsize="small")
    return Picture(figure)
