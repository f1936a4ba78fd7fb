"""Whether the short search of `extend` finds what a longer one finds.

    python -m studies.bundled_model.train --size tall --seeds 1      and `--size wide --seeds 3`
    python -m benchmarks.search_budget            runs what is missing: an hour and a half of a core
    python -m benchmarks.search_budget --report   runs nothing

`extend --search` searches YaRN's parameters with 20 evaluations of 5 documents and chooses by 16
others. The longer search has the budget of `search --strategy yarn`: 40 evaluations of 12
documents, and 32 to choose by. A cell is a model, a target and a seed: both searches on
`benchmarks.text`'s part for tuning, and what each ends in (which may be a hand-designed method) on
24 documents of its part for reporting, next to YaRN. The loss is what these searches minimise:
text and answers at the target, and text within the window. The unit is the model, over its two
seeds and both targets, and intervals are Student's.

*Written down before the first cell.* The short search keeps the gain if the interval of its loss
minus that of the longer one ends below 0.02 nats, the price of short text that `extend` accepts.
It loses the gain if that interval begins above 0; then the budget goes back up.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks.machine import machine, measured_on
from benchmarks.text import read_text
from docs.figures import paragraph
from ropewalk.context_plan import ContextPlan, PlanStep
from ropewalk.evaluation.encoding import Encoder
from ropewalk.evaluation.planted import split_corpus
from ropewalk.evaluation.select import SHORT_LIMIT
from ropewalk.evaluation.statistics import mean_interval
from ropewalk.models.load import load
from ropewalk.outputs import write_atomically
from ropewalk.pipeline.settings import EVALUATIONS
from ropewalk.pipeline.stages.search import Search
from ropewalk.planning.hand_designed import hand_designed
from ropewalk.schedule import FloatArray, RotarySchedule
from ropewalk.searching.model.measure import ANSWERS, RETRIEVED, TEXT, LocalMeasure
from ropewalk.searching.model.run import search_model
from studies.training.cells import SUBJECTS

LINES = Path(__file__).with_name("results") / "search_budget.jsonl"
COMMAND = "python -m benchmarks.search_budget"
PAGE = "docs/search.md"
MODELS = ("bundled", "bundled 2", "bundled 3", "tall", "wide 3")
TIMES, SEEDS = (4, 8), (0, 1)
DOCUMENTS = 24
"""That report, of each cell."""
SHORT, LONGER, YARN = "short", "longer", "yarn"
LONGER_EVALUATIONS, LONGER_DOCUMENTS = 40, (12, 32, 1)


class Cell(NamedTuple):
    model: str
    times: int
    seed: int


def every_cell() -> list[Cell]:
    return [Cell(model, *rest) for *rest, model in product(TIMES, SEEDS, MODELS)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--report", action="store_true", help="run nothing")
    if not parser.parse_args().report:
        torch.set_num_threads(1)
        done = [Cell(*line["cell"]) for line in lines()]
        for cell in every_cell():
            if cell not in done:
                kept = LINES.read_text(encoding="utf-8") if LINES.exists() else ""
                line = json.dumps(work(cell), separators=(",", ":"))
                write_atomically(LINES, f"{kept}{line}\n")
                print(cell, flush=True)
    print(next(iter(blocks().values())))


def lines() -> list[dict[str, Any]]:
    text = LINES.read_text(encoding="utf-8") if LINES.exists() else ""
    return [json.loads(line) for line in text.splitlines()]


def work(cell: Cell) -> dict[str, Any]:
    """A finished cell."""
    began, loaded = time.process_time(), load(SUBJECTS[cell.model].path)
    present, layer = loaded.present_plan, loaded.present_plan.extended_layer
    start = present.longest(layer)
    target = cell.times * start.length
    short = Search(target, EVALUATIONS, cell.seed).settings
    longer = replace(short, evaluations=LONGER_EVALUATIONS, documents=LONGER_DOCUMENTS)
    schedules, searches = {YARN: hand_designed(start, target)[YARN]}, {}
    for name, settings in ((SHORT, short), (LONGER, longer)):
        [leg] = search_model(loaded, read_text().tuning, settings, notice=lambda _: None).legs
        schedules[name] = leg.best.schedule
        searches[name] = {
            "chosen": leg.chosen,
            "best_hand_designed": leg.best_hand_designed,
            "recipe": [each.to_json() for each in leg.best.schedule.recipe],
            "selection": leg.selection and leg.selection._asdict(),
            "evaluations": leg.evaluations,
            "tokens": leg.tokens,
        }
    encoder = Encoder(loaded.tokenizer, loaded.vocabulary)

    def measured(length: int) -> dict[str, list[list[float]]]:
        documents = split_corpus(
            read_text().reporting, encoder, length, (1, 1, DOCUMENTS), cell.seed
        ).reporting

        def plan_of(schedule: RotarySchedule) -> ContextPlan:
            return present.with_steps(layer, (PlanStep(target, schedule),))

        found = LocalMeasure(loaded.model, documents, plan_of)(
            [*schedules.values()], range(len(documents))
        )
        return {name: row.round(4).tolist() for name, row in zip(schedules, found, strict=True)}

    return {
        "cell": list(cell),
        "searches": searches,
        "at_target": measured(target),
        "at_window": measured(start.length),
        "cpu_seconds": round(time.process_time() - began, 1),
        "torch": torch.__version__,
        "machine": machine(),
    }


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
    if ends is None:
        return "is not decided"
    if ends[0] > 0:
        return "loses some of the gain"
    return "keeps the gain" if ends[1] < SHORT_LIMIT else "is not decided"


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
            f"By the rule written down before, the short search {ruled}. The short search ended in "
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
