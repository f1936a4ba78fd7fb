"""Gemma 3 270M at twice its window, in llama.cpp: the cells of README.md, the shortest first.

    make real                  the model, once, if you accept Gemma's terms
    make study NAME=gemma3     runs what is missing
    python -m studies.gemma3.measure --up-to 16k
    python -m studies.gemma3.measure --report

Finished cells are lines of cells.jsonl and are not run again.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import ropewalk as rw
from benchmarks.machine import machine
from ropewalk.arguments import as_length
from ropewalk.data.corpora import HELD_OUT, read_documents
from ropewalk.evaluation.encoding import Encoder
from ropewalk.evaluation.planted import Planted, Stretch, plant
from ropewalk.evaluation.served.client import Client
from ropewalk.evaluation.served.llama_cpp_tokens import encoder_of
from ropewalk.evaluation.statistics import rate_interval, t_interval
from ropewalk.gguf import llama_cpp_run
from ropewalk.gguf.header import read_header
from ropewalk.lengths import format_length
from ropewalk.records import is_main_answer
from ropewalk.run_on_disk import RunOnDisk
from studies.gemma3.model import FILE, PLACE, SHA256, ready
from studies.smollm2.cells import Mean

CELLS = Path(__file__).with_name("cells.jsonl")
PAGE = "studies/gemma3/README.md"
SEED = 0
WITHIN = (8192, 16384, 32768)
EIGHT, SINGLE = "eight facts", "single facts"
COUNTS = {EIGHT: 4, SINGLE: 8}
UNMODIFIED = "none"
ENOUGH, DECIDES_AT = 0.7, 16384
TASKS = ("needle", "passkey")
STEP = 3.0
"""Added to a bias until it makes a token the likeliest."""


class Wanted(NamedTuple):
    """One text under one method with one type of cache."""

    task: str
    document: int
    length: int
    method: str = UNMODIFIED
    cache: str = "f16"


class Answered(NamedTuple):
    """A text's answers."""

    wanted: Wanted
    right: tuple[bool, ...]
    losses: tuple[float, ...]
    """Of each answer, in nats a token; none if answers were written."""
    seconds: float
    """CPU time of llama.cpp."""


def wanted() -> Iterator[Wanted]:
    """The cells of the gate, those that decide before longer ones."""
    for task, length in (
        *((EIGHT, 8192), (EIGHT, DECIDES_AT), (SINGLE, DECIDES_AT), (SINGLE, 8192)),
        *((EIGHT, 32768), (SINGLE, 32768)),
    ):
        yield from (Wanted(task, i, length) for i in range(COUNTS[task]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--up-to", default="64k", help="leave out longer texts (default: 64k)")
    parser.add_argument("--report", action="store_true", help="run nothing")
    asked = parser.parse_args()
    if not asked.report:
        run(as_length(asked.up_to, "up_to"))
    print(blocks()[PAGE])


def run(up_to: int) -> None:
    ready()
    done = {cell.wanted for cell in kept()}
    for one in wanted():
        if one in done or one.length > up_to:
            continue
        began = _spent()
        right, losses = single(one) if one.task == SINGLE else eight(one)
        cell = Answered(one, right, losses, round(_spent() - began, 1))
        new = not CELLS.exists()
        with CELLS.open("a", encoding="utf-8") as journal:
            if new:
                about = {**machine(), "runtime": llama_cpp_run.runtime(), "model": SHA256}
                journal.write(json.dumps(about) + "\n")
            journal.write(json.dumps(cell) + "\n")
        print(*one, f"{sum(right)} of {len(right)}, {cell.seconds:.0f} s", flush=True)


def _spent() -> float:
    """The CPU time of processes that were started here and have ended."""
    times = os.times()
    return times.children_user + times.children_system


def kept() -> list[Answered]:
    if not CELLS.exists():
        return []
    lines = map(json.loads, CELLS.read_text("utf-8").splitlines()[1:])
    return [
        Answered(Wanted(*one), tuple(right), tuple(losses), seconds)
        for one, right, losses, seconds in lines
    ]


def single(one: Wanted) -> tuple[tuple[bool, ...], tuple[float, ...]]:
    """One sample of `evaluate`, which a run of its own keeps."""
    sample, task = divmod(one.document, len(TASKS))
    place = PLACE / f"single-{format_length(one.length)}-{TASKS[task]}-{sample}"
    rw.evaluate(
        FILE, tasks=[TASKS[task]], lengths=[one.length], samples=1, seed=sample, run=place,
        progress=None,
    )  # fmt: skip
    [own] = [each for each in RunOnDisk.read(place).records if is_main_answer(each)]
    return (own.score == 1,), ()


def eight(one: Wanted) -> tuple[tuple[bool, ...], tuple[float, ...]]:
    """One document, read once for all of its answers."""
    vocabulary = read_header(FILE).lengths["tokenizer.ggml.tokens"]
    with llama_cpp_run.serving(FILE, length=one.length + 8, exact=False) as served:
        served_tokens = encoder_of(Client.of(served.address, 86400.0), vocabulary, SHA256)
        encoder = _WithoutEnds(served_tokens.tokenizer)
        document = document_of(encoder, one)
        llama = llama_cpp_run.RunningLlamaCpp(FILE, served)
        found = [answered(llama, document.tokens, answer, encoder) for answer in document.answers]
    return tuple(right for right, _ in found), tuple(loss for _, loss in found)


class _WithoutEnds(Encoder):
    """The tokenizer of a served file, which does not list its vocabulary."""

    def beginning_with(self, pattern: str) -> NDArray[np.bool_]:
        return np.zeros(0, dtype=np.bool_)


def document_of(encoder: Encoder, one: Wanted) -> Planted:
    """All held-out files joined from another one on, cut to the length, with facts."""
    texts = [document.text for document in read_documents(HELD_OUT)]
    first, tokens = one.document % len(texts), list[int]()
    for text in [*texts[first:], *texts[:first]]:
        if len(tokens) < one.length:
            tokens += encoder.pieces(text).tolist()
    stretch = Stretch(f"from file {first}", np.array(tokens[: one.length]))
    return plant(stretch, encoder, one.length, one.document, SEED)


def answered(
    llama: llama_cpp_run.RunningLlamaCpp, tokens: NDArray[np.int64], answer: slice, encoder: Encoder
) -> tuple[bool, float]:
    """True if each token was the first choice and no digit follows; the loss in nats a token."""
    whole = tokens[: answer.stop].tolist()
    told = llama.log_probabilities(whole, start=answer.start - 1)
    *rows, after = zip(told.tokens, told.values, strict=True)
    right, losses = not encoder.text(after[0][:1]).strip()[:1].isdigit(), []
    for place, (likeliest, values) in enumerate(rows, answer.start):
        [rank] = np.flatnonzero(likeliest == tokens[place])[:1].tolist() or [-1]
        right &= rank == 0
        own = values[rank] if rank >= 0 else _unlikely(llama, whole[: place + 1], -values[-1])
        losses.append(-float(own))
    return right, float(np.mean(losses))


def _unlikely(llama: llama_cpp_run.RunningLlamaCpp, tokens: Sequence[int], bias: float) -> float:
    """The log-probability of an unlisted last token, by a bias that makes it the likeliest.

    Of a probability p, a bias b makes p·exp(b) / (1 − p + p·exp(b)).
    """
    *before, last = tokens
    asked = {"n_probs": 1, "post_sampling_probs": True, "samplers": ["temperature"]}
    while True:
        told = llama._complete(before, 1, **asked, temperature=1.0, logit_bias=[[last, bias]])
        [likeliest] = told["completion_probabilities"][0]["top_probs"]
        if likeliest["id"] == last:
            odds = likeliest["prob"] / max(1 - likeliest["prob"], 1e-9) * math.exp(-bias)
            return math.log(odds / (1 + odds))
        bias += STEP


def mean(cells: Sequence[Answered], what: str) -> Mean | None:
    """Of the facts found or of the loss; answers count as independent."""
    values = [float(value) for cell in cells for value in getattr(cell, what)]
    if not values:
        return None
    ends = rate_interval(values) if what == "right" else t_interval(values)
    return Mean(float(np.mean(values)), ends, len(cells))


def gate(cells: Sequence[Answered]) -> str:
    rows = ["| task | length | texts | facts found | loss of answers | CPU minutes a text |"]
    rows.append("|---|---|---|---|---|---|")
    for task, count in COUNTS.items():
        for length in WITHIN:
            own = [
                cell for cell in cells
                if cell.wanted[:1] + cell.wanted[2:] == (task, length, UNMODIFIED, "f16")
                and cell.wanted.document < count
            ]  # fmt: skip
            found, loss = mean(own, "right"), mean(own, "losses")
            cost = f"{np.mean([cell.seconds for cell in own]) / 60:.1f}" if own else "–"
            shown = "not run" if found is None else found.shown(100, ".0f", "%")
            nats = "–" if loss is None else loss.shown(1, ".3f")
            rows.append(
                f"| {task} | {format_length(length)} | {len(own)} of {count} | {shown} | {nats} "
                f"| {cost} |"
            )
    return "\n".join(rows)


def blocks() -> dict[str, str]:
    return {PAGE: gate(kept()) + "\n"}


if __name__ == "__main__":
    main()
