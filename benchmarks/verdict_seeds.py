"""Verdicts of `extend` over twenty seeds, on the bundled models at 4 times their window.

    python -m benchmarks.verdict_seeds            runs what is missing: some minutes a seed
    python -m benchmarks.verdict_seeds --report   runs nothing

A seed draws the documents and their facts; models take turns. A finished seed is a line
of results/verdict_seeds.jsonl, and one that was cut off goes on in runs/verdict-seeds.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
from pathlib import Path
from typing import Any

import torch

import ropewalk as rw
from benchmarks.cost_estimate import taken
from benchmarks.machine import PAGE, machine, measured_on
from docs.figures import paragraph
from ropewalk.outputs import write_atomically
from ropewalk.run_directory import EVENTS, read_journal
from studies.methods.measure import MODELS

LINES = Path(__file__).with_name("results") / "verdict_seeds.jsonl"
COMMAND = "python -m benchmarks.verdict_seeds"
SEEDS, TARGET = range(20), 2048
RUNS = Path("runs") / "verdict-seeds"
LIMIT = 30 * 60
"""Seconds that a run may take to count."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--report", action="store_true", help="run nothing")
    if not parser.parse_args().report:
        torch.set_num_threads(1)
        done = [line["seed"] for line in lines()]
        for seed in SEEDS:
            if seed not in done:
                kept = LINES.read_text(encoding="utf-8") if LINES.exists() else ""
                line = json.dumps(work(seed, RUNS / str(seed)), separators=(",", ":"))
                write_atomically(LINES, f"{kept}{line}\n")
                print(line, flush=True)
    print(next(iter(blocks().values())))


def lines() -> list[dict[str, Any]]:
    text = LINES.read_text(encoding="utf-8") if LINES.exists() else ""
    return [json.loads(line) for line in text.splitlines()]


def work(seed: int, run: Path, **less: Any) -> dict[str, Any]:
    """A finished seed; `less` makes its run a small one."""
    model = MODELS[seed % len(MODELS)]
    found = rw.extend(model, **{"to": TARGET, **less}, seed=seed, run=run)
    judged = found.judged
    line = {
        "seed": seed,
        "model": model,
        "method": found.method,
        "verdict": judged.verdict,
        "look": judged.looks[-1]._asdict() if judged.looks else None,
        "price": judged.price_in_words,
        "tokens": sum(int(str(each.get("tokens", 0))) for each in read_journal(run / EVENTS)),
        "seconds": round(sum(taken(run).values())),
        "torch": torch.__version__,
        "machine": machine(),
    }
    shutil.rmtree(run)  # some megabytes of weights
    return line


def blocks() -> dict[str, str]:
    found = lines()
    if not found:
        return {PAGE: f"No seed has run with the present verdict yet (`{COMMAND}`)."}
    ended = [line for line in found if line["verdict"] != "undecided" and line["seconds"] <= LIMIT]
    works = sum(line["verdict"] == "works" for line in found)
    rates = sorted(line["look"]["rate"] for line in found)
    tokens = sorted(line["tokens"] for line in found)
    documents = sorted({line["look"]["documents"] for line in found})
    told = [
        paragraph(
            f"On the bundled models at 4 times their window, {len(ended)} of {len(found)} runs of "
            "`extend` end in *works* or *does not work* within 30 minutes (one seed each, models "
            f"in turn): {works} in *works*. They retrieve {rates[0]:.0%} to {rates[-1]:.0%} after "
            f"{documents[0]} to {documents[-1]} documents. Most also compare methods, since YaRN "
            f"raises the loss of text by more than the limit. They read {tokens[0]:,} to "
            f"{tokens[-1]:,} tokens (median {statistics.median(tokens):,.0f})."
        )
    ]
    missing = len(SEEDS) - len(found)
    if missing:
        told.append(f"Not run yet: {missing} of {len(SEEDS)} seeds.")
    machines = {json.dumps(line["machine"]): line for line in found}
    told += [
        f"{measured_on({**line['machine'], 'torch': line['torch']}, COMMAND)}."
        for line in machines.values()
    ]
    return {PAGE: "\n\n".join(told)}


if __name__ == "__main__":
    main()
