"""A whole measurement: every arm over many sequences, journalled, so that it can go on later."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ropewalk.data.corpora import Document
from ropewalk.errors import InvalidValue
from ropewalk.evaluation import samples, tasks
from ropewalk.evaluation.encoding import Encoder
from ropewalk.evaluation.haystack import Haystack
from ropewalk.evaluation.identity import run_identity
from ropewalk.lengths import format_length
from ropewalk.models.load import LoadedModel
from ropewalk.number_formats.arms import ARMS, EXACT, Arm, check_device, named
from ropewalk.number_formats.budget import error_budget
from ropewalk.number_formats.effects import retrieves
from ropewalk.number_formats.results import (
    GIVEN,
    TOGETHER,
    Findings,
    Gain,
    Mode,
    Retrieval,
    StepError,
    summarise,
)
from ropewalk.number_formats.shifts import SCORED, ShiftDifference, mean_loss, shift_differences
from ropewalk.number_formats.stage import Stage
from ropewalk.number_formats.traps import find_traps
from ropewalk.number_formats.weights import WEIGHTS, with_weights
from ropewalk.run_directory import Journal
from ropewalk.untrusted import check_seed, one_of, whole_number

ANCHORED = GIVEN, "bf16"
"""The weights and the arm that are also measured with Δ₁ = 0."""
MEASUREMENTS = "measurements.jsonl"
"""The journal of a measurement in its run directory."""

# The grids of the BFloat16 article.
REFERENCE = 16
SHIFTS = (0, 2, 4, 6, 8, 10, 12, 14, 15, 17, 18, 20, 22, 50, 100, 200, 500, 1000, 2000)
LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
SEQUENCES = 50
QUICK_SHIFTS = (0, 8, 50, 500)
QUICK_SEQUENCES = 5
"""The fewest that give an interval."""
RETRIEVAL_SAMPLES = 50
LONGEST = 4096
"""The length of the article's sequences, used if the model reaches that far."""
QUICK_LENGTH = 512
QUICK_RETRIEVAL_SAMPLES = 8

CPU_ARMS = tuple(name for name in ARMS if name not in ("fp64", "tf32"))


def arms_for(device: torch.device) -> tuple[str, ...]:
    """Every arm that a device computes; float64 is what they are measured against."""
    try:
        check_device([named("tf32")], device)
    except InvalidValue:
        return CPU_ARMS
    return (*CPU_ARMS, "tf32")


Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class PrecisionSettings:
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
    mode: Mode = "forward"
    anchored: bool = True
    """Also D(0, Δ₂) with Δ₂ varying, for the bf16 arm."""
    task: str = "needle"
    retrieval_samples: int = RETRIEVAL_SAMPLES
    retrieval_shifts: tuple[int, ...] = (0, 16, 2000)
    loading: bool = True
    """Also the budget of every arm, and the traps of the ways to load the model."""
    seed: int = 0

    def __post_init__(self) -> None:
        for name in self.arms:
            named(name)
        for key, given in (("arms", self.arms), ("lengths", self.lengths)):
            if not given:
                raise InvalidValue(key, given, "must not be empty", "name at least one")
        for weights in self.weights:
            if weights not in WEIGHTS:
                raise InvalidValue("weights", weights, "is not a known kind", f"one of {WEIGHTS}")
        if self.length < 2:
            raise InvalidValue("length", self.length, "needs a next token", "give 2 or more")
        if max(self.lengths) > self.length:
            raise InvalidValue(
                "lengths",
                max(self.lengths),
                f"the sequences are only {self.length} tokens long",
                "give a larger `length`, or shorter `lengths`",
            )
        for shift in (*self.shifts, self.reference, *self.retrieval_shifts):
            if whole_number(shift, "shifts") < 0:
                raise InvalidValue("shifts", shift, "positions begin at 0", "give 0 or more")
        if 0 not in self.shifts:
            raise InvalidValue(
                "shifts",
                list(self.shifts),
                "must contain 0",
                "add 0, the reference of all differences",
            )
        if whole_number(self.sequences, "sequences") < 1:
            raise InvalidValue("sequences", self.sequences, "must be positive", "give 1 or more")
        check_seed(self.seed)
        one_of(self.mode, get_args(Mode), "mode")


def settings_for(
    loaded: LoadedModel,
    documents: Sequence[Document],
    *,
    quick: bool = False,
    length: int | None = None,
    sequences: int | None = None,
    arms: tuple[str, ...] | None = None,
    shifts: tuple[int, ...] | None = None,
    lengths: tuple[int, ...] | None = None,
    frozen: bool = False,
    seed: int = 0,
) -> PrecisionSettings:
    """The article's grids as far as the model and the text reach, or what is given instead.

    `quick` measures few shifts and sequences, and no random weights.
    """
    if length is None:
        length = min(loaded.present_plan.target_length, QUICK_LENGTH if quick else LONGEST)
    if lengths is None:
        lengths = tuple(n for n in LENGTHS if n <= length) or (length,)
    settings = PrecisionSettings(
        length=length,
        arms=arms_for(loaded.model.device) if arms is None else arms,
        weights=(GIVEN,) if quick else WEIGHTS,
        shifts=shifts if shifts is not None else QUICK_SHIFTS if quick else SHIFTS,
        lengths=lengths,
        sequences=sequences if sequences is not None else QUICK_SEQUENCES if quick else SEQUENCES,
        mode="frozen" if frozen else "forward",
        anchored=not quick,
        retrieval_samples=QUICK_RETRIEVAL_SAMPLES if quick else RETRIEVAL_SAMPLES,
        seed=seed,
    )
    if sequences is not None:
        return settings
    encoder = Encoder(loaded.tokenizer, loaded.vocabulary)
    held = sum(1 for _ in stretches(encoder, documents, length))
    return replace(settings, sequences=max(1, min(settings.sequences, held)))


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


def units_of(settings: PrecisionSettings) -> Iterator[Unit]:
    """All that settings ask for, in order."""
    for weights in settings.weights:
        for arm in settings.arms if weights == GIVEN else settings.random_arms:
            anchored = settings.anchored and settings.reference > 0 and (weights, arm) == ANCHORED
            for sequence in range(settings.sequences):
                yield Unit(weights, arm, sequence, settings.reference, settings.shifts)
                if anchored:
                    others = tuple(s for s in settings.shifts if s)
                    yield Unit(weights, arm, sequence, 0, others, anchored=True)


def forwards(settings: PrecisionSettings) -> int:
    """The number of full-length sequences through the model, for all that settings ask for."""
    passes = sum(unit.passes for unit in units_of(settings))
    asked = len(settings.arms) * len(settings.retrieval_shifts) * settings.retrieval_samples
    return passes + asked


class Measurement:
    """One model, some text, and what to measure."""

    def __init__(
        self,
        loaded: LoadedModel,
        documents: Sequence[Document],
        settings: PrecisionSettings,
    ) -> None:
        self.loaded, self.settings = loaded, settings
        self.documents = documents
        self.encoder = Encoder(loaded.tokenizer, loaded.vocabulary)
        self.sequences = list(cut(self.encoder, documents, settings.length, settings.sequences))
        self.stage = Stage(loaded.model)
        check_device([EXACT, *map(named, settings.arms)], self.stage.device)

    def identity(self) -> dict[str, object]:
        """All that decides the numbers, for run.json."""
        return {**run_identity(self.loaded, self.documents), **asdict(self.settings)}

    def run(
        self, journal: Journal | None = None, progress: Progress = lambda done, total: None
    ) -> Findings:
        """Run everything; what the journal holds already is not computed again."""
        settings = self.settings
        records = list(journal.records) if journal is not None else []
        known = {_key(r) for r in records if r["kind"] == "shifts"}
        units = [unit for unit in units_of(settings) if unit.key not in known]
        asked = [
            (arm, shift)
            for arm in settings.arms
            for shift in settings.retrieval_shifts
            if settings.retrieval_samples
        ]
        answered = {(r["arm"], r["shift"]) for r in records if r["kind"] == "retrieval"}
        unasked = [pair for pair in asked if pair not in answered]
        spent = {r["arm"] for r in records if r["kind"] == "budget"}
        budgets = [arm for arm in settings.arms if settings.loading and arm not in spent]
        trapped = not settings.loading or any(r["kind"] == "traps" for r in records)
        passes = sum(unit.passes for unit in units)
        total = passes + len(unasked) * settings.retrieval_samples + 5 * len(budgets)
        done = 0

        def step(count: int = 1) -> None:
            nonlocal done
            done += count
            progress(done, total)

        def keep(record: dict[str, Any]) -> None:
            """One line for what is computed in one go, so that a torn file holds no half of it."""
            if journal is not None:
                journal.append([record])
            records.append(record)

        progress(0, total)
        stages = {GIVEN: self.stage}
        for unit in units:
            if unit.weights not in stages:
                fresh = with_weights(self.stage.given, unit.weights, settings.seed)
                stages = {GIVEN: self.stage, unit.weights: Stage(fresh)}
            tokens = self.sequences[unit.sequence]
            found = shift_differences(
                *(stages[unit.weights], tokens, named(unit.arm), unit.second, unit.firsts),
                lengths=settings.lengths,
                mode=settings.mode,
                passed=step,
            )
            keep(_record(unit, found))
        if unasked:
            drawn = self._samples()
            for arm, shift in unasked:
                right = []
                for sample in drawn:
                    right.append(retrieves(self.stage, sample, named(arm), shift))
                    step()
                keep({"kind": "retrieval", "arm": arm, "shift": shift, "right": right})
        for arm in budgets:
            errors = error_budget(self.stage, self._budget_tokens, named(arm))
            keep({"kind": "budget", "arm": arm, "errors": [asdict(error) for error in errors]})
            step(5)
        if not trapped:
            keep({"kind": "traps", "gains": [asdict(gain) for gain in self._gains()]})
        return self._collected(records)

    @property
    def _budget_tokens(self) -> Tensor:
        return self.sequences[0][:256]

    def _samples(self) -> list[samples.Sample]:
        settings = self.settings
        return list(
            samples.generate(
                tasks.named(settings.task),
                self.encoder,
                Haystack(self.documents),
                settings.length,
                settings.retrieval_samples,
                settings.seed,
            )
        )

    def _gains(self) -> Iterator[Gain]:
        """Every trap, measured with and without its remedy on the model's own text."""
        tokens = self.sequences[0]
        scored = min(SCORED, len(tokens) - 1)

        def loss(arm: Arm) -> float:
            logits = self.stage.run(tokens, 0, arm, keep=scored + 1)
            return mean_loss(logits.cpu(), tokens[-scored:])

        def logit_error(arm: Arm) -> float:
            shift = max(0, self.stage.plan.target_length - len(self._budget_tokens))
            found = error_budget(self.stage, self._budget_tokens, arm, [shift])
            return next(e.logit_error for e in found if e.step == TOGETHER)

        for trap in find_traps(self.stage):
            arms = [replace(arm, model="float32") for arm in (trap.arm, trap.remedied)]
            measured = *map(logit_error, arms), *map(loss, arms)
            yield Gain(trap.path, trap.name, trap.remedy, trap.error, *measured)

    def _collected(self, records: Sequence[dict[str, Any]]) -> Findings:
        settings = self.settings
        order = {(u.weights, u.arm): i for i, u in enumerate(units_of(settings))}
        shift_records = sorted(
            (
                {**{k: v for k, v in unit.items() if k != "points"}, **point}
                for unit in records
                if unit["kind"] == "shifts"
                for point in unit["points"]
            ),
            key=lambda r: order[(r["weights"], r["arm"])],
        )
        return Findings(
            model=self.loaded.name,
            length=settings.length,
            reference=settings.reference,
            sequences=settings.sequences,
            mode=settings.mode,
            device=self.loaded.device,
            arms=summarise(shift_records, settings.reference),
            budget=tuple(
                StepError(**{**error, "pair_errors": tuple(error["pair_errors"])})
                for r in records
                if r["kind"] == "budget"
                for error in r["errors"]
            ),
            traps=tuple(
                Gain(**gain) for r in records if r["kind"] == "traps" for gain in r["gains"]
            ),
            retrieval=_retrieval([r for r in records if r["kind"] == "retrieval"]),
        )


def cut(
    encoder: Encoder, documents: Sequence[Document], length: int, count: int
) -> Iterator[Tensor]:
    """So many stretches of text, evenly spread, none overlapping; each begins as the tokenizer
    begins a sequence."""
    windows = list(stretches(encoder, documents, length))
    if len(windows) < count:
        raise InvalidValue(
            "sequences",
            count,
            f"the text holds only {len(windows)} of {format_length(length)} tokens",
            "give a larger `corpus`, fewer `sequences`, or a shorter `length`",
        )
    bos = np.array(encoder.bos, dtype=np.int64)
    for index in range(count):
        window = windows[index * len(windows) // count]
        yield torch.from_numpy(np.concatenate([bos, window]))


def stretches(
    encoder: Encoder, documents: Sequence[Document], length: int
) -> Iterator[NDArray[np.int64]]:
    """All that text holds, one after another, each with room for how a sequence begins."""
    own = length - len(encoder.bos)
    for tokens in (encoder.pieces(document.text) for document in documents):
        for start in range(0, len(tokens) - own + 1, own):
            yield tokens[start : start + own]


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
    first, second, losses = found.first, found.second, found.losses
    if unit.anchored:
        first, second = second, first
        losses = losses and (losses[1], losses[0])
    point = {
        "first": first,
        "second": second,
        "lengths": list(found.lengths),
        "attention": found.attention.sum((1, 2)).tolist(),
        "logit": found.logit.sum((1, 2)).tolist(),
        "losses": losses,
    }
    if first or unit.anchored:
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


def _retrieval(records: Sequence[dict[str, Any]]) -> tuple[Retrieval, ...]:
    if not records:
        return ()
    base = records[0]["right"]
    return tuple(
        Retrieval(
            r["arm"],
            r["shift"],
            sum(r["right"]),
            len(r["right"]),
            sum(a != b for a, b in zip(r["right"], base, strict=True)),
        )
        for r in records
    )
