"""A GGUF file under examination: read by llama.cpp's rules, and run where llama.cpp is here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ropewalk.audit.examined import Expected, Files, expected_plan
from ropewalk.audit.files import gguf
from ropewalk.audit.files.content import of_file, of_folder
from ropewalk.audit.result import ModelForm
from ropewalk.context_plan import FULL_ATTENTION, PLAN, ContextPlan
from ropewalk.errors import InvalidValue
from ropewalk.gguf import provenance
from ropewalk.gguf.parts import read_parts, whole
from ropewalk.gguf.rotation import geometry_of
from ropewalk.progress import Progress, Status, share
from ropewalk.runtimes import judging, named, traps
from ropewalk.runtimes.finding import ExaminedModel, Finding
from ropewalk.runtimes.reading import RotaryReading
from ropewalk.runtimes.runtime import Form, Runtime
from ropewalk.runtimes.traps.gguf import findings
from ropewalk.runtimes.trials import Trial


class GGUFFile:
    form: Form = "GGUF file"
    target: ModelForm = "GGUF file"
    written_for = ""
    facts: Mapping[str, Any] = {}

    def __init__(self, path: Path) -> None:
        self.path = path
        self.parts = read_parts(path)
        self.header = whole(self.parts)
        self.geometry = geometry_of(self.header)
        self.reading = named(judging(self.form)[0]).read_file(self.header)

    def expected(self, plan: ContextPlan | None) -> Expected:
        notes: tuple[str, ...] = ()
        stored = self.header.values.get(provenance.PLAN)
        if isinstance(stored, str):
            read_plan = partial(ContextPlan.loads, stored, f"{self.path}: {provenance.PLAN}")
            plan, notes = expected_plan(plan, read_plan, "the plan in its metadata")
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
        if FULL_ATTENTION in plan.schedules:
            planned, geometry = plan.longest().geometry, self.geometry
            if (planned.head_dim, planned.pairs) == (geometry.head_dim, geometry.pairs):
                return plan, (f"compared with the {PLAN} next to it",)
        return None, (f"not compared with the {PLAN} next to it, which is of another model",)

    def stated_length(self) -> int:
        return self.reading.limit or self.geometry.original_length

    def check_files(self, progress: Progress) -> Files:
        reading = share(progress, "verify", 0.0, 0.15, "reading weights")
        weighed = gguf.weights(self.header, self.parts, reading)
        comparing = share(progress, "verify", 0.15, 0.15, "comparing bytes")
        if len(self.parts) > 1:
            names = [part.path.name for part in self.parts]
            content = of_folder(self.path.parent, comparing, names)
        else:
            content = of_file(self.header, comparing)
        return Files(weighed, gguf.tokenizer(self.header), content)

    def read_by(self, runtime: Runtime, lengths: Sequence[int], *, run: bool) -> RotaryReading:
        return runtime.read_file(self.header)

    def faults(self, subject: ExaminedModel) -> tuple[Finding, ...]:
        """The traps that it is in."""
        return (*findings(self.header, subject.plan), *traps.find(subject))

    def tried(
        self, subject: ExaminedModel, files: Files, faults: Sequence[Finding], progress: Progress
    ) -> Trial:
        """Run it, if one of its runtimes ever runs here."""
        wrong = any(each.wrong for each in faults)
        runtimes = [named(reading.runtime) for reading in subject.readings]
        for runtime in (each for each in runtimes if each.run_here):
            progress(Status("verify", 0.3, f"running {runtime.run_here}"))
            return runtime.try_file(self.header, subject.plan, wrong=wrong)
        return Trial()
