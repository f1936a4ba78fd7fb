"""One cell of the study: a model under one method at one length, unmodified or after fine-tuning.

What is kept of a cell are the losses and the share of right answers of every document, so that
two methods are compared document by document.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from benchmarks.machine import machine
from benchmarks.text import Part, read_text
from ropewalk.context_plan import FULL_ATTENTION, ContextPlan, PlanStep
from ropewalk.errors import InputError
from ropewalk.evaluation.encoding import Encoder
from ropewalk.evaluation.planted import Planted, split_corpus, text_of
from ropewalk.models.config import BUNDLED_FOLDERS
from ropewalk.models.load import load
from ropewalk.planning.comparison import sufficient_base
from ropewalk.planning.extension import extend_plan
from ropewalk.schedule import RotarySchedule
from ropewalk.searching.model.measure import LocalMeasure
from studies.bundled_model.train import finished
from studies.ranking.tuning import tuned

VERSION = 1  # of what a cell does; what is finished under another one is run again
DOCUMENTS = 48
FACTORS = (2, 4, 8)
UNTOUCHED, TUNED = (0,), (50, 200)
"""The steps of fine-tuning after which a cell is measured."""
NONE = "none"
METHODS = (
    *("base_change", "dynamic_ntk", "linear", "llama3", "longrope", "ntk", "ntk_fixed"),
    *("ntk_mixed", "ntk_old", "resonance", "two_band", "yarn"),
)
"""The methods that there were; later ones are in studies/methods, which trains nothing."""
ALSO = {"dynamic_ntk": "ntk"}
"""At the length of a cell both are one schedule, which is measured once."""


class Subject(NamedTuple):
    """A model of studies/bundled_model."""

    size: str
    seed: int
    text: Part
    """Models that the rule is fitted on see one part of the text, the others the other part."""

    @property
    def left_out(self) -> bool:
        return self.text == "reporting"

    def path(self, candidates: Path) -> str:
        if self.size == "bundled":
            return list(BUNDLED_FOLDERS)[self.seed - 1]
        return str(finished(candidates / self.size, self.seed))


SUBJECTS = {
    "narrow": Subject("narrow", 1, "tuning"),
    "high base": Subject("high_base", 1, "tuning"),
    "low base": Subject("low_base", 1, "tuning"),
    "bundled": Subject("bundled", 1, "tuning"),
    "wide": Subject("wide", 1, "reporting"),
    "tall": Subject("tall", 1, "reporting"),
    "wide, seed 3": Subject("wide", 3, "reporting"),  # the second does not choose among keys
    "tall, seed 2": Subject("tall", 2, "reporting"),
}


class Cell(NamedTuple):
    subject: str
    factor: int
    method: str
    steps: tuple[int, ...]


def all_cells(subjects: Sequence[str], candidates: Path) -> list[Cell]:
    """All cells, in an order in which finished ones can be reported at any time.

    All models as they are come first; then fine-tuning, one model of a size before a second.
    """
    sizes = {SUBJECTS[name].size: name for name in reversed(subjects)}
    first = [name for name in subjects if name in sizes.values()]
    more = [name for name in subjects if name not in first]
    return [
        Cell(name, factor, method, steps)
        for names in (first, more)
        for steps in (UNTOUCHED, TUNED)
        for factor in (4, 8, 2)
        for name in names
        for method in _methods(SUBJECTS[name].path(candidates), factor)
    ]


@cache
def _methods(path: str, factor: int) -> tuple[str, ...]:
    present = load(path).present_plan
    return tuple(schedules(present, factor * present.longest().length))


def schedules(present: ContextPlan, target: int) -> dict[str, RotarySchedule]:
    """The schedule of each method for a model, without those that equal another at this length."""
    found = {NONE: replace(present.longest(), length=target)}
    given = {"base": sufficient_base(present, target, FULL_ATTENTION)}
    for method in METHODS:
        try:
            plan = extend_plan(present, target, method, given if method == "base_change" else None)
        except InputError:  # one that needs factors, or that does not extend
            continue
        found[method] = plan.longest()
    distinct: dict[str, RotarySchedule] = {}
    for name, schedule in found.items():
        if not any(_turn_alike(schedule, known) for known in distinct.values()):
            distinct[name] = schedule
    return distinct


def _turn_alike(one: RotarySchedule, other: RotarySchedule) -> bool:
    same = (one.rescale_factors == other.rescale_factors).all()
    return bool(same) and one.attention_scaling == other.attention_scaling


def decides(cell: Cell, candidates: Path) -> dict[str, Any]:
    """Everything that a cell depends on, except the code."""
    subject = SUBJECTS[cell.subject]
    return {
        "version": VERSION,
        **cell._asdict(),
        "steps": list(cell.steps),
        "weights": _weights(subject.path(candidates)),
        "text": read_text().fingerprints[subject.text],
        "documents": DOCUMENTS,
        "torch": torch.__version__,
    }


@cache
def _weights(path: str) -> str:
    return sampled_fingerprint(load(path).model)


def sampled_fingerprint(model: nn.Module) -> str:
    """A SHA-256 of 64 values of every parameter, by which finished cells know their models."""
    digest = hashlib.sha256()
    for name, parameter in model.named_parameters():
        flat = parameter.detach().flatten()
        digest.update(f"{name} {tuple(parameter.shape)}".encode())
        digest.update(flat[:: max(1, len(flat) // 64)].float().cpu().numpy().tobytes())
    return digest.hexdigest()


@cache
def _documents(path: str, subject: str, factor: int) -> tuple[Planted, ...]:
    loaded, asked = load(path), SUBJECTS[subject]
    sets = split_corpus(
        getattr(read_text(), asked.text),
        Encoder(loaded.tokenizer, loaded.vocabulary),
        factor * loaded.present_plan.longest().length,
        (1, 1, DOCUMENTS),
        asked.seed,
    )
    return sets.reporting


def work(cell: Cell, candidates: Path) -> dict[str, Any]:
    """A cell's line of results."""
    torch.set_num_threads(1)
    began = time.perf_counter()
    path = SUBJECTS[cell.subject].path(candidates)
    loaded = load(path)
    target = cell.factor * loaded.present_plan.longest().length
    schedule = schedules(loaded.present_plan, target)[cell.method]
    plan = ContextPlan(loaded.present_plan.model, {FULL_ATTENTION: (PlanStep(target, schedule),)})
    documents = _documents(path, cell.subject, cell.factor)

    measured = {}
    for steps in tuned(loaded, plan, cell.steps, SUBJECTS[cell.subject].seed):
        measure = LocalMeasure(loaded.model, documents, lambda _: plan)
        values = measure([schedule], range(len(documents)))[0]
        measured[str(steps)] = [[round(float(value), 3) for value in row] for row in values]
    return {
        **decides(cell, candidates),
        "target": target,
        "geometry": schedule.geometry.to_json(),
        "factors": [round(float(each), 6) for each in schedule.rescale_factors],
        "attention_scaling": schedule.attention_scaling,
        "texts": [text_of(document.source) for document in documents],
        "measured": measured,
        "seconds": round(time.perf_counter() - began, 1),
        "machine": machine(),
    }
