"""Examines a model on disk: its real behaviour in each runtime, and the traps that it is in.

Its files are checked first: whether they are whole and belong together (files/). Then each runtime
says what it would make of the model, by its rules or by measuring it, and that is searched for
traps (runtimes/traps). At last the model is run, where weights and a runtime are here. Files and
rules need numpy alone; what is left out where transformers or llama.cpp is not installed is said,
and is not established. What is particular to a folder or a GGUF file stands in folder.py and
gguf_file.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ropewalk.audit.folder import Folder
from ropewalk.audit.gguf_file import GGUFFile
from ropewalk.audit.result import Audit
from ropewalk.context_plan import ContextPlan
from ropewalk.errors import InputError, UnknownName
from ropewalk.models.source import resolve
from ropewalk.progress import Progress, Status, silent
from ropewalk.runtimes import every, judging, loading, named
from ropewalk.runtimes.finding import ExaminedModel
from ropewalk.runtimes.reading import RUN, RotaryReading
from ropewalk.runtimes.trials import Trial

Examined = Folder | GGUFFile


def audit(
    model: str | Path,
    *,
    plan: ContextPlan | None = None,
    length: int | None = None,
    runtimes: Sequence[str] = (),
    run: bool = True,
    progress: Progress = silent,
) -> Audit:
    """Examine a folder or a file against a plan, or against its own settings.

    `runtimes` may name releases, such as vllm==0.33.0.
    """
    if plan is not None and length is not None:
        raise InputError("a plan contains a length; give a plan or a length, not both")
    releases = _releases(runtimes)
    # The runtimes that judge it, and the plan: the given one, the model's own, or none.
    progress(Status("verify", 0.0, "reading"))
    examined = _opened(model, releases)
    if not releases:
        judges = filter(None, (examined.written_for, *judging(examined.form)))
        releases = dict.fromkeys(judges, "")
    expected = examined.expected(plan).with_edits_noted()
    served = expected.plan.target_length if expected.plan else length
    served = served or examined.stated_length()
    # Files first: broken weights are not run.
    files = examined.check_files(progress)
    lengths = {served, length or served}
    if expected.plan is not None:
        steps = [step for own in expected.plan.schedules.values() for step in own]
        lengths |= {step.up_to_length for step in steps}
    # Each runtime's reading of it, and the traps in these.
    readings, unchecked = _readings(examined, releases, sorted(lengths))
    asked = expected.planned or length is not None
    subject = ExaminedModel(
        tuple(readings),
        length or served,
        expected.plan,
        planned=expected.planned,
        asked=asked,
        **examined.facts,
    )
    faults = examined.faults(subject)
    # Then for real, where weights and a runtime are here.
    trial = Trial()
    if run and files.loadable:
        trial = examined.tried(subject, files, faults, progress)
    if trial.loaded:
        readings = [replace(r, source=RUN) if r.runtime == trial.runtime else r for r in readings]
    return Audit(
        target=examined.target,
        path=examined.path,
        length=subject.length,
        runtimes={reading.runtime: reading for reading in readings},
        written_for=examined.written_for,
        checks=files.checks(trial.loaded),
        warnings=(*files.findings, *faults, *trial.findings),
        compared=expected.plan is not None and not all(reading.unread for reading in readings),
        agreement=trial.agreement,
        notes=(*expected.notes, *unchecked, *trial.notes),
    )


def _releases(runtimes: Sequence[str]) -> dict[str, str]:
    """The named runtimes, and the release of each; empty if none is named."""
    releases = {}
    for asked in runtimes:
        name, _, release = str(asked).partition("==")
        if name not in every() or (release and not named(name).release()):
            raise UnknownName("runtime", f"{name}=={release}" if release else name, tuple(every()))
        releases[name] = release
    return releases


def _opened(model: str | Path, releases: Mapping[str, str]) -> Examined:
    """The model on disk, if the named runtimes can load it."""
    source = resolve(model)
    if source.path is None:
        raise InputError(
            f"{source.name}: is known only by name, and verify examines files; give a "
            "model's folder, a config.json or a GGUF file"
        )
    if source.kind != GGUFFile.form:
        return Folder(source.path, own_runtime=not releases)
    able = loading(GGUFFile.form)
    if set(releases) - set(able):
        raise InputError(
            f"{source.name}: is a GGUF file, which only {' and '.join(able)} load here; "
            "omit --runtime, or give the folder that it was converted from"
        )
    return GGUFFile(source.path)


def _readings(
    examined: Examined, releases: Mapping[str, str], lengths: Sequence[int]
) -> tuple[list[RotaryReading], list[str]]:
    """The readings of all runtimes; and a note for each whose release is not the recorded one.

    A named release that is not recorded gets no verdict.
    """
    readings, notes = [], []
    for name, release in releases.items():
        runtime = named(name)
        other = runtime.unchecked(release)
        if other and release:
            readings.append(RotaryReading.unknown(name, other))
            continue
        readings.append(examined.read_by(runtime, lengths))
        notes += [f"{name}: {other}"] if other else []
    return readings, notes
