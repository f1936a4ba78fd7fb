"""The tasks that tell methods apart: floor, ceiling, and samples needed for YaRN against linear.

    make real                              SmolLM2, once; without it its column stays empty
    python -m benchmarks.which_task        about an hour of one core; goes on where it was stopped

Answers are written. SmolLM2 is asked through its chat template, within its window. The bundled
models are asked within theirs as they are, and at four times it under both methods.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import ropewalk as rw
from benchmarks.machine import PAGE, machine
from docs.figures import paragraph
from ropewalk.evaluation import tasks
from ropewalk.evaluation.statistics import mean_interval
from ropewalk.models.config import BUNDLED_FOLDERS
from ropewalk.outputs import write_atomically
from ropewalk.run_directory import RECORDS, read_journal
from studies.smollm2.model import FOLDER

RESULTS = Path(__file__).with_name("results") / "which_task.json"
PLACE = Path("runs/which_task")
LARGE, WITHIN, BEYOND = "SmolLM2", "within", "beyond"
SAMPLES = {LARGE: 8, WITHIN: 16, BEYOND: 16}
CHANCE = {"oolong-most-syn": 1 / 4, "oolong-compare-syn": 1 / 3}
"""The score of guessing; for the other tasks it is close to 0."""
Scores = dict[str, dict[str, float]]
"""By method, by sample."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--report", action="store_true", help="run nothing")
    if not parser.parse_args().report:
        for model in BUNDLED_FOLDERS:
            run(model, WITHIN, lengths=[512])
            run(model, BEYOND, lengths=[2048], methods=["yarn", "linear"], to=2048)
        if FOLDER.is_dir():
            run(str(FOLDER), LARGE, lengths=[2048])
    print(table())


def run(model: str, part: str, **asked: Any) -> None:
    """One evaluation, by its scores, kept with those that are there."""
    place = PLACE / f"{part}-{Path(model).name.replace(':', '-')}"
    rw.evaluate(
        model,
        tasks=list(tasks.names()),
        samples=SAMPLES[part],
        mode="generate",
        dtype="float32",
        device="cpu",
        run=place,
        **asked,
    )
    found: dict[str, Scores] = defaultdict(lambda: defaultdict(dict))
    for line in read_journal(place / RECORDS):
        own: Any = line
        if own["metric"] not in ("exact_match", "prefix_match"):
            found[own["task"]][own["method"]][own["sample"]] = own["score"]
    kept = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {"parts": {}}
    kept["parts"][place.name] = found
    write_atomically(RESULTS, json.dumps({**kept, "machine": machine()}, indent=1) + "\n")
    print(f"{place.name}: done", flush=True)


def blocks() -> dict[str, str]:
    return {PAGE: table()}


def table() -> str:
    """One row for each task that tells YaRN from linear scaling; the others below them."""
    if not RESULTS.exists():
        return "Not measured yet."
    parts = json.loads(RESULTS.read_text("utf-8"))["parts"]
    lines = [
        "| task | chance | SmolLM2 at 2k | bundled at 512 | YaRN at 2k | linear at 2k "
        "| YaRN minus linear | samples for 80% power |",
        "|---" * 8 + "|",
    ]
    others: list[str] = []
    for task in tasks.names():
        own = {
            part: [
                found[task]
                for name, found in parts.items()
                if name.startswith(part) and task in found
            ]
            for part in SAMPLES
        }
        pairs = [
            (each["yarn"][sample], each["linear"][sample])
            for each in own[BEYOND]
            for sample in each["yarn"]
        ]
        yarn, linear = zip(*pairs, strict=True) if pairs else ((), ())
        rates = [_rate(_all(own[LARGE])), _rate(_all(own[WITHIN]))]
        difference, samples = _power(np.subtract(yarn, linear))
        if not samples:
            floor = {*rates, _rate(yarn)} == {"0%"}
            others.append(task if floor else f"{task} ({', '.join(rates)}, {_rate(yarn)})")
            continue
        chance = f"{CHANCE.get(task, 0):.0%}"
        shown = [chance, *rates, _rate(yarn), _rate(linear), difference, samples]
        lines.append(f"| {task} | {' | '.join(shown)} |")
    told = (
        f"No difference was shown in {len(others)} tasks (SmolLM2, bundled, YaRN at 2k; all 0% "
        "if no rates are given): "
        f"{', '.join(others)}."
    )
    return "\n".join([*lines, "", paragraph(told)])


def _all(found: Sequence[Scores]) -> list[float]:
    return [score for each in found for score in each["none"].values()]


def _rate(scores: Sequence[float]) -> str:
    return f"{np.mean(scores):.0%}" if len(scores) else "does not fit"


def _power(differences: np.ndarray[Any, np.dtype[np.float64]]) -> tuple[str, str]:
    """The mean difference with its interval, and how many pairs would show as large a one."""
    found = mean_interval(differences.tolist())
    if found is None:
        return "", ""
    low, high = found
    mean, spread = float(differences.mean()), float(differences.std(ddof=1))
    shown = f"{100 * mean:+.0f} ({100 * low:+.0f} to {100 * high:+.0f})"
    if low <= 0 <= high:
        return shown, ""
    return shown, f"{max(1, np.ceil(((1.96 + 0.84) * spread / mean) ** 2)):.0f}"


if __name__ == "__main__":
    main()
