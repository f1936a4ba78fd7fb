"""Training on text with planted questions: does it help with questions that it did not train?

    python -m studies.bundled_model.train --size tall --seeds 1      and `--size wide --seeds 3`
    python -m benchmarks.trained_questions            runs what is missing: some minutes a model
    python -m benchmarks.trained_questions --report   runs nothing

`extend --train-steps` trains on plain text. Tried instead: text in which facts stand, and which
ends with questions for them and with the beginnings of some of its own lines, answers weighing 5
(`asked`). Their wordings and tasks are others than those that judge: a variable and its number, a
town and the name of its man, a line to be continued.

*Written down before the first cell that is recorded.* Five models, each at 8 times its window
under YaRN: not trained, trained on plain text, and on the same text with questions; 40 steps of
4,096 tokens, layout `anchor`, rate 3e-4 after eight steps of warm-up. The settings were chosen with
other seeds and other documents of judgement (on `bundled` and `tall`). They train on
`benchmarks.text`'s part for tuning and are judged on its part for reporting, at the target and
within the window:

- *judged*: the mean of two shares: of facts (eight needles a document, as a verdict of `extend`
  asks) and of pass keys. No training had a question of these kinds;
- *trained*: the share of questions of the training's own kinds, on new text;
- *text*: nats a token of plain text.

A model counts once. The intervals are Student's over five models.

1. Questions help with what they did not train if the interval of *judged* at the target, minus
   that of plain text, is above 0. If it is not, `extend` trains on plain text.
2. Training is worth a default that does it by itself (`auto`) if the interval of *judged* at the
   target, minus no training, is above 0 for the arm that rule 1 leaves, and training costs no
   model more than 5 points of *judged* within its window, nor more than 0.02 nats of text there.
   If not, `auto` goes.

*Written down when plain text had lost pass keys on two of five models, before any cell at a lower
rate.*

3. Small models are trained on plain text at the largest of 3e-4, 1e-4 and 2e-5 that costs none of
   the five more than 5 points of *judged*, at the target or within the window, against no training.
   The two that lost are read first, and a rate that fails on them is read on no other.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import shutil
import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import ropewalk as rw
from benchmarks.machine import PAGE, machine, measured_on
from benchmarks.text import read_text
from docs.figures import paragraph
from ropewalk.context_plan import ContextPlan
from ropewalk.data.corpora import Document, Weighted
from ropewalk.data.store import build
from ropewalk.evaluation.encoding import Encoder, IntArray
from ropewalk.evaluation.planted import (
    Planted,
    Stretch,
    _line_starts,
    plant,
    scored_tokens,
    stretches_of,
)
from ropewalk.evaluation.prose import surname, town
from ropewalk.evaluation.randomness import Stream, spread
from ropewalk.evaluation.samples import common_beginning
from ropewalk.evaluation.statistics import mean_interval
from ropewalk.evaluation.tasks.needle import CONTINUES, Fact
from ropewalk.evaluation.vocabulary import NOUNS
from ropewalk.models.load import LoadedModel, load
from ropewalk.outputs import write_atomically
from ropewalk.searching.model.measure import RETRIEVED, TEXT, LocalMeasure
from studies.training.cells import SUBJECTS

LINES = Path(__file__).with_name("results") / "trained_questions.jsonl"
RUNS = Path("runs") / "trained-questions"
COMMAND = "python -m benchmarks.trained_questions"
MODELS = ("bundled", "bundled 2", "bundled 3", "tall", "wide 3")
UNTRAINED, PLAIN, QUESTIONS = "not trained", "plain text", "with questions"
ARMS = (UNTRAINED, PLAIN, QUESTIONS)
SLOWER, SLOWEST = "plain text at 1e-4", "plain text at 2e-5"
RATES = {PLAIN: 3e-4, QUESTIONS: 3e-4, SLOWER: 1e-4, SLOWEST: 2e-5}
TIMES, STEPS, WARM_UP, TOKENS_A_STEP = 8, 40, 8, 4096
SEED = 0
"""The settings were chosen with seed 101, on the text that ships with ropewalk."""
FACTS, QUOTES, WEIGHT = 8, 8, 5.0
CUE, QUOTED = 4, 12
"""Tokens of a line that are given, and the place up to which it is to be continued."""
DOCUMENTS = 12
"""Of facts, and of pass keys, at each length."""
ENDS = 2
"""Tokens of a window that are no document's: the anchor, and the EOS."""
WITHIN, BEYOND, UNMODIFIED = "within", "at the target", "unmodified, within"
MOST_LOST, MOST_NATS = 0.05, 0.02


class Cell(NamedTuple):
    model: str
    arm: str


def every_cell() -> list[Cell]:
    """All arms of a model before the next one; a large and a small model by turns."""
    order = ("bundled", "tall", "wide 3", "bundled 2", "bundled 3")
    lost_first = sorted(order, key=lambda model: model not in ("tall", "bundled 2"))
    slower = (Cell(model, arm) for arm in (SLOWER, SLOWEST) for model in lost_first)
    return [*(Cell(*each) for each in product(order, ARMS)), *slower]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--report", action="store_true", help="run nothing")
    if not parser.parse_args().report:
        logging.disable(logging.WARNING)
        torch.set_num_threads(1)
        done = [Cell(*line["cell"]) for line in lines()]
        for cell in every_cell():
            if cell not in done and not needless(cell.arm):
                kept = LINES.read_text(encoding="utf-8") if LINES.exists() else ""
                line = json.dumps(work(cell), separators=(",", ":"))
                write_atomically(LINES, f"{kept}{line}\n")
                print(line, flush=True)
    print(next(iter(blocks().values())))


def needless(arm: str) -> bool:
    """True of a lower rate that lost somewhere, or if a larger one lost nowhere."""
    found: Found = {tuple(line["cell"]): line["found"] for line in lines()}
    lower = arm in (SLOWER, SLOWEST) and not keeps(found, arm)
    return lower or (arm == SLOWEST and keeps(found, SLOWER))


def lines() -> list[dict[str, Any]]:
    text = LINES.read_text(encoding="utf-8") if LINES.exists() else ""
    return [json.loads(line) for line in text.splitlines()]


def work(cell: Cell) -> dict[str, Any]:
    """A finished cell. It goes on where its training was killed."""
    began = time.process_time()
    path = SUBJECTS[cell.model].path
    window = SUBJECTS[cell.model].window
    target, place = TIMES * window, RUNS / f"{cell.model}-{cell.arm}".replace(" ", "-")
    plan = rw.plan(path, target, "yarn", notice=lambda _: None).plan
    model: str = path
    planned: ContextPlan | None = plan
    if cell.arm != UNTRAINED:
        documents = training(load(path), target, questions=cell.arm == QUESTIONS)
        rate = RATES[cell.arm]
        model, planned = str(trained(path, plan, list(documents), rate, place)), None
    trained_in = time.process_time() - began
    found = {WITHIN: judged(model, planned, window)}
    found[BEYOND] = judged(model, planned, target, with_trained=True)
    if cell.arm == UNTRAINED:
        found[UNMODIFIED] = judged(model, None, window)
    shutil.rmtree(place, ignore_errors=True)
    return {
        "cell": list(cell),
        "found": found,
        "training_seconds": round(trained_in, 1),
        "cpu_seconds": round(time.process_time() - began, 1),
        "torch": torch.__version__,
        "machine": machine(),
    }


def training(loaded: LoadedModel, target: int, *, questions: bool) -> Iterator[Document]:
    """A window each of text, with facts and questions or without."""
    encoder = Encoder(loaded.tokenizer, loaded.vocabulary)
    count, length = STEPS * max(1, TOKENS_A_STEP // target), target - ENDS
    found, _ = stretches_of(read_text().tuning, encoder, length, count, SEED)
    for number in range(count):
        stretch = found[number % len(found)]
        if questions:
            own = asked(stretch, encoder, length, number)
            yield Document(str(number), "", own.tokens, tuple(own.weights))
        else:
            yield Document(str(number), "", stretch.tokens)


def trained(
    path: str, plan: ContextPlan, documents: Sequence[Document], rate: float, place: Path
) -> Path:
    encoder = Encoder(load(path).tokenizer)
    build(place / "tokens", {"text": documents}, encoder.batch, tokenizer=encoder.sha256)
    rw.train(
        path,
        corpus=place / "tokens",
        to=plan.target_length,
        plan=plan,
        steps=STEPS,
        batch=max(1, TOKENS_A_STEP // plan.target_length),
        learning_rate=rate,
        warmup=WARM_UP,
        seed=SEED,
        device="cpu",
        run=place / "run",
        progress=None,
        notice=lambda _: None,
    )
    return place / "run" / "model"


class Asked(NamedTuple):
    """Text with facts, and at its end questions for them and for its lines."""

    tokens: IntArray
    text: slice
    answers: tuple[slice, ...]
    weights: list[Weighted]


def _variable(random: Stream) -> Fact:
    name = f"{random.choice(NOUNS)}_{random.choice(NOUNS)} ="
    number = f" {100 + random.below(900)}"
    return Fact(f"{name}{number}\n", name, number, "\n")


def _home(random: Stream) -> Fact:
    of, man = f"{town(random.below(2**30))} is the home of", f" {surname(random.below(2**30))}"
    return Fact(f"{of}{man}.\n", of, man, ".\n")


KINDS = (_variable, _home)


def asked(stretch: Stretch, encoder: Encoder, length: int, number: int) -> Asked:
    """`length` tokens, of which facts take a tenth and lines another tenth at most."""
    random = Stream("training questions", SEED, number)
    facts: dict[str, Fact] = {}
    room = length // 5 - 1
    while len(facts) < FACTS:
        fact = KINDS[(number + len(facts)) % len(KINDS)](random)
        room -= len(encoder.pieces(fact.line + fact.question + fact.answer + fact.end))
        if room < length // 10:
            break
        facts[fact.question] = fact
    questions = [_question(encoder, facts[name]) for name in random.shuffled(list(facts))]
    lines = [encoder.pieces(fact.line) for fact in facts.values()]
    begin = length - sum(map(len, lines)) - sum(len(own) for own, _, _ in questions)
    starts = _line_starts(stretch.tokens, encoder)
    starts = starts[starts < begin - QUOTED * (QUOTES + 1)]
    line_end = encoder.pieces("\n")
    for place in _quotable(stretch.tokens[:begin], starts, number):
        own = np.concatenate([stretch.tokens[place : place + QUOTED], line_end])
        if len(own) <= room:
            questions.append((own, CUE, QUOTED))
            room -= len(own)
            begin -= len(own)
    parts, taken, weights = [], 0, []
    for i, line in enumerate(lines):
        depth = (i + spread(number, "training questions", SEED, i)) / len(lines)
        place = int(starts[int(depth * len(starts))])
        parts += [stretch.tokens[taken:place], line]
        end = sum(map(len, parts))
        weights.append(Weighted(end - len(line), end, 0.0))
        taken = place
    parts += [stretch.tokens[taken : begin - len(line_end)], line_end]
    end, answers = sum(map(len, parts)), []
    text = slice(end - scored_tokens(length), end)
    for own, first, last in questions:
        answers.append(slice(end + first, end + last))
        weights += [Weighted(end, end + first, 0.0), Weighted(end + first, end + len(own), WEIGHT)]
        parts.append(own)
        end += len(own)
    tokens = np.concatenate(parts)
    assert len(tokens) == length
    return Asked(tokens, text, tuple(answers), weights)


def _question(encoder: Encoder, fact: Fact) -> tuple[IntArray, int, int]:
    """Its tokens with those of its answer, and where these begin and end."""
    answered = encoder.pieces(fact.question + fact.answer)
    first = common_beginning(encoder.pieces(fact.question), answered)
    return np.concatenate([answered, encoder.pieces(fact.end)]), first, len(answered)


def _quotable(tokens: IntArray, starts: IntArray, number: int) -> Iterator[int]:
    """Beginnings of lines at stratified depths whose first tokens stand nowhere else."""
    windows = np.lib.stride_tricks.sliding_window_view(tokens, CUE)
    for i in range(QUOTES if len(starts) else 0):
        depth = (i + spread(number, "quoted lines", SEED, i)) / QUOTES
        place = int(starts[int(depth * len(starts))])
        if (windows == tokens[place : place + CUE]).all(axis=1).sum() == 1:
            yield place


def judged(
    model: str,
    plan: ContextPlan | None,
    length: int,
    *,
    with_trained: bool = False,
) -> dict[str, float]:
    """The shares of facts, pass keys and questions of the training that are answered, and nats;
    under a plan, or as the model is."""
    loaded, texts = load(model), read_text().reporting
    encoder = Encoder(loaded.tokenizer, loaded.vocabulary)
    wanted = 2 * DOCUMENTS if with_trained else DOCUMENTS
    stretches, _ = stretches_of(texts, encoder, length, wanted, SEED)
    facts = [
        plant(stretch, encoder, length, i, SEED) for i, stretch in enumerate(stretches[:DOCUMENTS])
    ]
    begin, own = len(encoder.bos), []
    for i, stretch in enumerate(stretches[DOCUMENTS:]):
        found = asked(stretch, encoder, length - begin, STEPS * TOKENS_A_STEP + i)
        answers = tuple(slice(each.start + begin, each.stop + begin) for each in found.answers)
        own.append(
            Planted(
                stretch.source,
                np.concatenate([np.array(encoder.bos, dtype=np.int64), found.tokens]),
                slice(found.text.start + begin, found.text.stop + begin),
                answers,
                (0.0,) * len(answers),
                partial(encoder.goes_on, CONTINUES),
            )
        )
    used = plan or loaded.present_plan
    measure = LocalMeasure(loaded.model, [*facts, *own], lambda _: used)
    values = measure([used.longest(used.extended_layer)], range(len(facts) + len(own)))[0]
    first, second = values[: len(facts)], values[len(facts) :]
    keys = rw.evaluate(
        model,
        plans=[] if plan is None else [plan],
        methods=["none"] if plan is None else [],
        lengths=[length],
        tasks=["passkey"],
        samples=DOCUMENTS,
        seed=SEED,
        corpus=texts,
        device="cpu",
        progress=None,
        notice=lambda _: None,
    )
    [key] = [each.value for each in keys.results if each.metric == "exact_match"]
    shares = {"facts": float(first[:, RETRIEVED].mean()), "passkey": key}
    return {
        name: round(value, 4)
        for name, value in {
            **shares,
            "judged": math.fsum(shares.values()) / len(shares),
            **({"trained": float(second[:, RETRIEVED].mean())} if with_trained else {}),
            "text": float(first[:, TEXT].mean()),
        }.items()
    }


Found = dict[tuple[str, str], dict[str, dict[str, float]]]
"""The values of a model and an arm, by place."""


def difference(found: Found, arm: str, other: str, what: str, where: str) -> list[float]:
    """One arm minus another, over models."""
    return [
        found[model, arm][where][what] - found[model, other][where][what]
        for model in MODELS
        if (model, arm) in found and (model, other) in found
    ]


def rules(found: Found) -> tuple[bool, bool]:
    """Questions help with others; a training may be done by itself."""
    low = mean_interval(difference(found, QUESTIONS, PLAIN, "judged", BEYOND))
    first = low is not None and low[0] > 0
    arm = QUESTIONS if first else PLAIN
    low = mean_interval(difference(found, arm, UNTRAINED, "judged", BEYOND))
    lost = difference(found, arm, UNTRAINED, "judged", WITHIN)
    nats = difference(found, arm, UNTRAINED, "text", WITHIN)
    kept = bool(lost) and min(lost) >= -MOST_LOST and max(nats) <= MOST_NATS
    return first, low is not None and low[0] > 0 and kept


def keeps(found: Found, arm: str) -> bool:
    """True if training so costs no model that was read more than it may."""
    lost = [
        change
        for where in (BEYOND, WITHIN)
        for change in difference(found, arm, UNTRAINED, "judged", where)
    ]
    return min(lost, default=0.0) >= -MOST_LOST


def blocks() -> dict[str, str]:
    found: Found = {tuple(line["cell"]): line["found"] for line in lines()}
    return {PAGE: _page(found) if found else "Not measured yet."}


def _page(found: Found) -> str:
    rows = ["| | model | " + " | ".join((UNMODIFIED, *ARMS)) + " |", "|---" * (3 + len(ARMS)) + "|"]
    for where, model in product((BEYOND, WITHIN), MODELS):
        places = [found.get((model, arm), {}).get(where) for arm in ARMS]
        first = found.get((model, UNTRAINED), {}).get(UNMODIFIED) if where == WITHIN else None
        rows.append(f"| {where} | {model} | {' | '.join(map(_shown, (first, *places)))} |")
    columns = ("judged", BEYOND), ("text", BEYOND), ("judged", WITHIN), ("text", WITHIN)
    heads = [f"{what}, {where}" for what, where in columns]
    differences = [f"| | {' | '.join(heads)} |", "|---" * (1 + len(columns)) + "|"]
    slower = [arm for arm in (SLOWER, SLOWEST) if any(own == arm for _, own in found)]
    pairs = [(arm, UNTRAINED) for arm in (PLAIN, QUESTIONS, *slower)]
    for arm, other in (*pairs, (QUESTIONS, PLAIN)):
        told = [_told(difference(found, arm, other, *each), each[0]) for each in columns]
        differences.append(f"| {arm} minus {other} | {' | '.join(told)} |")
    helps, by_itself = rules(found)
    verdict = (
        f"Training questions {'help' if helps else 'were not shown to help'} more than plain text "
        f"with other questions. Training {'may' if by_itself else 'should not'} be a default. "
        f"{_lost(found)}"
    )
    missing = sum(cell not in found and not needless(cell.arm) for cell in every_cell())
    left = f" {missing} cells are missing." if missing else ""
    heading = paragraph(
        "Shares of facts, of pass keys and (at the target) of the training's own questions that "
        f"are answered, and nats a token of text, at {TIMES} times the window and within it:"
    )
    between = paragraph(
        "*Judged* is the mean of facts and pass keys, in points; text in nats a token (lower is "
        "better); intervals are over models:"
    )
    ending = paragraph(f"{verdict}{left} {measured_on(lines()[-1]['machine'], COMMAND)}.")
    return "\n\n".join((heading, "\n".join(rows), between, "\n".join(differences), ending))


def _lost(found: Found) -> str:
    """The largest loss at each rate."""
    told = []
    for arm, rate in ((PLAIN, "3e-4"), (SLOWER, "1e-4"), (SLOWEST, "2e-5")):
        changes = [difference(found, arm, UNTRAINED, "judged", at) for at in (BEYOND, WITHIN)]
        if changes[0]:
            many = "one model" if len(changes[0]) == 1 else f"{len(changes[0])} models"
            most = max(0.0, -min(map(min, changes)))
            told.append(f"{100 * most:.0f} points at {rate} ({many})")
    rates = ", ".join(told)
    return f"The largest loss of a model in *judged* after plain text, at either length: {rates}."


def _shown(own: dict[str, float] | None) -> str:
    if own is None:
        return "–"
    names = ("facts", "passkey", "trained")
    shares = ", ".join(f"{own[name]:.0%}" for name in names if name in own)
    return f"{shares}; {own['text']:.2f}"


def _told(values: Sequence[float], what: str) -> str:
    times, form = (1, "+.2f") if what == "text" else (100, "+.0f")
    if not values:
        return "–"
    told = f"{times * math.fsum(values) / len(values):{form}}"
    ends = mean_interval(values)
    if ends is None:
        return f"{told} ({len(values)} model{'s' * (len(values) > 1)})"
    return f"{told} ({times * ends[0]:{form}} to {times * ends[1]:{form}})"


if __name__ == "__main__":
    main()
