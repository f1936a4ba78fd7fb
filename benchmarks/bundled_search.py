"""Searches on the bundled model, for studies/searches/README.md.

    python -m benchmarks.bundled_search      some twenty minutes; writes results/bundled_search.json

The model is searched at four times its window with two seeds and with another objective; and it is
extended by YaRN and searched at its own window, as `ropewalk search … --recover` does.
"""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import Any

import torch

import ropewalk as rw
from benchmarks.machine import machine, measured_on
from ropewalk.outputs import write_atomically
from ropewalk.searching.model.results import SEARCHED, SearchResult

RESULTS = Path(__file__).with_name("results") / "bundled_search.json"
COMMAND = "python -m benchmarks.bundled_search"
SEARCHES: dict[str, dict[str, Any]] = {
    "--to 2k": {},
    "--to 2k --seed 1": {"seed": 1},
    "--to 2k --objective perplexity": {"objective": "perplexity"},
}
RECOVERED = "--to 512 --recover"


def main() -> None:
    content = {"machine": {**machine(), "torch": torch.__version__}, "searches": measure()}
    write_atomically(RESULTS, json.dumps(content, indent=1) + "\n")


def measure(**less: Any) -> dict[str, Any]:
    """Run every search and keep its results; `less` makes them small ones."""
    found = {
        name: kept(rw.search("bundled", "2k", **{**asked, **less}))
        for name, asked in SEARCHES.items()
    }
    with tempfile.TemporaryDirectory() as folder:
        extended = Path(folder) / "model"
        rw.export("bundled", rw.plan("bundled", "4k", "yarn"), extended, "transformers")
        recovered = kept(rw.search(str(extended), "512", recover=True, **less))
    summary = recovered["summary"].replace(str(extended), "EXTENDED")
    found[RECOVERED] = {**recovered, "summary": summary}
    return found


def kept(found: SearchResult) -> dict[str, Any]:
    """The scores on the documents to report on, and the verdict in words."""
    leg = found.legs[-1]
    arms = dict(leg.baselines)
    if leg.chosen == SEARCHED:
        arms[SEARCHED] = leg.best
    return {
        "evaluations": leg.evaluations,
        "tokens": leg.tokens,
        "rows": {name: arm.scores["reporting"]._asdict() for name, arm in arms.items()},
        "summary": found.summary(),
    }


def blocks() -> dict[str, str]:
    if not RESULTS.exists():
        return {}
    results = json.loads(RESULTS.read_text())
    lines = [
        "| `ropewalk search` | evaluations | plan follows: perplexity, retrieval "
        "| best searched minus it, score | it minus unmodified at 512, score |",
        "|---" * 5 + "|",
        *(_of_search(name, value) for name, value in results["searches"].items()),
    ]
    told = "\n".join(lines)
    return {"studies/searches/README.md": f"{told}\n\n{measured_on(results['machine'], COMMAND)}."}


def _of_search(name: str, value: dict[str, Any]) -> str:
    model = "bundled" if name != RECOVERED else "EXTENDED"
    [chosen] = re.findall(r"The plan follows (\S+)\.", value["summary"])
    row = value["rows"][chosen]
    searched, *short = re.findall(r"[-+][0-9.]+ \([^,)]*", value["summary"])
    differences = [f"{each})" for each in (searched, *short)] + ["–"]
    return (
        f"| `{model} {name}` | {value['evaluations']:.4g} | {chosen}: {row['perplexity']:.2f}, "
        f"{row['retrieval']:.1%} | {differences[0]} | {differences[1]} |"
    )


if __name__ == "__main__":
    main()
