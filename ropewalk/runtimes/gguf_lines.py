"""The lines of the runtimes that load GGUF files: llama.cpp and Ollama.

llama.cpp's flags express a new base, one factor for all pairs, or its own YaRN, on an unmodified
file. All else must be in the file, and Ollama takes everything from the file.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass

import numpy as np

from ropewalk.context_plan import FULL_ATTENTION, PLAN, ContextPlan
from ropewalk.errors import RopewalkError, Unsupported
from ropewalk.exporting.exported import modelfile
from ropewalk.gguf import settings
from ropewalk.gguf.architectures import architecture
from ropewalk.gguf.families import family, family_names
from ropewalk.gguf.header import GGUFHeader
from ropewalk.gguf.rotation import CONVERTED
from ropewalk.gguf.settings import NoFactors
from ropewalk.models.config import ORIGINAL_LENGTH, ConfigReader
from ropewalk.models.source import Source
from ropewalk.runtimes import loading
from ropewalk.runtimes.configs import with_length
from ropewalk.runtimes.reading import LLAMA_CPP, OLLAMA
from ropewalk.runtimes.runtime import Target
from ropewalk.runtimes.serving import NOT_RUN, Fit, Serving, export_line, reason_of
from ropewalk.scaling import rebuild
from ropewalk.schedule import RotarySchedule

FILE, EXTENDED = "MODEL.gguf", "extended.gguf"
"""Placeholders for the user's files in lines to paste."""
_UNMODIFIED = f"on an unmodified GGUF file of the model, here {FILE}"
_ARCHITECTURES = CONVERTED["architectures"]
"""GGUF architectures by model type, of those that the export does not write."""


def served(llama_cpp: Target, plan: ContextPlan, source: Source) -> tuple[Serving, Serving]:
    """llama.cpp and Ollama, which follow a plan by the same file."""
    if source.kind == "GGUF file":
        return _of_file(plan, source)
    exported = _exported(llama_cpp, plan, source)
    if not _is_plain(source.present_plan) and plan.rotates_like(source.present_plan):
        longer = with_length(source.config, plan.target_length)
        converted = llama_cpp.judge(longer, plan, folder=source.path, own_plan=True)
        written = converted.follows and _written_by_the_converter(source)
        if written or (exported.refused and not converted.wrong):
            return _unmodified(plan, source, known=written)
    by_flags = _llama_cpp(plan, source, exported, FILE, _UNMODIFIED)
    return by_flags, _ollama(plan, source, exported)


def loadable_by(plan: ContextPlan, header: GGUFHeader) -> tuple[str, ...] | None:
    """The runtimes that can follow the plan with a GGUF file; None if its rules are not known."""
    if not architecture(header.architecture).known:
        return None
    try:
        settings.setting_of(header, settings.check_plan(header, plan))
    except RopewalkError:
        return ()
    return loading("GGUF file")


def _of_file(plan: ContextPlan, source: Source) -> tuple[Serving, Serving]:
    """llama.cpp and Ollama, of a GGUF file that is here."""
    path, length = str(source.path), plan.target_length
    if plan == source.present_plan:
        own = "the file's own settings"
        return (
            Serving(LLAMA_CPP, "exact", own, (llama_server(path, length),)),
            Serving(OLLAMA, "exact", f"{own}, {NOT_RUN}", modelfile(path, length)),
        )
    # Another plan needs another file, which the export writes from this one.
    export, refused = export_line(source, LLAMA_CPP, EXTENDED), ""
    near: tuple[str, ...] = ()
    try:
        header = source.header
        setting = settings.setting_of(header, settings.check_plan(header, plan))
        how = f"the exported file ({setting.said})"
    except NoFactors as error:
        nearest = settings.nearest_in_words(header, plan.longest())
        near, how = (f"{error}; with --approximate, the export takes {nearest}",), "the export"
        export += " --approximate"
    except RopewalkError as error:
        refused, how = str(error), ""
    if refused:
        ollama = Serving(OLLAMA, "impossible", f"a Modelfile has no setting of RoPE; {refused}")
    else:
        lines = (export, *modelfile(EXTENDED, length))
        ollama = Serving.possible(OLLAMA, near, f"{how}, {NOT_RUN}", *lines)
    exported = _Export(near, export, refused, EXTENDED)
    return _llama_cpp(plan, source, exported, path, "by flags, on the unmodified file"), ollama


@dataclass(frozen=True)
class _Export:
    """The command of an export to GGUF, or the reason for its absence."""

    near: tuple[str, ...] = ()
    command: str = ""
    refused: str = ""
    out: str = FILE


def _exported(llama_cpp: Target, plan: ContextPlan, source: Source) -> _Export:
    """The refusals are those of the export itself, as far as config and plan show them."""
    if command := _of_converted(plan, source):
        return _Export(command=command, out=EXTENDED)
    try:
        _, near = llama_cpp.expressible(plan, source.config, approximate=True)
    except RopewalkError as error:
        return _Export(refused=reason_of(error, LLAMA_CPP))
    allow = " --approximate" if near else ""
    return _Export(near, f"{export_line(source, 'llama.cpp', FILE)}{allow}")


def _of_converted(plan: ContextPlan, source: Source) -> str:
    """The export of a GGUF file of the model, if only such a file is written, not the folder."""
    name = _ARCHITECTURES.get(ConfigReader(source.config).model_type)
    if name is None or set(plan.schedules) != {FULL_ATTENTION}:
        return ""
    try:
        settings.setting_in(architecture(name), settings.only_schedule(plan), by_factors=True)
    except RopewalkError:
        return ""
    words = ("ropewalk", "export", FILE, "--plan", PLAN, "--runtime", LLAMA_CPP, "-o", EXTENDED)
    return shlex.join(words)


def _written_by_the_converter(source: Source) -> bool:
    """True if a GGUF file that llama.cpp's converter makes is known to have the scaling too."""
    present = source.present_plan
    if set(present.schedules) != {FULL_ATTENTION} or len(present.steps()) > 1:
        return False
    if not _architecture_of(source):
        return False
    try:
        flags = _rope_flags(present.longest())
    except Unsupported:
        return False
    # An original length that is not stated would be taken from the stated one, which is raised.
    ropes = ConfigReader(source.config).layer_settings().values()
    stated = all(rope.get(ORIGINAL_LENGTH) for rope in ropes)
    return "--rope-scaling" in flags and (stated or "yarn" not in flags)


def _unmodified(plan: ContextPlan, source: Source, *, known: bool) -> tuple[Serving, Serving]:
    """A GGUF file of the unmodified model, for a plan that leaves its scaling alone."""
    length, reader = plan.target_length, ConfigReader(source.config)
    stated = reader.get("max_position_embeddings")
    short = isinstance(stated, int) and stated < length
    flags: tuple[str, ...] = ()
    if short and (name := _architecture_of(source)):
        flags = ("--override-kv", f"{name}.context_length=int:{length}")
    fit: Fit = "exact" if known else "unknown"
    reason = _UNMODIFIED
    if not known:
        reason += f"; how llama.cpp rotates model type {reader.model_type!r} was not examined"
    longer = f", {NOT_RUN}" if known else ""
    if short:
        key = reader.written("max_position_embeddings")
        longer += f"; convert it from a config with {key} = {length}, for Ollama serves no more"
    return (
        Serving(LLAMA_CPP, fit, reason, (llama_server(FILE, length, *flags),)),
        Serving(OLLAMA, fit, f"{reason}{longer}", modelfile(FILE, length)),
    )


def _llama_cpp(
    plan: ContextPlan, source: Source, exported: _Export, file: str, without: str
) -> Serving:
    """By flags on a file, described as `without` an export, if they can express the plan."""
    try:
        flags = _flags(plan, source, file)
    except Unsupported as error:
        if exported.refused:
            return Serving(LLAMA_CPP, "impossible", f"{error}; {exported.refused}")
        served = llama_server(exported.out, plan.target_length)
        reason = f"export it first: {error}"
        return Serving.possible(LLAMA_CPP, exported.near, reason, exported.command, served)
    return Serving(LLAMA_CPP, "exact", without, (flags,))


def _ollama(plan: ContextPlan, source: Source, exported: _Export) -> Serving:
    own = f"by llama.cpp's rules, not tested here; {FILE} is"
    if plan == source.present_plan and _is_plain(plan):
        reason = f"{own} an unmodified GGUF file of the model"
        return Serving(OLLAMA, "exact", reason, modelfile(FILE, plan.target_length))
    if exported.refused:
        reason = f"a Modelfile has no setting of RoPE, and {exported.refused}"
        return Serving(OLLAMA, "impossible", reason)
    lines = (exported.command, *modelfile(exported.out, plan.target_length))
    own = own.replace(FILE, exported.out)
    return Serving.possible(OLLAMA, exported.near, f"{own} the exported file", *lines)


def _is_plain(plan: ContextPlan) -> bool:
    """One schedule for all, which rotates as pretrained."""
    steps = [step for own in plan.schedules.values() for step in own]
    schedule = steps[0].schedule
    return (
        len(steps) == 1
        and schedule.softmax_scaling == 1
        and schedule.log_n is None
        and schedule.attention_scaling == 1
        and bool(np.all(schedule.rescale_factors == 1))
    )


def _flags(plan: ContextPlan, source: Source, file: str) -> str:
    """The llama-server command that makes an unmodified file follow the plan."""
    length = plan.target_length
    if set(plan.schedules) != {FULL_ATTENTION} or len(plan.steps()) > 1:
        raise Unsupported("llama.cpp's flags set one schedule for all layers and lengths")
    if not _is_plain(source.present_plan):
        raise Unsupported("llama.cpp's flags do not replace a scaling that the file has already")
    flags = _rope_flags(plan.longest())
    if source.kind == "GGUF file":
        name = source.header.architecture
        reached = settings.flags_reach_all_layers(source.header)
    else:
        name = _architecture_of(source)
        reached = architecture(name).windows != "same in the file, not by flags"
    if flags and not reached:
        raise Unsupported(
            "llama.cpp's flags leave the layers with a sliding window as they are in the file"
        )
    if length <= source.present_plan.target_length:
        return llama_server(file, length, *flags)
    if not name:
        raise Unsupported("llama.cpp's name for this architecture is not known here")
    # llama-server serves no more than the file states. Since #28030 YaRN's flags raise that by
    # themselves, to the same length; older builds and other flags need the override.
    stated = ("--override-kv", f"{name}.context_length=int:{length}")
    return llama_server(file, length, *stated, *flags)


def _architecture_of(source: Source) -> str:
    """llama.cpp's architecture for a folder once converted; empty if it is not known here."""
    kind = ConfigReader(source.config).model_type
    return family(kind).architectures[0] if kind in family_names() else _ARCHITECTURES.get(kind, "")


def _rope_flags(schedule: RotarySchedule) -> tuple[str, ...]:
    """llama.cpp's flags for a schedule, over plain frequencies."""
    if schedule.kept_initial_positions or schedule.log_n or schedule.softmax_scaling != 1:
        raise Unsupported("llama.cpp's flags have no kept positions, log-n or softmax scaling")
    base, factors = schedule.geometric_base, schedule.rescale_factors
    geometry = schedule.geometry
    if schedule.attention_scaling == 1:
        if base is not None:
            return () if base == geometry.base else ("--rope-freq-base", f"{base!r}")
        if np.all(factors == factors[0]):
            return ("--rope-scaling", "linear", "--rope-scale", f"{float(factors[0])!r}")
    if [step.method for step in schedule.recipe] == ["yarn"]:
        given = schedule.recipe[0].parameters
        own = [key for key in ("attention_factor", "mscale", "mscale_all_dim") if given.get(key)]
        if not own and given["truncate"] and rebuild(schedule.recipe, geometry) == schedule:
            factor = given.get("factor") or schedule.length / geometry.original_length
            other = given["base"]
            return (
                *(("--rope-freq-base", f"{other!r}") if other else ()),
                *("--rope-scaling", "yarn"),
                *("--rope-scale", f"{factor!r}"),
                *("--yarn-orig-ctx", str(geometry.original_length)),
                *("--yarn-beta-fast", f"{given['beta_fast']!r}"),
                *("--yarn-beta-slow", f"{given['beta_slow']!r}"),
            )
    raise Unsupported("llama.cpp's flags express a base, one factor for all pairs, or default YaRN")


def llama_server(file: str, length: int, *flags: str) -> str:
    return shlex.join(["llama-server", "-m", file, "-c", str(length), *flags])
