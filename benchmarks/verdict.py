"""The rate of wrong verdicts, and the rate of verdicts at all, by simulation.

    python -m benchmarks.verdict    eight minutes; writes results/verdict.json

`make figures` puts the tables into benchmarks/README.md.

The first table reads documents of eight facts as `extend` does, of a model whose rate is known,
next to an unmodified model that retrieves as much as the heading says within its window. The shares
of documents vary as they were measured to, 0.9 times as much as of independent answers (the facts
lie at different depths, some of them harder), or 1.8 times, as if documents differed, or 8 times,
if the model loses documents as a whole. The second
compares two schedules as `evaluation/select.py` does, on documents whose differences are correlated
within a text, normal or skewed.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import numpy as np

from benchmarks.machine import PAGE
from ropewalk.evaluation import verdict
from ropewalk.evaluation.select import paired
from ropewalk.evaluation.verdict import MARGIN, Look, Shares, look
from ropewalk.outputs import write_atomically

RESULTS = Path(__file__).with_name("results") / "verdict.json"
TIMES, FALSE_ALARMS = 2000, 20_000
"""Draws; the second if there is no difference, so that the rate is known to ±0.3 points."""
DIFFERENCES = (0.0, -0.03, -0.05, -MARGIN, -0.15, -0.2, -0.4)
"""True rates at the target minus those of the unmodified model within its window."""
REFERENCES, RATIOS = (0.97, 0.8), (0.9, 1.8, 8)
FACTS, WITHIN = 8, 48
DOCUMENTS = ((16, 5), (16, 8), (32, 8), (32, 13), (64, 13))
CORRELATIONS = (0.0, 0.3, 0.6)
SHOWN = ((16, 5), (32, 8), (64, 13))
KINDS = ("normal", "skewed")
SHIFTS = (0.0, 0.5, 0.8)
"""Differences, in standard deviations of a document."""

Random = np.random.Generator


def shares(random: Random, rate: float, count: int, ratio: float) -> list[float]:
    """The shares of the facts that are retrieved, whose variance has this ratio to that of
    independent answers."""
    if ratio == FACTS:
        chance = (random.random((count, 1)) < rate).astype(float)
    elif ratio > 1:
        alike = (FACTS - 1) / (ratio - 1) - 1
        chance = random.beta(rate * alike, (1 - rate) * alike, size=(count, 1))
    else:
        ramp = np.linspace(-1, 1, FACTS)
        chance = rate + ramp * min(
            1 - rate, math.sqrt((1 - ratio) * rate * (1 - rate)) / ramp.std()
        )
    right = random.random((count, FACTS)) < chance
    found: list[float] = right.mean(axis=1).tolist()
    return found


def judged(random: Random, reference: float, difference: float, ratio: float) -> Look:
    """The last look of one run."""
    within, most = shares(random, reference, WITHIN, ratio), verdict.LOOKS[-1]
    own = shares(random, reference + difference, most, ratio)
    known = Shares(within, FACTS, range(WITHIN))
    for count in verdict.LOOKS:
        found = look(Shares(own[:count], FACTS, range(count)), known)
        if found.verdict != "undecided":
            break
    return found


def verdicts(
    reference: float, difference: float, ratio: float, times: int = TIMES, seed: int = 0
) -> dict[str, float]:
    """The share of each verdict, and the median number of documents."""
    key = [seed, *(round(1000 * abs(each)) for each in (reference, difference, ratio))]
    random = np.random.default_rng(key)
    last = [judged(random, reference, difference, ratio) for _ in range(times)]
    return {
        **{
            name: sum(each.verdict == name for each in last) / times
            for name in ("works", "does not work", "undecided")
        },
        "documents": float(np.median([each.documents for each in last])),
    }


def _drawn(random: Random, kind: str, size: int) -> np.ndarray:
    return random.normal(size=size) if kind == "normal" else random.exponential(size=size) - 1


def compared(
    kind: str,
    documents: int,
    texts: int,
    alike: float,
    shift: float,
    times: int = TIMES,
    seed: int = 0,
) -> dict[str, float]:
    """The rates of the verdicts better and worse: the documents take the texts in turn."""
    random = np.random.default_rng([seed, documents, texts, round(10 * alike), *kind.encode()])
    of, none = np.arange(documents) % texts, np.zeros(documents)
    told = []
    for _ in range(times):
        difference = math.sqrt(alike) * _drawn(random, kind, texts)[of]
        difference += math.sqrt(1 - alike) * _drawn(random, kind, documents) - shift
        told.append(paired(difference, none, [str(text) for text in of]).verdict)
    return {name: told.count(name) / times for name in ("better", "worse")}


def main() -> int:
    content = {
        "times": TIMES,
        "false_alarms": FALSE_ALARMS,
        "verdicts": {
            f"{ratio:g}, {reference:g}": {
                f"{each:g}": verdicts(reference, each, ratio) for each in DIFFERENCES
            }
            for ratio in RATIOS
            for reference in REFERENCES
        },
        "compared": {
            f"{kind}, {documents}, {texts}, {alike:g}, {shift:g}": compared(
                kind, documents, texts, alike, shift, TIMES if shift else FALSE_ALARMS
            )
            for kind in KINDS
            for documents, texts in DOCUMENTS
            for alike in CORRELATIONS
            for shift in SHIFTS
        },
    }
    write_atomically(RESULTS, json.dumps(content, indent=1) + "\n")
    print("\n\n".join(_tables(content).values()))
    return 0


def _tables(content: dict[str, object]) -> dict[str, str]:
    found, against = content["verdicts"], content["compared"]
    assert isinstance(found, dict)
    assert isinstance(against, dict)
    heads = (f"{n}, variance × {r}" for r, n in (case.split(", ") for case in found))
    lines = [f"| difference | {' | '.join(heads)} |", "|---" * (1 + len(found)) + "|"]
    for difference in DIFFERENCES:
        cells = [
            f"{own['works']:.1%} / {own['does not work']:.1%} / {own['undecided']:.1%}, "
            f"{own['documents']:.0f}"
            for own in (case[f"{difference:g}"] for case in found.values())
        ]
        lines.append(f"| {100 * difference:+.0f} points | {' | '.join(cells)} |")
    lines += ["", "| documents | texts | differences | " + " | ".join(
        f"correlation {alike:g}" for alike in CORRELATIONS
    ) + " |", "|---" * (3 + len(CORRELATIONS)) + "|"]  # fmt: skip
    for documents, texts in SHOWN:
        for kind in KINDS:
            cells = []
            for alike in CORRELATIONS:
                null, *power = (
                    against[f"{kind}, {documents}, {texts}, {alike:g}, {shift:g}"]
                    for shift in SHIFTS
                )
                told = " / ".join(f"{each['better']:.0%}" for each in power)
                cells.append(f"{null['better'] + null['worse']:.1%}, {told}")
            lines.append(f"| {documents} | {texts} | {kind} | {' | '.join(cells)} |")
    return {PAGE: "\n".join(lines)}


def blocks() -> dict[str, str]:
    return _tables(json.loads(RESULTS.read_text()))


if __name__ == "__main__":
    sys.exit(main())
