"""Does training at the target length pay? Each model trained, next to its twin that was not.

    python -m studies.bundled_model.train --size tall --seeds 1 2 3     and the other sizes
    python -m studies.training.measure            runs what is missing
    python -m studies.training.measure --report   runs nothing

What is asked, and what is dropped first, was written down in README.md before the first
run. Finished cells are kept in cells.jsonl and are not run again; a cell that was killed goes on.
"""

from __future__ import annotations

import argparse
import logging
import math
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.machine import measured_on
from ropewalk.evaluation.statistics import mixed_mean_interval, t_quantile
from ropewalk.interval import Ends
from studies.training.cells import (
    BASE,
    CONTROL,
    FAR,
    NONE,
    SEARCH,
    SUBJECTS,
    TASKS,
    YARN,
    Cell,
    cell_of,
    kept,
    measured,
    run_missing,
)

CELLS = Path(__file__).with_name("cells.jsonl")
PAGE = "studies/training/README.md"
FIRST = ("tall", "wide", "narrow", "low base", "bundled")
MORE = ("tall 2", "wide 3", "tall 3")
BUNDLED = ("bundled", "bundled 2", "bundled 3")
PILOT = "high base"
FAR_PILOTS = (PILOT, "tall 2", "wide 3")
SETTLED = ("tall", "narrow")
"""The models on which settings of a training are compared."""
SKIP = Cell(PILOT, FAR, YARN, 600, 0, "skip", window=2, rate=5e-4)
"""The training for far targets; the pilots try its neighbours."""
RETRIEVES = 0.5
"""The share of answers, within its own window, below which a model is reported apart."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--report", action="store_true", help="run nothing")
    asked = parser.parse_args()
    if not asked.report:
        logging.disable(logging.WARNING)
        done = {cell_of(line) for line in kept(CELLS)}
        wanted = (cell for part in asked.parts for cell in PARTS[part])
        run_missing(CELLS, wanted, done, measured)
    print(blocks()[PAGE])


def _over(subjects: Sequence[str], factor: int, *of: tuple[Any, ...]) -> list[Cell]:
    """All subjects of a kind of cell before the next kind, so that a part of them is paired."""
    return [Cell(subject, factor, *each) for each in of for subject in subjects]


def _each(subjects: Sequence[str], *cells: Cell) -> list[Cell]:
    return [cell._replace(subject=subject) for cell in cells for subject in subjects]


def _half_fraction() -> list[Cell]:
    """Half of the layouts by two rates, short windows and adapters: balanced in each layout, in two
    halves that alternate, so that no effect of one setting is that of two others in all layouts."""
    found = []
    for number, layout in enumerate(("full", "reset", "anchor")):
        for rate, short, lora in product((False, True), repeat=3):
            if (rate + short + lora + number) % 2 == 0:
                found.append(
                    Cell(
                        PILOT,
                        8,
                        YARN,
                        100,
                        layout=layout,
                        rate=1e-3 if rate else 3e-4,
                        short=short,
                        lora=8 if lora else 0,
                    )
                )
    return found


PARTS: dict[str, list[Cell]] = {
    "rate": [
        Cell(PILOT, 8, YARN, steps, 0, rate=rate)
        for steps, rate in ((0, 1e-3), (200, 3e-4), (200, 1e-3))
    ],
    "primary": _over(FIRST, 8, (YARN,), (YARN, 200, 0), (YARN, 200, 1)) + _over(FIRST, 1, (NONE,)),
    "arms": _over(
        FIRST,
        8,
        *((CONTROL, 200, 0), (BASE,), (BASE, 200, 0), (SEARCH,), (SEARCH, 200, 0)),
        *((CONTROL, 200, 1), (BASE, 200, 1), (SEARCH, 200, 1)),
    ),
    "fewer steps": _over(FIRST, 8, *((arm, 50, 0) for arm in (YARN, BASE, SEARCH, CONTROL))),
    "more models": _over(MORE, 1, (NONE,))
    + _over(MORE, 8, (YARN,), (YARN, 200, 0), (YARN, 200, 1)),
    "more steps": _over(FIRST, 8, (YARN, 800, 0), (BASE, 800, 0)),
    "far pilot": _each(FAR_PILOTS, SKIP.untrained, SKIP._replace(steps=150), SKIP),
    "far": _each(BUNDLED, SKIP.untrained, SKIP, SKIP._replace(order=1)),
    "settings": _each(SETTLED, *_half_fraction()),
    "far pilot, neighbours": _each(
        FAR_PILOTS, SKIP._replace(rate=1e-3), SKIP._replace(window=1), SKIP._replace(steps=1800)
    ),
    "farther": _each(
        BUNDLED,
        *(
            cell._replace(factor=factor)
            for factor in (2 * FAR, 4 * FAR)
            for cell in (SKIP.untrained, SKIP)
        ),
    ),
    "32 times": _over(FIRST[:-1], FAR, (YARN,), (YARN, 200, 0), (BASE,), (BASE, 200, 0)),
}
"""In the order in which they run; what is last is dropped first."""


class Line(NamedTuple):
    """The scores of a cell."""

    cell: Cell
    values: dict[tuple[str, int], float]

    def share(self, task: str, length: int) -> float:
        if task == "retrieval":
            return sum(self.values[each, length] for each in TASKS) / len(TASKS)
        if task == "text":
            return math.log(self.values["perplexity", length])
        return self.values[task, length]


def lines() -> dict[Cell, Line]:
    found = (
        Line(cell_of(each), {(task, length): value for task, length, value in each["results"]})
        for each in kept(CELLS)
    )
    return {line.cell: line for line in found}


def group_of(name: str) -> str:
    """The size of a model; of a text that is a subject by itself, its package."""
    return SUBJECTS[name].size if name in SUBJECTS else name.split()[0]


def _written(value: float, form: str) -> str:
    """Rounded first: the last bit of a mean is another under other versions of Python and numpy."""
    return f"{round(value, 9) + 0:{form}}"


class Difference(NamedTuple):
    """Trained minus another cell, by model: the mean over orders of the data."""

    by_model: dict[str, float]

    @property
    def mean(self) -> float:
        return sum(self.by_model.values()) / len(self.by_model)

    @property
    def interval(self) -> Ends | None:
        """The interval over models; sizes are groups as far as models of one size agree more.

        If all have one size, it is over their seeds, and holds for that size.
        """
        sizes = [group_of(name) for name in self.by_model]
        groups = sizes if len(set(sizes)) > 1 else list(self.by_model)
        return mixed_mean_interval(list(self.by_model.values()), groups) if sizes else None

    def shown(self, times: float, form: str) -> str:
        if not self.by_model:
            return "–"
        told = _written(times * self.mean, form)
        if self.interval is None:
            many = len(self.by_model)
            return f"{told} ({many} model{'s' if many > 1 else ''})"
        low, high = (_written(times * end, form) for end in self.interval)
        return f"{told} ({low} to {high})"


def difference(
    known: dict[Cell, Line],
    own: Cell,
    other: Cell,
    task: str,
    *,
    within: bool,
    models: Sequence[str] = FIRST,
) -> Difference:
    """One kind of cell minus another, of every model that has both; `within` its own window, or at
    the target. The subject and the order of the kinds do not count."""
    found = {}
    for name in models:
        if name in apart(known):
            continue
        length = SUBJECTS[name].window * (1 if within else own.factor)

        def values(kind: Cell) -> list[float]:
            cells = (kind._replace(subject=name, order=order) for order in (0, 1))  # noqa: B023
            return [known[cell].share(task, length) for cell in cells if cell in known]  # noqa: B023

        one, less = values(own), values(other)
        if one and less:
            found[name] = sum(one) / len(one) - sum(less) / len(less)
    return Difference(found)


def apart(known: dict[Cell, Line]) -> set[str]:
    """Models that do not retrieve inside their own window."""
    return {
        cell.subject
        for cell, line in known.items()
        if cell.arm == NONE and line.share("retrieval", SUBJECTS[cell.subject].window) < RETRIEVES
    }


def blocks() -> dict[str, str]:
    known = lines()
    return {PAGE: page(known) if known else ""}


def page(known: dict[Cell, Line]) -> str:
    said = [
        "Trained minus YaRN without training, at 8 times the window and within it, over models; "
        "shares of written answers in points, text in nats per token (lower is better):",
        "",
        *_table(known),
        "",
        _against_itself(known),
        "",
        *_shares(known),
        "",
        _against_each_other(known),
        "",
        _with_more_models(known),
        "",
        *_far(known),
        "",
        *_settings(known),
        "",
        f"Not measured yet: {unfinished(known)}. "
        f"{measured_on(kept(CELLS)[-1]['machine'], 'python -m studies.training.measure')}.",
    ]
    return "\n".join(said)


def _table(known: dict[Cell, Line]) -> list[str]:
    rows = [
        f"| arm | steps | retrieval | {' | '.join(TASKS)} | text "
        "| retrieval within | text within |",
        "|---" * (6 + len(TASKS)) + "|",
    ]
    kinds = {cell._replace(subject=FIRST[0], order=0) for cell in known if cell.steps}
    for kind in sorted(kinds, key=lambda cell: (cell.factor, -cell.steps, cell.arm)):
        if kind != Cell(*kind[:4]):  # of other settings
            continue
        untrained = Cell(kind.subject, kind.factor, YARN)
        cells = [
            difference(known, kind, untrained, task, within=within).shown(
                *((1, "+.2f") if task == "text" else (100, "+.0f"))
            )
            for within, tasks in ((False, ("retrieval", *TASKS, "text")), (True, _WITHIN))
            for task in tasks
        ]
        rows.append(f"| {kind.arm}, {kind.factor} times | {kind.steps} | {' | '.join(cells)} |")
    return rows


def _against_itself(known: dict[Cell, Line]) -> str:
    """The arms that do not begin at YaRN, each minus itself without training."""
    told = []
    for arm in (BASE, SEARCH):
        own = Cell(FIRST[0], 8, arm, 200)
        found = difference(known, own, own.untrained, "retrieval", within=False)
        told.append(f"{arm} {found.shown(100, '+.0f')}")
    return (
        "Retrieval at 8 times the window after 200 steps, minus the same arm without training, in "
        f"points: {'; '.join(told)}."
    )


_WITHIN = ("retrieval", "text")


def _against_each_other(known: dict[Cell, Line]) -> str:
    """The trained arms, each minus YaRN trained as long."""
    told = []
    for arm in (BASE, SEARCH, CONTROL):
        own = Cell(FIRST[0], 8, arm, 200)
        found = difference(known, own, own._replace(arm=YARN), "retrieval", within=False)
        told.append(f"{arm} {found.shown(100, '+.0f')}")
    return (
        "Retrieval at 8 times the window after 200 steps, minus YaRN trained as long, in "
        f"points (without correction): {'; '.join(told)}."
    )


def _with_more_models(known: dict[Cell, Line]) -> str:
    """The primary contrast over all models, in which one size may count for several."""
    own = Cell(FIRST[0], 8, YARN, 200)
    told = []
    for task in ("retrieval", *TASKS, "text"):
        found = difference(known, own, own.untrained, task, within=False, models=(*FIRST, *MORE))
        told.append(f"{task} {found.shown(*((1, '+.2f') if task == 'text' else (100, '+.0f')))}")
    many = len(found.by_model)
    return f"The first contrast over all {many} models, three tall and two wide: {'; '.join(told)}."


def _far(known: dict[Cell, Line]) -> list[str]:
    """Each model under YaRN far beyond its window, before and after windows of twice its own."""
    rows = [
        f"Far targets, layout `skip`, YaRN ({', '.join(TASKS)}, perplexity at the target; "
        f"{', '.join(FAR_PILOTS)} chose the settings):",
        "",
        "| model | times its window | training | at the target | within its window |",
        "|---|---|---|---|---|",
    ]
    for cell in sorted(known, key=lambda own: (*own[:2], *own[3:])):
        if cell.factor < FAR or cell.arm != YARN or (cell.steps and cell.layout != SKIP.layout):
            continue
        training = "none"
        if cell.steps:
            training = f"{cell.steps} steps, {cell.rate:g}, windows of {cell.window}"
            training += f", order {cell.order}"
        told = [
            ", ".join(f"{known[cell].share(task, length):.0%}" for task in TASKS)
            + f", {known[cell].values['perplexity', length]:.1f}"
            for length in (cell.target, SUBJECTS[cell.subject].window)
        ]
        rows.append(f"| {cell.subject} | {cell.factor} | {training} | {' | '.join(told)} |")
    return rows if len(rows) > 4 else []


class Effect(NamedTuple):
    """The change of an outcome by one setting, the others being equal."""

    mean: float
    low: float
    high: float


SETTINGS: dict[str, Callable[[Cell], bool]] = {
    "rate 1e-3 (minus 3e-4)": lambda cell: cell.rate == 1e-3,
    "half of short documents (minus none)": lambda cell: cell.short,
    "LoRA of rank 8 (minus all weights)": lambda cell: bool(cell.lora),
    "layout `reset` (minus `full`)": lambda cell: cell.layout == "reset",
    "layout `anchor` (minus `full`)": lambda cell: cell.layout == "anchor",
}


def effects(
    known: dict[Cell, Line], task: str, *, within: bool, cells: Sequence[Cell] = PARTS["settings"]
) -> dict[str, Effect]:
    """By least squares over the cells, each model with a level of its own."""
    have = [cell for cell in cells if cell in known]
    columns = [
        *([cell.subject == name for cell in have] for name in SETTLED),
        *([has(cell) for cell in have] for has in SETTINGS.values()),
    ]
    design = np.array(columns, dtype=float).T
    free = len(have) - len(columns)
    if free < 1 or np.linalg.matrix_rank(design) < len(columns):
        return {}
    found = np.array(
        [
            known[cell].share(task, SUBJECTS[cell.subject].window * (1 if within else cell.factor))
            for cell in have
        ]
    )
    fitted, *_ = np.linalg.lstsq(design, found, rcond=None)
    variance = float(((found - design @ fitted) ** 2).sum()) / free
    half = t_quantile(free) * np.sqrt(variance * np.diag(np.linalg.inv(design.T @ design)))
    own = zip(SETTINGS, fitted[len(SETTLED) :], half[len(SETTLED) :], strict=True)
    return {name: Effect(mean, mean - wide, mean + wide) for name, mean, wide in own}


def _settings(known: dict[Cell, Line]) -> list[str]:
    """The effect of each setting of a training."""
    outcomes = [("retrieval", False), ("text", False), ("retrieval", True), ("text", True)]
    by_outcome = [effects(known, task, within=within) for task, within in outcomes]
    if not by_outcome[0]:
        return []
    count = sum(cell in known for cell in PARTS["settings"])
    rows = [
        f"Settings of 100 steps at 8 times the window, {count} cells of {' and '.join(SETTLED)}: "
        "what each changes, in points and in nats per token, with intervals over cells:",
        "",
        "| setting | retrieval | text | retrieval within | text within |",
        "|---|---|---|---|---|",
    ]
    for name in SETTINGS:
        told = []
        for (task, _), found in zip(outcomes, by_outcome, strict=True):
            times, form = (1, "+.3f") if task == "text" else (100, "+.0f")
            mean, low, high = (_written(times * value, form) for value in found[name])
            told.append(f"{mean} ({low} to {high})")
        rows.append(f"| {name} | {' | '.join(told)} |")
    return rows


def _shares(known: dict[Cell, Line]) -> list[str]:
    """The right answers of each model, by task: passkey, needle, kv."""
    rows = [
        f"Right answers at 8 times the window ({', '.join(TASKS)}; the mean over orders):",
        "",
        "| model | within its window, as it is | yarn | yarn, 200 steps | base change, 200 steps |",
        "|---|---|---|---|---|",
    ]
    for name in (*FIRST, *MORE):
        window = SUBJECTS[name].window
        asked = [
            (Cell(name, 1, NONE), window),
            *((Cell(name, 8, YARN, steps), 8 * window) for steps in (0, 200)),
            (Cell(name, 8, BASE, 200), 8 * window),
        ]
        cells = []
        for kind, length in asked:
            own = [known[c] for c in (kind, kind._replace(order=1)) if c in known]
            shares = (sum(line.share(task, length) for line in own) / len(own) for task in TASKS)
            cells.append(", ".join(f"{share:.0%}" for share in shares) if own else "–")
        if any(cell != "–" for cell in cells):
            rows.append(f"| {name} | {' | '.join(cells)} |")
    return rows


def unfinished(known: dict[Cell, Line]) -> str:
    """The parts that are not complete, and about how long they take."""
    seconds = {cell_of(line): line["seconds"] for line in kept(CELLS)}
    steps = [
        (taken - seconds[cell.untrained]) / cell.steps
        for cell, taken in seconds.items()
        if cell.steps and cell.untrained in seconds
    ]
    step = sum(steps) / len(steps)
    told = []
    for part, cells in PARTS.items():
        missing = [cell for cell in cells if cell not in known]
        if missing:
            hours = sum(seconds.get(cell.untrained, 60) + step * cell.steps for cell in missing)
            told.append(
                f"{part} ({len(missing)} of {len(cells)} cells, {hours / 3600:.1f} core-hours)"
            )
    return ", ".join(told) or "nothing"


if __name__ == "__main__":
    main()
