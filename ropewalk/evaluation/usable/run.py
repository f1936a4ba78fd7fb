"""A run of `howlong`: choose the questions, read what the search wants, and say what limits it.

Every document is a line of the journal, and what is read next follows from those lines alone: a run
that was killed repeats at most one document and ends with the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from ropewalk.data.corpora import corpus_digest
from ropewalk.errors import InputError
from ropewalk.evaluation.encoding import Encoder
from ropewalk.evaluation.served.fingerprint import Cause, Fingerprint, Verdict
from ropewalk.evaluation.usable.causes import causes_of
from ropewalk.evaluation.usable.documents import FACTS, FEWEST_FACTS, Degree, Library
from ropewalk.evaluation.usable.readers import (
    Askable,
    DocumentAnswers,
    DocumentReader,
    ServedReader,
    reading,
)
from ropewalk.evaluation.usable.request import CHOOSING, WITHIN, HowLong, ReadingPlan
from ropewalk.evaluation.usable.result import DegreeTried, LengthRead, UsableLength
from ropewalk.evaluation.usable.search import following
from ropewalk.evaluation.verdict import JUDGED_FROM, Shares, look
from ropewalk.gguf.header import is_gguf
from ropewalk.outputs import digest_at
from ropewalk.progress import Status, share
from ropewalk.run_directory import RESULTS, Journal, RunDirectory
from ropewalk.run_on_disk import result_in

JOURNAL, BADGE, VERDICT = "documents.jsonl", "badge.svg", "verdict.json"
PROBED = 4096
"""The longest probe of a fingerprint that is made here."""
CEILING, STILL = 0.97, 0.75
"""Above the first, harder questions are tried, and kept if the model finds as many as the second.
"""
PAIRS = 4
"""Pairs of texts by which a prompt that is cut is told from one that is read."""
_APART = 1_000_000
"""The number of the first document that chooses the degree: it never counts for a length."""


def measured(call: HowLong, subject: Askable, plan: ReadingPlan) -> UsableLength:
    """Read and sum up; a directory `run` keeps documents and result, and resumes."""
    call.notice(plan.summary())
    with ExitStack() as stack:
        reader = stack.enter_context(reading(call, subject, plan.lengths[-1]))
        directory = journal = None
        if call.run is not None:
            configuration = {
                **reader.identity,
                "corpus_sha256": corpus_digest(call.documents),
                "seed": call.seed,
                "reference": plan.reference,
                "lengths": list(plan.lengths),
                "tokens": plan.tokens,
                "claimed": plan.claimed,
                "against": None if call.against is None else str(call.against),
                "against_sha256": digest_at(call.against),
            }
            files = () if subject.source is None else subject.source.places
            directory = stack.enter_context(
                RunDirectory(call.run, "howlong", configuration, apart_from=files)
            )
            journal = directory.journal(JOURNAL)
        reader.check_same(directory)
        run = _Measuring(call, subject, plan, reader, journal)
        verdict = _compared(call, reader, directory)  # before minutes of reading
        result = run.result(verdict)
        reader.check_same(directory)
        if directory is not None:
            directory.keep(RESULTS, result.to_json())
            directory.write(BADGE, result.badge())
    return result


@dataclass
class _Measuring:
    call: HowLong
    subject: Askable
    plan: ReadingPlan
    reader: DocumentReader
    journal: Journal | None
    _known: dict[tuple[str, int, int], DocumentAnswers] = field(default_factory=dict)
    _spent: int = 0

    def __post_init__(self) -> None:
        for answers in () if self.journal is None else self.journal.read(DocumentAnswers):
            self._known[answers.degree, answers.length, answers.number] = answers
        self._library = Library(
            self.call.documents, self.subject.small, self.call.seed, self.reader.count
        )

    def result(self, verdict: Verdict | None) -> UsableLength:
        # The short length fixes the questions, and is the one that all others are compared with.
        degree, facts, tried = self._degree()
        plan, within = self.plan, range(WITHIN)
        seen = {plan.reference: self._read(degree, plan.reference, within, facts)}
        if refused := next((each.refused for each in seen[plan.reference] if each.refused), ""):
            raise InputError(
                f"{self.subject.name}: refuses even prompts of {plan.reference:,} tokens "
                f"({refused}); give the length that it serves (`claimed`)"
            )
        short = _shares(seen[plan.reference], facts)

        def longer() -> dict[int, Shares]:
            return {n: _shares(read, facts) for n, read in seen.items() if n != plan.reference}

        # Where few facts are retrieved even there, no longer length could be judged.
        if short.rate >= JUDGED_FROM:
            self.reader.learn(seen[plan.reference])
            while (wanted := following(plan.lengths, longer(), short, self._room)) is not None:
                documents = seen.get(wanted.length, [])
                numbers = range(len(documents), wanted.documents)
                read = self._read(degree, wanted.length, numbers, facts)
                seen[wanted.length] = [*documents, *read]
        readings = tuple(
            self._summed(length, documents, None if length == plan.reference else short, facts)
            for length, documents in sorted(seen.items())
        )
        for each in readings:  # counts must hold wherever facts are found
            if each.verdict == "works":
                self.reader.learn(seen[each.length])
        # The documents of failing lengths show why they fail.
        failing = [
            each
            for reading in readings
            if reading.verdict == "does not work"
            for each in seen[reading.length]
        ]
        return UsableLength(
            model=self.subject.name,
            runs=self.reader.runs,
            claimed=plan.claimed,
            serves=plan.serves,
            readings=readings,
            tried=tried,
            asked=degree.name,
            facts=facts,
            causes=self._causes(seen, failing, verdict, degree, facts),
            need=self.call.need,
            tokens=self._spent,
            sweep=plan.sweep,
            server=self.subject.server,
        )

    def _degree(self) -> tuple[Degree, int, tuple[DegreeTried, ...]]:
        """The degree of the questions: harder ones at the ceiling, easier ones at the floor."""
        degrees, reference = self._library.degrees, self.plan.reference
        place = 0 if self.subject.small else 1
        tried: dict[int, tuple[DegreeTried, int]] = {}

        def rate(i: int, least: int = FEWEST_FACTS) -> float:
            facts = self._library.facts_in(degrees[i], self.reader.room(reference))
            if facts < least:  # harder questions are no gain if they are fewer
                return 0.0
            numbers = range(_APART, _APART + CHOOSING)
            shares = _shares(self._read(degrees[i], reference, numbers, facts), facts)
            tried[i] = DegreeTried(degrees[i].name, degrees[i].words, shares.estimate()), facts
            return shares.rate

        now = rate(place)
        if now < JUDGED_FROM:
            while now < JUDGED_FROM and place > 0:
                place -= 1
                now = rate(place)
        else:
            while now >= CEILING and place + 1 < len(degrees):
                now = rate(place + 1, FACTS)
                place += now >= STILL
        if place not in tried:
            raise InputError(
                f"the short length with which {self.plan.claimed:,} is compared, "
                f"{self.plan.reference:,} tokens, is too short for two facts and their questions; "
                "give a larger `claimed`"
            )
        return degrees[place], tried[place][1], tuple(each for each, _ in tried.values())

    def _read(
        self, degree: Degree, length: int, numbers: range, facts: int
    ) -> list[DocumentAnswers]:
        read = []
        for number in numbers:
            key = degree.name, length, number
            if key not in self._known:
                room = self.reader.room(length)
                asking = self._library.document(degree, room, number, facts)
                answers = self.reader.answers(*key, asking)
                if self.journal is not None:
                    self.journal.append([answers.to_json()])
                self._known[key] = answers
            read.append(self._known[key])
            self._spent += 0 if read[-1].refused else self._cost(read[-1].tokens)
            done = min(1.0, self._spent / self.plan.tokens)
            self.call.progress(Status("reading", done, f"{length:,} tokens"))
        return read

    @property
    def _room(self) -> float:
        """The tokens of documents that the budget still holds."""
        return (self.plan.tokens - self._spent) / self._cost(1)

    def _cost(self, tokens: int) -> int:
        """The tokens of a document; of a server elsewhere, of all its prompts."""
        return tokens * (FACTS if self.plan.is_remote else 1)

    def _summed(
        self, length: int, documents: list[DocumentAnswers], short: Shares | None, facts: int
    ) -> LengthRead:
        shares = _shares(documents, facts)
        seen = None if short is None else look(shares, short)
        tokens = round(sum(each.read for each in documents) / len(documents))
        return LengthRead(
            *(length, len(documents), tokens, shares.estimate()),
            None if seen is None else seen.difference,
            "compared with" if seen is None else seen.verdict,
        )

    def _causes(
        self,
        seen: Mapping[int, Sequence[DocumentAnswers]],
        failing: Sequence[DocumentAnswers],
        verdict: Verdict | None,
        degree: Degree,
        facts: int,
    ) -> tuple[Cause, ...]:
        causes = partial(
            causes_of,
            failing,
            claimed=self.plan.claimed,
            serves=self.plan.serves,
            added=self.reader.added,
            unfinished=sum(each.unfinished for documents in seen.values() for each in documents),
            verdict=verdict,
            in_process=self.subject.server is None,
        )
        likely = causes()
        may_be_cut = any(each.name == "truncation" and not each.certain for each in likely)
        if not may_be_cut or not isinstance(self.reader, ServedReader):
            return likely
        length = max(each.length for each in failing)  # of which most is cut
        if self.plan.is_remote and self._spent + 2 * PAIRS * length > self.plan.tokens:
            return likely
        room = self.reader.room(length)
        texts = [self._library.document(degree, room, n, facts).text for n in range(PAIRS)]
        return causes(reads_beginnings=self.reader.reads_beginnings(texts))


def _shares(documents: Sequence[DocumentAnswers], facts: int) -> Shares:
    return Shares([each.share for each in documents], facts, [each.number for each in documents])


def _compared(
    call: HowLong, reader: DocumentReader, directory: RunDirectory | None
) -> Verdict | None:
    """The verdict on a server by the weights that it should have; of a run that goes on, its own.

    The probes are short: a setting that is lost shows in them as in long ones.
    """
    if call.against is None:
        return None
    if not isinstance(reader, ServedReader):
        raise InputError(
            "`against` is for a server; leave it out, or serve the model and give the URL"
        )
    kept = None if directory is None else result_in(directory.path, VERDICT, Verdict)
    if kept is not None:
        return kept
    verdict = reader.compared(*_fingerprint(call))
    if directory is not None:
        directory.keep(VERDICT, verdict.to_json())
    return verdict


def _fingerprint(call: HowLong) -> tuple[Fingerprint, Encoder | None]:
    """The fingerprint of the weights at hand, and their tokenizer."""
    place = Path(str(call.against))
    if place.is_file() and not is_gguf(place):
        return Fingerprint.read(place), None
    from ropewalk.evaluation.served import reference
    from ropewalk.models.load import load

    loaded = load(call.against, **call.how._asdict())
    length = min(PROBED, loaded.present_plan.target_length)
    progress = share(call.progress, "fingerprint")
    made = reference.fingerprint(
        loaded, None, call.documents, call.seed, length, progress, call.notice
    )
    return made, Encoder(loaded.tokenizer, loaded.vocabulary)
