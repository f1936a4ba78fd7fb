"""A GGUF file under a plan, as another GGUF file: metadata and factors anew, all else copied.

The weights are never read as numbers, so any quantisation stays what it is, and torch is not
needed. A model of at most `MOST_BYTES` is then run in the real llama.cpp: beside the source under
the same setting as flags, or, where flags cannot say it, beside its own weights in transformers.
"""

from __future__ import annotations

import shlex
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np

from ropewalk.agreement import Agreement
from ropewalk.context_plan import FULL_ATTENTION, ContextPlan, PlanStep
from ropewalk.errors import GateFailed, InputError, RopewalkError, Unsupported, shortened
from ropewalk.exporting.exported import Exported, Loss, NotTheSame, modelfile
from ropewalk.exporting.manifest import Manifest
from ropewalk.exporting.staging import check_export_place, staged
from ropewalk.exporting.tokens import PROBE
from ropewalk.extras import required_by
from ropewalk.gguf import llama_cpp_run, provenance, rewriting, settings, tensors
from ropewalk.gguf.flags import Flags
from ropewalk.gguf.header import GGUFHeader
from ropewalk.gguf.llama_cpp_run import CannotLoad, LogProbabilities, reading
from ropewalk.gguf.parts import read_parts, size, whole
from ropewalk.gguf.settings import GGUFSetting, NoFactors
from ropewalk.progress import Progress, Status, share, silent
from ropewalk.schedule import RotarySchedule

TARGET = "llama.cpp"
_Fit = Literal["exact", "approximated", "refused"]
MOST_BYTES = 2**30
"""The largest model that is run after its export."""
MOST_TOKENS = 768
"""The longest text on which it is run: some seconds of a model of this size on a CPU."""
MOST_MEASURED = 8192
"""The longest text on which the cost of an approximation is measured."""
COMPARED = 16
"""The positions compared, evenly spread over the text. A file and the same setting as flags are
equal to the last bit, and each wrong rotation that was planted moves nearly every position by more
than a hundred times the tolerance (tests/exporting/test_gguf_file.py), so that one would do."""
_SHORT = 64
"""The context in which a file is only loaded."""
COMPARED_WITH_WEIGHTS = 64
"""The same where both round: one factor of all that is left out shows at some positions only."""
BEYOND = 256
"""The number of positions beyond the trained length, if the plan goes there."""
SAME = 1e-3
"""The tolerance between a file and the same setting as flags: angles in float32."""
_VERIFY = "run `ropewalk verify` on it"


def export(
    source: Path,
    plan: ContextPlan,
    out: Path,
    *,
    approximate: bool = False,
    overwrite: bool = False,
    progress: Progress = silent,
) -> Exported:
    """Write the file, or the folder of a split model, and run it before it is there.

    What llama.cpp cannot load is an error, and nothing is left. A split model becomes one file
    where `out` ends in .gguf, and else a folder of the same parts.
    """
    # A plan of another model or a damaged file is refused before anything is measured.
    parts = read_parts(source)
    model = whole(parts)
    schedule = settings.check_plan(model, plan)
    _check_tensors(model)
    why = _not_run(parts)
    if why and (problem := next(tensors.problems(model), "")):
        raise InputError(f"{model.path}: {problem}, so llama.cpp cannot load it; convert it again")
    as_folder = len(parts) > 1 and out.suffix.lower() != ".gguf"
    sources = tuple(part.path for part in parts)
    check_export_place(out, sources=sources, overwrite=overwrite, is_folder=as_folder)
    # The setting that expresses the plan, or the nearest one, if that is allowed.
    warnings = _of_another_name(parts, plan)
    try:
        setting = settings.setting_of(model, schedule)
    except NoFactors as error:
        progress(Status("export", 0.0, "measuring the nearest plan that it can express"))
        schedule, setting, near = _nearest(parts, schedule, error, approximate=approximate)
        warnings += near
        step = PlanStep(plan.target_length, schedule)
        schedules = {**plan.schedules, FULL_ATTENTION: (step,)}
        plan = replace(plan, schedules=schedules).approximating(plan)
    # Only metadata and factors are new; every other byte is copied.
    changes = settings.changes(
        model, setting, plan.target_length, schedule.geometry.original_length
    )
    first = out / parts[0].path.name if as_folder else out
    exported = Exported(
        target=TARGET,
        path=out,
        agreement=None,
        warnings=(*warnings, *settings.warnings(model, setting)),
        load=f"llama-server -m {shlex.quote(str(first))} -c {plan.target_length}",
        elsewhere=() if as_folder else modelfile(str(out), plan.target_length),
    )
    with staged(
        out, needs_bytes=rewriting.needs(parts), overwrite=overwrite, sources=sources
    ) as place:
        written = _write(parts, place, changes, plan, as_folder, progress)
        if why:
            return exported.with_warnings((f"written, and not run: {why}; {_VERIFY}",))
        # A file that cannot be run or compared is written all the same, with a warning.
        try:
            agreement = _agreement(parts, written, schedule, setting, plan.target_length, progress)
        except CannotLoad as error:
            raise _refused(out, parts, error) from None
        except NotCompared as error:
            return exported.with_warnings((f"not compared: {error}; {_VERIFY}",))
        exported = replace(exported, agreement=agreement)
        if not agreement.passed:
            raise NotTheSame(exported, agreement)
    return exported


def support_of(source: Path, plan: ContextPlan) -> tuple[_Fit, str, Loss | None]:
    """llama.cpp's support of a plan in this file, and the cost of an approximation, if measured."""
    parts = read_parts(source)
    model = whole(parts)
    schedule = settings.check_plan(model, plan)
    _check_tensors(model)
    try:
        return "exact", settings.setting_of(model, schedule).said, None
    except NoFactors as error:
        nearest = settings.nearest(model, schedule)
        setting = settings.setting_of(model, nearest)
        loss, _ = cost_of(parts, schedule, nearest)
        return "approximated", f"{error}; {setting.said}", loss
    except Unsupported as error:
        return "refused", str(error), None


def _write(
    parts: Sequence[GGUFHeader],
    place: Path,
    changes: rewriting.Changes,
    plan: ContextPlan,
    as_folder: bool,
    progress: Progress,
) -> Path:
    """Write what is asked for, and return the file that llama.cpp is given."""
    report = share(progress, "export", 0.0, 0.9, "copying tensors")
    named = replace(plan, model=provenance.name_of(plan.model))  # and no path of this machine
    keys = {**changes.keys, provenance.PLAN: rewriting.text(named.dumps())}
    ours = {provenance.SHA256, provenance.SIZE, provenance.PLAN}
    if as_folder:  # its manifest has the digests
        place.mkdir()
        without = changes.without | ours
        written = rewriting.rewrite_parts(
            parts, place, replace(changes, keys=keys, without=without), report
        )
        Manifest.of(place, runtime="llama.cpp").write(place)
        return written[0]
    keys |= {
        provenance.SHA256: rewriting.text(provenance.BLANK),
        provenance.SIZE: rewriting.number("<Q", 0),
    }
    rewriting.join(parts, place, replace(changes, keys=keys), report)
    progress(Status("export", 0.9, "digesting the file"))
    provenance.seal(place)
    return place


def _check_tensors(model: GGUFHeader) -> None:
    if not model.tensors:
        raise InputError(
            f"{model.path}: holds no tensors, so there is no model to extend; give the file with "
            "the weights"
        )


def _of_another_name(parts: Sequence[GGUFHeader], plan: ContextPlan) -> tuple[str, ...]:
    """A notice that the plan was made from another file; a copy may have been renamed."""
    names, planned = [part.path.name for part in parts], provenance.name_of(plan.model)
    if planned in names:
        return ()
    return (
        f"the plan was created from {shortened(planned)}, and this file is {shortened(names[0])}: "
        "check that they are the same model",
    )


def _not_run(parts: Sequence[GGUFHeader]) -> str:
    """Why the file is not run; empty if it is."""
    if size(parts) > MOST_BYTES:
        return f"it is larger than {MOST_BYTES / 2**30:g} GiB"
    if not llama_cpp_run.available():
        return str(llama_cpp_run.absent())
    return ""


def _refused(out: Path, parts: Sequence[GGUFHeader], error: CannotLoad) -> GateFailed:
    """The error for a file that llama.cpp does not load: is it the fault of its source?"""
    try:
        with llama_cpp_run.running(parts[0].path, length=_SHORT):
            source = f"it loads {parts[0].path}, so this is a fault of ropewalk: report it"
    except CannotLoad:
        source = (
            f"it cannot load {parts[0].path} either; copy or convert that file again, or update "
            "xllamacpp if the file is newer"
        )
    return GateFailed(
        f"{out} was not written", [f"llama.cpp cannot load it: {error.reason}", source]
    )


class NotCompared(Exception):
    """Nothing here knows what the file should compute, so the file has no proof."""


def _agreement(
    parts: Sequence[GGUFHeader],
    written: Path,
    schedule: RotarySchedule,
    setting: GGUFSetting,
    length: int,
    progress: Progress,
) -> Agreement:
    if setting.yarn != 1:  # by flags, llama.cpp serves what YaRN's factor comes to, and no more
        length = min(length, int(schedule.geometry.original_length * setting.yarn))
    tokens = _text_for(parts, schedule, length)
    unknown = "" if tokens else "the file holds no vocabulary"
    if setting.by_flags and not settings.flags_reach_all_layers(whole(parts)):
        unknown = (
            "llama.cpp's flags do not change its layers with a sliding window, so there is nothing "
            "to compare with"
        )
    if unknown:
        with llama_cpp_run.running(written, length=_SHORT):
            raise NotCompared(unknown)
    step = max(1, len(tokens) // (COMPARED if setting.by_flags else COMPARED_WITH_WEIGHTS))
    said = llama_cpp_run.log_probabilities(
        *(written, tokens),
        start=(len(tokens) - 1) % step,
        step=step,
        report=reading(progress, 0.0, "the exported file", len(tokens)),
    )
    if setting.by_flags:
        report = reading(progress, 0.5, "the source with the plan as flags", len(tokens))
        return against_flags(parts, said, tokens, setting, schedule, report)
    try:
        with required_by("comparing factors with the file's own weights"):
            from ropewalk.exporting.gguf_weights import against_weights
        report = reading(progress, 0.5, "the source as it is", len(tokens))
        return against_weights(parts, said, tokens, schedule, report)
    except InputError as error:  # its weights are no model that can be computed here
        raise NotCompared(str(error)) from None


def against_flags(
    parts: Sequence[GGUFHeader],
    said: LogProbabilities,
    tokens: Sequence[int],
    setting: GGUFSetting,
    schedule: RotarySchedule,
    report: Callable[[int], None],
) -> Agreement:
    """Compare llama.cpp's answers with those of the source with the setting as flags.

    llama.cpp serves no more than the file states, and its bindings override no key: so the source
    is a copy that states the length, and no scaling of its own.
    """
    with _room_for_a_copy(parts) as room:
        copy = Path(room) / "source.gguf"
        _copy(parts, copy, len(tokens) + 1)
        flags = Flags.of(setting, schedule.geometry.original_length, len(tokens) + 1)
        start, step = said.positions.start, said.positions.step
        beside = llama_cpp_run.log_probabilities(
            copy, tokens, start=start, step=step, flags=flags, report=report
        )
    return Agreement(
        runtime=llama_cpp_run.runtime(),
        quantity="log-probabilities",
        max_difference=difference(said, beside),
        tolerance=SAME,
        tokens=len(said.positions),
        reference="the source file with the plan as flags",
        length=said.positions[-1] + 1,
    )


def _room_for_a_copy(parts: Sequence[GGUFHeader]) -> tempfile.TemporaryDirectory[str]:
    """A temporary folder on a disk with room for the model."""
    try:
        room = tempfile.TemporaryDirectory(prefix="ropewalk-export-")
    except OSError as error:
        raise NotCompared(f"no temporary folder can be made ({error.strerror})") from None
    needed, free = rewriting.needs(parts), shutil.disk_usage(room.name).free
    if free < needed:
        room.cleanup()
        raise NotCompared(
            f"{Path(room.name).parent}: the comparison needs {needed / 2**20:,.0f} MiB there, and "
            f"{free / 2**20:,.0f} MiB are free; make room, or name another folder in TMPDIR"
        )
    return room


def _copy(parts: Sequence[GGUFHeader], copy: Path, length: int) -> None:
    try:
        rewriting.join(parts, copy, settings.without_scaling(whole(parts), length))
    except OSError as error:  # of this place, not of the one that the export is written to
        raise NotCompared(
            f"{copy.parent.parent}: cannot be written ({error.strerror}); make room, or name "
            "another folder in TMPDIR"
        ) from None


def difference(one: LogProbabilities, other: LogProbabilities) -> float:
    """The largest difference between both's values for the same tokens."""
    largest = 0.0
    for tokens, values, others, theirs in zip(
        one.tokens, one.values, other.tokens, other.values, strict=True
    ):
        beside = dict(zip(others.tolist(), theirs.tolist(), strict=True))
        gaps = [
            abs(v - beside[t]) for t, v in zip(tokens.tolist(), values, strict=True) if t in beside
        ]
        # The likeliest token of one must be among the likeliest of the other. NaN is no number.
        worst = max(gaps) if tokens[0] in beside and np.isfinite(gaps).all() else np.inf
        largest = max(largest, worst)
    return float(largest)


def _text_for(parts: Sequence[GGUFHeader], schedule: RotarySchedule, length: int) -> list[int]:
    """Random tokens beyond the trained length, as far as that is bearable; none without any."""
    vocabulary = whole(parts).lengths.get("tokenizer.ggml.tokens", 0)
    count = min(schedule.geometry.original_length + BEYOND, length - 1, MOST_TOKENS)
    random = np.random.default_rng(8)
    tokens: list[int] = random.integers(max(1, vocabulary), size=max(2, count)).tolist()
    return tokens if vocabulary else []


def _nearest(
    parts: Sequence[GGUFHeader], schedule: RotarySchedule, error: NoFactors, *, approximate: bool
) -> tuple[RotarySchedule, GGUFSetting, tuple[str, ...]]:
    """The nearest schedule that the architecture can express, with its cost; or a refusal."""
    model = whole(parts)
    nearest = settings.nearest(model, schedule)
    setting = settings.setting_of(model, nearest)
    _, cost = cost_of(parts, schedule, nearest)
    if not approximate:
        raise Unsupported(
            f"{error}; the nearest that it can express is {setting.said} ({cost}): allow that "
            "(`approximate`), or plan with ntk, linear or yarn"
        )
    return nearest, setting, (f"approximated: {error}; {setting.said}", cost)


def cost_of(
    parts: Sequence[GGUFHeader], schedule: RotarySchedule, nearest: RotarySchedule
) -> tuple[Loss | None, str]:
    """The cost of following another schedule, if it can be measured here, and the same in words.

    It is the divergence of what the file's weights compute, on a text if llama.cpp is here.
    """
    if size(parts) > MOST_BYTES:
        return None, "its cost was not measured: the file is too large to be computed here"
    try:
        with required_by("measuring the cost"):
            from ropewalk.exporting.gguf_weights import loss_of_nearest
        length = min(schedule.geometry.original_length + BEYOND, schedule.length, MOST_MEASURED)
        loss = loss_of_nearest(parts, schedule, nearest, _text(parts, length))
    except InputError as error:  # torch is not here, or its weights are no model that is known
        return None, f"its cost was not measured: {error}"
    return loss, f"approximation cost: {loss}"


def _text(parts: Sequence[GGUFHeader], length: int) -> Sequence[int]:
    """A text in the file's own tokens, or random ones if nothing here can tokenize."""
    if llama_cpp_run.available():
        try:
            with llama_cpp_run.running(parts[0].path, length=_SHORT) as llama:
                once = llama.tokenize(PROBE)
            return (once * (1 + length // max(1, len(once))))[:length]
        except RopewalkError:
            pass
    vocabulary = whole(parts).lengths.get("tokenizer.ggml.tokens") or 2
    drawn: list[int] = np.random.default_rng(8).integers(vocabulary, size=length).tolist()
    return drawn
