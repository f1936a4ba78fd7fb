"""Methods at twice the window of a pretrained model: SmolLM2-135M-Instruct (Q4_1) at 16k.

    make real                               the model, once
    python -m studies.smollm2.methods       runs what is missing: about 100 minutes of two cores
    python -m studies.smollm2.methods --report

Twelve documents of the held-out text with eight facts each are read in one forward a document and
method, at 16k, and cut to 4k with the same facts. Finished cells are kept in cells.jsonl and not
run again. The comparison that decides, and its interval, were written down in README.md before the
first run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from docs.figures import Picture, Sentence, paragraph
from ropewalk.context_plan import ContextPlan
from ropewalk.evaluation.planted import text_of
from ropewalk.evaluation.statistics import mean_interval, rate_interval
from ropewalk.models.load import LoadedModel, load
from ropewalk.planning.extension import extend_plan
from studies.smollm2.cells import (
    DOCUMENTS,
    LONGEST,
    Asked,
    Cell,
    Mean,
    command,
    documents,
    fill,
    kept,
)
from studies.smollm2.model import ready

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CELLS = Path(__file__).with_name("cells.jsonl")
PAGE = "studies/smollm2/README.md"
METHODS = ("none", "linear", "ntk", "yarn", "llama3")
TARGET, SHORT = LONGEST, 4096
THREADS = 2
PREDICTED = ("yarn", "llama3", "ntk", "linear")
"""By `ropewalk plan`, for use without training, from the best."""
PICTURE = "docs/images/smollm2.png"
SHOWN = (
    "SmolLM2-135M-Instruct in Q4_1, trained for 8k: facts retrieved and loss of the text at 4k and "
    "16k, by method, with 95% intervals"
)


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
        "| method | length | documents | facts retrieved | YaRN minus this, points "
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


def order(cells: Sequence[Cell]) -> str:
    """Report any pair of methods whose order is surely the reverse of `plan`'s."""
    against, apart = [], []
    for i, better in enumerate(PREDICTED):
        for worse in PREDICTED[i + 1 :]:
            own = mean(cells, better, TARGET, "right", worse)
            if own is None or own.interval is None:
                continue
            low, high = own.interval
            if high < 0:
                against.append(f"{worse} over {better}")
            elif low > 0:
                apart.append(f"{better} over {worse}")
    surely = f"the differences that are decided: {', '.join(apart)}" if apart else "none is decided"
    if against:
        return f"The order of `plan` fails: {', '.join(against)}; of the others, {surely}."
    return f"No difference contradicts the order of `plan` ({', '.join(PREDICTED)}); {surely}."


def blocks() -> dict[str, str]:
    cells = kept(CELLS)
    whole = DOCUMENTS * len(METHODS) * 2
    told = f"Measured so far: {len(cells)} of {whole} cells (a document, a method and a length)"
    if len(cells) < whole:
        return {PAGE: f"{told}; nothing is concluded from a part of them.\n\n{table(cells)}"}
    primary = mean(cells, "yarn", TARGET, "right", "linear")
    assert primary is not None
    said = f"Facts retrieved at 16k, YaRN minus linear: {primary.shown(100, '+.0f')} points. "
    said += order(cells)
    return {PAGE: f"{table(cells)}\n{paragraph(said)}\n\n![{SHOWN}](../../{PICTURE})\n"}


def sentences() -> list[Sentence]:
    """README's sentence on this model."""
    cells = kept(CELLS)
    if len(cells) < 2 * len(METHODS) * DOCUMENTS:
        return []
    cases = ("yarn", TARGET), ("none", TARGET), ("none", SHORT)
    found = (mean(cells, method, length, "right") for method, length in cases)
    yarn, none, short = (own.shown(100, ".0f", "%") for own in found if own is not None)
    words = (
        "at 16k, twice its window, YaRN finds {} of {} facts and the unmodified model {}; at 4k, "
        "within its window, the latter finds {} (`python"
    )
    return [Sentence("README.md", words, (yarn, str(8 * DOCUMENTS), none, short))]


def pictures() -> dict[str, Picture]:
    cells = kept(CELLS)
    if len(cells) < DOCUMENTS * len(METHODS) * 2:
        return {}
    return {PICTURE: Picture(drawn(cells))}


def drawn(cells: Sequence[Cell]) -> Figure:
    """Both lengths side by side: retrieval, and the loss of the text."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.2), layout="constrained")
    panels = zip(
        figure.subplots(1, 2),
        (("right", 100, "facts retrieved, %"), ("text", 1, "loss of the text, nats per token")),
        strict=True,
    )
    for axes, (what, times, label) in panels:
        for i, (length, color) in enumerate(((SHORT, "0.7"), (TARGET, "C0"))):
            found = [mean(cells, method, length, what) for method in METHODS]
            own = [each for each in found if each is not None]
            values = [times * each.value for each in own]
            ends = [each.interval or (each.value, each.value) for each in own]
            errors = [
                [value - times * low for value, (low, _) in zip(values, ends, strict=True)],
                [times * high - value for value, (_, high) in zip(values, ends, strict=True)],
            ]
            places = [x + 0.38 * (i - 0.5) for x in range(len(METHODS))]
            axes.bar(
                places,
                values,
                0.36,
                yerr=errors,
                color=color,
                label=f"{length // 1024}k",
                capsize=3,
            )
        axes.set_xticks(range(len(METHODS)), METHODS)
        axes.set_ylabel(label)
        axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return figure


if __name__ == "__main__":
    command(__doc__, run, lambda: table(kept(CELLS)))
