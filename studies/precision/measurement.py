"""The measurement of the study: also random weights, both grids, tokens and heads; journalled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ropewalk.data.corpora import Document
from ropewalk.evaluation.encoding import Encoder
from ropewalk.evaluation.identity import run_identity
from ropewalk.models.load import LoadedModel
from ropewalk.number_formats.arms import named
from ropewalk.number_formats.measurement import (
    CPU_ARMS,
    LENGTHS,
    REFERENCE,
    SEQUENCES,
    SHIFTS,
    cut,
    point_of,
)
from ropewalk.number_formats.shifts import ShiftDifference, shift_differences
from ropewalk.number_formats.stage import OpenModel
from ropewalk.run_directory import Journal
from studies.precision.findings import GIVEN, Findings, summarise
from studies.precision.weights import WEIGHTS, with_weights

ANCHORED = GIVEN, "bf16"
"""The weights and the arm that are also measured with Δ₁ = 0."""


@dataclass(frozen=True)
class StudySettings:
    """All settings of a precision measurement."""

    length: int
    arms: tuple[str, ...] = CPU_ARMS
    weights: tuple[str, ...] = WEIGHTS
    random_arms: tuple[str, ...] = ("bf16",)
    """The arms that random weights are measured under."""
    shifts: tuple[int, ...] = SHIFTS
    reference: int = REFERENCE
    lengths: tuple[int, ...] = LENGTHS
    sequences: int = SEQUENCES
    anchored: bool = True
    """Also D(0, Δ₂) with Δ₂ varying, for the bf16 arm."""
    seed: int = 0


@dataclass(frozen=True)
class Unit:
    """The work that is computed, and journalled, in one go."""

    weights: str
    arm: str
    sequence: int
    second: int
    firsts: tuple[int, ...]
    anchored: bool = False
    """The grid goes over Δ₂ with Δ₁ = 0. D is symmetric, so 0 is its `second` here."""

    @property
    def key(self) -> tuple[str, str, int, int]:
        return self.weights, self.arm, self.sequence, self.second

    @property
    def passes(self) -> int:
        return len(self.firsts) + 1


def units_of(settings: StudySettings) -> Iterator[Unit]:
    """All that settings ask for, in order."""
    for weights in settings.weights:
        for arm in settings.arms if weights == GIVEN else settings.random_arms:
            anchored = settings.anchored and settings.reference > 0 and (weights, arm) == ANCHORED
            for sequence in range(settings.sequences):
                yield Unit(weights, arm, sequence, settings.reference, settings.shifts)
                if anchored:
                    others = tuple(s for s in settings.shifts if s)
                    yield Unit(weights, arm, sequence, 0, others, anchored=True)


def forwards(settings: StudySettings) -> int:
    """The number of full-length sequences through the model, for all that settings ask for."""
    return sum(unit.passes for unit in units_of(settings))


class Measurement:
    """One model, some text, and what to measure."""

    def __init__(
        self,
        loaded: LoadedModel,
        documents: Sequence[Document],
        settings: StudySettings,
    ) -> None:
        self.loaded, self.settings = loaded, settings
        self.documents = documents
        self.encoder = Encoder(loaded.tokenizer, loaded.vocabulary)
        self.sequences = list(cut(self.encoder, documents, settings.length, settings.sequences))
        self.stage = OpenModel(loaded.model)

    def identity(self) -> dict[str, object]:
        """All that decides the numbers, for run.json."""
        return {**run_identity(self.loaded, self.documents), **asdict(self.settings)}

    def run(
        self,
        journal: Journal | None = None,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> Findings:
        """Run everything; what the journal holds already is not computed again."""
        settings = self.settings
        records = list(journal.records) if journal is not None else []
        known = {_key(record) for record in records}
        units = [unit for unit in units_of(settings) if unit.key not in known]
        total, done = sum(unit.passes for unit in units), 0

        def step() -> None:
            nonlocal done
            done += 1
            progress(done, total)

        progress(0, total)
        stages = {GIVEN: self.stage}
        for unit in units:
            if unit.weights not in stages:
                fresh = with_weights(self.stage.model, unit.weights, settings.seed)
                stages = {GIVEN: self.stage, unit.weights: OpenModel(fresh)}
            tokens = self.sequences[unit.sequence]
            found = shift_differences(
                *(stages[unit.weights], tokens, named(unit.arm), unit.second, unit.firsts),
                lengths=settings.lengths,
                passed=step,
            )
            record = _record(unit, found)
            if journal is not None:
                journal.append([record])
            records.append(record)
        return self._collected(records)

    def _collected(self, records: Sequence[dict[str, Any]]) -> Findings:
        settings = self.settings
        order = {(u.weights, u.arm): i for i, u in enumerate(units_of(settings))}
        shift_records = sorted(
            (
                {**{k: v for k, v in unit.items() if k != "points"}, **point}
                for unit in records
                for point in unit["points"]
            ),
            key=lambda r: order[(r["weights"], r["arm"])],
        )
        return Findings(
            model=self.loaded.name,
            length=settings.length,
            reference=settings.reference,
            sequences=settings.sequences,
            arms=summarise(shift_records, settings.reference),
        )


def _key(record: dict[str, Any]) -> tuple[str, str, int, int]:
    return record["weights"], record["arm"], record["sequence"], record["group"]


def _record(unit: Unit, found: Iterable[ShiftDifference]) -> dict[str, Any]:
    """A line of the journal. The group is the shift that its unit compared all others to."""
    return {
        "kind": "shifts",
        "weights": unit.weights,
        "arm": unit.arm,
        "sequence": unit.sequence,
        "group": unit.second,
        "points": [_point(unit, difference) for difference in found],
    }


def _point(unit: Unit, found: ShiftDifference) -> dict[str, Any]:
    point = point_of(found)
    if unit.anchored:
        point |= {"first": found.second, "second": found.first, "losses": found.losses[::-1]}
    if found.first or unit.anchored:
        return point
    # A number a token, layer and head is much to keep: once a sequence is enough.
    return {
        **point,
        "tokens": found.tokens.sum((0, 1)).tolist(),
        "by_layer_and_head": {
            "attention": found.attention[-1].tolist(),
            "first_token": found.tokens[..., 0].tolist(),
            "logit": found.logit[-1].tolist(),
        },
    }
