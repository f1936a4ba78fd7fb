"""Every scaling method on the three bundled models, at 2, 4 and 8 times their window, untrained.

    python -m studies.methods.measure            runs what is missing: about half an hour of a core
    python -m studies.methods.measure --report   runs nothing

Each schedule is measured at its target and at the models' window of 512, on planted documents: the
share of facts that are retrieved, and the loss of the text. All methods see the same documents. A
finished cell is a line of cells.jsonl with everything that decides it and is not run again.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks.machine import machine, measured_on
from benchmarks.text import read_text
from docs.figures import paragraph
from ropewalk.context_plan import FULL_ATTENTION, ContextPlan, PlanStep
from ropewalk.evaluation.encoding import Encoder
from ropewalk.evaluation.planted import Planted, split_corpus, text_of
from ropewalk.evaluation.statistics import mean_interval
from ropewalk.models.load import LoadedModel, load
from ropewalk.models.source import resolve
from ropewalk.outputs import write_atomically
from ropewalk.planning.comparison import sufficient_base
from ropewalk.planning.extension import extend
from ropewalk.scaling import names
from ropewalk.schedule import RotarySchedule
from ropewalk.searching.model.measure import LocalMeasure
from studies.ranking.cells import sampled_fingerprint

CELLS = Path(__file__).with_name("cells.jsonl")
PAGE = "docs/methods.md"
COMMAND = "python -m studies.methods.measure"
MODELS = ("bundled", "bundled:2", "bundled:3")
FACTORS = (4, 2, 8)
WINDOW = 512
DOCUMENTS, SEED = 24, 38
VERSION = 1  # of what a cell does
NONE = "none"
STACKED = ("yarn+cope", "yarn+resonance")
CRITICAL = "longrope2 (critical_pair 6)"
"""A real critical pair before the theory's 8, as far in proportion as the paper finds them."""
TEXT, RETRIEVED = 0, 2  # in a row of a cell; between them is the loss of the answers
NEEDS_A_SEARCH = ("longrope",)
REFINES = ("resonance",)


class Cell(NamedTuple):
    model: str
    factor: int
    method: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--report", action="store_true", help="run nothing")
    if not parser.parse_args().report:
        torch.set_num_threads(1)
        run_missing()
    print(next(iter(blocks().values())))


def methods() -> tuple[str, ...]:
    """All that are measured, in the order of the table's ties."""
    alone = [name for name in names() if name not in NEEDS_A_SEARCH + REFINES]
    return (NONE, *alone, CRITICAL, *STACKED)


def all_cells() -> list[Cell]:
    """The middle factor first, and all models of a method one after the other."""
    return [
        Cell(model, factor, method)
        for factor in FACTORS
        for method in methods()
        for model in MODELS
        if method == alike(factor)[method]
    ]


def schedule(start: RotarySchedule, target: int, method: str) -> RotarySchedule:
    if method == NONE:
        return replace(start, length=target)
    if method == CRITICAL:
        return extend(start, target, "longrope2", {"critical_pair": 6})
    if method == "base_change":
        plan = ContextPlan("m", {FULL_ATTENTION: (PlanStep(start.length, start),)})
        given = {"base": sufficient_base(plan, target, FULL_ATTENTION)}
        return extend(start, target, method, given)
    return extend(start, target, method)


@cache
def alike(factor: int) -> Mapping[str, str]:
    """By method, the first method with the same schedule: both are measured once."""
    start = _start(MODELS[0])
    found = {name: schedule(start, factor * start.length, name) for name in methods()}

    def same(one: RotarySchedule, other: RotarySchedule) -> bool:
        factors = np.allclose(one.rescale_factors, other.rescale_factors, rtol=1e-9, atol=0)
        return bool(factors) and one.attention_scaling == other.attention_scaling

    return {
        name: next(other for other in found if same(found[other], own))
        for name, own in found.items()
    }


@cache
def _start(model: str) -> RotarySchedule:
    return resolve(model).present_plan.longest()


@cache
def _loaded(model: str) -> LoadedModel:
    return load(model)


@cache
def _documents(model: str, length: int) -> tuple[Planted, ...]:
    loaded = _loaded(model)
    encoder = Encoder(loaded.tokenizer, loaded.vocabulary)
    return split_corpus(read_text().reporting, encoder, length, (1, 1, DOCUMENTS), SEED).reporting


@cache
def _weights(model: str) -> str:
    return sampled_fingerprint(_loaded(model).model)


def rotation(cell: Cell) -> dict[str, Any]:
    """The measured rotation: a cell and its schedule as the package has it now."""
    start = _start(cell.model)
    own = schedule(start, cell.factor * start.length, cell.method)
    return {
        "version": VERSION,
        **cell._asdict(),
        "factors": [float(f"{each:.6g}") for each in own.rescale_factors],
        "attention_scaling": round(own.attention_scaling, 6),
    }


def decides(cell: Cell) -> dict[str, Any]:
    """Everything that a cell depends on, except the code."""
    return {
        **rotation(cell),
        "weights": _weights(cell.model),
        "text": read_text().fingerprints["reporting"],
        "documents": DOCUMENTS,
        "torch": torch.__version__,
    }


def lines() -> list[dict[str, Any]]:
    text = CELLS.read_text(encoding="utf-8") if CELLS.exists() else ""
    return [json.loads(line) for line in text.splitlines()]


def run_missing() -> None:
    known = [{key: line[key] for key in line if key not in _MEASURED} for line in lines()]
    missing = [cell for cell in all_cells() if decides(cell) not in known]
    print(f"{len(missing)} cells to run", flush=True)
    for cell in missing:
        line = json.dumps(work(cell), separators=(",", ":"))
        kept = CELLS.read_text(encoding="utf-8") if CELLS.exists() else ""
        write_atomically(CELLS, f"{kept}{line}\n")
        print(cell, flush=True)


_MEASURED = ("texts", "window_texts", "at_target", "at_window", "seconds", "machine")


def work(cell: Cell) -> dict[str, Any]:
    """A cell's line of results."""
    began = time.perf_counter()
    loaded, start = _loaded(cell.model), _start(cell.model)
    target = cell.factor * start.length
    own = schedule(start, target, cell.method)
    plan = ContextPlan(loaded.present_plan.model, {FULL_ATTENTION: (PlanStep(target, own),)})

    def measured(documents: Sequence[Planted]) -> list[list[float]]:
        measure = LocalMeasure(loaded.model, documents, lambda _: plan)
        values = measure([own], range(len(documents)))[0]
        return [[round(float(value), 4) for value in row] for row in values]

    at_target, at_window = (_documents(cell.model, length) for length in (target, WINDOW))
    return {
        **decides(cell),
        "texts": [text_of(document.source) for document in at_target],
        "window_texts": [text_of(document.source) for document in at_window],
        "at_target": measured(at_target),
        "at_window": measured(at_window),
        "seconds": round(time.perf_counter() - began, 1),
        "machine": machine(),
    }


def blocks() -> dict[str, str]:
    return {PAGE: page(current())}


def current() -> list[dict[str, Any]]:
    """The cells whose schedules the package still makes."""
    known = [rotation(cell) for cell in all_cells()]
    return [line for line in lines() if {key: line[key] for key in known[0]} in known]


def page(finished: Sequence[Mapping[str, Any]]) -> str:
    """One table for all factors; a method is shown when all models have it."""
    found = {
        factor: {row.methods: row for row in rows_of(finished, factor)}
        for factor in sorted(FACTORS)
    }
    best = {row.methods: row.retrieved for rows in found.values() for row in rows.values()}
    between = found[BETWEEN]
    best |= {methods: row.retrieved for methods, row in between.items()}
    head = ["method", *(f"retrieved at {factor}×" for factor in found)]
    head += [f"text loss at {BETWEEN}×", f"text loss at 512 under {BETWEEN}×"]
    table = [head, ["---"] * len(head)]
    for methods in sorted(best, key=lambda methods: -best[methods]):
        cells = [rows[methods].cells[0] if methods in rows else "–" for rows in found.values()]
        losses = between[methods].cells[1::2] if methods in between else ("–", "–")
        table.append([", ".join(methods), *cells, *losses])
    parts = ["\n".join(f"| {' | '.join(row)} |" for row in table)]
    missing = unfinished(finished)
    if missing:
        parts.append(paragraph(f"Not measured yet: {'; '.join(missing)}."))
    machines = {json.dumps(line["machine"]): line for line in finished}
    parts += [
        f"{measured_on({**line['machine'], 'torch': line['torch']}, COMMAND)}."
        for line in machines.values()
    ]
    return "\n\n".join(parts)


BETWEEN = 4
"""The factor whose text losses are shown."""


class Row(NamedTuple):
    methods: tuple[str, ...]
    """All with these factors."""
    retrieved: float
    cells: tuple[str, ...]


def rows_of(finished: Iterable[Mapping[str, Any]], factor: int) -> Iterator[Row]:
    """The rows of the methods that all models have; text losses minus those of no method."""
    by_method: dict[str, dict[str, Mapping[str, Any]]] = {}
    for line in finished:
        if line["factor"] == factor:
            by_method.setdefault(line["method"], {})[line["model"]] = line
    whole = {name: own for name, own in by_method.items() if own.keys() == set(MODELS)}
    for method, own in whole.items() if NONE in whole else ():
        cells: list[str] = []
        shares: list[float] = []
        for place, texts in (("at_target", "texts"), ("at_window", "window_texts")):
            values, usual = (
                np.array([row for model in MODELS for row in each[model][place]])
                for each in (own, whole[NONE])
            )
            clusters = [text for model in MODELS for text in own[model][texts]]
            assert clusters == [text for model in MODELS for text in whole[NONE][model][texts]]
            retrieved, losses = values[:, RETRIEVED], values[:, TEXT]
            low, high = mean_interval(retrieved, clusters=clusters) or (0.0, 1.0)
            shares.append(float(retrieved.mean()))
            cells.append(
                f"{100 * shares[-1]:.0f}% ({100 * max(low, 0):.0f} to {100 * min(high, 1):.0f})"
            )
            more = losses - usual[:, TEXT]
            interval = mean_interval(more, clusters=clusters)
            assert interval is not None
            cells.append(
                f"{losses.mean():.3f}"
                if method == NONE
                else f"{more.mean():+.3f} ({interval[0]:+.3f} to {interval[1]:+.3f})"
            )
        alike_now = tuple(name for name, first in alike(factor).items() if first == method)
        yield Row(alike_now, shares[0], tuple(cells))


def unfinished(finished: Iterable[Mapping[str, Any]]) -> list[str]:
    """`at 8 times: yarn (bundled:3), …`"""
    done = {(line["model"], line["factor"], line["method"]) for line in finished}
    found = []
    for factor in sorted(FACTORS):
        own: dict[str, list[str]] = {}
        for cell in all_cells():
            if cell.factor == factor and cell not in done:
                own.setdefault(cell.method, []).append(cell.model)
        told = [
            name if len(models) == len(MODELS) else f"{name} ({', '.join(models)})"
            for name, models in own.items()
        ]
        if told:
            found.append(f"at {factor} times {', '.join(told)}")
    return found


if __name__ == "__main__":
    main()
