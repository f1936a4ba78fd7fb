"""The models and the strategies that the comparison of searches runs, a row each.

A strategy is given a `Problem` and tells, through `note`, which schedule it holds after how many
tokens. So anything that ends in a schedule can be a row: `evaluated` makes one of a strategy.
"""

from __future__ import annotations

import ast
import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks import covariance, search_controls
from benchmarks.machine import machine
from benchmarks.text import read_text
from ropewalk.context_plan import FULL_ATTENTION, ContextPlan, PlanStep
from ropewalk.evaluation import planted
from ropewalk.evaluation.encoding import Encoder
from ropewalk.evaluation.planted import Planted, Split, split_corpus
from ropewalk.models.config import BUNDLED
from ropewalk.models.load import LoadedModel, load
from ropewalk.planning.extension import HAND_DESIGNED, extend
from ropewalk.run_directory import Journal
from ropewalk.schedule import FloatArray, RotarySchedule
from ropewalk.searching import coordinates, driver, space, surface
from ropewalk.searching.driver import Progress, Strategy
from ropewalk.searching.model import measure as measuring
from ropewalk.searching.model import objectives
from ropewalk.searching.model.measure import LocalMeasure
from ropewalk.searching.model.objectives import ModelObjective, loss_of
from ropewalk.searching.model.settings import published_space
from ropewalk.searching.objective import Kind
from ropewalk.searching.space import Space
from ropewalk.searching.strategies import adaptive, evolution, yarn
from studies.bundled_model.train import finished
from studies.ranking.cells import sampled_fingerprint

VERSION = 2  # of what a run does; what is finished under another one is run again
DOCUMENTS = 5  # that Algorithm 1 sees
EVALUATIONS = 1344  # of all of them
HELD_OUT = 48  # documents that no search of a seed sees
LOOKS = (1 / 128, 1 / 64, 1 / 32, 1 / 16, 0.1, 1 / 8, 0.25, 0.5, 1.0)
"""The shares of Algorithm 1's tokens after which the schedule that a search holds is kept."""


class Subject(NamedTuple):
    """A model, and how far it is extended."""

    size: str | None
    """A size of studies/bundled_model; None for the shipped model, which is for trying this out."""
    seed: int
    """The seed of its training."""
    target: int
    evaluations: int = EVALUATIONS

    def path(self, candidates: Path) -> str:
        return BUNDLED if self.size is None else str(finished(candidates / self.size, self.seed))


SUBJECTS = {
    "wide": Subject("wide", 1, 512),
    "tall": Subject("tall", 1, 512),
    "wide at 2 times": Subject("wide", 1, 256),
    "tall at 2 times": Subject("tall", 1, 256),
    "wide at 8 times": Subject("wide", 1, 1024),
    "tall at 8 times": Subject("tall", 1, 1024),
    "bundled": Subject(None, 0, 1024, evaluations=80),
    "tall 4": Subject("tall", 4, 512),
    "wide 4": Subject("wide", 4, 512),
}
REPORTED = ("wide", "tall")
UNSEEN = ("tall 4", "wide 4")
"""Trained after all strategies were written, so no result on these chose anything in them."""


class Problem(NamedTuple):
    """The input of one search."""

    model: LoadedModel
    start: RotarySchedule
    target: int
    documents: tuple[Planted, ...]
    """The documents to search on, as many as its row asks for, planted or plain."""
    tokens: int
    """The tokens that it may spend."""
    seed: int
    journal: Path

    def plan_of(self, schedule: RotarySchedule) -> ContextPlan:
        steps = (PlanStep(schedule.length, schedule),)
        return ContextPlan(self.model.present_plan.model, {FULL_ATTENTION: steps})


Note = Callable[[int, RotarySchedule], None]
"""Called with the tokens spent and the schedule that is best by then, as often as it changes."""
Search = Callable[[Problem, Note], None]


def evaluated(strategy: Strategy, *, as_published: bool = False) -> Search:
    """A search by losses alone: the strategy asks, the model answers."""

    def run(problem: Problem, note: Note) -> None:
        measure = LocalMeasure(problem.model.model, problem.documents, problem.plan_of)
        kind: Kind = "perplexity" if as_published else "mixed"
        where = Space(problem.start, problem.target, stock_runtimes=not as_published)
        if as_published:
            where = published_space(where)

        def told(progress: Progress) -> None:
            note(progress.tokens, where.schedule(progress.best))

        journal = Journal(problem.journal)
        driver.search(
            where,
            ModelObjective(measure, kind, range(len(problem.documents)), problem.target),
            strategy,
            seed=problem.seed,
            tokens=problem.tokens,
            journal=journal,
            progress=told,
        )
        journal.close()

    return run


class Row(NamedTuple):
    """A strategy as it is compared."""

    search: Search
    share: float
    """The share of Algorithm 1's tokens that it may spend."""
    code: tuple[Any, ...]
    """The modules of its own code, besides those of all searches."""
    documents: int = DOCUMENTS
    plain: bool = False
    """True if it searches on text in which nothing is planted."""


STRATEGIES = {
    "as published": Row(
        evaluated(evolution.strategy, as_published=True), 1.0, (evolution,), plain=True
    ),
    "evolution": Row(evaluated(evolution.strategy), 1.0, (evolution,)),
    "adaptive": Row(
        evaluated(adaptive.strategy), 0.1, (adaptive, coordinates, surface), 4 * DOCUMENTS
    ),
    "yarn's numbers": Row(evaluated(yarn.strategy), 0.1, (adaptive, surface, yarn), 4 * DOCUMENTS),
    "random": Row(evaluated(search_controls.random_search), 0.25, (search_controls,)),
    "covariance": Row(
        evaluated(search_controls.plain_covariance),
        0.25,
        (search_controls, covariance, coordinates),
    ),
}
IN_COMMON = 48
"""Documents to search on that are drawn with those held out; a row that takes more gets others."""
OTHER_SEEDS = 1000
"""Added to a seed for those others, so that they ask for other facts."""
BY_HAND = HAND_DESIGNED
"""The methods that `ropewalk search` compares; older runs have the first four."""
ALSO_BY_HAND = ("adaptive", "evolution")
"""Rows whose runs also measure the hand-designed methods. In search_runs.jsonl, those of the search
by gradient, which was removed, measured them where no other row had run."""


class Run(NamedTuple):
    """One search."""

    subject: str
    strategy: str
    seed: int


def decides(run: Run, weights: str) -> dict[str, object]:
    """Everything that a run depends on: one with the same is not run again."""
    row, subject = STRATEGIES[run.strategy], SUBJECTS[run.subject]
    return {
        "version": VERSION,
        **run._asdict(),
        "target": subject.target,
        "evaluations": subject.evaluations,
        "weights": weights,
        "text": read_text().fingerprints["reporting"],
        "code": _code((driver, measuring, objectives, planted, space, *row.code)),
        "share": row.share,
        "documents": row.documents,
        "held_out": HELD_OUT,
        "looks_at": list(LOOKS),
        "torch": torch.__version__,
    }


def _code(modules: tuple[Any, ...]) -> str:
    """A digest of modules, whatever their comments and docstrings."""
    digest = hashlib.sha256()
    for module in modules:
        tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
        digest.update(ast.dump(_WithoutStrings().visit(tree)).encode())
    return digest.hexdigest()[:16]


class _WithoutStrings(ast.NodeTransformer):
    """Drops strings that stand alone: they describe, and do nothing."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        alone = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if alone else node


def everything(subject: Subject) -> int:
    """The tokens of Algorithm 1."""
    return subject.evaluations * DOCUMENTS * subject.target


def tokens_of(run: Run) -> int:
    """About how many tokens a run takes, its looks at the held-out documents included."""
    row, subject = STRATEGIES[run.strategy], SUBJECTS[run.subject]
    looks = sum(look <= row.share for look in LOOKS)
    by_hand = len(BY_HAND) if run.strategy in ALSO_BY_HAND else 0
    return round(row.share * everything(subject)) + ((looks + by_hand) * HELD_OUT * subject.target)


def weights_of(subject: Subject, candidates: Path) -> str:
    return sampled_fingerprint(load(subject.path(candidates)).model)


def forward_seconds(subject: Subject, candidates: Path) -> float:
    """The seconds that a search takes to score one token, on one thread."""
    torch.set_num_threads(1)
    problem, held_out = problem_of(Run(_name(subject), "evolution", 0), candidates, Path())
    measure = LocalMeasure(problem.model.model, held_out, problem.plan_of)
    schedule = extend(problem.start, problem.target, "yarn")
    measure([schedule], [0])
    began = time.perf_counter()
    measure([schedule], range(1, 6))
    return (time.perf_counter() - began) / (5 * problem.target)


def _name(subject: Subject) -> str:
    return next(name for name, value in SUBJECTS.items() if value == subject)


def work(run: Run, candidates: Path, folder: Path) -> dict[str, Any]:
    """The results of one search at each look, on documents that it never saw."""
    torch.set_num_threads(1)
    subject = SUBJECTS[run.subject]
    began = time.perf_counter()
    key = decides(run, weights_of(subject, candidates))
    name = hashlib.sha256(repr(key).encode()).hexdigest()[:16]
    problem, reporting = problem_of(run, candidates, folder / f"{name}.jsonl")
    looks = {share: round(share * everything(subject)) for share in LOOKS}
    held: dict[float, RotarySchedule] = {}
    spent = 0

    def note(tokens: int, schedule: RotarySchedule) -> None:
        nonlocal spent
        spent = tokens
        # At a look, a search holds the best of before it.
        held.update({share: schedule for share, look in looks.items() if tokens <= look})

    STRATEGIES[run.strategy].search(problem, note)
    share = STRATEGIES[run.strategy].share
    measure = LocalMeasure(problem.model.model, reporting, problem.plan_of)
    known: dict[RotarySchedule, dict[str, float]] = {}

    def on_held_out(schedule: RotarySchedule) -> dict[str, float]:
        if schedule not in known:
            known[schedule] = _shown(measure([schedule], range(len(reporting)))[0])
        return known[schedule]

    by_hand = BY_HAND if run.strategy in ALSO_BY_HAND else ()
    return {
        **key,
        "tokens": spent,
        "looks": {
            f"{look:.4f}": on_held_out(schedule)
            for look, schedule in sorted(held.items())
            if look <= share
        },
        "factors": held[share].rescale_factors.tolist(),
        "attention_scaling": held[share].attention_scaling,
        "by_hand": {
            name: on_held_out(extend(problem.start, subject.target, name)) for name in by_hand
        },
        "seconds": round(time.perf_counter() - began, 1),
        "machine": machine(),
    }


def problem_of(run: Run, candidates: Path, journal: Path) -> tuple[Problem, tuple[Planted, ...]]:
    """The input of a search, and the documents that it is reported on.

    Of one seed, all strategies have the first documents in common, and all of the others.
    """
    row, subject = STRATEGIES[run.strategy], SUBJECTS[run.subject]
    loaded = load(subject.path(candidates))
    encoder = Encoder(loaded.tokenizer, loaded.vocabulary)

    def drawn(search: int, seed: int) -> Split:
        sizes = (search, 1, HELD_OUT)
        text = read_text().reporting
        return split_corpus(text, encoder, subject.target, sizes, seed, plain_search=row.plain)

    sets = drawn(IN_COMMON, run.seed)
    documents = sets.search
    if row.documents > IN_COMMON:
        known = {document.source for document in sets.all}
        more = drawn(row.documents + len(sets.all), OTHER_SEEDS + run.seed).search
        documents += tuple(each for each in more if each.source not in known)
    problem = Problem(
        model=loaded,
        start=loaded.present_plan.longest(),
        target=subject.target,
        documents=documents[: row.documents],
        tokens=round(row.share * everything(subject)),
        seed=run.seed,
        journal=journal,
    )
    return problem, sets.reporting


def _shown(measured: FloatArray) -> dict[str, float]:
    """Means over documents; losses are no better known than to five decimals."""
    text, _, retrieval = measured.mean(axis=0)
    shown = {
        "score": loss_of(measured, "mixed").mean(),
        "perplexity": np.exp(text),
        "retrieval": retrieval,
    }
    return {name: round(float(value), 5) for name, value in shown.items()}
