"""llama.cpp: its rules for a GGUF file, as gguf/rotation.py holds them, and for a folder that its
own converter has made a file of; and the lines that serve a GGUF file in it and in Ollama.

llama.cpp's flags express a new base, one factor for all pairs, or its own YaRN, on an unmodified
file. All else must be in the file, and Ollama takes everything from the file.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

import numpy as np

from ropewalk.context_plan import FULL_ATTENTION, PLAN, ContextPlan, PlanStep
from ropewalk.errors import RopewalkError, Unsupported
from ropewalk.exporting.exported import Exported, Loss, modelfile
from ropewalk.gguf import llama_cpp_run, settings
from ropewalk.gguf.architectures import architecture
from ropewalk.gguf.families import StatedConfig, family, family_names, followed_by, rotation_of
from ropewalk.gguf.header import GGUFHeader
from ropewalk.gguf.rotation import (
    CONVERTED,
    DEFAULT_BASE,
    LLAMA_CPP_FACTORS,
    of_windows,
    present_plan,
    unplanned,
)
from ropewalk.gguf.settings import NoFactors
from ropewalk.models.config import (
    ORIGINAL_LENGTH,
    Config,
    ConfigReader,
    text_config,
    window_everywhere,
)
from ropewalk.models.placement import GGUF_TYPES
from ropewalk.models.source import Source
from ropewalk.models.stock_config import with_length
from ropewalk.runtimes import loading
from ropewalk.runtimes.features import EXACT, LONGEST, NO_FACTORS, Feature, Support, approximation
from ropewalk.runtimes.reading import (
    BY_ITS_RULES,
    LLAMA_CPP,
    OLLAMA,
    Effective,
    RotaryReading,
    by_rules,
    kind_of,
    known,
    share,
    with_base,
    without,
)
from ropewalk.runtimes.runtime import Connection, Dialect, Target, members, plain
from ropewalk.runtimes.serving import NOT_RUN, Fit, Serving, export_line, reason_of
from ropewalk.runtimes.trials import Trial
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
            return _unmodified(plan, source, examined=written)
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
        how = "the file's own settings"
        return (
            Serving(LLAMA_CPP, "exact", how, (llama_server(path, length),)),
            Serving(OLLAMA, "exact", f"{how}, {NOT_RUN}", modelfile(path, length)),
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


def _unmodified(plan: ContextPlan, source: Source, *, examined: bool) -> tuple[Serving, Serving]:
    """A GGUF file of the unmodified model, for a plan that leaves its scaling alone."""
    length, reader = plan.target_length, ConfigReader(source.config)
    stated = reader.get("max_position_embeddings")
    short = isinstance(stated, int) and stated < length
    flags: tuple[str, ...] = ()
    if short and (name := _architecture_of(source)):
        flags = ("--override-kv", f"{name}.context_length=int:{length}")
    fit: Fit = "exact" if examined else "unknown"
    reason = _UNMODIFIED
    if not examined:
        reason += f"; how llama.cpp rotates model type {reader.model_type!r} was not examined"
    longer = f", {NOT_RUN}" if examined else ""
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
    rules = f"by llama.cpp's rules, not tested here; {FILE} is"
    if plan == source.present_plan and _is_plain(plan, of_file=source.kind == "GGUF file"):
        reason = f"{rules} an unmodified GGUF file of the model"
        return Serving(OLLAMA, "exact", reason, modelfile(FILE, plan.target_length))
    if exported.refused:
        reason = f"a Modelfile has no setting of RoPE, and {exported.refused}"
        return Serving(OLLAMA, "impossible", reason)
    lines = (exported.command, *modelfile(exported.out, plan.target_length))
    rules = rules.replace(FILE, exported.out)
    return Serving.possible(OLLAMA, exported.near, f"{rules} the exported file", *lines)


def _is_plain(plan: ContextPlan, *, of_file: bool = False) -> bool:
    """One schedule for all, which rotates as pretrained; in a file, windows have a base besides."""
    each = [plan.steps()] if of_file else plan.schedules.values()
    steps = [step for by_length in each for step in by_length]
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
    length, present = plan.target_length, source.present_plan
    of_file = source.kind == "GGUF file"
    name = source.header.architecture if of_file else _architecture_of(source)
    others = {*plan.schedules} - {FULL_ATTENTION}
    windows = of_windows(source.header) if of_file else None
    kept = windows is not None and all(plan.keeps(each, windows) for each in others)
    if (others and not kept) or len(plan.steps()) > 1:
        raise Unsupported(
            "llama.cpp's flags set one schedule for all layers and lengths, and this plan has "
            "several"
        )
    if not _is_plain(present, of_file=of_file):
        raise Unsupported("llama.cpp's flags do not replace a scaling that the file has already")
    flags = _rope_flags(plan.longest())
    if of_file:
        reached = settings.flags_reach_all_layers(source.header)
    else:
        reached = architecture(name).windows != "same in the file, not by flags"
    if flags and not reached:
        raise Unsupported("llama.cpp's flags do not change its layers with a sliding window")
    if length <= present.target_length:
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
        raise Unsupported(
            "llama.cpp's flags cannot express kept positions, log-n scaling or softmax scaling"
        )
    base, factors = schedule.geometric_base, schedule.rescale_factors
    geometry = schedule.geometry
    if schedule.attention_scaling == 1:
        if base is not None:
            return () if base == geometry.base else ("--rope-freq-base", f"{base!r}")
        if np.all(factors == factors[0]):
            return ("--rope-scaling", "linear", "--rope-scale", f"{float(factors[0])!r}")
    if [step.method for step in schedule.recipe] == ["yarn"]:
        yarn = schedule.recipe[0].parameters
        extras = [key for key in ("attention_factor", "mscale", "mscale_all_dim") if yarn.get(key)]
        if not extras and yarn["truncate"] and rebuild(schedule.recipe, geometry) == schedule:
            factor = yarn.get("factor") or schedule.length / geometry.original_length
            other = yarn["base"]
            return (
                *(("--rope-freq-base", f"{other!r}") if other else ()),
                *("--rope-scaling", "yarn"),
                *("--rope-scale", f"{factor!r}"),
                *("--yarn-orig-ctx", str(geometry.original_length)),
                *("--yarn-beta-fast", f"{yarn['beta_fast']!r}"),
                *("--yarn-beta-slow", f"{yarn['beta_slow']!r}"),
            )
    raise Unsupported(
        "llama.cpp's flags can express a base, one factor for all pairs, or YaRN with its default "
        "parameters, and this plan is none of these"
    )


def llama_server(file: str, length: int, *flags: str) -> str:
    return shlex.join(["llama-server", "-m", file, "-c", str(length), *flags])


# What the converter writes of the settings of these: no scaling, and of stablelm not even the base.
_CONVERTED_WITHOUT: Mapping[str, Callable[[Config], Config]] = {
    "stablelm": lambda rope: {"rope_theta": DEFAULT_BASE},
    "falcon_h1": lambda rope: {"rope_theta": rope["rope_theta"]},
}


_NO_BUILD = "b0-unknown"
"""The build of a server that was made outside its repository, as the one of xllamacpp."""
_META = ("n_ctx_train", "n_params", "n_vocab", "size", "ftype")


def _described(server: Connection, entry: Mapping[str, Any], name: str) -> dict[str, object]:
    props = members(server.get("/props"))
    settings = members(props.get("default_generation_settings"))
    meta = members(entry.get("meta"))
    file = props.get("model_path")
    build = props.get("build_info")
    return {
        "version": None if build == _NO_BUILD else build,
        "length": settings.get("n_ctx"),
        **plain({"slots": props.get("total_slots")}),
        **plain({"file": PurePosixPath(file).name if isinstance(file, str) else None}),
        **plain({key: meta.get(key) for key in _META}),
    }


class LlamaCppRuntime(Target):
    """llama.cpp, which runs here: each GGUF file that is written is loaded and compared."""

    name = LLAMA_CPP
    place = 3
    loads = "GGUF file"
    run_here = "llama.cpp"
    dtypes = GGUF_TYPES
    other_options: ClassVar[Mapping[str, str]] = {
        "v4_keys": "whose files have no config",
        "shadow": "whose file holds the weights itself",
    }
    dialect = Dialect("llama.cpp", "llamacpp", _described)

    def read(self, config: Config) -> RotaryReading:
        """The converter drops or replaces some keys, and the graph computes the rest."""

        def seen(reader: ConfigReader, rope: Config) -> tuple[PlanStep, ...]:
            kind = kind_of(rope)
            if reader.family.softmax_mscale:
                raise Unsupported(
                    "ropewalk does not know what llama.cpp does with DeepSeek's two mscales"
                )
            if reader.model_type in _CONVERTED_WITHOUT:
                return reader.steps({**_CONVERTED_WITHOUT[reader.model_type](rope), **share(rope)})
            takes_factors = reader.model_type in LLAMA_CPP_FACTORS
            if kind == "longrope" and reader.model_type not in ("phi3", "phimoe", "minicpm"):
                rope = with_base(rope, rope["rope_theta"])  # the converter drops them
            elif kind == "yarn":
                rope = without(rope, {"attention_factor", "mscale", "mscale_all_dim", "truncate"})
            elif kind == "llama3" and takes_factors:
                top = reader.config.get("original_max_position_embeddings")
                rope = {**rope, "original_max_position_embeddings": top or 8192}
            elif kind in ("llama3", "dynamic"):
                rope = with_base(rope, rope["rope_theta"])
            return reader.steps(known(rope))

        reading = by_rules(self.name, config, seen, "by the declared length")
        stated = ConfigReader(config).get("max_position_embeddings")
        return replace(reading, limit=stated if isinstance(stated, int) else None)

    def read_file(self, header: GGUFHeader) -> RotaryReading:
        """The rotation of llama.cpp, if it follows its rules."""
        plan = present_plan(header, str(header.path))
        steps, context = plan.steps(), header.count("context_length")
        special = unplanned(header)
        layers = {name: tuple(map(Effective.of, each)) for name, each in plan.schedules.items()}
        return RotaryReading(
            self.name,
            BY_ITS_RULES,
            layers,
            "by the declared length" if len(steps) > 1 else "never",
            limit=context or steps[-1].up_to_length,
            unread=f"what {special} does to its rotation is not known here" if special else None,
        )

    def try_file(self, header: GGUFHeader, plan: ContextPlan | None, *, wrong: bool) -> Trial:
        from ropewalk.runtimes.trials import llama_cpp

        if not llama_cpp_run.available():
            return Trial(notes=(f"not run: {llama_cpp_run.absent()}",))
        return llama_cpp.tried(header, plan, wrong=wrong)

    def support(self, feature: Feature) -> Support:
        """Its support of a feature in an exported file."""
        plan, config = feature.plan, feature.config
        if feature.kind == "attention":
            return _attention(feature.setting, plan, config)
        if feature.kind in ("softmax", "growth"):
            return Support("refused", "no exported file can express it")
        kind = feature.rope_type if feature.kind == "turning" else ""
        if kind in ("default", "linear"):
            return EXACT
        if kind in ("", "dynamic"):
            return Support("approximated", LONGEST)
        factors = _factors(plan, config)
        by_yarn = kind == "yarn" and factors.fit == "refused" and _is_own_yarn(feature.setting)
        return EXACT if by_yarn else factors

    def support_as_written(self, config: Config, plan: ContextPlan) -> Support:
        """Of a folder, not all model types are written to GGUF."""
        reader = ConfigReader(config)
        written_as = family(reader.model_type, reader.outer_type)
        written_as.check_config(StatedConfig(text_config(config)))
        rotation_of(written_as, plan)
        window = None if written_as.windows else window_everywhere(config)
        if window is not None and window < plan.target_length:
            why = f"sliding_window = {window}, which the export to GGUF cannot keep"
            return Support("refused", why)
        return EXACT

    def serve(self, plan: ContextPlan, source: Source) -> Serving:
        return served(self, plan, source)[0]

    def command(self, model: str, length: int, overrides: Config | None = None) -> str:
        return llama_server(model, length)

    def write(
        self,
        source: str,
        plan: ContextPlan,
        out: str | Path,
        *,
        approximate: bool = False,
        **options: Any,
    ) -> Exported:
        """Write a GGUF file of a folder, and run it in llama.cpp."""
        from ropewalk.exporting import approximating, llama_cpp

        checkpoint = llama_cpp.opened(source)
        followed, warnings = approximating.nearest(self, checkpoint, plan, approximate=approximate)
        return llama_cpp.export(source, followed, Path(out), **options).with_warnings(warnings)

    def support_of_file(self, source: Source, plan: ContextPlan) -> tuple[Support, Loss | None]:
        from ropewalk.exporting import gguf_file

        assert source.path is not None
        fit, how, loss = gguf_file.support_of(source.path, plan)
        return Support(fit, how), loss

    def write_file(self, source: Source, plan: ContextPlan, out: Path, **options: Any) -> Exported:
        from ropewalk.exporting import gguf_file

        assert source.path is not None
        return gguf_file.export(source.path, plan, out, **options)


def _factors(plan: ContextPlan, config: Config) -> Support:
    """Its support of frequencies that a factor for each pair expresses."""
    kind = ConfigReader(config).model_type
    if kind not in family_names() or FULL_ATTENTION not in plan.schedules:
        if kind in LLAMA_CPP_FACTORS:
            return Support("equivalent", "rope_freqs.weight, rope.scaling.attn_factor")
        return Support("refused", "its graph of this architecture ignores factors by pair")
    bare = replace(
        approximation(plan, config).longest(),
        attention_scaling=1.0,
        softmax_scaling=1.0,
        log_n=None,
    )
    try:
        computed_as, setting = followed_by(family(kind), bare)
    except NoFactors:
        return Support("approximated", NO_FACTORS)
    if setting.factors is None:
        return EXACT
    other = computed_as.name != family(kind).architectures[0]
    return Support(
        "equivalent", f"{f'saved as {computed_as.name}, ' if other else ''}rope_freqs.weight"
    )


def _attention(setting: Mapping[str, object], plan: ContextPlan, config: Config) -> Support:
    """Support of the factor of cos and sin; it would multiply layers with their own base, too."""
    kind = ConfigReader(config).model_type
    if kind not in family_names():
        other = {"attention_factor", "mscale", "mscale_all_dim"} & set(setting)
        return EXACT if setting["rope_type"] == "yarn" and not other else _factors(plan, config)
    try:
        rotation = rotation_of(family(kind), approximation(plan, config))
    except NoFactors:
        return EXACT  # the row of how the pairs turn tells of it
    except Unsupported as error:
        return Support("refused", str(error))
    return (
        EXACT if rotation.setting.attention == 1 else Support("exact", "rope.scaling.attn_factor")
    )


def _is_own_yarn(setting: Mapping[str, object]) -> bool:
    """llama.cpp truncates, and most graphs know one ramp, whatever the file says."""
    usual = (setting.get("beta_fast") or 32, setting.get("beta_slow") or 1) == (32, 1)
    return usual and bool(setting.get("truncate", True))


RUNTIMES = (LlamaCppRuntime(),)
