"""One cell of the study: a model under a plan, trained so many steps, evaluated.

Nothing of a cell depends on another one: it is trained by `rw.train` from the model as it is, and
evaluated by `rw.evaluate`, as users do both.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import ropewalk as rw
from benchmarks.machine import machine
from benchmarks.text import read_text
from ropewalk.context_plan import ContextPlan
from ropewalk.data.corpora import Document, Weighted
from ropewalk.data.store import build
from ropewalk.evaluation.encoding import Encoder
from ropewalk.models.config import BUNDLED_FOLDERS
from ropewalk.models.load import LoadedModel, load
from studies.bundled_model.corpus import read_corpus
from studies.bundled_model.model import SIZES, STAGES
from studies.bundled_model.train import finished, words_of
from studies.bundled_model.windows import (
    TEXT,
    UNPREDICTABLE,
    TextStream,
    Window,
    WindowMix,
    joined,
)
from studies.ranking.cells import sampled_fingerprint

CANDIDATES = Path("runs/bundled_model")
RUNS = Path("runs/training")
TASKS = ("passkey", "needle", "kv")
SAMPLES, FAR_SAMPLES = 40, 24
FAR = 32
"""Windows from which a target is far: its samples are long, so fewer are asked."""
TOKENS_A_STEP = 4096
RATE, WARM_UP = 3e-4, 10
"""The rate that the pilot chose (the part `rate` of measure.py)."""
LONGEST_TABLE = 4096
"""Tokens of a table of keys: of two letters there are not enough for a longer one."""
ENDS = 2
"""Tokens of a window that are no document's: the anchor, and the EOS."""


class Subject(NamedTuple):
    """A model of studies/bundled_model."""

    size: str
    seed: int
    base: float = 0.0
    """Another base than the size's, which a study pre-trains by itself."""

    @property
    def folder(self) -> Path:
        """The folder of its candidates."""
        return CANDIDATES / (f"{self.size}-{self.base:g}" if self.base else self.size)

    @property
    def path(self) -> str:
        if self.size == "bundled":
            return list(BUNDLED_FOLDERS)[self.seed - 1]
        return str(finished(self.folder, self.seed))

    @property
    def there(self) -> bool:
        return self.size == "bundled" or self.base > 0 or Path(self.path).exists()

    @property
    def window(self) -> int:
        return SIZES[self.size].window


SUBJECTS = {
    "tall": Subject("tall", 1),
    "wide": Subject("wide", 1),
    "narrow": Subject("narrow", 1),
    "low base": Subject("low_base", 1),
    "bundled": Subject("bundled", 1),
    "tall 2": Subject("tall", 2),
    "wide 3": Subject("wide", 3),  # the second does not choose among keys
    "tall 3": Subject("tall", 3),
    "bundled 2": Subject("bundled", 2),
    "bundled 3": Subject("bundled", 3),
    "high base": Subject("high_base", 1),  # only settings are chosen on it
    **{f"narrow {seed}": Subject("narrow", seed) for seed in range(2, 9)},
    **{f"tall, base 500 {seed}": Subject("tall", seed, 500.0) for seed in range(1, 6)},
}


class Cell(NamedTuple):
    subject: str
    factor: int
    """The target, in windows of the model."""
    arm: str
    """The method that it is planned by; `none` is the unmodified model, at its own length."""
    steps: int = 0
    order: int = 0
    """The order of the training data."""
    layout: str = "anchor"
    window: int = 0
    """The window of training, in windows of the model; 0 for the target."""
    rate: float = RATE
    short: bool = False
    """True if half of the tokens are in documents of the original length."""
    lora: int = 0

    @property
    def target(self) -> int:
        return self.factor * SUBJECTS[self.subject].window

    @property
    def samples(self) -> int:
        return FAR_SAMPLES if self.factor >= FAR else SAMPLES

    @property
    def trained_at(self) -> int:
        """Tokens of a training window."""
        if self.arm == CONTROL:
            return SUBJECTS[self.subject].window
        return (self.window or self.factor) * SUBJECTS[self.subject].window

    @property
    def untrained(self) -> Cell:
        """The twin that it is compared with."""
        return Cell(self.subject, self.factor, YARN if self.arm == CONTROL else self.arm)

    @property
    def name(self) -> str:
        return "-".join(str(part).replace(" ", "_") for part in self)


NONE, YARN, BASE, SEARCH, CONTROL = "none", "yarn", "base change", "search", "control"
"""Control: trained on as many tokens at the original length, then planned by YaRN."""


def measured(cell: Cell, samples: int | None = None) -> dict[str, Any]:
    """A cell's line of results."""
    torch.set_num_threads(1)
    began = time.process_time()
    subject, place = SUBJECTS[cell.subject], RUNS / cell.name
    model = subject.path if not cell.steps else str(trained(cell, place) / "model")
    lengths = [subject.window] if cell.arm == NONE else [subject.window, cell.target]
    planned = cell.arm != NONE and (not cell.steps or cell.arm == CONTROL)
    found = rw.evaluate(
        model,
        plans=[plan_of(cell)] if planned else [],
        methods=[] if planned else ["none"],
        lengths=lengths,
        tasks=[*TASKS, "perplexity"],
        samples=samples or cell.samples,
        mode="generate",
        corpus=read_text().reporting,
    )
    results = [
        [row.task, row.length, round(row.value, 4)]
        for row in found.results
        if row.metric in ("exact_match", "perplexity")
    ]
    shutil.rmtree(place, ignore_errors=True)
    return {
        **cell._asdict(),
        "weights": sampled_fingerprint(_loaded(subject.path).model),
        "results": results,
        "seconds": round(time.process_time() - began, 1),
        "machine": {**machine(), "torch": torch.__version__},
    }


def run_missing(
    file: Path, wanted: Iterable[Any], done: set[Any], measure: Callable[[Any], dict[str, Any]]
) -> None:
    """Append the cells that are missing, a line each; those of untrained models are left out."""
    for cell in wanted:
        if cell in done:
            continue
        if cell.subject in SUBJECTS and not SUBJECTS[cell.subject].there:
            print(f"{cell.subject} is not trained yet: {cell} is left out", flush=True)
            continue
        line = measure(cell)
        with file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(line) + "\n")
        done.add(cell)
        print(f"{cell}: {line['results']}, {line['seconds']:.0f} s", flush=True)


def plan_of(cell: Cell) -> ContextPlan:
    path = SUBJECTS[cell.subject].path
    if cell.arm == SEARCH:
        place = RUNS / f"search-{cell.subject}-{cell.factor}"
        texts = read_text().tuning
        return rw.search(path, to=cell.target, corpus=texts, run=place).plan
    method = "base_change" if cell.arm == BASE else "yarn"
    return rw.plan(path, cell.target, method).plan


def trained(
    cell: Cell,
    place: Path,
    plan: ContextPlan | None = None,
    model: str | None = None,
    *,
    tagged: bool = False,
) -> Path:
    """A training that was killed goes on here; by default of the subject's model, under the plan of
    the cell's arm."""
    control = cell.arm == CONTROL
    batch = max(1, TOKENS_A_STEP // cell.trained_at)
    store = place / "tokens"
    write_tokens(cell, cell.steps * batch, store, tagged)
    rw.train(
        model or SUBJECTS[cell.subject].path,
        corpus=store,
        to=cell.trained_at if control else cell.target,
        plan=None if control else plan or plan_of(cell),
        window=None if control else cell.trained_at,
        steps=cell.steps,
        batch=batch,
        layout=cell.layout,  # type: ignore[arg-type]
        learning_rate=cell.rate,
        warmup=WARM_UP,
        lora=cell.lora or None,
        seed=cell.order,
        device="cpu",
        run=place / "run",
    )
    return place / "run"


def write_tokens(cell: Cell, windows: int, place: Path, tagged: bool = False) -> None:
    """Write text, questions and answers as last seen in the model's training, at another length;
    where tagged, each document begins with the name of its kind, on which there is no loss."""
    loaded = _loaded(SUBJECTS[cell.subject].path)
    texts = [
        Document(str(i), "", own.tokens, _weights(own))
        for i, own in enumerate(_documents(cell, loaded, windows, tagged))
    ]
    encoder = Encoder(loaded.tokenizer)
    build(place, {"text": texts}, encoder.batch, tokenizer=encoder.sha256)


def _documents(
    cell: Cell, loaded: LoadedModel, windows: int, tagged: bool = False
) -> Iterator[Window]:
    """Each fills a window, or, of the short ones, as many as a window has room for."""
    own = SUBJECTS[cell.subject]
    random = np.random.default_rng([cell.order, own.seed, cell.trained_at])
    whole = cell.trained_at - ENDS
    many = cell.trained_at // own.window
    for number in range(windows):
        length = whole if not cell.short or number % 2 == 0 else (whole + 1) // many - 1
        mix = _mix(own, length + 1)
        for _ in range(1 if length == whole else many):
            kind = _next_kind(random, _shares(own, length + 1))
            drawn = mix.draw(random, length)[1:]  # without the BOS
            if tagged:
                tag = np.array(loaded.tokenizer(f"{kind}\n", add_special_tokens=False).input_ids)
                weightless = Window(tag, np.full(len(tag), UNPREDICTABLE, np.float32))
                drawn = joined([weightless, drawn[: length - len(tag)]])
            yield drawn


def _next_kind(random: np.random.Generator, shares: Mapping[str, float]) -> str:
    """The kind of the window that would be drawn next."""
    return list(shares)[deepcopy(random).choice(len(shares), p=list(shares.values()))]


@cache
def _mix(subject: Subject, length: int) -> WindowMix:
    texts = list(read_corpus().training.values())
    tokenizer = _loaded(subject.path).tokenizer
    stream = TextStream(tokenizer, texts)
    return WindowMix(tokenizer, stream, words_of(texts), length, _shares(subject, length))


def _shares(subject: Subject, length: int) -> dict[str, float]:
    shares = STAGES[SIZES[subject.size].stages - 1].shares
    if length > LONGEST_TABLE:
        shares = {kind: share for kind, share in shares.items() if not kind.startswith("table")}
    total = sum(shares.values())
    return {kind: share / total for kind, share in shares.items()}


def _weights(window: Window) -> tuple[Weighted, ...]:
    """Runs of tokens that do not weigh 1."""
    cuts = np.flatnonzero(np.diff(window.weights)) + 1
    runs = zip([0, *cuts.tolist()], [*cuts.tolist(), len(window)], strict=True)
    return tuple(
        Weighted(start, end, float(window.weights[start]))
        for start, end in runs
        if window.weights[start] != TEXT
    )


@cache
def _loaded(path: str) -> LoadedModel:
    return load(path)


def kept(file: Path) -> list[dict[str, Any]]:
    text = file.read_text("utf-8") if file.exists() else ""
    return [json.loads(line) for line in text.splitlines()]


def cell_of(line: dict[str, Any]) -> Cell:
    return Cell(**{key: line[key] for key in Cell._fields})
