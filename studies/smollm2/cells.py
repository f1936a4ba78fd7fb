"""One forward over one document of facts, as the studies of SmolLM2 keep it.

Documents are stretches of the held-out text with eight facts each, cut to any length with the same
facts. Finished cells are lines of a journal, and are not measured again.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks.machine import machine
from ropewalk.context_plan import ContextPlan
from ropewalk.data.corpora import HELD_OUT, read_documents
from ropewalk.evaluation.encoding import Encoder
from ropewalk.evaluation.planted import Planted, Stretch, plant, stretches_of
from ropewalk.evaluation.scoring import Scorer
from ropewalk.interval import Ends
from ropewalk.models.install import applied
from ropewalk.models.load import LoadedModel

LONGEST = 16384
"""Whatever they are cut to, documents are stretches of so many tokens."""
DOCUMENTS, SEED = 12, 0


def command(told: str, run: Callable[[int], None], report: Callable[[], str]) -> None:
    """The command line of a study of documents."""
    parser = argparse.ArgumentParser(description=told.splitlines()[0])
    parser.add_argument("--documents", type=int, default=DOCUMENTS, help="stop after so many")
    parser.add_argument("--report", action="store_true", help="run nothing")
    asked = parser.parse_args()
    if not asked.report:
        run(asked.documents)
    print(report())


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
    """For each answer, True if every token was the first choice, and the answer then ended."""
    depths: tuple[float, ...]
    """The depth of each fact: 0 is the beginning of the document."""
    seconds: float
    """CPU time."""

    @property
    def key(self) -> tuple[int, str, int]:
        return self.document, self.method, self.length


def documents(loaded: LoadedModel, lengths: Sequence[int]) -> list[dict[int, Planted]]:
    """Each document, cut to each of these lengths with the same facts."""
    encoder = Encoder(loaded.tokenizer, loaded.vocabulary)
    found, _ = stretches_of(list(read_documents(HELD_OUT)), encoder, LONGEST, DOCUMENTS, SEED)
    return [
        {
            length: plant(Stretch(own.source, own.tokens[:length]), encoder, length, i, SEED)
            for length in lengths
        }
        for i, own in enumerate(found)
    ]


class Asked(NamedTuple):
    """A cell that is wanted."""

    number: int
    method: str
    plan: ContextPlan
    document: Planted

    @property
    def key(self) -> tuple[int, str, int]:
        return self.number, self.method, len(self.document.tokens)


def fill(file: Path, loaded: LoadedModel, wanted: Iterable[Asked]) -> None:
    """Measure the missing cells, in this order."""
    done = {cell.key for cell in kept(file)}
    scorer = Scorer(loaded.model)
    with file.open("a", encoding="utf-8") as journal:
        if not file.stat().st_size:
            journal.write(json.dumps({**machine(), "torch": torch.__version__}) + "\n")
        for asked in wanted:
            if asked.key in done:
                continue
            cell = measured(loaded, scorer, asked)
            journal.write(json.dumps(cell._asdict()) + "\n")
            journal.flush()
            told = f"{sum(cell.right)} of {len(cell.right)}, loss {cell.text:.3f}"
            print(*asked.key, f"{told}, {cell.seconds:.0f} s", flush=True)


def measured(loaded: LoadedModel, scorer: Scorer, asked: Asked) -> Cell:
    document, plan = asked.document, asked.plan
    length, start = len(document.tokens), document.scored_from
    began = time.process_time()
    with applied(loaded.model, plan, length=min(length, plan.target_length), check=False):
        [scores] = scorer.score([document.tokens], [start])
    return Cell(
        document=asked.number,
        source=document.source,
        method=asked.method,
        length=length,
        text=float(scores.losses[: document.text.stop - start].mean()),
        answers=tuple(
            float(scores.losses[own.start - start : own.stop - start].mean())
            for own in document.answers
        ),
        right=tuple(document.matched(scores, own) for own in document.answers),
        depths=document.depths,
        seconds=round(time.process_time() - began, 1),
    )


def kept(file: Path) -> list[Cell]:
    if not file.exists():
        return []
    lines = map(json.loads, file.read_text("utf-8").splitlines()[1:])
    return [Cell(*map(_frozen, line.values())) for line in lines]


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


class Mean(NamedTuple):
    """A mean over documents, with its interval over texts."""

    value: float
    interval: Ends | None
    documents: int

    def shown(self, times: float, form: str, unit: str = "") -> str:
        told = f"{self.value * times:{form}}{unit}"
        if self.interval is None:
            return told
        low, high = (f"{end * times:{form}}" for end in self.interval)
        return f"{told} ({low} to {high})"
