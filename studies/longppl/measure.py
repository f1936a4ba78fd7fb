"""Does LongPPL order scaling methods as retrieval does, where perplexity does not?

    make real                                   SmolLM2-135M, the evaluator, once
    python -m studies.longppl.measure           runs what is missing: about ten minutes of a core
    python -m studies.longppl.measure --report  runs nothing

Retrieval is that of `studies/methods`. Texts are the beginnings of files; of each the evaluator
marks the key tokens, and every model under every method then gives the losses of the key tokens and
of all tokens beyond the window. The rule is in README.md, and was committed before the first run.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.cells import lines
from benchmarks.machine import machine, measured_on
from benchmarks.text import read_text
from ropewalk.context_plan import FULL_ATTENTION, ContextPlan, PlanStep
from ropewalk.evaluation.conditions import Condition
from ropewalk.evaluation.encoding import Encoder
from ropewalk.evaluation.in_process import InProcess
from ropewalk.evaluation.key_tokens import Evaluator
from ropewalk.evaluation.perplexity import ScoredWindow, Text
from ropewalk.evaluation.randomness import Stream
from ropewalk.evaluation.scoring import Scorer
from ropewalk.evaluation.statistics import mean_interval
from ropewalk.models.install import applied
from ropewalk.models.load import LoadedModel, load
from ropewalk.outputs import write_atomically
from ropewalk.schedule import RotarySchedule
from studies.methods import measure as methods
from studies.methods.measure import MODELS, RETRIEVED, WINDOW
from studies.smollm2.model import ready

CELLS = Path(__file__).with_name("cells.jsonl")
PAGE, COMMAND = "studies/longppl/README.md", "python -m studies.longppl.measure"
DOCUMENTS = {2: 32, 4: 12}
"""By factor, the number of texts."""
JUDGED = 2
"""The factor of the verdict: at 4 times, perplexity already orders nine pairs of ten."""
SHORT = 320
"""Of the evaluator's tokens, which are longer: about a window of the bundled models."""
SEED = 410
DRAWS = 2000
ROUNDED = 5

Losses = NDArray[np.float64]
"""Of a factor, by [model, method, text, (all, key)]: the sums of the losses."""


class Found(NamedTuple):
    """What is measured at a factor, for the methods that all models have."""

    methods: list[str]
    tokens: NDArray[np.int64]
    """By [text, (all, key)]."""
    losses: Losses
    right: list[tuple[int, int]]
    """Pairs that retrieval separates, the better method first."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--report", action="store_true", help="run nothing")
    if not parser.parse_args().report:
        torch.set_num_threads(1)
        run_missing()
    print(next(iter(blocks().values())))


def run_missing() -> None:
    for factor, count in DOCUMENTS.items():
        for number in range(count):
            _once({"keys": [factor, number]}, lambda f=factor, n=number: _keys(f, n))
        for method in methods.methods():
            for model in MODELS:
                if methods.alike(factor)[method] == method:
                    cell = {"losses": [factor, model, method]}
                    _once(cell, lambda f=factor, m=model, own=method: _losses(f, m, own))


def _once(cell: dict[str, Any], work: Any) -> None:
    if any(line.items() >= cell.items() for line in lines(CELLS)):
        return
    began = time.process_time()
    line = {**cell, **work(), "seconds": round(time.process_time() - began, 1)}
    kept = CELLS.read_text(encoding="utf-8") if CELLS.exists() else ""
    line |= {"machine": machine(), "torch": torch.__version__}
    write_atomically(CELLS, f"{kept}{json.dumps(line, separators=(',', ':'))}\n")
    print(cell, flush=True)


@cache
def _loaded(model: str) -> LoadedModel:
    return load(model)


@cache
def _encoder() -> Encoder:
    """The bundled models share a tokenizer."""
    loaded = _loaded(MODELS[0])
    return Encoder(loaded.tokenizer, loaded.vocabulary)


@cache
def windows(factor: int) -> list[ScoredWindow]:
    """The beginnings of files that are long enough, drawn once."""
    length, encoder = factor * WINDOW, _encoder()
    inner = length - len(encoder.bos)
    found = [
        ScoredWindow(Text(d.name, tokens, d.text), 0, inner, encoder.bos, WINDOW, 1, d.name)
        for d in read_text().reporting
        if len(tokens := encoder.pieces(d.text)) >= inner
    ]
    drawn = Stream("longppl", SEED, factor).sample(len(found), DOCUMENTS[factor])
    return [found[i] for i in drawn]


@cache
def _evaluator() -> Evaluator:
    loaded = load(str(ready()), dtype="float32", device="cpu")
    return Evaluator(InProcess(loaded, [Condition("none", loaded.present_plan.id, None)]))


def _keys(factor: int, number: int) -> dict[str, Any]:
    window = windows(factor)[number]
    found = _evaluator().keys(window, f"{factor} {number}", SHORT, _encoder())
    places = np.flatnonzero(found)
    # The evaluator's own short context ends at another place of the text.
    return {"text": window.layout, "places": places[places >= WINDOW].tolist()}


def _losses(factor: int, model: str, method: str) -> dict[str, Any]:
    """Of each text, the sums of the losses of all tokens beyond the window, and of key tokens."""
    loaded, keys = _loaded(model), _places(factor)
    target = factor * WINDOW
    own: RotarySchedule = methods.schedule(loaded.present_plan.longest(), target, method)
    plan = ContextPlan(loaded.present_plan.model, {FULL_ATTENTION: (PlanStep(target, own),)})
    scorer, sums = Scorer(loaded.model), []
    with applied(loaded.model, plan, length=target):
        for window, places in zip(windows(factor), keys, strict=True):
            [score] = scorer.score([window.tokens], [WINDOW])
            of_keys = score.losses[np.array(places, dtype=np.int64) - WINDOW]
            sums.append([round(float(each.sum()), ROUNDED) for each in (score.losses, of_keys)])
    return {"sums": sums}


def _places(factor: int) -> list[list[int]]:
    found = {tuple(line["keys"]): line["places"] for line in lines(CELLS) if "keys" in line}
    return [found[factor, number] for number in range(DOCUMENTS[factor])]


def retrieved(factor: int) -> tuple[list[str], NDArray[np.float64], list[str]]:
    """The methods of `studies/methods`, its rows by [method, model and text], and these texts."""
    names = [name for name, first in methods.alike(factor).items() if name == first]
    known = {(line["model"], line["method"]): line for line in methods.current()
             if line["factor"] == factor}  # fmt: skip
    texts = [text for model in MODELS for text in known[model, names[0]]["texts"]]
    rows = [[row for model in MODELS for row in known[model, name]["at_target"]] for name in names]
    return names, np.array(rows), texts


def separated(rows: NDArray[np.float64], texts: Sequence[str]) -> list[tuple[int, int]]:
    """The pairs of methods whose retrieval differs, over texts and all models, the better first."""
    pairs = []
    for one, other in permutations(range(len(rows)), 2):
        apart = rows[one, :, RETRIEVED] - rows[other, :, RETRIEVED]
        ends = mean_interval(apart, clusters=texts)
        if ends is not None and ends[0] > 0:
            pairs.append((one, other))
    return pairs


def found(factor: int) -> Found | None:
    """None while a cell is missing."""
    kept = {tuple(line["losses"]): line["sums"] for line in lines(CELLS) if "losses" in line}
    names, rows, texts = retrieved(factor)
    if any((factor, model, name) not in kept for model in MODELS for name in names):
        return None
    losses = np.array([[kept[factor, model, name] for name in names] for model in MODELS])
    tokens = [[factor * WINDOW - WINDOW, len(places)] for places in _places(factor)]
    return Found(names, np.array(tokens), losses, separated(rows, texts))


def ordered(own: Found, texts: NDArray[np.int64]) -> NDArray[np.float64]:
    """The share of the separated pairs that perplexity and LongPPL order as retrieval does.

    By row of `texts`, which texts are read, and by [all tokens, key tokens].
    """
    weights = np.array([np.bincount(row, minlength=len(own.tokens)) for row in texts])
    sums = np.einsum("dt,mntk->dnk", weights, own.losses) / len(own.losses)  # over models
    mean = sums / (weights @ own.tokens)[:, None]
    better, worse = np.array(own.right).T
    right = np.sign(mean[:, worse] - mean[:, better]) / 2 + 0.5
    shares: NDArray[np.float64] = right.mean(axis=1)
    return shares


def resampled(own: Found, draws: int = DRAWS) -> NDArray[np.float64]:
    """`ordered` of texts that are drawn again; the same ones for all models and methods."""
    count = len(own.tokens)
    return ordered(own, np.random.default_rng(SEED).integers(0, count, (draws, count)))


def verdict(low: float, high: float) -> str:
    """The rule of README.md, of the interval of the difference."""
    if low > 0:
        return "seen"
    return "contradicted" if high < 0 else "undecided"


def blocks() -> dict[str, str]:
    return {PAGE: page()}


def page() -> str:
    rows = ["| pairs | key tokens | perplexity | LongPPL | difference |", "|---|---|---|---|---|"]
    parts = [own for factor in DOCUMENTS if (own := found(factor)) is not None]
    told = []
    for factor, own in zip(DOCUMENTS, parts, strict=False):
        shares, again = ordered(own, np.arange(len(own.tokens))[None]), resampled(own)
        both = [np.column_stack([each, each[:, 1] - each[:, 0]]) for each in (shares, again)]
        low, high = np.quantile(both[1], [0.025, 0.975], axis=0)
        cells = [
            f"{100 * value:.0f} ({100 * one:.0f} to {100 * two:.0f})"
            for value, one, two in zip(both[0][0], low, high, strict=True)
        ]
        keys = own.tokens[:, 1]
        marked = f"{keys.sum()}, in {np.count_nonzero(keys)} of {len(keys)} texts"
        rows.append(f"| {len(own.right)} at {factor}× | {marked} | {' | '.join(cells)} |")
        if factor == JUDGED:
            told.append(f"Verdict at {factor}×, by the rule above: **{verdict(low[2], high[2])}**.")
    if not parts:
        return "Not measured yet."
    if len(parts) < len(DOCUMENTS):
        told.append("At 4×, not all cells are finished yet.")
    last = lines(CELLS)[-1]
    where = measured_on({**last["machine"], "torch": last["torch"]}, COMMAND)
    table = "\n".join(_losses_table(parts))
    return "\n\n".join(["\n".join(rows), *told, table, f"{where}."])


def _losses_table(parts: Sequence[Found]) -> Iterator[str]:
    """By method, the losses less those of no method, over all texts and models."""
    factors = list(DOCUMENTS)[: len(parts)]
    head = [f"{what} at {factor}×" for factor in factors for what in ("all tokens", "key tokens")]
    yield f"| method | {' | '.join(head)} |"
    yield "|---" * (len(head) + 1) + "|"
    by_part = []
    for part in parts:
        mean = (part.losses.sum(axis=2) / part.tokens.sum(axis=0)).mean(axis=0)
        by_part.append({name: mean[i] for i, name in enumerate(part.methods)})
    for name in by_part[-1]:
        cells = []
        for own in by_part:
            values = own[name] if name == methods.NONE else own.get(name, np.nan) - own["none"]
            form = ".3f" if name == methods.NONE else "+.3f"
            cells += [format(float(value), form) for value in np.broadcast_to(values, 2)]
        yield f"| {name} | {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
