"""The run of `make demo`, kept for README and docs.

    python -m benchmarks.demo                      extends the bundled model, a minute a seed
    python -m benchmarks.demo --run runs/demo      the same; a run that is done is only read

Writes results/demo.json: the machine, the time of each stage, the verdict, the last lines of the
command, the output of `ropewalk verify` for the exported model, and the verdicts of four other
seeds. Copies the page of the run to docs/sample_report.html.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

import ropewalk as rw
from benchmarks.cost_estimate import taken
from benchmarks.machine import machine
from docs.figures import Picture, Sentence, paragraph
from ropewalk.api.report import PAGE
from ropewalk.cli import call
from ropewalk.outputs import write_atomically
from ropewalk.pipeline.results import Judged
from ropewalk.records import AS_IT_IS

RESULTS = Path(__file__).with_name("results") / "demo.json"
SAMPLE = Path(__file__).parents[1] / "docs" / "sample_report.html"
SEEDS = range(1, 5)
VERIFY = ("--runtime", "transformers")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, default=Path("runs/demo"))
    run = parser.parse_args().run
    # As a command, which the page tells; measured below, where it is only read.
    subprocess.run([sys.executable, "-m", "ropewalk", "extend", "--run", str(run)], check=True)
    found = measure(run)
    found["others"] = [
        rw.extend(run=run.with_name(f"{run.name}-{seed}"), seed=seed).judged.verdict
        for seed in SEEDS
    ]
    write_atomically(RESULTS, json.dumps(found, indent=1) + "\n")
    SAMPLE.write_bytes((run / PAGE).read_bytes())


def measure(run: Path, **asked: Any) -> dict[str, Any]:
    """Do a run, or finish it, and return its results."""
    extended = rw.extend(run=run, **asked)
    folder = run / "model"
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        call(["verify", str(folder), *VERIFY])
    return {
        "command": "make demo",
        "machine": {**machine(), "torch": torch.__version__},
        "seconds": taken(run),
        "lines": list(extended.lines),
        "judged": extended.judged.to_json(),
        "verify": shown.getvalue().replace(str(folder), "extended"),
    }


def recorded() -> dict[str, Any] | None:
    found: dict[str, Any] | None = json.loads(RESULTS.read_text()) if RESULTS.exists() else None
    return found


def blocks() -> dict[str, str]:
    results = recorded()
    if results is None:
        return {}
    return {"README.md": _readme(results), "docs/verify.md": _verified(results)}


def pictures() -> dict[str, Picture]:
    results = recorded()
    if results is None:
        return {}
    figure = Judged.from_json(results["judged"]).figure()
    return {"docs/images/extend.png": Picture(figure)}


def _readme(results: dict[str, Any]) -> str:
    ended = [results["judged"]["verdict"], *results.get("others", ())]
    told = "one seed was run"
    if len(ended) > 1:
        told = f"of {len(ended)} seeds, {ended.count('works')} end in *works*"
    said = (
        f"`{results['command']}` makes this and [a page](docs/sample_report.html), in "
        f"{sum(results['seconds'].values()):.0f} s on {results['machine']['cores']} cores of "
        f"{results['machine']['cpu']}; {told} (`python -m benchmarks.demo`)."
    )
    picture = (
        "![Retrieval and perplexity of the bundled model within its window and at the target: "
        "unchanged and extended](docs/images/extend.png)"
    )
    return f"{picture}\n\n{paragraph(said)}"


def sentences() -> list[Sentence]:
    results = recorded()
    if results is None:
        return []
    own = Judged.from_json(results["judged"])
    places = ((AS_IT_IS, own.length), (own.chosen, own.length), (AS_IT_IS, own.window))
    figures = tuple(own.retrieved(method, length) for method, length in places)
    words = "4 times its window? | {} before, and {} after; within its window {} | `make demo`"
    return [Sentence("README.md", words, figures, holds=own.verdict == "works")]


def _verified(results: dict[str, Any]) -> str:
    lines = [f"$ ropewalk verify extended {' '.join(VERIFY)}", *results["verify"].splitlines()]
    return "\n".join(f"    {line}".rstrip() for line in lines)


if __name__ == "__main__":
    main()
