"""Does a searched schedule still lead after fine-tuning at the target length?

    python -m benchmarks.searched_start             runs what is missing, a minute or two a cell
    python -m benchmarks.searched_start --report    runs nothing

What the searches of `benchmarks.search` ended in at 4 times the window, and YaRN, are fine-tuned by
the loop of the study of the ranking and measured after 0, 50 and 200 steps, on the documents that
were held out from the search. Starts of one seed see the same windows. The unit is the seed: a
difference to YaRN is taken in each, and its interval is Student's t.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks.machine import machine
from benchmarks.search import REPOSITORY, RESULTS, difference, in_words
from benchmarks.searches import REPORTED, Run, problem_of
from ropewalk.context_plan import FULL_ATTENTION, ContextPlan, PlanStep
from ropewalk.outputs import write_atomically
from ropewalk.planning.extension import extend
from ropewalk.searching.model.measure import LocalMeasure
from ropewalk.searching.model.objectives import loss_of
from studies.ranking.tuning import tuned

KEPT = Path(__file__).with_name("results") / "searched_start.json"
STARTS = ("yarn", "adaptive")
STEPS = (0, 50, 200)


class Cell(NamedTuple):
    subject: str
    start: str
    seed: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--subjects", nargs="+", default=REPORTED, choices=REPORTED)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--report", action="store_true", help="run nothing")
    parser.add_argument("--candidates", type=Path, default=REPOSITORY / "runs" / "bundled_model")
    arguments = parser.parse_args()
    cells = [
        Cell(subject, start, seed)
        for subject in arguments.subjects
        for seed in range(arguments.seeds)
        for start in STARTS
    ]
    if not arguments.report:
        known = {Cell(*(line[name] for name in Cell._fields)) for line in recorded()}
        missing = [cell for cell in cells if cell not in known]
        with ProcessPoolExecutor(arguments.jobs, mp_context=get_context("spawn")) as pool:
            one = partial(work, candidates=arguments.candidates)
            for done, future in enumerate(
                as_completed([pool.submit(one, each) for each in missing]), 1
            ):
                _keep([*recorded(), future.result()])
                print(f"{done} of {len(missing)}", flush=True)
    print(page(recorded()))


def recorded() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(KEPT.read_text()) if KEPT.exists() else []
    return found


def _keep(lines: Sequence[dict[str, Any]]) -> None:
    rows = ",\n".join(json.dumps(line) for line in sorted(lines, key=lambda each: str(each)))
    write_atomically(KEPT, f"[\n{rows}\n]\n")


def work(cell: Cell, candidates: Path) -> dict[str, Any]:
    """A start's losses and retrieval after each number of steps."""
    torch.set_num_threads(1)
    began = time.perf_counter()
    run = Run(cell.subject, "adaptive", cell.seed)
    problem, documents = problem_of(run, candidates, Path())
    schedule = extend(problem.start, problem.target, "yarn")
    if cell.start != "yarn":
        factors, scaling = _found(cell)
        schedule = replace(
            schedule,
            rescale_factors=np.array(factors),
            attention_scaling=scaling,
            recipe=(),
        )
    plan = ContextPlan(
        problem.model.present_plan.model,
        {FULL_ATTENTION: (PlanStep(problem.target, schedule),)},
    )
    after = {}
    for steps in tuned(problem.model, plan, STEPS, cell.seed):
        measure = LocalMeasure(problem.model.model, documents, lambda _: plan)
        values = measure([schedule], range(len(documents)))[0]
        after[str(steps)] = {
            "score": float(loss_of(values, "mixed").mean()),
            "retrieval": float(values[:, 2].mean()),
        }
    return {
        **cell._asdict(),
        "after": after,
        "seconds": round(time.perf_counter() - began, 1),
        "machine": machine(),
    }


def _found(cell: Cell) -> tuple[list[float], float]:
    """The factors and the scaling that a search ended in."""
    lines = map(json.loads, RESULTS.with_name("search_runs.jsonl").read_text().splitlines())
    wanted = tuple(cell)
    [line] = [line for line in lines if (line["subject"], line["strategy"], line["seed"]) == wanted]
    return line["factors"], line["attention_scaling"]


def page(lines: Sequence[dict[str, Any]]) -> str:
    """Each searched start minus YaRN, by model and steps."""
    told = [
        "| score minus that of YaRN | " + " | ".join(f"after {n} steps" for n in STEPS) + " |",
        "|---|" + "---|" * len(STEPS),
    ]
    for subject in dict.fromkeys(line["subject"] for line in lines):
        by_start = {
            start: {
                line["seed"]: line["after"]
                for line in lines
                if (line["subject"], line["start"]) == (subject, start)
            }
            for start in STARTS
        }
        for start in STARTS[1:]:
            seeds = sorted(set(by_start[start]) & set(by_start["yarn"]))
            cells = []
            for steps in map(str, STEPS):
                pairs = [(by_start[start][s][steps], by_start["yarn"][s][steps]) for s in seeds]
                cells.append(in_words(difference(pairs, "score"), 3) if pairs else "not run")
            told.append(f"| {subject}, {start} ({len(seeds)} seeds) | " + " | ".join(cells) + " |")
    return "\n".join(told)


def blocks() -> dict[str, str]:
    return {"studies/searches/README.md": page(recorded())}


if __name__ == "__main__":
    main()
