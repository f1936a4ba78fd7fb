"""The methods that work at each length, on models that differ, untrained and fine-tuned.

    python -m studies.bundled_model.train --size wide --seeds 1     and the other sizes
    python -m studies.ranking.measure                                 runs what is missing

Finished cells are kept in cells.jsonl with everything that decides them, and are not run again.
`--report` runs nothing, and fits and checks the rule on what is there (results.json).
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from ropewalk.context_plan import FULL_ATTENTION, ContextPlan, PlanStep
from ropewalk.models.config import BUNDLED_FOLDERS
from ropewalk.outputs import write_atomically
from ropewalk.planning.measured import FILE_PATH
from studies.ranking.analysis import Group, groups, measured_rows, summary, trained_less_yarn
from studies.ranking.cells import SUBJECTS, VERSION, Cell, all_cells, decides, schedules, work

REPOSITORY = Path(__file__).parents[2]
CELLS = Path(__file__).with_name("cells.jsonl")
RESULTS = Path(__file__).with_name("results.json")
DECIDING = (
    *("version", "subject", "factor", "method", "steps", "weights", "text", "documents", "torch"),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--subjects", nargs="+", default=list(SUBJECTS), choices=SUBJECTS)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--report", action="store_true", help="run nothing")
    parser.add_argument("--candidates", type=Path, default=REPOSITORY / "runs" / "bundled_model")
    arguments = parser.parse_args()
    if not arguments.report:
        _run_missing(arguments)
    report(lines())
    return 0


def lines() -> list[dict[str, Any]]:
    """The finished cells of this version."""
    text = CELLS.read_text(encoding="utf-8") if CELLS.exists() else ""
    found = [json.loads(line) for line in text.splitlines()]
    return [line for line in found if line["version"] == VERSION]


def report(finished: Sequence[dict[str, Any]]) -> None:
    """Fit and check the rules, and write the package's facts of each method."""
    found = groups(finished)
    whole = whole_groups(found)
    value = summary(whole) | {
        "trained_less_yarn": trained_less_yarn(found),
        "cells": len(finished),
        "unfinished": [
            [group.subject, group.factor, group.steps] for group in found if group not in whole
        ],
        "machines": [
            dict(items)
            for items in dict.fromkeys(tuple(each["machine"].items()) for each in finished)
        ],
    }
    write_atomically(RESULTS, json.dumps(value, indent=1) + "\n")
    rows = ",\n".join(json.dumps(row) for row in measured_rows(whole))
    write_atomically(FILE_PATH, f'{{"rows": [\n{rows}\n]}}\n')
    print(json.dumps(value["rules"], indent=1))


def whole_groups(found: Sequence[Group]) -> list[Group]:
    """The groups whose cells are all finished."""
    return [group for group in found if set(group.retrieved) == _methods_of(group)]


def _methods_of(group: Group) -> set[str]:
    """All that the model and length have cells for."""
    case = next(iter(group.cases.values()))
    steps = (PlanStep(case.start.length, case.start),)
    return set(schedules(ContextPlan(group.subject, {FULL_ATTENTION: steps}), case.target))


def _run_missing(arguments: argparse.Namespace) -> None:
    there = [
        name
        for name in arguments.subjects
        if SUBJECTS[name].path(arguments.candidates) in BUNDLED_FOLDERS
        or Path(SUBJECTS[name].path(arguments.candidates)).exists()
    ]
    for name in set(arguments.subjects) - set(there):
        print(f"{name} is not trained yet, and left out", flush=True)
    known = {_key(line) for line in lines()}
    missing = [
        cell
        for cell in all_cells(there, arguments.candidates)
        if _key(decides(cell, arguments.candidates)) not in known
    ]
    print(f"{len(missing)} cells to run", flush=True)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    one = partial(work, candidates=arguments.candidates)
    with ProcessPoolExecutor(arguments.jobs, mp_context=get_context("spawn")) as pool:
        works: dict[Any, Cell] = {pool.submit(one, cell): cell for cell in missing}
        for done, future in enumerate(as_completed(works), start=1):
            line = future.result()
            with CELLS.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line, separators=(",", ":")) + "\n")
            print(f"{done} of {len(works)}: {works[future]}, {line['seconds']:.0f} s", flush=True)


def _key(line: dict[str, Any]) -> str:
    return json.dumps([line[name] for name in DECIDING])


if __name__ == "__main__":
    raise SystemExit(main())
