"""The tokens of `extend`, before and after it judged documents of many facts.

    python -m studies.bundled_model.train --size tall --seeds 1      and `--size wide --seeds 3`
    python -m benchmarks.extend_tokens             runs what is missing: half an hour of a core
    python -m benchmarks.extend_tokens --counts    the counts alone, which run no model

Until then a run searched (752 forwards for a target of 4 times the window), measured every method
that was left on four tasks at the window, its doublings and the target (20 samples each), and
asked up to 15 times as many samples of three tasks for its verdict. `FORMER` are its formulas, so
the comparison stays possible: they are those of the last version that ran so. The new counts are
those of its stages, at least and at most, for models that are not here; small models are run. A
finished run is kept in results/extend_tokens.json, and one that was cut off goes on.
"""

from __future__ import annotations

import argparse
import json
import shutil
from itertools import product
from pathlib import Path
from typing import Any

import torch

import ropewalk as rw
from benchmarks.machine import PAGE, machine, measured_on
from docs.figures import paragraph
from ropewalk.api.cost import Cost
from ropewalk.models.source import resolve
from ropewalk.outputs import write_atomically
from ropewalk.pipeline.results import Judged
from ropewalk.pipeline.settings import settings_for
from ropewalk.pipeline.stages import stages
from ropewalk.run_directory import EVENTS, read_journal
from studies.training.cells import SUBJECTS

RESULTS = Path(__file__).with_name("results") / "extend_tokens.json"
COMMAND = "python -m benchmarks.extend_tokens"
METHODS, TASKS, SAMPLES, ASKED = 8, 4, 20, 3
FORMER_SEARCH = {"target": 380, "window": 372}
"""Forwards of 24 evaluations on 6 documents, with 16 to select by and 5 to report on."""
MODELS = {"qwen3-8b": ("32k", "128k"), "llama-3.1-8b": ("128k", "512k")}
ON = "h100"
SMALL, TIMES, SEED = ("tall", "wide 3", "bundled", "bundled 2", "bundled 3"), (4, 8), 0
RUNS = Path("runs") / "extend-tokens"


def former(window: int, target: int) -> dict[str, int]:
    """The tokens of each stage at most, as the last version counted them."""
    lengths = [target]
    while window * 2 ** (len(lengths) - 1) < target:
        lengths.append(window * 2 ** (len(lengths) - 1))
    return {
        "search": FORMER_SEARCH["target"] * target + FORMER_SEARCH["window"] * window,
        "evaluate": METHODS * TASKS * SAMPLES * sum(lengths),
        "verdict": ASKED * SAMPLES * 15 * target,
    }


def counted(model: str, target: str) -> dict[str, Any]:
    """Tokens at least and at most, and the hours of each stage on one device."""
    present = rw.inspect(model).plan
    length = int(target.removesuffix("k")) * 1024
    found: dict[str, Any] = {"former": former(present.target_length, length)}
    for name, search in (("race", False), ("search", True)):
        costs = {
            each.name: each.needs(present.target_length)
            for each in stages(settings_for(present, length, search=search))
        }
        calculated = rw.extend.preview(model, target, search=search, on=ON)
        assert isinstance(calculated, Cost)
        found[name] = {
            "least": {n: c.fewest for n, c in costs.items() if c.tokens},
            "most": {n: c.tokens for n, c in costs.items() if c.tokens},
            "hours": {
                row.what.partition(",")[0]: (row.seconds or 0) / 3600 for row in calculated.rows
            },
        }
    return found


def measured(name: str, times: int) -> dict[str, Any]:
    """What a run of a small model takes, and how it ends."""
    model, run = SUBJECTS[name].path, RUNS / f"{name}-{times}"
    window = resolve(model).present_plan.target_length
    found = rw.extend(model, times * window, seed=SEED, run=run)
    judged: Judged = found.judged
    used = [each for each in read_journal(run / EVENTS) if each["event"] == "used"]
    shutil.rmtree(run)  # some megabytes of weights
    return {
        "model": name,
        "times": times,
        "seed": SEED,
        "former": former(window, times * window),
        "tokens": {str(each["stage"]): each["tokens"] for each in used if each["tokens"]},
        "seconds": round(sum(float(str(each["seconds"])) for each in used)),
        "method": judged.chosen,
        "verdict": judged.verdict,
        "documents": judged.looks[-1].documents,
        "torch": torch.__version__,
        "machine": machine(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--counts", action="store_true", help="run no model")
    only_counts = parser.parse_args().counts
    kept = read()
    kept["counted"] = {model: counted(model, to) for model, (_, to) in MODELS.items()}
    write_atomically(RESULTS, json.dumps(kept, indent=1) + "\n")
    torch.set_num_threads(1)
    for times, model in () if only_counts else product(TIMES, SMALL):
        if (model, times) not in done(kept):
            kept["runs"].append(measured(model, times))
            write_atomically(RESULTS, json.dumps(kept, indent=1) + "\n")
            print(kept["runs"][-1], flush=True)
    print(blocks()[PAGE])


def read() -> dict[str, Any]:
    return {"runs": [], **(json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {})}


def done(kept: dict[str, Any]) -> list[tuple[str, int]]:
    return [(line["model"], line["times"]) for line in kept["runs"]]


def blocks() -> dict[str, str]:
    kept = read()
    counts = [
        f"| by count, `--on {ON}` | former tokens, at most | now | share | first verdict, at most "
        "| in all, at most |",
        "|---" * 6 + "|",
    ]
    for model, found in kept["counted"].items():
        before = sum(found["former"].values())
        for name, told in (("race", ""), ("search", ", `--search`")):
            own, hours = found[name], found[name]["hours"]
            least, most = sum(own["least"].values()), sum(own["most"].values())
            counts.append(
                f"| {model} to {MODELS[model][1]}{told} | {before / 1e6:,.0f}M "
                f"| {least / 1e6:,.0f}M to {most / 1e6:,.0f}M | {least / before:.0%} to "
                f"{most / before:.0%} | {hours['first']:.2f} h | {sum(hours.values()):.2f} h |"
            )
    runs = [
        "| run here | former tokens, at most | now | share | ended in |",
        "|---" * 5 + "|",
    ]
    for line in sorted(kept["runs"], key=lambda line: (SMALL.index(line["model"]), line["times"])):
        before, now = (sum(line[name].values()) for name in ("former", "tokens"))
        runs.append(
            f"| {line['model']}, {line['times']} times | {before:,} | {now:,} | {now / before:.1%} "
            f"| {line['verdict']} ({line['method']}, {line['documents']} documents) |"
        )
    parts = ["\n".join(counts)]
    if kept["runs"]:
        parts.append("\n".join(runs))
        missing = [
            f"{m} at {n} times" for m, n in product(SMALL, TIMES) if (m, n) not in done(kept)
        ]
        if missing:
            parts.append(paragraph(f"Not run yet: {', '.join(missing)}."))
    machines = {json.dumps(line["machine"]): line for line in kept["runs"]}
    parts += [
        f"{measured_on({**line['machine'], 'torch': line['torch']}, COMMAND)}."
        for line in machines.values()
    ]
    return {PAGE: "\n\n".join(parts)}


if __name__ == "__main__":
    main()
