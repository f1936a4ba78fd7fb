"""A whole measurement: every arm over many sequences, journalled, so that it can go on later."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ropewalk.data.corpora import Document
from ropewalk.errors import InputError, InvalidValue
from ropewalk.evaluation.encoding import Encoder
from ropewalk.evaluation.forward_time import announce
from ropewalk.evaluation.identity import run_identity
from ropewalk.lengths import format_length
from ropewalk.models.load import LoadedModel
from ropewalk.number_formats.arms import ARMS, EXACT, check_device, named
from ropewalk.number_formats.request import PrecisionRequest
from ropewalk.number_formats.results import Gain, Precision, summarise
from ropewalk.number_formats.shifts import ShiftDifference, shift_differences
from ropewalk.number_formats.stage import OpenModel
from ropewalk.number_formats.traps import find_traps, gain_of
from ropewalk.progress import Notice, Progress, share
from ropewalk.run_directory import CONFIGURATION, RESULTS, Journal, RunDirectory
from ropewalk.values import Charts, Members

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
LONGEST = 4096
"""The length of the article's sequences, used if the model reaches that far."""
QUICK_LENGTH = 512

CPU_ARMS = tuple(name for name in ARMS if name not in ("fp64", "tf32"))


def arms_for(device: torch.device) -> tuple[str, ...]:
    """Every arm that a device computes; float64 is what they are measured against."""
    try:
        check_device([named("tf32")], device)
    except InvalidValue:
        return CPU_ARMS
    return (*CPU_ARMS, "tf32")


@dataclass(frozen=True)
class PrecisionSettings:
    """All settings of a precision measurement."""

    length: int
    arms: tuple[str, ...] = CPU_ARMS
    shifts: tuple[int, ...] = SHIFTS
    sequences: int = SEQUENCES

    def __post_init__(self) -> None:
        for name in self.arms:
            named(name)
        if not self.arms:
            raise InvalidValue("arms", self.arms, "must not be empty", "name at least one")
        if self.length < 2:
            raise InvalidValue("length", self.length, "needs a next token", "give 2 or more")
        for shift in self.shifts:
            if shift < 0:
                raise InvalidValue("shifts", shift, "positions begin at 0", "give 0 or more")
        if 0 not in self.shifts:
            raise InvalidValue(
                "shifts",
                list(self.shifts),
                "must contain 0",
                "add 0, the reference of all differences",
            )

    @property
    def lengths(self) -> tuple[int, ...]:
        """The lengths at which the growth is measured."""
        return tuple(n for n in LENGTHS if n <= self.length) or (self.length,)

    @property
    def forwards(self) -> int:
        """The number of full-length sequences through the model."""
        return len(self.arms) * self.sequences * (len(self.shifts) + 1)


def settings_for(
    loaded: LoadedModel, documents: Sequence[Document], request: PrecisionRequest
) -> PrecisionSettings:
    """The article's grids as far as the model and the text reach, or what is asked for instead."""
    usual = (QUICK_LENGTH, QUICK_SHIFTS, QUICK_SEQUENCES)
    length, shifts, sequences = usual if request.quick else (LONGEST, SHIFTS, SEQUENCES)
    settings = PrecisionSettings(
        length=request.length or min(loaded.present_plan.target_length, length),
        arms=arms_for(loaded.model.device) if request.arms is None else request.arms,
        shifts=shifts if request.shifts is None else request.shifts,
        sequences=request.sequences or sequences,
    )
    if request.sequences is not None:
        return settings
    encoder = Encoder(loaded.tokenizer, loaded.vocabulary)
    held = sum(1 for _ in stretches(encoder, documents, settings.length))
    return replace(settings, sequences=max(1, min(settings.sequences, held)))


class Measurement:
    """One model, some text, and what to measure."""

    def __init__(
        self, loaded: LoadedModel, documents: Sequence[Document], settings: PrecisionSettings
    ) -> None:
        self.loaded, self.settings, self.documents = loaded, settings, documents
        encoder = Encoder(loaded.tokenizer, loaded.vocabulary)
        self.sequences = list(cut(encoder, documents, settings.length, settings.sequences))
        self.stage = OpenModel(loaded.model)
        check_device([EXACT, *map(named, settings.arms)], self.stage.device)

    def identity(self) -> dict[str, object]:
        """All that decides the numbers, for run.json."""
        return {**run_identity(self.loaded, self.documents), **asdict(self.settings)}

    def announce(self, run: Path | None, notice: Notice) -> None:
        """Say how long this takes, by timed forwards, unless a run of it has begun."""
        settings = self.settings

        def in_all(**fewer: Any) -> list[tuple[int, int]]:
            return [(settings.length, replace(settings, **fewer).forwards)]

        announce(
            self.loaded.model,
            self.loaded.present_plan.target_length,
            in_all(),
            notice,
            begun=None if run is None else run / CONFIGURATION,
            what="this measurement, without the slower arithmetic of its arms,",
            smaller=[
                (f"`sequences` {count}", in_all(sequences=count))
                for count in (20, 10, 5)
                if count < settings.sequences
            ],
            otherwise="`quick` measures a few shifts at a shorter `length`",
        )

    def kept_in(
        self,
        run: Path | None,
        sources: Iterable[Path],
        progress: Progress,
        draw: Callable[[dict[str, Charts], Path, Notice], None],
        notice: Notice,
    ) -> Precision:
        """Run everything, and keep it and its pictures in a directory, if one is given."""
        report = share(progress, "measuring")

        def measuring(done: int, total: int) -> None:
            report(done / total if total else 1.0)

        if run is None:
            return self.run(None, measuring)
        with RunDirectory(run, "precision", self.identity(), apart_from=sources) as directory:
            result = self.run(directory.journal(MEASUREMENTS), measuring)
            directory.keep(RESULTS, result.to_json())
            draw({"precision": result.charts()}, directory.path / "figures", notice)
        return result

    def run(
        self,
        journal: Journal | None = None,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> Precision:
        """Run everything; what the journal holds already is not computed again."""
        # A resumed run computes only the units that its journal lacks.
        settings = self.settings
        records = [] if journal is None else self._lines(journal)
        measured = {(r["arm"], r["sequence"]) for r in records if r["kind"] == "shifts"}
        units = [(arm, i) for arm in settings.arms for i in range(settings.sequences)]
        missing = [unit for unit in units if unit not in measured]
        total, done = len(missing) * (len(settings.shifts) + 1), 0

        def step() -> None:
            nonlocal done
            done += 1
            progress(done, total)

        def keep(record: dict[str, Any]) -> None:
            """One line for what is computed in one go, so that a torn file holds no half of it."""
            if journal is not None:
                journal.append([record])
            records.append(record)

        progress(0, total)
        for arm, number in missing:
            differences = shift_differences(
                *(self.stage, self.sequences[number], named(arm), REFERENCE, settings.shifts),
                lengths=settings.lengths,
                passed=step,
            )
            points = [point_of(difference) for difference in differences]
            keep({"kind": "shifts", "arm": arm, "sequence": number, "points": points})
        # Traps are the model's, not a sequence's: one record holds them all.
        if not any(record["kind"] == "traps" for record in records):
            gains = [
                gain_of(self.stage, trap, self.sequences[0]) for trap in find_traps(self.stage)
            ]
            keep({"kind": "traps", "gains": [asdict(gain) for gain in gains]})
        by_unit = {(r["arm"], r["sequence"]): r for r in records if r["kind"] == "shifts"}
        return Precision(
            model=self.loaded.name,
            length=settings.length,
            reference=REFERENCE,
            sequences=settings.sequences,
            device=self.loaded.device,
            arms=summarise([by_unit[unit] for unit in units]),
            traps=tuple(Gain(**g) for r in records if r["kind"] == "traps" for g in r["gains"]),
        )

    def _lines(self, journal: Journal) -> list[dict[str, Any]]:
        """The lines of a journal, refused if this measurement does not write such ones."""
        lines, settings = journal.read(Line), self.settings
        ends = tuple(sorted({*settings.lengths, settings.length}))
        grid = [(first, ends, len(ends), len(ends)) for first in settings.shifts]
        units = [(line.kind, line.arm, line.sequence) for line in lines]
        for number, line in enumerate(lines, start=1):
            points = [(p.first, p.lengths, len(p.attention), len(p.logit)) for p in line.points]
            is_known = units[number - 1] in units[: number - 1]
            if is_known or points != (grid if line.kind == "shifts" else []):
                raise InputError(
                    f"{journal.path}: line {number} is not one that this measurement writes; "
                    "restore the file, or give another directory"
                )
        return list(journal.records)


class ShiftPoint(NamedTuple):
    """A shift of a sequence, as the journal keeps it."""

    first: int
    second: int
    lengths: tuple[int, ...]
    attention: tuple[float, ...]
    logit: tuple[float, ...]
    losses: tuple[float, float]


@dataclass(frozen=True)
class Line(Members):
    """A line of the journal: a sequence under an arm, or the traps."""

    _optional = ("arm", "sequence", "points", "gains")

    kind: Literal["shifts", "traps"]
    arm: str = ""
    sequence: int = 0
    points: tuple[ShiftPoint, ...] = ()
    gains: tuple[Gain, ...] = ()


def point_of(difference: ShiftDifference) -> dict[str, Any]:
    """A difference as the journal keeps it."""
    return {
        "first": difference.first,
        "second": difference.second,
        "lengths": list(difference.lengths),
        "attention": difference.attention.sum((1, 2)).tolist(),
        "logit": difference.logit.sum((1, 2)).tolist(),
        "losses": list(difference.losses),
    }


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
    size = length - len(encoder.bos)
    for tokens in (encoder.pieces(document.text) for document in documents):
        for start in range(0, len(tokens) - size + 1, size):
            yield tokens[start : start + size]
