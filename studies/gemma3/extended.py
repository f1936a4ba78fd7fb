"""Gemma 3 270M extended to 40k by one command, from the GGUF file to a verdict.

    make real                              the model, once, if you accept Gemma's terms
    python -m studies.gemma3.extended      about three core-hours; goes on where it was killed
    python -m studies.gemma3.extended --report

The run's folder keeps each text that was read; extended.json keeps the result.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

from benchmarks.machine import machine
from ropewalk.evaluation.statistics import compare_rates
from ropewalk.lengths import format_length
from ropewalk.pipeline.results import DocumentRead, Judged
from studies.gemma3.model import FILE, PLACE, ready

RESULTS = Path(__file__).with_name("extended.json")
WORDS = f"extend {FILE} --to 40k --budget 6 --run {PLACE / 'extended'} --json"


def main() -> None:
    if "--report" not in sys.argv and not RESULTS.exists():
        ready()
        command = [sys.executable, "-m", "ropewalk", *shlex.split(WORDS)]
        ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        keep(json.loads(ended.stdout)["results"]["first"])
    print(blocks()["studies/gemma3/README.md"])


def keep(first: dict[str, object]) -> None:
    RESULTS.write_text(json.dumps({"machine": machine(), "first": first}, indent=1) + "\n")


def blocks() -> dict[str, str]:
    judged = Judged.from_json(json.loads(RESULTS.read_text("utf-8"))["first"], "first")
    window, target = judged.window, judged.length
    lines = ["| length | schedule | documents | facts retrieved |", "|---" * 4 + "|"]
    for length in (window, target):
        for method in ("none", judged.chosen):
            read = judged.of(method, length)
            facts = sum(each.facts for each in read)
            share = f"{sum(each.retrieved * each.facts for each in read):.0f} of {facts}"
            lines.append(f"| {format_length(length)} | {method} | {len(read)} | {share} |")
    before, after = (
        {each.source: each for each in judged.of(method, target)}
        for method in ("none", judged.chosen)
    )
    pairs = [(_answers(after[name]), _answers(before[name]), name) for name in before]
    gained = compare_rates(
        [right for own, _, _ in pairs for right in own],
        [right for _, other, _ in pairs for right in other],
        clusters=[name for own, _, name in pairs for _ in own],
    )
    lines += ["", f"At {format_length(target)}, {judged.chosen} minus none: {gained}.", ""]
    lines.append("\n".join(f"> {line}" for line in judged.summary().splitlines()))
    return {"studies/gemma3/README.md": "\n".join(lines) + "\n"}


def _answers(read: DocumentRead) -> list[float]:
    """Right or wrong, fact by fact, in the order of their places in the document."""
    right = dict.fromkeys(read.found, 1.0) | dict.fromkeys(read.missed, 0.0)
    return [right[place] for place in sorted(right)]


if __name__ == "__main__":
    main()
