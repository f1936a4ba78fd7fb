"""llama.cpp's rules: for a GGUF file, as gguf/rotation.py holds them, and for a folder that its own
converter has made a file of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from ropewalk.context_plan import FULL_ATTENTION, SLIDING_ATTENTION, ContextPlan, PlanStep
from ropewalk.errors import Unsupported
from ropewalk.exporting.exported import Exported, Loss
from ropewalk.gguf import llama_cpp_run
from ropewalk.gguf.families import StatedConfig, family, family_names, followed_by, rotation_of
from ropewalk.gguf.header import GGUFHeader
from ropewalk.gguf.rotation import DEFAULT_BASE, LLAMA_CPP_FACTORS, present_plan
from ropewalk.gguf.settings import NoFactors, base_of_windows
from ropewalk.models.config import Config, ConfigReader, text_config, window_everywhere
from ropewalk.models.placement import GGUF_TYPES
from ropewalk.models.source import Source
from ropewalk.runtimes import gguf_lines
from ropewalk.runtimes.features import EXACT, LONGEST, NO_FACTORS, Feature, Support, approximation
from ropewalk.runtimes.reading import (
    BY_ITS_RULES,
    LLAMA_CPP,
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
from ropewalk.runtimes.serving import Serving
from ropewalk.runtimes.trials import Trial
from ropewalk.schedule import RotarySchedule

# What the converter writes of the settings of these: no scaling, and of stablelm not even the base.
_CONVERTED_WITHOUT: Mapping[str, Callable[[Config], Config]] = {
    "stablelm": lambda rope: {"rope_theta": DEFAULT_BASE},
    "falcon_h1": lambda rope: {"rope_theta": rope["rope_theta"]},
}


_NO_BUILD = "b0-unknown"
"""The build of a server that was made outside its repository, as the one of xllamacpp."""
_TOLD = ("n_ctx_train", "n_params", "n_vocab", "size", "ftype")


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
        **plain({key: meta.get(key) for key in _TOLD}),
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
                raise Unsupported("llama.cpp's rules for DeepSeek's two mscales are not known here")
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
        steps = present_plan(header, str(header.path)).steps()
        context = header.count("context_length")
        layers = {FULL_ATTENTION: tuple(map(Effective.of, steps))}
        if own := base_of_windows(header):  # these layers are never scaled, only multiplied
            plain = replace(
                RotarySchedule.plain(replace(steps[-1].schedule.geometry, base=own)),
                attention_scaling=header.number("rope.scaling.attn_factor") or 1.0,
            )
            layers[SLIDING_ATTENTION] = (Effective.of(replace(steps[-1], schedule=plain)),)
        return RotaryReading(
            self.name,
            BY_ITS_RULES,
            layers,
            "by the declared length" if len(steps) > 1 else "never",
            limit=context or steps[-1].up_to_length,
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
        own = kind == "yarn" and factors.fit == "refused" and _is_own_yarn(feature.setting)
        return EXACT if own else factors

    def support_as_written(self, config: Config, plan: ContextPlan) -> Support:
        """Of a folder, not all model types are written to GGUF."""
        reader = ConfigReader(config)
        own = family(reader.model_type, reader.outer_type)
        own.check_config(StatedConfig(text_config(config)))
        rotation_of(own, plan)
        window = None if own.windows else window_everywhere(config)
        if window is not None and window < plan.target_length:
            why = f"sliding_window = {window}, which the export to GGUF cannot keep"
            return Support("refused", why)
        return EXACT

    def serve(self, plan: ContextPlan, source: Source) -> Serving:
        return gguf_lines.served(self, plan, source)[0]

    def command(self, model: str, length: int, overrides: Config | None = None) -> str:
        return gguf_lines.llama_server(model, length)

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
