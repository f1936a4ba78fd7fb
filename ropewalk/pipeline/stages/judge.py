"""Judge: whether a schedule works at the target, and its price within the trained window.

The unmodified model and the schedule read documents of the window, the schedule others of the
target until they decide (evaluation/verdict.py). Each document is one forward: facts at stratified
depths, and its own text. No race, search or training reads them. A few documents of lengths in
between, which decide nothing, show where retrieval ends.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ropewalk.context_plan import ContextPlan, PlanStep
from ropewalk.costs.forwards import Forwards, Needs
from ropewalk.errors import InputError, RopewalkError, Unsupported
from ropewalk.evaluation.encoding import Encoder
from ropewalk.evaluation.planted import Planted, Stretch, plant, stretches_of
from ropewalk.evaluation.statistics import FEWEST
from ropewalk.evaluation.verdict import LOOKS, TO_WORK
from ropewalk.models.recipes import VENDOR
from ropewalk.models.source import resolve
from ropewalk.pipeline.results import SO_FAR, TRAINED, DocumentRead, Example, Judged, final, sealed
from ropewalk.pipeline.stage import Stage, Start, Work
from ropewalk.planning.extension import extend, hand_designed
from ropewalk.progress import Notice, Progress, Status, unheard
from ropewalk.records import AS_IT_IS
from ropewalk.schedule import RotarySchedule
from ropewalk.searching.model.results import SearchResult

if TYPE_CHECKING:
    from ropewalk.searching.model.measure import DocumentMeasure, JournaledMeasure

WITHIN = 48
"""The documents of the window at most: they are short, and every verdict leans on them."""
UNMODIFIED = BETWEEN = FEWEST
"""The documents of the target that the unmodified model reads, to show that it fails, and those of
each length in between."""
AROUND = 80
"""The tokens on either side of a fact's beginning that an example decodes for its lines."""
EXAMPLE = 2
"""The readings of a document, by the model before and after, that show an answer of both."""


@dataclass(frozen=True)
class Judge(Stage[Judged]):
    target_length: int
    documents: int
    """The most documents of the target."""
    seed: int = 0

    result_type = Judged
    over_ranks = True
    early = "the first documents may decide"
    first: ClassVar[bool] = False

    def needs(self, window: int) -> Needs:
        def forwards(documents: int) -> tuple[Forwards, ...]:
            within = min(self.documents, WITHIN)
            again = UNMODIFIED + EXAMPLE if self.first else 0
            doublings = doublings_between(window, self.target_length)
            return (
                Forwards(window, within * (2 if self.first else 1)),
                Forwards(self.target_length, documents + again),
                *(Forwards(length, BETWEEN) for length in doublings),
                *(Forwards(length, BETWEEN) for length in doublings[: int(self.first)]),
            )

        least = forwards(min(LOOKS[0], self.documents)) if self.first else ()
        return Needs(forwards(self.documents), least=least)

    def candidate(self, work: Work) -> tuple[str, ContextPlan]:
        """What is judged."""
        raise NotImplementedError

    def run(self, work: Work, progress: Progress) -> Judged | None:
        from ropewalk.searching.model.measure import JournaledMeasure
        from ropewalk.searching.model.ranks import measuring

        chosen, plan = self.candidate(work)
        layer = plan.extended_layer
        earlier = [each for each in work.results.values() if isinstance(each, Judged)]
        window = earlier[0].window if earlier else work.present.target_length
        short, long, between = self._planted(work, window, unheard if earlier else work.notice)
        documents = (*short, *long, *between)

        def plan_of(schedule: RotarySchedule) -> ContextPlan:
            return work.present.with_steps(layer, (PlanStep(self.target_length, schedule),))

        ranks, schedule = work.ranks.apart(self.name), plan.longest(layer)
        local = work.reader.measure(documents, plan_of, work.notice, ranks)
        local.prove(schedule)
        with measuring(ranks, local) as measure:
            if measure is None:
                return None
            journaled = JournaledMeasure(measure, work.journal(f"{self.name}.jsonl"), ranks.size)
            reader = _Reader(journaled, documents, self.name, progress, self.needs(window).tokens)
            within = range(len(short))
            at_target = range(len(short), len(short) + len(long))
            present = work.present.longest(layer)
            if earlier:
                before = [each for each in earlier[0].readings if each.method == AS_IT_IS]
            else:
                before = reader.read(AS_IT_IS, present, window, within)
            judged = Judged(chosen, plan, window, self.target_length, tuple(before), None)
            judged = judged.with_more(reader.read(chosen, schedule, window, within))
            for end in [*(n for n in LOOKS if n < len(long)), len(long)]:
                for begin in range(len(judged.of(chosen, self.target_length)), end, ranks.size):
                    more = at_target[begin : min(begin + ranks.size, end)]
                    judged = judged.with_more(
                        reader.read(chosen, schedule, self.target_length, more, judged.so_far)
                    )
                    value = sealed(self.name, work.directory.configuration, judged)
                    so_far = work.directory.seal(f"{self.name}{SO_FAR}", json.dumps(value))
                if judged.verdict != "undecided":
                    break
            if not earlier:
                some = at_target[:UNMODIFIED]
                judged = judged.with_more(
                    reader.read(AS_IT_IS, present, self.target_length, some, may_fail=True)
                )
            methods = {chosen: schedule} if earlier else {chosen: schedule, AS_IT_IS: present}
            judged = judged.with_more(reader.between(at_target.stop, methods))
        if ranks.size == 1 and not earlier:
            judged = replace(judged, example=_example(work, local, len(short), schedule))
        so_far.unlink()
        return judged

    def _planted(
        self, start: Start, window: int, notice: Notice = unheard
    ) -> tuple[list[Planted], list[Planted], list[Planted]]:
        encoder = _encoder(start)
        wanted = {window: min(self.documents, WITHIN), self.target_length: self.documents}
        by_length = {n: self._stretches(start, encoder, n, count) for n, count in wanted.items()}
        _tell_few({length: len(each) for length, each in by_length.items()}, wanted, notice)
        short, long = by_length.values()

        def planted(length: int, stretches: Sequence[Stretch]) -> list[Planted]:
            return [
                plant(stretch, encoder, length, i, self.seed, mixed_within=window)
                for i, stretch in enumerate(stretches)
            ]

        between = [
            each
            for length in doublings_between(window, self.target_length)
            for each in planted(length, long[:BETWEEN])
        ]
        return planted(window, short), planted(self.target_length, long), between

    def _stretches(self, start: Start, encoder: Encoder, length: int, wanted: int) -> list[Stretch]:
        stretches, _ = stretches_of(start.to_report, encoder, length, wanted, self.seed)
        if len(stretches) < FEWEST:
            raise InputError(
                f"the text for the verdict holds {len(stretches)} disjoint documents of {length:,} "
                f"tokens, and at least {FEWEST} are needed for an interval; give more or longer "
                "documents (`corpus`), or a shorter target (`to`)"
            )
        return stretches


@dataclass(frozen=True)
class JudgeFirst(Judge):
    """The vendor's schedule for this target, else YaRN."""

    name = "first"
    does = "whether the vendor's schedule, else YaRN, works at the target, and what it costs"
    first = True

    def check(self, start: Start) -> None:
        present = start.present
        geometry = present.longest(present.extended_layer).geometry
        if geometry.resting_pairs:
            raise Unsupported(
                f"{geometry.resting_pairs} of {geometry.pairs} rotary pairs of this model do not "
                "rotate (their frequency is 0), and no stock runtime can load what `extend` would "
                "choose for it; use `plan --method ntk` and `export`, or `search` and run the "
                "result in ropewalk"
            )
        unmodified = PlanStep(self.target_length, present.longest(present.extended_layer))
        for plan in (
            self.candidate(start)[1],
            present.with_steps(present.extended_layer, (unmodified,)),
        ):
            start.reader.check_follows(plan)
        self._planted(start, present.target_length)

    def candidate(self, work: Start) -> tuple[str, ContextPlan]:
        layer, target = work.present.extended_layer, self.target_length
        start = work.present.longest(layer)
        documented = resolve(work.source).documented
        by_vendor = documented and documented.for_target(target)
        if by_vendor:
            name = VENDOR
            schedule = extend(start, target, by_vendor.method, by_vendor.parameters)
        else:
            name = "yarn"
            schedule = hand_designed(start, target)[name]
        plan = work.present.with_steps(layer, (PlanStep(target, schedule),))
        return name, replace(plan, provenance={"methods": schedule.method})


@dataclass(frozen=True)
class JudgeChosen(Judge):
    """What the race or the search chose, if it is another schedule."""

    name = "verdict"
    does = "whether the schedule that was chosen instead works at the target"
    conditional = True

    def needed(self, work: Work) -> bool:
        first, search = work.result(JudgeFirst), work.results.get("search")
        return isinstance(search, SearchResult) and not first.plan.rotates_like(search.plan)

    def candidate(self, work: Work) -> tuple[str, ContextPlan]:
        search = work.results["search"]
        assert isinstance(search, SearchResult)
        return search.legs[0].chosen, search.plan


@dataclass(frozen=True)
class JudgeTrained(Judge):
    name = "trained"
    does = "whether the trained model works at the target"

    def candidate(self, work: Work) -> tuple[str, ContextPlan]:
        return TRAINED, final({n: r for n, r in work.results.items() if n != self.name}).plan


@dataclass
class _Reader:
    """Reads documents under a schedule, each once."""

    journaled: JournaledMeasure
    documents: tuple[Planted, ...]
    stage: str
    progress: Progress
    most: int
    """The tokens of a stage that no document decides early."""
    done: int = 0

    def read(
        self,
        method: str,
        schedule: RotarySchedule,
        length: int,
        numbers: range,
        so_far: str = "",
        *,
        may_fail: bool = False,
    ) -> list[DocumentRead]:
        def tell(share: float) -> None:
            read = self.done + share * tokens
            self.progress(Status(self.stage, read / self.most, so_far))

        tokens = sum(len(self.documents[i].tokens) for i in numbers)
        values = self.journaled.measured(schedule, numbers, tell)
        self.done += tokens
        if not np.isfinite(values).all():
            if may_fail:
                return []
            raise RopewalkError(
                f"the model has no finite scores at {length:,} tokens under {method}; try float32 "
                "(`dtype`), and check that the unmodified model works"
            )
        readings = []
        for i, (text, answers, retrieved, matched) in zip(numbers, values.tolist(), strict=True):
            document = self.documents[i]
            depths: tuple[list[float], list[float]] = [], []
            for place, depth in enumerate(document.depths):
                depths[int(matched) >> place & 1].append(round(depth, 3))
            missed, right = (tuple(sorted(each)) for each in depths)
            fields = (text, answers, retrieved, len(document.answers), right, missed)
            readings.append(DocumentRead(method, length, document.source, *fields))
        return readings

    def between(self, first: int, methods: Mapping[str, RotarySchedule]) -> list[DocumentRead]:
        """Read the documents of lengths in between, from the `first` on.

        The unmodified model reads those just beyond its window: farther, it retrieves no more.
        """
        readings = []
        for begin in range(first, len(self.documents), BETWEEN):
            length, numbers = len(self.documents[begin].tokens), range(begin, begin + BETWEEN)
            for name, schedule in methods.items():
                if name != AS_IT_IS or begin == first:
                    readings += self.read(name, schedule, length, numbers, may_fail=True)
        return readings


def _tell_few(counts: Mapping[int, int], wanted: Mapping[int, int], notice: Notice) -> None:
    """Say, once for all lengths, that documents are too few for some verdicts."""
    enough = {length: max(count, TO_WORK) for length, count in wanted.items()}
    few = [
        f"{count} of {length:,} tokens, of {enough[length]} that it may need"
        for length, count in counts.items()
        if count < enough[length]
    ]
    if few:
        notice(
            f"the verdict has few disjoint documents: {'; '.join(few)}. Fewer than {TO_WORK} of "
            "the target cannot show that a schedule works: give more text (`corpus`), or a larger "
            "`budget` of documents"
        )


def doublings_between(window: int, target: int) -> list[int]:
    """Twice the window, four times, …, as far as they are not near the target."""
    return [length for i in range(1, 32) if 3 * (length := window << i) <= 2 * target]


def _example(work: Work, local: DocumentMeasure, number: int, schedule: RotarySchedule) -> Example:
    """The farthest question of a document, with both answers."""
    document = local.documents[number]
    farthest = min(range(len(document.answers)), key=lambda i: document.depths[i])
    place = document.answers[farthest]
    begin = document.answers[farthest - 1].stop if farthest else document.text.stop
    present = work.present.longest(work.present.extended_layer)
    from_scored = slice(place.start - document.scored_from, place.stop - document.scored_from)
    before, after = (local.likeliest(each, number)[from_scored] for each in (present, schedule))
    parts = (document.tokens[begin : place.start], document.tokens[place], before, after)
    passage, answer, text_before, text_after = (_encoder(work).text(part).strip() for part in parts)
    # Before the first question stands what a chat asks for.
    question = passage.rpartition("\n")[2]
    at = round(document.depths[farthest] * len(document.tokens))
    around = (document.tokens[max(0, at - AROUND) : at], document.tokens[at : at + AROUND])
    above, below = (_encoder(work).text(part).strip("\n").split("\n") for part in around)
    lines = "\n".join((above[-1], *below[:2]))
    return Example(question, answer, text_before, text_after, document.depths[farthest], lines)


def _encoder(start: Start) -> Encoder:
    return start.reader.encoder.with_chat(start.chat)
