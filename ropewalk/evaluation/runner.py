"""One run of an evaluation, whoever answers: samples at lengths, asked, scored, and recorded.

All subjects see the same samples. Samples are answered in batches whose boundaries depend on the
settings alone, and a batch is recorded as a whole: a run that was killed repeats at most one batch
and ends with the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from statistics import fmean

import numpy as np

from ropewalk.data.corpora import Document, corpus_digest
from ropewalk.errors import InputError
from ropewalk.evaluation import facts, perplexity, tasks
from ropewalk.evaluation.answering import Answer, Answerer, TokenScores, at_once
from ropewalk.evaluation.drawing import drawn
from ropewalk.evaluation.encoding import Encoder, IntArray
from ropewalk.evaluation.haystack import Haystack
from ropewalk.evaluation.key_tokens import Evaluator, Mask
from ropewalk.evaluation.perplexity import Definition, ScoredWindow, Text
from ropewalk.evaluation.planted import DocumentScores, Planted
from ropewalk.evaluation.randomness import identity
from ropewalk.evaluation.samples import Sample
from ropewalk.evaluation.settings import EvaluationSettings
from ropewalk.lengths import format_length
from ropewalk.records import (
    EXACT_MATCH,
    FACTS,
    NEXT_TOKEN_ACCURACY,
    NLL,
    PERPLEXITY,
    PREFIX_MATCH,
    EvalRecord,
    Mode,
    Subject,
)
from ropewalk.run_directory import Journal

# Of samples that wait for the next subject: 256 MiB. More than these are made again.
KEPT_TOKENS = 32 * 2**20


@dataclass
class Evaluation:
    """An answerer, a corpus, and settings: what `run` asks and scores."""

    answerer: Answerer
    documents: Sequence[Document]
    settings: EvaluationSettings
    notice: Callable[[str], None] = field(default=lambda _: None)
    """Called with what the user should know: tasks left out, fewer samples than asked for."""
    evaluator: Evaluator | None = None
    """The model that chooses key tokens, if a task has them; by default, the answerer's own."""
    keys: set[Key] = field(default_factory=set, init=False, repr=False)
    """The identities of the records of the last run."""
    _kept: dict[tuple[str, int], Part] = field(default_factory=dict, init=False, repr=False)
    _room: int = field(default=KEPT_TOKENS, init=False, repr=False)

    def __post_init__(self) -> None:
        self.answerer.check(self.settings)
        if self.evaluator is None and perplexity.have_keys(self.settings.tasks):
            self.evaluator = Evaluator(self.answerer)

    @property
    def configuration(self) -> dict[str, object]:
        """All that decides the records."""
        return {
            **self.answerer.identity,
            "corpus_sha256": self._corpus,
            **asdict(self.settings),
            **({} if self.encoder.chat is None else {"chat": self.encoder.chat.to_json()}),
            **({} if self.evaluator is None else {"evaluator": self.evaluator.identity}),
        }

    def check_fits(self) -> None:
        """Refuse settings under which nothing would be asked."""
        names, lengths = self.settings.tasks, self.settings.lengths
        if not any(self._made(name, length).batches for length in lengths for name in names):
            raise InputError(
                f"no task of {', '.join(names)} fits in {format_length(max(lengths))} tokens, so "
                "there is nothing to measure; give longer lengths or other tasks"
            )

    def run(
        self,
        journal: Journal | None = None,
        progress: Callable[[float], None] = lambda done: None,
        subjects: Sequence[Subject] = (),
    ) -> list[EvalRecord]:
        """Ask these subjects, or all; what is in the journal is not asked again."""
        lines = ([], "") if journal is None else (journal.records, str(journal.path))
        records = EvalRecord.of_lines(*self.answerer.ranks.broadcast(lines))
        done = {record.key for record in records}
        self.keys.clear()
        subjects, settings = subjects or self.answerer.subjects, self.settings
        total, behind = len(subjects) * sum(settings.lengths), 0.0
        for subject in subjects:
            for length in settings.lengths:
                share = length / len(settings.tasks)
                with self.answerer.under(subject, length):
                    for name in settings.tasks:
                        part = self._made(name, length)
                        self.keys.update(*part.keys(self.answerer, subject))
                        for step, scored in part.scored(self.answerer, subject, done):
                            new = [record for record in scored if record.key not in done]
                            if journal is not None:
                                journal.append(record.to_json() for record in new)
                            done.update(record.key for record in new)
                            records += new
                            progress((behind + share * step / len(part.batches)) / total)
                        behind += share
                        progress(behind / total)
        return records

    @property
    def encoder(self) -> Encoder:
        return self.answerer.encoder

    @cached_property
    def _corpus(self) -> str:
        return corpus_digest(self.documents)

    @cached_property
    def _haystack(self) -> Haystack:
        return Haystack(self.documents)

    @cached_property
    def _texts(self) -> list[Text]:
        return perplexity.texts(self.documents, self.encoder)

    def _made(self, name: str, length: int) -> Part:
        """The batches of a task, made when their turn comes, so that the first record comes soon.

        They are kept for the next subject while there is room.
        """
        if (name, length) in self._kept:
            return self._kept[name, length]
        part = self._part(name, length)
        if part.tokens <= self._room:
            self._room -= part.tokens
            self._kept[name, length] = part
        return part

    def _part(self, name: str, length: int) -> Part:
        settings = self.settings
        if name in perplexity.DEFINITIONS:
            return self._windows(perplexity.DEFINITIONS[name], length)
        if name == FACTS:
            return self._facts(length)
        task = tasks.named(name)
        samples = drawn(task, self.encoder, self._haystack, length, settings, self.notice)
        batches = self.answerer.batches(samples, settings.mode)
        return Questions(task, self.encoder, settings.mode, batches)

    def _windows(self, definition: Definition, length: int) -> PerplexityWindows:
        settings = self.settings
        windows = definition.windows(self._request(length))
        if not windows:
            why = (
                "the short context is as long" if definition.keys else "no document is long enough"
            )
            self.notice(f"left out: {definition.name} at {length}: {why}")
        bins: Sequence[tuple[int, int]] = []
        if definition.by_position and length == max(settings.lengths):
            bins = perplexity.position_bins(length, perplexity.scored_tokens(settings.lengths))
        corpus = self._corpus
        if definition.keys and self.evaluator is not None:  # which of its tokens count
            corpus = identity(corpus, self.evaluator.identity)
        named = [
            (window, perplexity.sample_id(window, definition, corpus, self.encoder))
            for window in windows
        ]
        size = at_once(length)
        batches = [named[start : start + size] for start in range(0, len(named), size)]
        return PerplexityWindows(definition, length, batches, bins, self._keys)

    def _keys(self, window: ScoredWindow, name: str) -> Mask:
        assert self.evaluator is not None
        short = perplexity.short_context(self.answerer.original_length)
        return self.evaluator.keys(window, name, short, self.encoder)

    def _facts(self, length: int) -> FactDocuments:
        made, settings = (
            facts.drawn(self.documents, self.encoder, length, self.settings),
            self.settings,
        )
        if len(made) < settings.samples:
            self.notice(
                f"{FACTS} at {length}: the text holds {len(made)} of {settings.samples} documents "
                "of that length; give more text (`corpus`)"
            )
        return FactDocuments(length, [[each] for each in made])

    def _request(self, length: int) -> perplexity.Request:
        settings, start = self.settings, self.encoder.tokenizer.bos_token_id
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
            original_length=self.answerer.original_length,
        )


Key = tuple[object, ...]
Scored = Iterator[tuple[int, list[EvalRecord]]]
"""The number of each batch that was asked, and its records."""


@dataclass(frozen=True)
class Questions:
    """The samples of a retrieval task at a length."""

    task: tasks.Task
    encoder: Encoder
    mode: Mode
    batches: Sequence[Sequence[Sample]]

    @property
    def tokens(self) -> int:
        return sum(len(each.prompt) + len(each.answer) for batch in self.batches for each in batch)

    def keys(self, answerer: Answerer, subject: Subject) -> list[set[Key]]:
        """The identities of the records of each batch."""
        text = None if self.mode == "teacher_forced" else ""

        def blank(sample: Sample) -> Iterator[EvalRecord]:
            answer = Answer(text, sample.answer if answerer.chooses else None)
            return self._records(answerer, subject, sample, answer)

        return [{r.key for sample in batch for r in blank(sample)} for batch in self.batches]

    def scored(self, answerer: Answerer, subject: Subject, done: Set[Key]) -> Scored:
        """The records of every batch that is not done."""
        keys = self.keys(answerer, subject)
        waiting = [
            (step, batch)
            for step, batch in enumerate(self.batches, start=1)
            if not keys[step - 1] <= done
        ]
        answers = answerer.answers(self.task, self.mode, [batch for _, batch in waiting])
        for (step, batch), answered in zip(waiting, answers, strict=True):
            yield (
                step,
                [
                    record
                    for sample, answer in zip(batch, answered, strict=True)
                    for record in self._records(answerer, subject, sample, answer)
                ],
            )

    def _records(
        self, answerer: Answerer, subject: Subject, sample: Sample, answer: Answer
    ) -> Iterator[EvalRecord]:
        # By tokens, an answer is exact only if it also ends there; by text, its task scores it.
        scores = {}
        if answer.tokens is not None:
            chosen = answer.tokens
            begun = [np.array_equal(chosen[part], sample.answer[part]) for part in sample.parts]
            ended = [
                right
                and not self.encoder.continues(
                    chosen[part.stop : part.stop + 1], self.task.continues
                )
                for right, part in zip(begun, sample.parts, strict=True)
            ]
            scores = {EXACT_MATCH.name: fmean(ended), PREFIX_MATCH.name: fmean(begun)}
        if answer.text is not None:
            scores[self.task.metric] = self.task.score(answer.text, sample.references)
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
                answer=answer.text,
                prompt=None if self.encoder.chat is None else sample.prompt_sha256,
                server=None if answerer.server is None else answerer.server.line,
            )


@dataclass(frozen=True)
class PerplexityWindows:
    """The windows of a definition of perplexity at a length, each with its id."""

    definition: Definition
    length: int
    batches: Sequence[Sequence[tuple[ScoredWindow, str]]]
    bins: Sequence[tuple[int, int]]
    """Positions to score besides, apart from each other."""
    key_tokens: Callable[[ScoredWindow, str], Mask]
    """The key tokens of a window. One without any has no record, so whoever resumes reads it
    again."""

    @property
    def tokens(self) -> int:
        return 0  # windows are views of the text, which is kept anyway

    def keys(self, answerer: Answerer, subject: Subject) -> list[set[Key]]:
        """The identities of the records of each batch."""

        def blank(window: ScoredWindow, name: str) -> Iterator[EvalRecord]:
            return self._records(subject, window, name, self._blank(window))

        return [{r.key for named in batch for r in blank(*named)} for batch in self.batches]

    def scored(self, answerer: Answerer, subject: Subject, done: Set[Key]) -> Scored:
        """The records of every batch that is not done."""
        keys = self.keys(answerer, subject)
        for step, batch in enumerate(self.batches, start=1):
            if keys[step - 1] <= done:
                continue
            windows = [window for window, _ in batch]
            scores = answerer.losses([w.tokens for w in windows], list(map(self._start, windows)))
            yield (
                step,
                [
                    record
                    for (window, name), score in zip(batch, scores, strict=True)
                    for record in self._records(subject, *self._counted(window, name, score))
                ],
            )

    def _counted(
        self, window: ScoredWindow, name: str, scores: TokenScores
    ) -> tuple[ScoredWindow, str, TokenScores]:
        """All that was scored, or the key tokens of it."""
        if not self.definition.keys:
            return window, name, scores
        keys = self.key_tokens(window, name)[window.scored_from :]
        of_keys = TokenScores(scores.losses[keys], scores.chosen[keys])
        return replace(window, weight=int(keys.sum())), name, of_keys

    def _blank(self, window: ScoredWindow) -> TokenScores:
        scored = len(window) - self._start(window)
        return TokenScores(np.zeros(scored), np.zeros(scored, dtype=np.int64))

    def _start(self, window: ScoredWindow) -> int:
        return self.bins[0][0] if self.bins else window.scored_from

    def _records(
        self, subject: Subject, window: ScoredWindow, name: str, scores: TokenScores
    ) -> Iterator[EvalRecord]:
        start = self._start(window)
        if not window.weight:
            return

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

        # Means over windows: of the loss, or for tasks defined so, of each window's perplexity.
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
        # The loss by position shows up to which length the context helps.
        for low, high in self.bins:
            part = scores.losses[low - start : high - start]
            yield record(NLL.name, float(part.mean()), len(part), (low, high))


@dataclass(frozen=True)
class FactDocuments:
    """Documents with several facts, each read once, with its name."""

    length: int
    batches: Sequence[Sequence[tuple[Planted, str]]]

    @property
    def tokens(self) -> int:
        return sum(len(each.tokens) for batch in self.batches for each, _ in batch)

    def keys(self, answerer: Answerer, subject: Subject) -> list[set[Key]]:
        """The identities of the records of each batch."""
        return [
            {r.key for each in batch for r in self._records(subject, *each, _BLANK, None)}
            for batch in self.batches
        ]

    def scored(self, answerer: Answerer, subject: Subject, done: Set[Key]) -> Scored:
        """The records of every batch that is not done."""
        keys = self.keys(answerer, subject)
        for step, batch in enumerate(self.batches, start=1):
            if not keys[step - 1] <= done:
                [(document, name)] = batch
                scores = answerer.read(document)
                values, chosen = document.measured(scores), document.choices(scores)
                yield step, list(self._records(subject, document, name, values, chosen))

    def _records(
        self,
        subject: Subject,
        document: Planted,
        name: str,
        values: DocumentScores,
        chosen: IntArray | None,
    ) -> Iterator[EvalRecord]:
        tokens = document.answered
        first = 0.0 if chosen is None else float((chosen == tokens).mean())
        made = None if chosen is None else tuple(map(int, chosen))
        for metric, score, weight in (
            (EXACT_MATCH, values.retrieved, 1),
            (NLL, values.answers, len(tokens)),
            (NEXT_TOKEN_ACCURACY, first, len(tokens)),
        ):
            yield EvalRecord(
                **subject._asdict(),
                task=FACTS,
                mode="teacher_forced",
                metric=metric.name,
                length=self.length,
                sample=name,
                layout=document.source,
                score=score,
                weight=weight,
                choices=made if metric == NEXT_TOKEN_ACCURACY else None,
            )


_BLANK = DocumentScores(0.0, 0.0, 0.0, 0)
Part = Questions | PerplexityWindows | FactDocuments
