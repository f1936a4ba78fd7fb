"""Scores a model at lengths on tasks, under one plan after the other; can be killed at any time.

A condition is a model as it is, or under a plan. All conditions see the same samples. Samples are
scored in batches whose boundaries depend on the settings alone, and a batch is recorded as a whole:
a run that was killed repeats at most one batch and ends with the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean
from typing import TypeVar

import numpy as np

from ropewalk.data.corpora import Document, corpus_digest
from ropewalk.evaluation import official, perplexity, tasks
from ropewalk.evaluation.conditions import Condition
from ropewalk.evaluation.drawing import drawn
from ropewalk.evaluation.encoding import Encoder, IntArray
from ropewalk.evaluation.haystack import Haystack
from ropewalk.evaluation.identity import digest_of_weights
from ropewalk.evaluation.official import Official
from ropewalk.evaluation.perplexity import Definition, Text, Window
from ropewalk.evaluation.samples import Sample
from ropewalk.evaluation.scoring import Scorer, TokenScores, check_memory, end_tokens
from ropewalk.evaluation.settings import EvaluationSettings
from ropewalk.models.install import applied
from ropewalk.models.load import LoadedModel
from ropewalk.records import (
    EXACT_MATCH,
    NEXT_TOKEN_ACCURACY,
    NLL,
    PERPLEXITY,
    PREFIX_MATCH,
    WRITTEN,
    EvalRecord,
    Mode,
    Subject,
)
from ropewalk.run_directory import Journal

TOKENS_PER_BATCH = 4096
# Of samples that wait for the next condition: 256 MiB. More than these are made again.
KEPT_TOKENS = 32 * 2**20

T = TypeVar("T")


@dataclass
class Evaluation:
    """One model, one corpus, and settings: what `run` scores under each condition."""

    loaded: LoadedModel
    documents: Sequence[Document]
    settings: EvaluationSettings
    notice: Callable[[str], None] = field(default=lambda _: None)
    """Called with what the user should know: tasks left out, fewer samples than asked for."""
    official: Official | None = None
    """The inputs of tasks that have official ones."""
    _kept: dict[tuple[str, int], list[Batch]] = field(default_factory=dict, init=False, repr=False)
    _room: int = field(default=KEPT_TOKENS, init=False, repr=False)

    def __post_init__(self) -> None:
        check_memory(self.loaded.model, max(self.settings.lengths), "lengths")
        if self.official is not None:
            named = [name for name in self.settings.tasks if name in official.every()]
            lengths, count = self.settings.lengths, self.settings.samples
            self.official.check_tokens(named, lengths, self.encoder, count)

    def run(
        self,
        conditions: Sequence[Condition],
        journal: Journal | None = None,
        progress: Callable[[float], None] = lambda done: None,
    ) -> list[EvalRecord]:
        """Score every condition; what the journal holds already is not scored again."""
        kept = [] if journal is None else journal.records
        records = [EvalRecord.from_json(r, f"record {i}") for i, r in enumerate(kept, start=1)]
        done = {record.key for record in records}
        total, behind = len(conditions) * sum(self.settings.lengths), 0.0
        for condition in conditions:
            subject = Subject(self.weights[:16], condition.plan_id, condition.method)
            for length in self.settings.lengths:
                share = length / len(self.settings.tasks)
                with self._under(condition, length):
                    for name in self.settings.tasks:
                        batches = self._made(name, length)
                        for step, batch in enumerate(batches, start=1):
                            if not all(key in done for key in batch.keys(subject)):
                                scored = batch.score(subject)
                                new = [record for record in scored if record.key not in done]
                                if journal is not None:
                                    journal.append(record.to_json() for record in new)
                                done.update(record.key for record in new)
                                records += new
                            progress((behind + share * step / len(batches)) / total)
                        behind += share
                        progress(behind / total)
        return records

    def check(self) -> None:
        """Refuse documents that are too short for a length, before anything is measured."""
        for name in self.settings.tasks:
            if name in perplexity.DEFINITIONS:
                for length in self.settings.lengths:
                    perplexity.DEFINITIONS[name].windows(self._request(length))

    @cached_property
    def weights(self) -> str:
        """Their fingerprint, as the evaluation began."""
        return digest_of_weights(self.loaded.model)

    @cached_property
    def encoder(self) -> Encoder:
        ends = end_tokens(self.loaded.model)
        return Encoder(self.loaded.tokenizer, self.loaded.vocabulary, ends)

    @cached_property
    def _scorer(self) -> Scorer:
        return Scorer(self.loaded.model, in_chunks=True)

    @cached_property
    def _corpus(self) -> str:
        return corpus_digest(self.documents)

    @cached_property
    def _haystack(self) -> Haystack:
        return Haystack(self.documents)

    @cached_property
    def _texts(self) -> list[Text]:
        return perplexity.texts(self.documents, self.encoder)

    def _under(self, condition: Condition, length: int) -> AbstractContextManager[object]:
        plan = condition.plan
        if plan is None:
            plan = self.loaded.present_plan
            if all(len(plan.steps(layer_type)) == 1 for layer_type in plan.schedules):
                return nullcontext()
            # Stock modules would choose by the tokens so far, anew for each chunk and token.
            length = min(length, plan.target_length)
        return applied(self.loaded.model, plan, length=length)

    def _made(self, name: str, length: int) -> list[Batch]:
        """The batches of a task, made when their turn comes, so that the first record comes soon.

        They are kept for the next condition while there is room.
        """
        if (name, length) in self._kept:
            return self._kept[name, length]
        batches = list(self._batches(name, length))
        tokens = sum(batch.tokens for batch in batches)
        if tokens <= self._room:
            self._room -= tokens
            self._kept[name, length] = batches
        return batches

    def _batches(self, name: str, length: int) -> Iterator[Batch]:
        if name in perplexity.DEFINITIONS:
            return self._windows(perplexity.DEFINITIONS[name], length)
        if name in official.every():
            return self._official(official.every()[name], length)
        return self._questions(tasks.named(name), length)

    def _official(self, task: tasks.Task, length: int) -> Iterator[Batch]:
        assert self.official is not None, "who asks for official inputs gives them"
        count = self.settings.samples
        own = list(self.official.samples(task.name, length, self.encoder, count))
        if len(own) < count:
            self.notice(f"{task.name} at {length}: its file holds {len(own)} samples")
        for sample in own:
            yield Questions(self._scorer, self.encoder, task, self.settings.mode, [sample])

    def _questions(self, task: tasks.Task, length: int) -> Iterator[Batch]:
        settings = self.settings
        own = drawn(task, self.encoder, self._haystack, length, settings, self.notice)
        if settings.mode == "shared_context":
            parts = _by(own, lambda sample: sample.context)
        else:
            # Writing needs prompts of one length; reading does not.
            one = settings.mode == "teacher_forced"
            groups = [own] if one else _by(own, lambda sample: len(sample.prompt))
            size = max(1, TOKENS_PER_BATCH // length)
            parts = [part for group in groups for part in _parts(group, size)]
        for part in parts:
            yield Questions(self._scorer, self.encoder, task, settings.mode, part)

    def _windows(self, definition: Definition, length: int) -> Iterator[Batch]:
        settings = self.settings
        windows = definition.windows(self._request(length))
        if not windows:
            self.notice(f"left out: {definition.name} at {length}: no document is long enough")
        bins = []
        if definition.by_position and length == max(settings.lengths):
            bins = perplexity.position_bins(length, perplexity.scored_tokens(settings.lengths))
        for part in _parts(windows, max(1, TOKENS_PER_BATCH // length)):
            ids = [
                perplexity.sample_id(window, definition, self._corpus, self.encoder)
                for window in part
            ]
            yield Windows(self._scorer, definition, length, part, ids, bins)

    def _request(self, length: int) -> perplexity.Request:
        settings, start = self.settings, self.loaded.tokenizer.bos_token_id
        self.encoder.check(() if start is None else (start,))
        return perplexity.Request(
            texts=self._texts,
            bos=self.encoder.bos,
            start_token=() if start is None else (int(start),),
            length=length,
            longest=max(settings.lengths),
            scored=perplexity.scored_tokens(settings.lengths),
            samples=settings.samples,
            seed=settings.seed,
            original_length=self.loaded.present_plan.original_length,
        )


@dataclass(frozen=True)
class Questions:
    """Samples of a retrieval task that are scored together."""

    scorer: Scorer
    encoder: Encoder
    task: tasks.Task
    mode: Mode
    samples: Sequence[Sample]

    @property
    def tokens(self) -> int:
        return sum(len(sample.prompt) + len(sample.answer) for sample in self.samples)

    def keys(self, subject: Subject) -> list[tuple[object, ...]]:
        return [
            record.key
            for sample in self.samples
            for record in self._records(subject, sample, sample.answer)
        ]

    def score(self, subject: Subject) -> list[EvalRecord]:
        if self.mode == "teacher_forced":
            # One token more, whichever: the choice in its place shows whether the answer ends.
            scores = self.scorer.score(
                [np.append(sample.tokens, sample.tokens[-1]) for sample in self.samples],
                [len(sample.prompt) for sample in self.samples],
            )
            choices = [score.chosen for score in scores]
        else:
            prompts = [sample.prompt for sample in self.samples]
            most = max(sample.allowance for sample in self.samples)
            if self.mode == "generate":
                written = self.scorer.write(prompts, most, self._ended)
            else:
                written = self.scorer.write_on(_shared(prompts), prompts, most, self._ended)
            choices = [self.encoder.until_end(tokens) for tokens in written]
        return [
            record
            for sample, chosen in zip(self.samples, choices, strict=True)
            for record in self._records(subject, sample, chosen[: sample.allowance])
        ]

    def _records(self, subject: Subject, sample: Sample, chosen: IntArray) -> Iterator[EvalRecord]:
        begun = [np.array_equal(chosen[part], sample.answer[part]) for part in sample.parts]
        ended = [
            right and not self._continues(chosen, part.stop)
            for right, part in zip(begun, sample.parts, strict=True)
        ]
        answer = self.encoder.text(chosen) if self.mode in WRITTEN else None
        # Official inputs have references, and no one answer in tokens.
        scores = {EXACT_MATCH.name: fmean(ended), PREFIX_MATCH.name: fmean(begun)} if begun else {}
        if answer is not None:
            scores[self.task.metric] = self.task.score(answer, sample.references)
        for metric, score in scores.items():
            yield EvalRecord(
                **subject._asdict(),
                task=self.task.name,
                mode=self.mode,
                metric=metric,
                length=sample.length,
                sample=sample.id,
                layout=sample.layout,
                score=score,
                depth=None if sample.depth is None else round(sample.depth, 4),
                answer=answer,
            )

    def _ended(self, written: IntArray) -> bool:
        if self.encoder.is_end(int(written[-1])):
            return True
        ends = self.task.ends
        return bool(ends) and re.search(ends, self.encoder.text(written)) is not None

    def _continues(self, chosen: IntArray, place: int) -> bool:
        """Whether the token at a place goes on with the answer before it."""
        return self.encoder.continues(chosen[place : place + 1], self.task.continues)


@dataclass(frozen=True)
class Windows:
    """Windows of a definition of perplexity that are scored together."""

    scorer: Scorer
    definition: Definition
    length: int
    windows: Sequence[Window]
    ids: Sequence[str]
    bins: Sequence[tuple[int, int]]
    """Positions to score besides, apart from each other."""

    @property
    def tokens(self) -> int:
        return 0  # windows are views of the text, which is kept anyway

    def keys(self, subject: Subject) -> list[tuple[object, ...]]:
        return [
            record.key
            for window, name in zip(self.windows, self.ids, strict=True)
            for record in self._records(subject, window, name, self._blank(window))
        ]

    def _blank(self, window: Window) -> TokenScores:
        scored = len(window) - self._start(window)
        return TokenScores(np.zeros(scored), np.zeros(scored, dtype=np.int64))

    def score(self, subject: Subject) -> list[EvalRecord]:
        scores = self.scorer.score(
            [window.tokens for window in self.windows], [self._start(w) for w in self.windows]
        )
        return [
            record
            for window, name, score in zip(self.windows, self.ids, scores, strict=True)
            for record in self._records(subject, window, name, score)
        ]

    def _start(self, window: Window) -> int:
        return self.bins[0][0] if self.bins else window.scored_from

    def _records(
        self, subject: Subject, window: Window, name: str, scores: TokenScores
    ) -> Iterator[EvalRecord]:
        start = self._start(window)

        def record(
            metric: str, score: float, weight: int, positions: tuple[int, int] | None = None
        ) -> EvalRecord:
            return EvalRecord(
                **subject._asdict(),
                task=self.definition.name,
                mode="teacher_forced",
                metric=metric,
                length=self.length,
                sample=name,
                layout=window.layout,
                score=score,
                weight=weight,
                positions=positions,
            )

        losses = scores.losses[window.scored_from - start :]
        loss = float(losses.mean())
        if self.definition.average == "perplexities":
            yield record(PERPLEXITY.name, float(np.exp(loss)), window.weight)
        else:
            yield record(NLL.name, loss, window.weight)
        if self.definition.accuracy:
            right = scores.chosen == window.tokens[start:]
            accuracy = float(right[window.scored_from - start :].mean())
            yield record(NEXT_TOKEN_ACCURACY.name, accuracy, window.weight)
        for low, high in self.bins:
            part = scores.losses[low - start : high - start]
            yield record(NLL.name, float(part.mean()), len(part), (low, high))


Batch = Questions | Windows


def _by(own: Sequence[Sample], key: Callable[[Sample], object]) -> list[Sequence[Sample]]:
    keys = dict.fromkeys(map(key, own))
    return [[sample for sample in own if key(sample) == one] for one in keys]


def _shared(prompts: Sequence[IntArray]) -> int:
    """How many tokens all prompts begin with, less what the shortest needs for itself."""
    most = min(map(len, prompts)) - 1
    differs = np.any([prompt[:most] != prompts[0][:most] for prompt in prompts], axis=0)
    return int(np.argmax(differs)) if differs.any() else most


def _parts(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
