"""`compare_runs`: two evaluations sample by sample, read from their run directories."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from ropewalk.arguments import as_path
from ropewalk.errors import InputError
from ropewalk.evaluation.compared import ComparedRuns
from ropewalk.evaluation.conclusion import evaluated
from ropewalk.evaluation.results import Pair, compare_pairs, labels, means, summarise
from ropewalk.options import Argument, command
from ropewalk.records import EvalRecord, EvalResult, Subject, is_compared
from ropewalk.run_directory import RESULTS
from ropewalk.run_on_disk import RunOnDisk
from ropewalk.untrusted import Fields, text_value

SAME = (
    *("tasks", "lengths", "samples", "seed", "mode"),
    *("chat", "tokenizer_sha256", "bos", "corpus_sha256"),
)
"""The settings that decide the samples of a run and the reading of their answers."""


class _Run(RunOnDisk):
    """A finished evaluation, whose results follow from its records."""

    @property
    def subjects(self) -> dict[str, Subject]:
        return {name: subject for subject, name in labels(r.subject for r in self.records).items()}

    def of(self, subject: Subject) -> list[EvalRecord]:
        return [r for r in self.records if r.subject == subject and is_compared(r)]

    def groups(self) -> dict[str, tuple[str, ...]]:
        from ropewalk.evaluation.settings import groups_of

        fields = Fields(self.configuration, f"{self.path}: ")
        tasks = [text_value(name, fields.of("tasks")) for name in fields.items("tasks")]
        return groups_of(tasks, fields.text("mode"))

    def results(self, subjects: Sequence[Subject]) -> tuple[EvalResult, ...]:
        """Computed from the records, with the means over groups of tasks."""
        records = [r for r in self.records if r.subject in subjects]
        return (*summarise(records), *means(records, self.groups()))


@command(
    "compare",
    "On a model",
    example="ropewalk compare runs/tuned runs/base --plot difference.png",
    more="Differences are the first run minus the second.",
    plot="the differences by length",
)
def compare_runs(
    first: Annotated[str | Path, Argument("The run directory of an evaluation.", "RUN")],
    second: Annotated[str | Path, Argument("Another, of the same tasks and samples.", "RUN")],
) -> ComparedRuns:
    """Compare two evaluations task by task and length by length, on the same samples.

    A method is compared with the method of the same name in the other run; where each run has one
    method, these two are compared. Runs of other samples, tasks, modes or tokenizers are refused.
    """
    one, two = _read(as_path(first, "first")), _read(as_path(second, "second"))
    _check_same_samples(one, two)
    matched = _matched(one, two)
    pairs: list[Pair] = [(a, one.of(a), b, two.of(b)) for a, b in matched]
    return ComparedRuns(
        first=str(first),
        second=str(second),
        changes=tuple(_changes(one, two, matched)),
        first_results=one.results([a for a, _ in matched]),
        second_results=two.results([b for _, b in matched]),
        comparisons=tuple(compare_pairs(pairs, one.groups())),
    )


def _read(path: Path) -> _Run:
    run = _Run.read(path)
    if run.command != "evaluate":
        raise InputError(
            f"{path}: is a run of {run.command}, not of evaluate; give a run of evaluate"
        )
    if evaluated(run) is None:
        raise InputError(
            f"{path}: is unfinished (it has no {RESULTS}); start the same evaluation again to "
            "finish it"
        )
    return run


def _check_same_samples(one: _Run, two: _Run) -> None:
    a, b = ({key: run.configuration.get(key) for key in SAME} for run in (one, two))
    different = [
        f"{key} ({_short(a[key])} and {_short(b[key])})" for key in SAME if a[key] != b[key]
    ]
    if different:
        raise InputError(
            f"{one.path} and {two.path} cannot be compared sample by sample, since they differ in "
            f"{', '.join(different)}; evaluate one of them again with the settings of the other"
        )
    ids = [{(r.task, r.length, r.sample) for r in run.records} for run in (one, two)]
    if ids[0] != ids[1]:
        task, length, _ = min(ids[0] ^ ids[1])
        raise InputError(
            f"{one.path} and {two.path} do not have the same samples of {task} at {length}; "
            "evaluate both with the same version of ropewalk"
        )


def _short(value: object) -> str:
    """A setting in a message; of a fingerprint, its beginning."""
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:13]}…"


def _changes(one: _Run, two: _Run, matched: Sequence[tuple[Subject, Subject]]) -> list[str]:
    """The differences besides the samples."""
    a, b = one.configuration, two.configuration
    changes = [
        f"{key}: {a.get(key)} and {b.get(key)}"
        for key in ("dtype", "device")
        if a.get(key) != b.get(key)
    ]
    changes += [
        f"{name}: {one.versions.get(name)} and {two.versions.get(name)}"
        for name in dict.fromkeys([*one.versions, *two.versions])
        if one.versions.get(name) != two.versions.get(name)
    ]
    if a.get("config_sha256") != b.get("config_sha256"):
        changes.insert(0, "the model's config")
    if any(first.plan_id != second.plan_id for first, second in matched):
        changes.insert(0, "plans")
    if a.get("weights_sha256") != b.get("weights_sha256"):
        changes.insert(0, "weights")
    return changes


def _matched(one: _Run, two: _Run) -> list[tuple[Subject, Subject]]:
    """The subjects to compare: the only ones, or those of the same label."""
    a, b = one.subjects, two.subjects
    if len(a) == len(b) == 1:
        return list(zip(a.values(), b.values(), strict=True))
    shared = [(a[name], b[name]) for name in a if name in b]
    if not shared:
        raise InputError(
            f"no method is in both runs: {one.path} has {', '.join(a)}, {two.path} has "
            f"{', '.join(b)}; evaluate one of these in the other run too"
        )
    return shared
