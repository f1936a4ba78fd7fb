"""The end of retrieval in the unmodified model: by distance, by length, compared with theory.

    make real                                the model, once
    python -m studies.smollm2.distance       runs what is missing: about an hour of one core
    python -m studies.smollm2.distance --report

The documents of `methods`, cut to lengths around the window of 8,192, are read by the unextended
model, one forward each. A fact's distance is that to the end of its document, where the questions
stand. The predictions were written down in README.md before the first run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from docs.figures import Sentence, paragraph
from ropewalk.evaluation.planted import text_of
from ropewalk.evaluation.statistics import mean_interval, rate_interval
from ropewalk.interval import Ends
from ropewalk.models.load import load
from studies.smollm2.cells import DOCUMENTS, Asked, Cell, command, documents, fill, kept
from studies.smollm2.methods import CELLS as BY_METHOD
from studies.smollm2.model import ready

CELLS = Path(__file__).with_name("distance.jsonl")
PAGE = "studies/smollm2/README.md"
WINDOW = 8192
LENGTHS = (2048, 6144, 8192, 9216, 12288)
"""With 4k and 16k, which `methods` has measured."""
ENDS = (4096, WINDOW)
EFFECTIVE = 3616
"""The effective length that `ropewalk inspect` finds for this model; a test compares it."""
THREADS = 2


def run(count: int) -> None:
    torch.set_num_threads(THREADS)
    loaded = load(str(ready()), dtype="float32", device="cpu")
    wanted = (
        Asked(number, "none", loaded.present_plan, document)
        for number, by_length in enumerate(documents(loaded, LENGTHS)[:count])
        for document in by_length.values()
    )
    fill(CELLS, loaded, wanted)


def cells() -> list[Cell]:
    """The cells of the unextended model at all lengths."""
    own = [cell for cell in (*kept(CELLS), *kept(BY_METHOD)) if cell.method == "none"]
    return sorted(own, key=lambda cell: (cell.length, cell.document))


class Rate(NamedTuple):
    """The share of facts retrieved; texts are clusters."""

    right: int
    facts: int
    interval: Ends | None

    def __str__(self) -> str:
        if not self.facts:
            return "–"
        told = f"{self.right} of {self.facts}"
        if self.interval is None:
            return told
        low, high = self.interval
        return f"{self.right / self.facts:.0%} ({100 * low:.0f} to {100 * high:.0f}), {told}"


def retrieved(own: Sequence[Cell], within: Callable[[float], bool]) -> Rate:
    """The retrieval rate of the facts at these distances."""
    found = [
        (float(right), text_of(cell.source))
        for cell in own
        for right, depth in zip(cell.right, cell.depths, strict=True)
        if within((1 - depth) * cell.length)
    ]
    values, texts = [right for right, _ in found], [text for _, text in found]
    return Rate(int(sum(values)), len(found), rate_interval(values, texts) if found else None)


def far_less_near(own: Sequence[Cell], beyond: int, share: float) -> tuple[float, Ends | None]:
    """The rate beyond a distance minus a share of that within it: by document, its mean."""
    found, texts = [], []
    for cell in own:
        far = [(1 - depth) * cell.length > beyond for depth in cell.depths]
        if not any(far) or all(far):
            continue
        right = np.array(cell.right, dtype=float)
        found.append(float(right[far].mean() - right[np.logical_not(far)].mean() * share))
        texts.append(text_of(cell.source))
    value = float(np.mean(found)) if found else float("nan")
    return value, mean_interval(found, clusters=texts) if found else None


def table(own: Sequence[Cell]) -> str:
    rows = [
        f"| length | all facts | nearer than {EFFECTIVE:,} | from there to {WINDOW:,} "
        f"| beyond {WINDOW:,} | loss of the text |",
        "|---|---|---|---|---|---|",
    ]
    for length in sorted({cell.length for cell in own}):
        here = [cell for cell in own if cell.length == length]
        parts = [
            f"{length:,}",
            str(retrieved(here, lambda distance: True)),
            str(retrieved(here, lambda distance: distance <= EFFECTIVE)),
            str(retrieved(here, lambda distance: EFFECTIVE < distance <= WINDOW)),
            str(retrieved(here, lambda distance: distance > WINDOW)),
            f"{np.mean([cell.text for cell in here]):.2f}",
        ]
        rows.append(f"| {' | '.join(parts)} |")
    return "\n".join(rows) + "\n"


def verdicts(own: Sequence[Cell]) -> list[str]:
    """The verdicts on the predictions, by the rules that were written down."""
    longer = [cell for cell in own if cell.length in (6144, WINDOW)]
    value, interval = far_less_near(longer, EFFECTIVE, 0.5)
    word = "undecided"
    if interval is not None:
        word = "failed" if interval[0] > 0 else "held" if interval[1] < 0 else word
    said = [
        f"Prediction 1 is {word}: the rate beyond {EFFECTIVE:,} minus half of that within it is "
        f"{_points(value, interval)}."
    ]

    def rate(length: int, within: Callable[[float], bool]) -> Rate:
        return retrieved([cell for cell in own if cell.length == length], within)

    at_8k, at_12k = (rate(n, lambda distance: distance <= EFFECTIVE) for n in (WINDOW, 12288))
    ends = at_8k.interval, at_12k.interval
    failed = ends[0] is not None and ends[1] is not None and ends[1][1] < ends[0][0]
    beyond = [rate(n, lambda distance: distance > WINDOW) for n in (9216, 12288, 16384)]
    said.append(
        f"Prediction 2 {'failed' if failed else 'is undecided'}: facts within {EFFECTIVE:,} are "
        f"retrieved {at_8k} at 8k and {at_12k} at 12k. Of facts beyond {WINDOW:,}, "
        f"{sum(each.right for each in beyond)} of {sum(each.facts for each in beyond)} are."
    )
    out = far_less_near([cell for cell in own if cell.length == 9216], WINDOW, 1)
    said.append(
        "Prediction 3 came without a rule that decides it. In texts of 9k, the rate beyond "
        f"{WINDOW:,} minus that within it is {_points(*out)}, a comparison that was chosen after "
        f"the runs; B(m) has nothing at {WINDOW:,} that would make such a difference."
    )
    return said


def _points(value: float, interval: Ends | None) -> str:
    if interval is None:
        return f"{100 * value:+.0f} points (too few texts for an interval)"
    return f"{100 * value:+.0f} points ({100 * interval[0]:+.0f} to {100 * interval[1]:+.0f})"


def blocks() -> dict[str, str]:
    own = cells()
    count = len(kept(CELLS))
    whole = DOCUMENTS * len(LENGTHS)
    told = f"Measured so far: {count} of {whole} cells of its own.\n\n" if count < whole else ""
    said = "\n\n".join(paragraph(each) for each in verdicts(own)) if own else ""
    return {PAGE: f"{told}{table(own)}\n{said}\n"}


def sentences() -> list[Sentence]:
    """The page's sentence on what the model does at the end of its window."""
    at = {n: retrieved([own for own in cells() if own.length == n], lambda _: True) for n in ENDS}
    near, far = (found.right / found.facts for found in at.values())
    words = "at its own 8k, the unmodified model retrieves {} of these facts (at 4k: {})"
    return [Sentence(PAGE, words, (f"{far:.0%}", f"{near:.0%}"), far < near / 2)]


if __name__ == "__main__":
    command(__doc__, run, lambda: blocks()[PAGE])
