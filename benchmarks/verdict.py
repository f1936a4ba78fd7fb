"""The rate of wrong verdicts, and the rate of verdicts at all, by simulation.

    python -m benchmarks.verdict    eight minutes; writes results/verdict.json

`make figures` puts the tables into docs/evaluation.md.

The first table asks samples as `extend` does, of a model whose rate is known. The answers of a
stretch of text are correlated, by a normal variable that they share, and two of three tasks read
the same stretches. The second compares two schedules as `evaluation/select.py` does, on documents
whose differences are correlated within a text, normal or skewed.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from statistics import NormalDist

import numpy as np

from ropewalk.evaluation import verdict
from ropewalk.evaluation.select import paired
from ropewalk.evaluation.verdict import THRESHOLD, Look, look
from ropewalk.outputs import write_atomically

RESULTS = Path(__file__).with_name("results") / "verdict.json"
TIMES, FALSE_ALARMS = 2000, 20_000
"""Draws; the second if there is no difference, so that the rate is known to ±0.3 points."""
RATES = (0.70, 0.80, THRESHOLD, 0.90, 0.95)
STRETCHES = {"independent samples": 0, "12 stretches of text": 12, "24 stretches of text": 24}
SAMPLES, ALIKE = 20, 0.15
DOCUMENTS = ((16, 5), (16, 8), (32, 8), (32, 13), (64, 13))
CORRELATIONS = (0.0, 0.3, 0.6)
SHOWN = ((16, 5), (32, 8), (64, 13))
KINDS = ("normal", "skewed")
SHIFTS = (0.0, 0.5, 0.8)
"""Differences, in standard deviations of a document."""

Random = np.random.Generator


def judged(random: Random, rate: float, stretches: int) -> list[Look]:
    """The looks of one run: tasks 4 points easier and harder than the mean, and one as hard."""
    normal, most = NormalDist(), verdict.blocks(SAMPLES)[-1]
    stretch = random.normal(size=max(1, stretches))
    tasks: list[tuple[list[float], list[object]]] = []
    for i, chance in enumerate((rate - 0.04, rate, rate + 0.04)):
        place = np.arange(most) % max(1, stretches)
        # The third task fills its text with sentences of its own, as a pass key does.
        alike = ALIKE if stretches and i < 2 else 0.0
        shown = math.sqrt(alike) * stretch[place]
        shown += math.sqrt(1 - alike) * random.normal(size=most)
        names: list[object] = [place[n] if alike else (i, n) for n in range(most)]
        tasks.append(((shown < normal.inv_cdf(chance)).astype(float).tolist(), names))
    looks: list[Look] = []
    for count in verdict.blocks(SAMPLES):
        looks.append(look([(scores[:count], names[:count]) for scores, names in tasks]))
        if looks[-1].verdict != "undecided":
            break
    return looks


def verdicts(rate: float, stretches: int, times: int = TIMES, seed: int = 0) -> dict[str, float]:
    """The share of each verdict, and the mean number of samples."""
    random = np.random.default_rng([seed, round(1000 * rate), stretches])
    last = [judged(random, rate, stretches)[-1] for _ in range(times)]
    return {
        **{
            name: sum(each.verdict == name for each in last) / times
            for name in ("works", "does not work", "undecided")
        },
        "samples": float(np.mean([each.samples for each in last])),
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
            case: {f"{rate:g}": verdicts(rate, stretches) for rate in RATES}
            for case, stretches in STRETCHES.items()
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
    lines = [f"| true rate | {' | '.join(found)} |", "|---" * (1 + len(found)) + "|"]
    for rate in RATES:
        cells = [
            f"{own['works']:.1%} / {own['does not work']:.1%} / {own['undecided']:.1%}, "
            f"{own['samples']:.0f}"
            for own in (case[f"{rate:g}"] for case in found.values())
        ]
        lines.append(f"| {rate:.0%} | {' | '.join(cells)} |")
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
    return {"docs/evaluation.md": "\n".join(lines)}


def blocks() -> dict[str, str]:
    return _tables(json.loads(RESULTS.read_text()))


if __name__ == "__main__":
    sys.exit(main())
