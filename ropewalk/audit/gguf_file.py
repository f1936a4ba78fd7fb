"""A GGUF file under examination: read by llama.cpp's rules, and run where llama.cpp is here."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ropewalk.audit.examined import Examined, Expected, Files, given_or_own
from ropewalk.audit.files import gguf
from ropewalk.audit.files.content import of_file, of_folder
from ropewalk.context_plan import FULL_ATTENTION, PLAN, ContextPlan
from ropewalk.errors import InvalidValue
from ropewalk.gguf import carried
from ropewalk.gguf.parts import read_parts, whole
from ropewalk.gguf.rotation import geometry_of
from ropewalk.progress import Progress, share
from ropewalk.runtimes import named
from ropewalk.runtimes.finding import Finding, Subject
from ropewalk.runtimes.reading import LLAMA_CPP, RotaryReading
from ropewalk.runtimes.runtime import Runtime
from ropewalk.runtimes.traps.gguf import findings
from ropewalk.runtimes.trials import Trial


class GGUFFile(Examined):
    form = "GGUF file"
    target = "GGUF file"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.parts = read_parts(path)
        self.header = whole(self.parts)
        self.geometry = geometry_of(self.header)
        self.reading = named(LLAMA_CPP).read_file(self.header)

    def expected(self, plan: ContextPlan | None) -> Expected:
        notes: tuple[str, ...] = ()
        own = self.header.values.get(carried.PLAN)
        if isinstance(own, str):
            read_own = partial(ContextPlan.loads, own, f"{self.path}: {carried.PLAN}")
            plan, notes = given_or_own(plan, read_own, "the plan in its metadata")
        elif plan is None and (self.path.parent / PLAN).is_file():  # of the run that wrote it
            plan, notes = self._plan_next_to()
        layers = self.reading.layers
        if plan is not None and set(plan.schedules) not in ({FULL_ATTENTION}, {*layers}):
            raise InvalidValue(
                "plan.schedules",
                sorted(plan.schedules),
                f"this file has settings for {' and '.join(sorted(layers))}",
                "create the plan from this model's config",
            )
        return Expected(plan, planned=plan is not None, notes=notes)

    def _plan_next_to(self) -> tuple[ContextPlan | None, tuple[str, ...]]:
        """The plan.json in its folder, unless it is of another model."""
        plan = ContextPlan.read(self.path.parent / PLAN)
        if set(plan.schedules) == {FULL_ATTENTION}:
            planned, own = plan.longest().geometry, self.geometry
            if (planned.head_dim, planned.pairs) == (own.head_dim, own.pairs):
                return plan, (f"compared with the {PLAN} next to it",)
        return None, (f"not compared with the {PLAN} next to it, which is of another model",)

    def stated_length(self) -> int:
        return self.reading.limit or self.geometry.original_length

    def check_files(self, progress: Progress) -> Files:
        reading = share(progress, "verify", 0.0, 0.15, "reading weights")
        weighed = gguf.weights(self.header, self.parts, reading)
        comparing = share(progress, "verify", 0.15, 0.15, "comparing bytes")
        if len(self.parts) > 1:
            content = of_folder(self.path.parent, comparing, of_parts=True)
        else:
            content = of_file(self.header, comparing)
        return Files(weighed, gguf.tokenizer(self.header), content)

    def read_by(self, runtime: Runtime, lengths: Sequence[int]) -> RotaryReading:
        return runtime.read_file(self.header)

    def subject(
        self, readings: Sequence[RotaryReading], expected: Expected, length: int, *, asked: bool
    ) -> Subject:
        planned = expected.planned
        return Subject(tuple(readings), length, expected.plan, planned=planned, asked=asked)

    def faults(self, subject: Subject) -> tuple[Finding, ...]:
        return (*findings(self.header), *super().faults(subject))

    def tried(
        self,
        readings: Sequence[RotaryReading],
        expected: Expected,
        files: Files,
        faults: Sequence[Finding],
        progress: Progress,
    ) -> Trial:
        wrong = any(each.wrong for each in (*files.findings, *faults))
        for reading in readings:
            trial = named(reading.runtime).try_file(
                self.header, expected.plan, wrong=wrong, progress=progress
            )
            if trial is not None:
                return trial
        return Trial()
