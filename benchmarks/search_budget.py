"""Whether the short search of `extend` still finds what its longer one found.

    python -m studies.bundled_model.train --size tall --seeds 1      and `--size wide --seeds 3`
    python -m benchmarks.search_budget            runs what is missing: 15 minutes of a core
    python -m benchmarks.search_budget --report   runs nothing

`extend --search` searches YaRN's parameters with 20 evaluations of 5 documents, on 30% of its text,
and chooses by 16 others. The longer one had 24 evaluations of 6 documents: for the bundled models
these are the cells of benchmarks.trade_off, which had 55% of the text, and for the others they are
run here. What a search ends in, which may be a hand-designed method, is read on the 24 documents of
the study of methods, which no search saw, next to YaRN. The loss is what these searches minimise:
text and answers at the target, and text within the window. The unit is the model, over seeds and
both targets, and intervals are Student's over models. The longer searches of the bundled models
have one seed.

*Written down before the first cell.* The short search keeps the gain if the interval of its loss
minus that of the longer one ends below 0.02 nats, the price of short text that `extend` accepts.
It loses the gain if that interval begins above 0; then the budget goes back up.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks import cells, trade_off
from benchmarks.cells import run_missing
from benchmarks.machine import PAGE, machine, measured_on
from docs.figures import paragraph
from ropewalk.data.documents import as_documents
from ropewalk.evaluation.select import SHORT_LIMIT
from ropewalk.evaluation.statistics import mean_interval
from ropewalk.models.load import load
from ropewalk.pipeline.settings import EVALUATIONS, parted
from ropewalk.pipeline.stages.search import Search
from ropewalk.planning.extension import hand_designed
from ropewalk.schedule import FloatArray
from ropewalk.searching.model.measure import ANSWERS, RETRIEVED, TEXT
from ropewalk.searching.model.run import search_model
from studies.training.cells import SUBJECTS

LINES = Path(__file__).with_name("results") / "search_budget.jsonl"
COMMAND = "python -m benchmarks.search_budget"
MODELS = ("tall", "wide 3", "bundled", "bundled 2", "bundled 3")
TIMES, SEEDS = (4, 8), (0, 1)
SHORT, LONGER, YARN = "short", "longer", "yarn"
LONGER_EVALUATIONS, LONGER_DOCUMENTS = 24, (6, 16, 0)


class Cell(NamedTuple):
    model: str
    times: int
    seed: int


def every_cell() -> list[Cell]:
    return [Cell(model, times, seed) for seed, times, model in product(SEEDS, TIMES, MODELS)]


def main() -> None:
    run_missing(__doc__, LINES, every_cell(), work, blocks)


def lines() -> list[dict[str, Any]]:
    return cells.lines(LINES)


def work(cell: Cell) -> dict[str, Any]:
    """A finished cell."""
    began, path = time.process_time(), SUBJECTS[cell.model].path
    loaded = load(path)
    start = loaded.present_plan.longest()
    target = cell.times * start.length
    recorded = {tuple(line["cell"]): line for line in trade_off.lines()}
    longer = recorded.get(("yarn", cell.times, path))
    schedules = {YARN: hand_designed(start, target)[YARN]}
    searches: dict[str, Any] = {} if longer is None else {LONGER: described(longer)}
    short = Search(target, EVALUATIONS, cell.seed).settings
    settings = {SHORT: short}
    to_search, _ = parted(as_documents("held-out", "text", print))
    if longer is None:
        settings[LONGER] = replace(
            short, evaluations=LONGER_EVALUATIONS, documents=LONGER_DOCUMENTS
        )
    for name, own in settings.items():
        [leg] = search_model(loaded, to_search, own, notice=lambda _: None).legs
        schedules[name] = leg.best.schedule
        recipe = [each.to_json() for each in leg.best.schedule.recipe]
        searches[name] = described({**vars(leg), "recipe": recipe})
    rows = {
        place: {
            name: trade_off.rows(path, schedule, length) for name, schedule in schedules.items()
        }
        for place, length in (("at_target", target), ("at_window", start.length))
    }
    if longer is not None:
        for place, own_rows in rows.items():
            own_rows[LONGER] = longer[place]
    return {
        "cell": list(cell),
        "searches": searches,
        **rows,
        "cpu_seconds": round(time.process_time() - began, 1),
        "torch": torch.__version__,
        "machine": machine(),
    }


def described(found: Mapping[str, Any]) -> dict[str, Any]:
    return {name: found[name] for name in ("chosen", "recipe", "evaluations", "tokens")}


def losses(line: dict[str, Any], name: str) -> FloatArray:
    """Text and answers at the target, text within the window, and the share retrieved: means."""
    target, window = (np.array(line[place][name]) for place in ("at_target", "at_window"))
    means = [target[:, TEXT].mean(), target[:, ANSWERS].mean(), window[:, TEXT].mean()]
    return np.array([*means, 100 * target[:, RETRIEVED].mean()])


def differences(found: Sequence[dict[str, Any]], name: str, other: str) -> FloatArray:
    """One minus the other, of each model: the loss, and the points retrieved at the target."""
    of_model = [
        np.mean(
            [losses(e, name) - losses(e, other) for e in found if e["cell"][0] == model], axis=0
        )
        for model in dict.fromkeys(line["cell"][0] for line in found)
    ]
    return np.array([[own[:3].sum(), own[3]] for own in of_model])


def told(values: Sequence[float], digits: int) -> str:
    ends = mean_interval(values)
    interval = "" if ends is None else f" ({ends[0]:+.{digits}f} to {ends[1]:+.{digits}f})"
    return f"{np.mean(values):+.{digits}f}{interval}"


def verdict(values: Sequence[float]) -> str:
    """By the rule above, of the short search's loss minus that of the longer one."""
    ends = mean_interval(values)
    if ends is not None and ends[0] > 0:
        return "the short search loses some of the gain"
    if ends is not None and ends[1] < SHORT_LIMIT:
        return "the short search keeps the gain"
    return "it is undecided whether the short search keeps the gain"


def blocks() -> dict[str, str]:
    found = lines()
    if not found:
        return {PAGE: f"Not measured yet (`{COMMAND}`)."}
    rows = [
        "| target | short minus longer: loss | retrieved, points | short minus YaRN: loss "
        "| retrieved, points | longer minus YaRN: loss | retrieved, points |",
        "|---" * 7 + "|",
    ]
    for heading, times in (*((f"{n} times", (n,)) for n in TIMES), ("both", TIMES)):
        own = [line for line in found if line["cell"][1] in times]
        if own:
            pairs = ((SHORT, LONGER), (SHORT, YARN), (LONGER, YARN))
            cells = [
                told(values.tolist(), digits)
                for pair in pairs
                for values, digits in zip(differences(own, *pair).T, (3, 1), strict=True)
            ]
            rows.append(f"| {heading} | {' | '.join(cells)} |")
    chosen = {
        name: sum(line["searches"][name]["chosen"] == "search" for line in found)
        for name in (SHORT, LONGER)
    }
    ruled = verdict(differences(found, SHORT, LONGER)[:, 0].tolist())
    missing = len(every_cell()) - len(found)
    paragraphs = [
        "\n".join(rows),
        paragraph(
            f"By the rule written down before, {ruled}. The short search ended in "
            f"a searched schedule in {chosen[SHORT]} of {len(found)} cases, the longer one in "
            f"{chosen[LONGER]}; the others kept a hand-designed method."
            + (f" {missing} cases are missing." if missing else "")
        ),
    ]
    machines = {json.dumps(line["machine"]): line for line in found}
    paragraphs += [
        f"{measured_on({**line['machine'], 'torch': line['torch']}, COMMAND)}."
        for line in machines.values()
    ]
    return {PAGE: "\n\n".join(paragraphs)}


if __name__ == "__main__":
    main()
