"""Methods at twice the window of a pretrained model: SmolLM2-135M-Instruct (Q4_1) at 16k.

    make real                               the model, once
    python -m studies.smollm2.methods       runs what is missing: about 100 minutes of two cores
    python -m studies.smollm2.methods --report

Twelve documents of the held-out text with eight facts each are read in one forward a document and
method, at 16k, and cut to 4k with the same facts. Finished cells are kept in cells.jsonl and not
run again. The comparison that decides, and its interval, were written down in docs/smollm2.md
before the first run.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from ropewalk.context_plan import ContextPlan
from ropewalk.evaluation.statistics import mean_interval, rate_interval
from ropewalk.models.load import LoadedModel, load
from ropewalk.planning.extension import extend_plan
from ropewalk.searching.model.planted import text_of
from studies.smollm2.cells import DOCUMENTS, LONGEST, Asked, Cell, Mean, documents, fill, kept
from studies.smollm2.model import ready

CELLS = Path(__file__).with_name("cells.jsonl")
PAGE = "docs/smollm2.md"
METHODS = ("none", "linear", "ntk", "yarn", "llama3")
TARGET, SHORT = LONGEST, 4096
THREADS = 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=DOCUMENTS, help="stop after so many")
    parser.add_argument("--report", action="store_true", help="run nothing")
    asked = parser.parse_args()
    if not asked.report:
        run(asked.documents)
    print(table(kept(CELLS)))


def run(count: int) -> None:
    """Every cell that is missing, document by document, so that a part of them is paired."""
    torch.set_num_threads(THREADS)
    loaded = load(str(ready()), dtype="float32", device="cpu")
    plans = plans_of(loaded)
    wanted = (
        Asked(number, method, plans[method], document)
        for number, by_length in enumerate(documents(loaded, (TARGET, SHORT))[:count])
        for document in by_length.values()
        for method in METHODS
    )
    fill(CELLS, loaded, wanted)


def plans_of(loaded: LoadedModel) -> dict[str, ContextPlan]:
    """The same plan at both lengths: what a server would do with short text."""
    present = loaded.present_plan
    return {
        method: present if method == "none" else extend_plan(present, TARGET, method)
        for method in METHODS
    }


def values(cells: Sequence[Cell], method: str, length: int, what: str) -> dict[int, float]:
    """By document: the loss of the text or of the answers, or the share of facts retrieved."""
    own = [cell for cell in cells if (cell.method, cell.length) == (method, length)]
    return {cell.document: float(np.mean(getattr(cell, what))) for cell in own}


def mean(cells: Sequence[Cell], method: str, length: int, what: str, less: str = "") -> Mean | None:
    """Over the documents that both methods have; documents of one text are one cluster."""
    found = values(cells, method, length, what)
    if less:
        other = values(cells, less, length, what)
        found = {i: found[i] - other[i] for i in found if i in other}
    if not found:
        return None
    texts = {cell.document: text_of(cell.source) for cell in cells}
    clusters = [texts[i] for i in found]
    if what == "right" and not less:  # a share keeps a width where all documents agree
        own = {c.document: c.right for c in cells if (c.method, c.length) == (method, length)}
        facts = [(float(right), texts[i]) for i, each in own.items() for right in each]
        interval = rate_interval([right for right, _ in facts], [text for _, text in facts])
    else:
        interval = mean_interval(list(found.values()), clusters=clusters)
    return Mean(float(np.mean(list(found.values()))), interval, len(found))


def table(cells: Sequence[Cell]) -> str:
    """All methods at both lengths, with YaRN's difference from each on the same documents."""
    rows = [
        "| method | length | documents | facts retrieved | YaRN less this, points "
        "| loss of answers | loss of the text |",
        "|---|---|---|---|---|---|---|",
    ]
    for length in (TARGET, SHORT):
        rows += _rows(cells, length)
    return "\n".join(rows) + "\n"


def _rows(cells: Sequence[Cell], length: int) -> Iterator[str]:
    for method in METHODS:
        right = mean(cells, method, length, "right")
        if right is None:
            continue
        parts: list[str] = [method, f"{length // 1024}k", str(right.documents)]
        parts.append(right.shown(100, ".0f", "%"))
        apart = mean(cells, "yarn", length, "right", method) if method != "yarn" else None
        parts.append("" if apart is None else apart.shown(100, "+.0f"))
        for what in ("answers", "text"):
            own = mean(cells, method, length, what)
            assert own is not None
            parts.append(own.shown(1, ".3f"))
        yield f"| {' | '.join(parts)} |"


def blocks() -> dict[str, str]:
    cells = kept(CELLS)
    whole = DOCUMENTS * len(METHODS) * 2
    told = f"Measured so far: {len(cells)} of {whole} cells (a document, a method and a length)"
    if len(cells) < whole:
        told += "; nothing is concluded from a part of them"
    return {PAGE: f"{told}.\n\n{table(cells)}"}


if __name__ == "__main__":
    main()
