"""The trade-off of an extension: retrieval at the target against the price of short text.

    python -m benchmarks.trade_off            runs what is missing: half an hour of a core
    python -m benchmarks.trade_off --report   runs nothing

The bundled models at 2, 4 and 8 times their window. A cell is one search as `extend` makes it, by
one strategy, and what its plan does on the documents of the study of methods, which no search saw:
so it is paired with every method there. A finished cell is a line of results/trade_off.jsonl.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks import cells
from benchmarks.cells import run_missing
from benchmarks.machine import PAGE, machine, measured_on
from ropewalk.context_plan import FULL_ATTENTION, ContextPlan, PlanStep
from ropewalk.data.documents import as_documents
from ropewalk.evaluation.statistics import mean_interval
from ropewalk.models.load import load
from ropewalk.pipeline.settings import parted
from ropewalk.pipeline.stages.search import Search
from ropewalk.schedule import RotarySchedule
from ropewalk.searching.model.measure import LocalMeasure
from ropewalk.searching.model.run import search_model
from studies.methods import measure as methods
from studies.methods.measure import FACTORS, MODELS, NONE, RETRIEVED, TEXT, WINDOW

EVALUATIONS = 24
"""The budget of the cells that are recorded."""
LINES = Path(__file__).with_name("results") / "trade_off.jsonl"
COMMAND = "python -m benchmarks.trade_off"
STRATEGIES = ("yarn", "adaptive")
SHOWN = (NONE, "dynamic_ntk", "llama3", "yarn", "yarn+cope")
"""Methods of that study, where `dynamic_ntk` has the factors of `ntk` at its target."""


class Cell(NamedTuple):
    strategy: str
    factor: int
    model: str


def every_cell() -> list[Cell]:
    """Four times the window first."""
    return [Cell(*each) for each in product(STRATEGIES, FACTORS, MODELS)]


def main() -> None:
    run_missing(__doc__, LINES, every_cell(), work, blocks)


def lines() -> list[dict[str, Any]]:
    return cells.lines(LINES)


def work(cell: Cell, **less: Any) -> dict[str, Any]:
    """A finished cell; `less` makes its search a small one."""
    began = time.process_time()
    loaded = load(cell.model)
    target = cell.factor * WINDOW
    to_search, _ = parted(as_documents("held-out", "text", print))
    stage = Search(target, **{"evaluations": EVALUATIONS, "strategy": cell.strategy, **less})
    [leg] = search_model(loaded, to_search, stage.settings, notice=lambda text: None).legs
    schedule = leg.best.schedule
    return {
        "cell": list(cell),
        "chosen": leg.chosen,
        "recipe": [each.to_json() for each in schedule.recipe],
        "evaluations": leg.evaluations,
        "tokens": leg.tokens,
        "at_target": rows(cell.model, schedule, target),
        "at_window": rows(cell.model, schedule, WINDOW),
        "cpu_seconds": round(time.process_time() - began, 1),
        "torch": torch.__version__,
        "machine": machine(),
    }


def rows(model: str, schedule: RotarySchedule, length: int) -> list[list[float]]:
    """Text, answers and retrieval of each document that the study of methods has of this length."""
    loaded, documents = methods._loaded(model), methods._documents(model, length)
    step = PlanStep(schedule.length, schedule)
    plan = ContextPlan(loaded.present_plan.model, {FULL_ATTENTION: (step,)})
    measure = LocalMeasure(loaded.model, documents, lambda _: plan)
    found = measure([schedule], range(len(documents)))[0]
    return [[round(float(value), 4) for value in row] for row in found]


class Point(NamedTuple):
    name: str
    retrieved: float
    cost: float
    low: float
    high: float

    def __str__(self) -> str:
        ends = f"{_percent(self.low)} to {_percent(self.high)}"
        return f"{self.name} {self.retrieved:.0%}, {_percent(self.cost)} ({ends})"


def _percent(nats: float) -> str:
    return f"{100 * math.expm1(nats):+.1f}%"


def points(factor: int, model: str) -> list[Point]:
    """The scores of methods and searches minus the unmodified model's on the same documents."""
    known = {
        line["method"].removeprefix("dynamic_"): line
        for line in methods.current()
        if (line["factor"], line["model"]) == (factor, model) and line["method"] in SHOWN
    }
    texts = known[NONE]["window_texts"]
    found = dict[str, Mapping[str, Any]](known)
    for line in lines():
        cell = Cell(*line["cell"])
        if (cell.factor, cell.model) == (factor, model):
            found[f"{cell.strategy} search: {named(line)}"] = line
    usual = np.array(known[NONE]["at_window"])[:, TEXT]
    made = []
    for name, line in found.items():
        more = np.array(line["at_window"])[:, TEXT] - usual
        interval = mean_interval(more, clusters=texts)
        assert interval is not None
        share = float(np.array(line["at_target"])[:, RETRIEVED].mean())
        made.append(Point(name, share, float(more.mean()), *interval))
    return [point for point in made if point.name != NONE]


def named(line: Mapping[str, Any]) -> str:
    """A schedule by its parameters, if it is a method's own."""
    last = line["recipe"][-1]
    if line["chosen"] != "search":
        return str(line["chosen"])
    if last["method"] == "longrope":
        return "factors of its own"
    own = last["parameters"]
    return (
        f"betas {own['beta_fast']:g} and {own['beta_slow']:g}, attention "
        f"{own['attention_factor']:.3f}"
    )


def front(found: Sequence[Point]) -> list[Point]:
    """The points that no other beats, the cheapest first; of equal ones, the first."""

    def beats(other: Point, own: Point) -> bool:
        better = (other.retrieved, -other.cost), (own.retrieved, -own.cost)
        return better[0] != better[1] and all(a >= b for a, b in zip(*better, strict=True))

    left = {(own.retrieved, own.cost): own for own in reversed(found)}.values()
    kept = [own for own in left if not any(beats(other, own) for other in found)]
    return sorted(kept, key=lambda point: point.cost)


def against_yarn(factor: int) -> str | None:
    """The search over YaRN's parameters minus static YaRN, on the same documents of all models."""
    price, retrieved, of_price, of_target = [], [], [], []
    known = {
        (line["model"], line["method"]): line
        for line in methods.current()
        if line["factor"] == factor
    }
    own = {line["cell"][2]: line for line in lines() if line["cell"][:2] == ["yarn", factor]}
    if set(own) != set(MODELS):
        return None
    for model in MODELS:
        static = known[model, "yarn"]
        short, long = (
            np.array(own[model][place]) - np.array(static[place])
            for place in ("at_window", "at_target")
        )
        price += short[:, TEXT].tolist()
        retrieved += (100 * long[:, RETRIEVED]).tolist()
        of_price += static["window_texts"]
        of_target += static["texts"]
    found = mean_interval(price, clusters=of_price), mean_interval(retrieved, clusters=of_target)
    assert found[0] is not None
    assert found[1] is not None
    return (
        f"| {factor} times | {np.mean(price):+.3f} ({found[0][0]:+.3f} to {found[0][1]:+.3f}) "
        f"| {np.mean(retrieved):+.1f} ({found[1][0]:+.1f} to {found[1][1]:+.1f}) |"
    )


def blocks() -> dict[str, str]:
    table = ["| | | static YaRN | the front, the cheapest first |", "|---|---|---|---|"]
    for factor, model in product(sorted(FACTORS), MODELS):
        found = points(factor, model)
        [static] = [point for point in found if point.name == "yarn"]
        told = "; ".join(map(str, front(found)))
        shown = str(static).removeprefix("yarn ")
        table.append(f"| {factor} times | {model} | {shown} | {told} |")
    done = [Cell(*line["cell"]) for line in lines()]
    missing = [cell for cell in every_cell() if cell not in done]
    parts = ["\n".join(table)]
    rows = [*filter(None, map(against_yarn, sorted(FACTORS)))]
    if rows:
        parts.append("The search over YaRN's parameters minus static YaRN, over all models:")
        head = ["| target | loss on short text, nats | retrieval, points |", "|---|---|---|"]
        parts.append("\n".join([*head, *rows]))
    if missing:
        told = ", ".join(sorted({cell.strategy for cell in missing}))
        parts.append(f"Not run yet: {len(missing)} of {len(every_cell())} searches ({told}).")
    machines = {json.dumps(line["machine"]): line for line in lines()}
    parts += [
        f"{measured_on({**line['machine'], 'torch': line['torch']}, COMMAND)}."
        for line in machines.values()
    ]
    return {PAGE: "\n\n".join(parts)}


if __name__ == "__main__":
    main()
