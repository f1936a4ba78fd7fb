"""Examines a model on disk: its real behaviour in each runtime, and the traps that it is in.

First its files are checked: whether they are whole and belong together (files/). Then each
runtime's *reading* of the model is taken, which is how it would rotate, by its rules or by
measurement, and readings are searched for traps (runtimes/traps). Last, the model is run, if its
weights are there and a runtime is installed. Files and rules need numpy alone. What cannot be
checked without transformers or llama.cpp is named in the result, and counts as not established.
folder.py and gguf_file.py hold what differs between the two forms.
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
from ropewalk.runtimes.trials.stock_model import without_numbers

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
    # The runtimes to examine: those that were named, else the one that an export was written for
    # and all that load this form of model.
    progress(Status("verify", 0.0, "reading"))
    examined = _opened(model, releases)
    if not releases:
        names = filter(None, (examined.written_for, *judging(examined.form)))
        releases = dict.fromkeys(names, "")
    # What they are compared with: the given plan, the one that the model itself states, or none.
    expected = examined.expected(plan).with_edits_noted()
    served = expected.plan.target_length if expected.plan else length
    served = served or examined.stated_length()
    # Files come before readings and trials, since broken weights are not run.
    files = examined.check_files(progress)
    # Readings at every length where a schedule may change, and the traps that they show.
    lengths = {served, length or served}
    if expected.plan is not None:
        steps = [step for ladder in expected.plan.schedules.values() for step in ladder]
        lengths |= {step.up_to_length for step in steps}
    readings, unchecked = _readings(examined, releases, sorted(lengths), run=run)
    asked = expected.planned or length is not None
    subject = ExaminedModel(
        tuple(readings),
        length or served,
        expected.plan,
        planned=expected.planned,
        asked=asked,
        **examined.facts,
    )
    # Some faults of files concern some runtimes alone.
    faults = (
        *(each for each in files.findings if any(map(each.concerns, releases))),
        *examined.faults(subject),
    )
    # A run, which settles what a reading can only predict; its runtime's reading is then proven.
    trial = Trial()
    if run and files.loadable:
        trial = examined.tried(subject, files, faults, progress)
    if trial.loaded:
        readings = [replace(r, source=RUN) if r.runtime == trial.runtime else r for r in readings]
    elif isinstance(examined, Folder):
        place = examined.path if files.loadable else None
        faults += without_numbers(subject, (*faults, *trial.findings), place)
    return Audit(
        target=examined.target,
        path=examined.path,
        length=subject.length,
        runtimes={reading.runtime: reading for reading in readings},
        written_for=examined.written_for,
        checks=files.checks(trial.loaded),
        warnings=(*faults, *trial.findings),
        compared=expected.plan is not None and not all(reading.unread for reading in readings),
        agreement=trial.agreement,
        notes=(*expected.notes, *unchecked, *trial.notes),
    )


def _releases(runtimes: Sequence[str]) -> dict[str, str]:
    """The named runtimes, and the release of each, empty for the recorded one."""
    releases = {}
    for runtime in runtimes:
        name, _, release = str(runtime).partition("==")
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
        return Folder(source.path, by_manifest=not releases)
    loaders = loading(GGUFFile.form)
    if set(releases) - set(loaders):
        raise InputError(
            f"{source.name}: is a GGUF file, which only {' and '.join(loaders)} load here; "
            "omit --runtime, or give the folder that it was converted from"
        )
    return GGUFFile(source.path)


def _readings(
    examined: Examined, releases: Mapping[str, str], lengths: Sequence[int], *, run: bool
) -> tuple[list[RotaryReading], list[str]]:
    """The readings of all runtimes; and a note for each whose release is not the recorded one.

    A named release that is not recorded gets no verdict.
    """
    readings, notes = [], []
    for name, release in releases.items():
        runtime = named(name)
        unchecked = runtime.unchecked(release)
        if unchecked and release:
            readings.append(RotaryReading.unknown(name, unchecked))
            continue
        readings.append(examined.read_by(runtime, lengths, run=run))
        notes += [f"{name}: {unchecked}"] if unchecked else []
    return readings, notes
