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
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks.machine import machine
from ropewalk.context_plan import ContextPlan
from ropewalk.data.corpora import HELD_OUT, read_documents
from ropewalk.evaluation.encoding import Encoder
from ropewalk.evaluation.scoring import Scorer
from ropewalk.evaluation.statistics import Interval, mean_interval, rate_interval
from ropewalk.models.install import applied
from ropewalk.models.load import LoadedModel, load
from ropewalk.planning.extension import extend_plan
from ropewalk.searching.model.objectives import matched
from ropewalk.searching.model.planted import Planted, Stretch, plant, stretches_of, text_of
from studies.smollm2.model import ready

CELLS = Path(__file__).with_name("cells.jsonl")
PAGE = "docs/smollm2.md"
METHODS = ("none", "linear", "ntk", "yarn", "llama3")
TARGET, SHORT = 16384, 4096
DOCUMENTS, SEED, THREADS = 12, 0, 2


class Cell(NamedTuple):
    """One document under one method at one length: one forward."""

    document: int
    source: str
    method: str
    length: int
    text: float
    """The loss of the last 512 tokens of the text, in nats per token."""
    answers: tuple[float, ...]
    """The loss of each answer, in nats per token."""
    right: tuple[bool, ...]
    """Whether each token of the answer was the first choice, and the answer then ended."""
    depths: tuple[float, ...]
    """Where each fact stands: 0 is the beginning of the document."""
    seconds: float
    """CPU time."""

    @property
    def key(self) -> tuple[int, str, int]:
        return self.document, self.method, self.length


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=DOCUMENTS, help="stop after so many")
    parser.add_argument("--report", action="store_true", help="run nothing")
    asked = parser.parse_args()
    if not asked.report:
        run(asked.documents)
    print(table(kept()))


def run(count: int) -> None:
    """Every cell that is missing, document by document, so that a part of them is paired."""
    torch.set_num_threads(THREADS)
    loaded = load(str(ready()), dtype="float32", device="cpu")
    done = {cell.key for cell in kept()}
    scorer, plans = Scorer(loaded.model), plans_of(loaded)
    made = documents(loaded)
    with CELLS.open("a", encoding="utf-8") as file:
        if not CELLS.stat().st_size:
            file.write(json.dumps({**machine(), "torch": torch.__version__}) + "\n")
        for number, by_length in enumerate(made[:count]):
            for length, document in by_length.items():
                for method in METHODS:
                    if (number, method, length) in done:
                        continue
                    cell = measured(loaded, scorer, plans[method], method, number, document)
                    file.write(json.dumps(cell._asdict()) + "\n")
                    file.flush()
                    told = f"{sum(cell.right)} of {len(cell.right)}, loss {cell.text:.3f}"
                    print(f"{number} {method} {length}: {told}, {cell.seconds:.0f} s", flush=True)


def plans_of(loaded: LoadedModel) -> dict[str, ContextPlan | None]:
    """The same plan at both lengths: what a server would do with short text."""
    present = loaded.present_plan
    return {
        method: None if method == "none" else extend_plan(present, TARGET, method)
        for method in METHODS
    }


def documents(loaded: LoadedModel) -> list[dict[int, Planted]]:
    """Each document at the target, and cut to the short length with the same facts."""
    encoder = Encoder(loaded.tokenizer, loaded.vocabulary)
    texts = list(read_documents(HELD_OUT))
    found, _ = stretches_of(texts, encoder, TARGET, DOCUMENTS, SEED)
    return [
        {
            length: plant(Stretch(own.source, own.tokens[:length]), encoder, length, i, SEED)
            for length in (TARGET, SHORT)
        }
        for i, own in enumerate(found)
    ]


def measured(
    loaded: LoadedModel,
    scorer: Scorer,
    plan: ContextPlan | None,
    method: str,
    number: int,
    document: Planted,
) -> Cell:
    plan = loaded.present_plan if plan is None else plan
    length, start = len(document.tokens), document.scored_from
    began = time.process_time()
    with applied(loaded.model, plan, length=min(length, plan.target_length), check=False):
        [scores] = scorer.score([document.tokens], [start])
    return Cell(
        document=number,
        source=document.source,
        method=method,
        length=length,
        text=float(scores.losses[: document.text.stop - start].mean()),
        answers=tuple(
            float(scores.losses[own.start - start : own.stop - start].mean())
            for own in document.answers
        ),
        right=tuple(matched(document, scores, own) for own in document.answers),
        depths=document.depths,
        seconds=round(time.process_time() - began, 1),
    )


def kept() -> list[Cell]:
    if not CELLS.exists():
        return []
    lines = map(json.loads, CELLS.read_text("utf-8").splitlines()[1:])
    return [Cell(*map(_frozen, line.values())) for line in lines]


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


class Mean(NamedTuple):
    """A mean over documents, with its interval over texts."""

    value: float
    interval: Interval | None
    documents: int

    def shown(self, times: float, form: str, unit: str = "") -> str:
        told = f"{self.value * times:{form}}{unit}"
        if self.interval is None:
            return told
        low, high = (f"{end * times:{form}}" for end in self.interval)
        return f"{told} ({low} to {high})"


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
    cells = kept()
    whole = DOCUMENTS * len(METHODS) * 2
    told = f"Measured so far: {len(cells)} of {whole} cells (a document, a method and a length)"
    if len(cells) < whole:
        told += "; nothing is concluded from a part of them"
    return {PAGE: f"{told}.\n\n{table(cells)}"}


if __name__ == "__main__":
    main()
