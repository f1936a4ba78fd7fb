"""A folder under examination, or a config alone.

It is read by the rules of vLLM and SGLang, and measured in transformers: its rotary module is built
and asked, and where weights are there the model is run, at once and through its cache.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from ropewalk.audit.examined import Expected, Files, expected_plan
from ropewalk.audit.files.content import of_folder
from ropewalk.audit.files.tokenizer import tokenizer
from ropewalk.audit.files.weights import weights
from ropewalk.audit.result import ModelForm
from ropewalk.context_plan import PLAN, ContextPlan
from ropewalk.errors import InputError, RopewalkError
from ropewalk.exporting.manifest import MANIFEST, Manifest
from ropewalk.lengths import MAX_LENGTH
from ropewalk.models.config import KNOWN_KEYS, Config, ConfigReader, load_config, present_plan
from ropewalk.progress import Progress, Status, share
from ropewalk.runtimes import named, targets, traps
from ropewalk.runtimes.features import loadable_by
from ropewalk.runtimes.finding import ExaminedModel, Finding
from ropewalk.runtimes.reading import MEASURED, RotaryReading, check_counts
from ropewalk.runtimes.runtime import Form, Runtime, facts_of, without_chunks
from ropewalk.runtimes.trials import Trial
from ropewalk.schedule import RotaryGeometry
from ropewalk.untrusted import counted


class Folder:
    form: Form = "folder"
    target: ModelForm = "transformers folder"

    def __init__(self, path: Path, *, by_manifest: bool) -> None:
        """Read its config; `by_manifest`: it is judged by the runtime of its manifest."""
        self.path = path
        self.stated = load_config(path)
        check_counts(self.stated)
        self.config = without_chunks(self.stated)
        self.written_for = _runtime_of(path) if by_manifest else ""
        self.facts = facts_of(self.stated, path)

    def expected(self, plan: ContextPlan | None) -> Expected:
        notes: tuple[str, ...] = ()
        if (self.path / PLAN).is_file():  # what ropewalk exports carries its plan
            read_plan = partial(ContextPlan.read, self.path / PLAN)
            plan, notes = expected_plan(plan, read_plan, f"its own {PLAN}")
        if plan is not None:
            plan.check_layer_types(tuple(ConfigReader(self.config).layer_settings()))
            plan.check_heads(_geometries(self.config))
            return Expected(plan, planned=True, notes=notes)
        try:  # without the keys that nobody reads
            return Expected(present_plan(_readable(self.config), str(self.path)), planned=False)
        except RopewalkError as error:
            return Expected(None, planned=False, notes=(f"nothing to compare with: {error}",))

    def stated_length(self) -> int:
        stated = ConfigReader(self.config).get("max_position_embeddings")
        if stated is None:
            raise InputError(
                "the config states no max_position_embeddings; give a length or a plan"
            )
        return counted(stated, "max_position_embeddings", MAX_LENGTH)

    def check_files(self, progress: Progress) -> Files:
        reading = share(progress, "verify", 0.0, 0.15, "reading weights")
        weighed = weights(self.path, self.config, reading)
        words = tokenizer(self.path, self.config, weighed.rows)
        content = of_folder(self.path, share(progress, "verify", 0.15, 0.15, "comparing bytes"))
        return Files(weighed.checked, words, content, there=bool(weighed.files))

    def read_by(self, runtime: Runtime, lengths: Sequence[int], *, run: bool) -> RotaryReading:
        if runtime.preferred and (own := next(self.path.glob(runtime.preferred), None)):
            said = f"loads {own.name}, and params.json in place of config.json if both are there"
            return RotaryReading.unknown(runtime.name, f"{said}; remove {own.name} to serve this")
        return runtime.measured(self.config, lengths, run=run)

    def faults(self, subject: ExaminedModel) -> tuple[Finding, ...]:
        """The traps that it is in."""
        return tuple(self._elsewhere(each, subject.plan) for each in traps.find(subject))

    def _elsewhere(self, finding: Finding, plan: ContextPlan | None) -> Finding:
        """A finding that does not concern the runtime of an export has the remedy for its own."""
        runtime = self.written_for
        if not runtime or not finding.wrong or finding.concerns(runtime) or plan is None:
            return finding
        names = [name for name in finding.runtimes if name in loadable_by(plan, self.config)]
        remedy = " or ".join(f"export with --runtime {name}" for name in names)
        return replace(finding, remedy=remedy or "no export makes it follow this plan")

    def tried(
        self, subject: ExaminedModel, files: Files, faults: Sequence[Finding], progress: Progress
    ) -> Trial:
        """Run it in the runtime that measured it; nothing is said twice that `faults` say."""
        measured = (r for r in subject.readings if r.source == MEASURED and not r.unread)
        name = next((reading.runtime for reading in measured), None)
        if subject.plan is None or name is None:
            return Trial()
        progress(Status("verify", 0.3, f"running {named(name).run_here}"))
        words = files.tokenizer.check.verdict == "OK"
        trial = named(name).try_folder(self.path, subject.plan, tokenizer=words)
        if any(each.wrong and name in each.runtimes for each in faults):
            return replace(trial, findings=())
        # Running it in transformers is the proof of an export for an engine that cannot run here.
        also = (self.written_for,) if self.written_for else ()
        return replace(trial, findings=tuple(_concerning(each, also) for each in trial.findings))


def _concerning(finding: Finding, runtimes: tuple[str, ...]) -> Finding:
    return replace(finding, runtimes=tuple(dict.fromkeys((*finding.runtimes, *runtimes))))


def _runtime_of(folder: Path) -> str:
    """The runtime in a folder's manifest; empty if it has none that can be read."""
    try:
        runtime = Manifest.read(folder).runtime if (folder / MANIFEST).is_file() else ""
    except InputError:  # named when the bytes are compared
        return ""
    return runtime if runtime in targets() else ""


def _geometries(config: Config) -> dict[str, RotaryGeometry]:
    """The heads of each layer type, as far as they can be read."""
    reader, geometries = ConfigReader(config), dict[str, RotaryGeometry]()
    for layer_type, rope in reader.layer_settings().items():
        with suppress(RopewalkError):  # those who read the config say why
            geometries[layer_type] = reader.geometry(rope, 1)
    return geometries


def _readable(config: Config) -> Config:
    """The config without the rope keys that nobody reads."""
    cleaned = dict(config)
    for key, value in config.items():
        if key == "text_config" and isinstance(value, Mapping):
            cleaned[key] = _readable(dict(value))
        elif key in ("rope_parameters", "rope_scaling") and isinstance(value, Mapping):
            cleaned[key] = _known(value)
    return cleaned


def _known(rope: Mapping[str, object]) -> dict[str, object]:
    return {
        key: _known(value) if isinstance(value, Mapping) else value
        for key, value in rope.items()
        if isinstance(value, Mapping) or key in KNOWN_KEYS
    }
