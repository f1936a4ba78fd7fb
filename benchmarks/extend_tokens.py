"""The tokens of `extend`, before and after it judged documents of many facts, by count.

    python -m benchmarks.extend_tokens             writes results/extend_tokens.json; some minutes
    python -m benchmarks.extend_tokens --counts    the counts alone, which run no model

Until then a run searched (752 forwards for a target of 4 times the window), measured every method
that was left on four tasks at the window, its doublings and the target (20 samples each), and
asked up to 15 times as many samples of three tasks for its verdict. `FORMER` are its formulas, so
the comparison stays possible: they are those of the last version that ran so. The new counts are
those of its stages, at least and at most; a run of the bundled model says what it really took.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import ropewalk as rw
from benchmarks.machine import machine
from ropewalk.api.cost import Cost
from ropewalk.outputs import write_atomically
from ropewalk.pipeline.results import Judged
from ropewalk.pipeline.settings import settings_for
from ropewalk.pipeline.stages import stages
from ropewalk.run_directory import EVENTS, read_journal

RESULTS = Path(__file__).with_name("results") / "extend_tokens.json"
METHODS, TASKS, SAMPLES, ASKED = 8, 4, 20, 3
FORMER_SEARCH = {"target": 380, "window": 372}
"""Forwards of 24 evaluations on 6 documents, with 16 to select by and 5 to report on."""
MODELS = {"qwen3-8b": ("32k", "128k"), "llama-3.1-8b": ("128k", "512k")}
ON = "h100"
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
            each.name: each.cost(present.target_length)
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


def measured(target: str, seed: int) -> dict[str, Any]:
    """What a run of the bundled model takes, and how it ends."""
    run = RUNS / f"{target}-{seed}"
    found = rw.extend("bundled", target, seed=seed, run=run)
    judged: Judged = found.judged
    used = [each for each in read_journal(run / EVENTS) if each["event"] == "used"]
    return {
        "tokens": {str(each["stage"]): each["tokens"] for each in used if each["tokens"]},
        "seconds": sum(float(str(each["seconds"])) for each in used),
        "method": judged.chosen,
        "verdict": judged.verdict,
        "documents": judged.looks[-1].documents,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--counts", action="store_true", help="run no model")
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    kept["counted"] = {model: counted(model, to) for model, (_, to) in MODELS.items()}
    if not parser.parse_args().counts:
        kept["machine"] = machine()
        kept["former"] = {to: former(512, n) for to, n in (("2k", 2048), ("4k", 4096))}
        kept["measured"] = {to: [measured(to, seed) for seed in range(3)] for to in ("2k", "4k")}
    write_atomically(RESULTS, json.dumps(kept, indent=1) + "\n")
    for model, found in kept["counted"].items():
        before = sum(found["former"].values())
        for name in ("race", "search"):
            own, hours = found[name], found[name]["hours"]
            print(
                f"{model}, {name}: {sum(own['least'].values()) / before:.1%} to "
                f"{sum(own['most'].values()) / before:.1%} of {before / 1e6:,.0f}M tokens; first "
                f"{hours['first']:.2f} h, in all {sum(hours.values()):.2f} h at most on {ON}"
            )


if __name__ == "__main__":
    main()
