"""Forced answers next to written ones, on the same samples of the three bundled models.

    python -m benchmarks.agreement             about ten minutes of one core

Every sample is scored under teacher forcing and written by the model itself, under the model as it
is, NTK and YaRN, inside the window and at two and four times it. Up to rounding the two modes must
agree on what is exact; how much a score without the answer's end overstates is what varies.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from benchmarks.machine import PAGE, machine
from ropewalk.data.corpora import HELD_OUT, read_documents
from ropewalk.evaluation.conditions import conditions_of
from ropewalk.evaluation.in_process import InProcess
from ropewalk.evaluation.runner import Evaluation
from ropewalk.evaluation.settings import EvaluationSettings
from ropewalk.models.config import BUNDLED_FOLDERS
from ropewalk.models.load import load
from ropewalk.outputs import write_atomically
from ropewalk.records import Mode

MODES: tuple[Mode, ...] = ("teacher_forced", "generate")

RESULTS = Path(__file__).with_name("results") / "agreement.json"
TASKS = ("passkey", "needle", "kv", "lines")
METHODS = ("none", "ntk", "yarn")
LENGTHS = (512, 1024, 2048)
SAMPLES = 20


def main() -> int:
    torch.set_num_threads(1)
    found = {"machine": machine(), "torch": torch.__version__, "samples": measure()}
    write_atomically(RESULTS, json.dumps(found, indent=1) + "\n")
    print(table())
    return 0


def blocks() -> dict[str, str]:
    return {PAGE: table()}


def measure() -> list[dict[str, Any]]:
    """Count each combination of scores, by model, task, method and length."""
    counts: Counter[tuple[Any, ...]] = Counter()
    documents = list(read_documents(HELD_OUT))
    for model in BUNDLED_FOLDERS:
        loaded = load(model)
        conditions = conditions_of(loaded.present_plan, METHODS, target=max(LENGTHS))
        scores: dict[tuple[Any, ...], dict[str, float]] = {}
        for mode in MODES:
            settings = EvaluationSettings(TASKS, LENGTHS, SAMPLES, mode=mode)
            for record in Evaluation(InProcess(loaded, conditions), documents, settings).run():
                sample = (record.task, record.method, record.length, record.sample)
                scores.setdefault(sample, {})[f"{mode} {record.metric}"] = record.score
        for (task, method, length, _), own in scores.items():
            counts[(model, task, method, length, *sorted(own.items()))] += 1
        print(f"{model}: {len(scores)} samples", flush=True)
    return [
        {"model": model, "task": task, "method": method, "length": length, **dict(own), "count": n}
        for (model, task, method, length, *own), n in counts.items()
    ]


def table() -> str:
    """One row a task; all models, methods and lengths together."""
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    lines = [
        "| task | samples | forced, end not scored | forced | written | by the task's rule "
        "| exact in one mode only | exact, but wrong by the rule |",
        "|---" * 8 + "|",
    ]
    for task in TASKS:
        own = [row for row in found["samples"] if row["task"] == task]
        total = sum(row["count"] for row in own)

        def share(key: str, own: list[dict[str, Any]] = own, total: int = total) -> str:
            return f"{sum(row['count'] for row in own if row[key]) / total:.1%}"

        def differ(first: str, second: str, own: list[dict[str, Any]] = own) -> int:
            return sum(row["count"] for row in own if row[first] > row[second])

        forced, written = "teacher_forced exact_match", "generate exact_match"
        prefix, rule = "teacher_forced prefix_match", "generate task_score"
        lines.append(
            f"| {task} | {total} | {share(prefix)} | {share(forced)} | {share(written)} "
            f"| {share(rule)} | {differ(forced, written) + differ(written, forced)} "
            f"| {differ(forced, rule)} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
