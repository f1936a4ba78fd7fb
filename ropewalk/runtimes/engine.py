"""The common class of vLLM and SGLang: engines that load a folder by one class a model.

What a class passes on to its rotary module stands in model_classes.py, and what the module computes
of that below the class. The engines do not run here: transformers proves the weights and
factors of an exported folder; that their rotary modules make of its config the cos and sin of the
plan is shown for the released wheels by tools/observatory/serving_rotary.py.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ropewalk.context_plan import ContextPlan, PlanStep
from ropewalk.errors import InvalidValue, MissingExtra, RopewalkError, Unsupported, shortened
from ropewalk.exporting.exported import Lines
from ropewalk.extras import required_by
from ropewalk.models.config import ORIGINAL_LENGTH, Config, ConfigReader, text_config
from ropewalk.models.source import Source
from ropewalk.models.stock_config import (
    changes,
    complete_config,
    rope_settings,
    to_v4_keys,
    with_length,
    with_part,
)
from ropewalk.runtimes.features import EXACT, LONGEST, WHOLE_BASE, Feature, Support
from ropewalk.runtimes.model_classes import (
    BASE,
    GROWTH_BESIDE,
    GROWTH_IN_ROPE,
    SHARE,
    ModelClass,
    engine_table,
    model_class,
    recorded,
)
from ropewalk.runtimes.reading import RotaryReading, kind_of, known, scaled, with_base
from ropewalk.runtimes.runtime import FolderTarget
from ropewalk.runtimes.serving import NOT_RUN, Serving, export_line, model_argument, reason_of
from ropewalk.schedule import MAX_FACTOR
from ropewalk.untrusted import real_number

if TYPE_CHECKING:
    from ropewalk.exporting.folder import Job


_ONE_LENGTH = ("dbrx",)
"""Model types whose config class keeps their own name and max_position_embeddings as one value."""
_MOVED = dict.fromkeys(("qwen2_vl", "qwen2_5_vl"), ("text_config",))
"""Model types whose published configs are flat, and the part that their class moves keys to."""


class ServingEngine(FolderTarget):
    """vLLM or SGLang."""

    is_engine = True
    other_options: ClassVar[Mapping[str, str]] = {"v4_keys": "which reads today's keys"}
    attention_keys: ClassVar[str]
    """The keys by which its rotary modules read an attention scaling."""

    @abstractmethod
    def command(self, model: str, length: int, overrides: Config | None = None) -> str:
        """The line that serves a folder up to a length, with changes to its config."""

    def measured(self, config: Config, lengths: Sequence[int], *, run: bool) -> RotaryReading:
        """By its rules; but it loads a config by transformers' class, if it has none of its own.

        The class is asked if anything may be run: without, nothing heavy is imported.
        """
        reading, configs = self.known_reading(config), engine_table(self.name)["configs"]
        loads_own = ConfigReader(config).model_type in configs
        if not run or reading.refused or reading.unread or loads_own:
            return reading
        try:
            with required_by("asking transformers' class"):
                from ropewalk.runtimes.trials import stock_rotary
        except MissingExtra:
            return reading
        return replace(reading, refused=stock_rotary.refusal(config))

    def release(self) -> str:
        return recorded(self.name)

    def served(self, config: Config) -> ModelClass:
        """The class that serves a model."""
        return model_class(config, self.name)

    def growth_key(self, config: Config) -> str | None:
        return self.served(config).growth_key

    def support(self, feature: Feature) -> Support:
        """Its rotary module's support of a feature, as far as the model's class passes it on."""
        if feature.kind == "turning":
            return self._turning(feature)
        if feature.kind == "attention":
            return Support("exact", self.attention_keys)
        if feature.kind == "softmax":
            if feature.rope_type == "yarn":
                return Support("exact", "mscale_all_dim")
            return Support("refused", "it reads mscale_all_dim only with YaRN")
        if feature.kind == "growth":
            return _growth(self.served(feature.config))
        return self.switching(feature)

    def _turning(self, feature: Feature) -> Support:
        config, setting, kind = feature.config, dict(feature.setting), feature.rope_type
        served = self.served(config)
        if served.kept and not feature.nested:  # an export writes these
            inner = {**text_config(config), **served.written_beside(setting)}
            served = self.served(with_part(config, ConfigReader(config).path, inner))
        if served.scaling == "unknown" and kind != "default":
            return Support("unknown", f"what {served} hands to its rotary module is not known")
        if why := served.refusal(setting, nested=feature.nested):
            return Support("refused", why)
        last = [steps[-1].schedule for steps in feature.plan.schedules.values()]
        bases = {each.geometric_base or each.geometry.base for each in last}
        if feature.nested and served.old_keys is not None and len(bases) > 1:
            return Support("refused", f"{served} has one base for layers with a window and without")
        if served.cuts(setting["rope_theta"]):
            return Support("approximated", WHOLE_BASE)
        support = EXACT
        if kind == "dynamic":
            support = Support("approximated", LONGEST)
        elif feature.name == "factors by pair":
            support = Support("equivalent", "longrope with equal lists")
            halves = ConfigReader(config).geometry(setting, 1).pair_layout != "interleaved"
            # Else transformers' code turns the pairs.
            if not halves and self.served(config).scaling != "transformers":
                why = "its longrope supports only half-split pairs, and these are interleaved"
                support = Support("refused", why)
        lost = served.lost_on_a_cpu([kind])
        return Support(support.fit, lost) if lost else support

    def switching(self, feature: Feature) -> Support:
        """Its support of two lists of factors, chosen by length."""
        return Support("approximated", LONGEST)

    def written_config(self, config: Config, plan: ContextPlan, *, v4_keys: bool = False) -> Config:
        written = complete_config(config, plan)
        inner, served = text_config(written), self.served(config)
        self.adapt(inner, config, plan)
        for layer_type, setting in rope_settings(inner).items():
            if layer_type and layer_type not in plan.schedules:
                continue  # no layer is of this type
            beta = setting.get(GROWTH_IN_ROPE)
            if beta is not None and served.growth_key == GROWTH_BESIDE:
                original = setting.get(ORIGINAL_LENGTH)
                inner[GROWTH_BESIDE] = {"beta": beta, ORIGINAL_LENGTH: original}
            if not layer_type:
                inner |= served.written_beside(setting)
        if v4_keys or served.old_keys is not None:
            to_v4_keys(inner, ConfigReader(config))
        return written

    def adapt(self, inner: Config, config: Config, plan: ContextPlan) -> None:
        """Write rope settings by the names that it reads, in place.

        `inner` is the part of the new config that has them, `config` the model's own.
        """

    def overrides(self, before: Config, after: Config) -> Config | None:
        """The changes of a config, as its command line takes them; None if they would not arrive.

        A setting is replaced as a whole, so it is written with all its keys.
        """
        return in_parts(changes(before, after), path_of(after))

    def serve(self, plan: ContextPlan, source: Source) -> Serving:
        """The command, with the changes to the config on its line."""
        # The config that it needs: the model's own where that follows the plan already.
        length, model = plan.target_length, model_argument(source)
        near: tuple[str, ...] = ()
        written, reason = self._own_config(plan, source)
        followed = plan
        if written is None:
            try:
                followed, near = self.expressible(plan, source.config, approximate=True)
                written = self.written_config(source.config, followed)
            except RopewalkError as error:
                return Serving(self.name, "impossible", reason_of(error, self.name))
        reason = "; ".join((reason, *self.caveats(followed, written)))
        # On its command line as far as that reaches, else by an export.
        overrides = {} if written is source.config else self.overrides(source.config, written)
        lines = [] if overrides is None else [self.command(model, length, overrides or None)]
        export = overrides is None
        if overrides is None:
            reason += "; export it: its command line reaches no part of a part of a config"
        elif overrides and (kept := self.beyond_overrides(source.config, length)):
            reason += f"; {kept}: to draft with them, export it"
            export = True
        if export:
            out = f"{Path(model).name}-{self.name}"
            allow = " --approximate" if near else ""
            lines.append(f"{export_line(source, self.name, out)}{allow}")
            lines.append(self.command(out, length))
        if unknown := self.unknowns(plan, source.config):
            return Serving(self.name, "unknown", "; ".join((*unknown, *near)), tuple(lines))
        return Serving.possible(self.name, near, reason, *lines)

    def _own_config(self, plan: ContextPlan, source: Source) -> tuple[Config | None, str]:
        """The model's own config if it follows the plan by it, and how that is known.

        Of a config whose frequencies are right, the stated length may be too short for the engine.
        """
        longer = with_length(source.config, plan.target_length)
        configs = ((source.config, ""), (longer, " with its length"))
        for written, what in configs if plan == source.present_plan else ():
            judged = self.judge(written, plan, folder=source.path, own_plan=True)
            if judged.unknown or judged.follows:
                return written, judged.unknown or f"the model's own config{what}, {NOT_RUN}"
        return None, NOT_RUN

    def beyond_overrides(self, config: Config, length: int) -> str:
        """The parts of a model that changes on its command line do not reach; empty if none."""
        return ""

    def caveats(self, followed: ContextPlan, written: Config) -> tuple[str, ...]:
        """Its losses that neither the plan nor a config can avoid."""
        ropes = ConfigReader(written).layer_settings().values()
        lost = self.served(written).lost_on_a_cpu(map(kind_of, ropes))
        return (lost,) if lost else ()

    def lines(self, job: Job, out: str) -> Lines:
        length, config = job.asked.target_length, job.checkpoint.config
        overrides = self.overrides(config, job.config)
        command = self.command(str(job.checkpoint.folder), length, overrides)
        return Lines(
            self.command(out, length),
            "" if overrides is None else command,
            (
                *(f"unknown: {said}" for said in self.unknowns(job.asked, config)),
                *self.caveats(job.followed, job.config),
                f"not verified in {self.name} itself, whose engine does not run here: compared in "
                "transformers, and its rotary modules by tools/observatory/serving_rotary.py",
            ),
        )


def _growth(served: ModelClass) -> Support:
    """The growth of queries that the model was trained with, by the key that the class reads."""
    if served.growth_key is None:
        return Support("unknown", f"it is not known by which key {served} reads it")
    if served.growth_key:
        return Support("exact", served.growth_key)
    return Support("refused", f"{served} reads neither {GROWTH_IN_ROPE} nor {GROWTH_BESIDE}")


def path_of(config: Config) -> tuple[str, ...]:
    """The path to the part of a config that an engine's text model is made of."""
    reader = ConfigReader(config)
    return tuple(reader.path) or _MOVED.get(reader.model_type, ())


def in_parts(changed: Mapping[str, Any], path: tuple[str, ...]) -> Config:
    """Changes, if there are any, within the parts of a config."""
    inner = dict(changed)
    for part in reversed(path if changed else ()):
        inner = {part: inner}
    return inner


def stating(config: Config) -> ConfigReader:
    """The config as its class has it: of two names of one value, max_position_embeddings wins."""
    reader = ConfigReader(config)
    name, key = reader.family.names.get("max_position_embeddings"), "max_position_embeddings"
    if reader.model_type in _ONE_LENGTH and name and reader.config.get(key) is not None:
        return ConfigReader({**reader.config, name: reader.config[key]})
    return reader


def times(length: int, factor: float) -> int | None:
    """None for a factor that no length can be multiplied by; reading the setting names it."""
    return int(length * factor) if abs(factor) <= MAX_FACTOR else None


def passed_on(served: ModelClass, reader: ConfigReader, rope: Config) -> Config:
    """The setting that the model's class passes on to its rotary module; refused if it fails."""
    if served.scaling == "unknown":
        raise Unsupported(
            f"chooses its class by the architecture {shortened(served.architecture)}, and ropewalk "
            "does not know how that class rotates; run the model there to see"
        )
    geometry = reader.geometry(rope, 1)
    in_part = geometry.rotary_dim < geometry.head_dim and not reader.get("qk_rope_head_dim")
    if in_part and not served.turns_parts:
        rope = {**rope, "partial_rotary_factor": 1.0}
    elif served.own_share is not None:
        rope = {**rope, "partial_rotary_factor": served.own_share}
    try:
        return served.passed_on(rope, nested=has_layer_types(reader))
    except KeyError as error:
        raise InvalidValue(
            "rope_type",
            kind_of(rope),
            f"fails in {served}, which looks for {error.args[0]}",
            "export the model for this runtime: ropewalk export",
        ) from None


def has_layer_types(reader: ConfigReader) -> bool:
    """True if its engine sees a setting for each layer type."""
    return bool(reader.family.local_base) or reader.is_nested


def yarn_keys_of(served: ModelClass) -> set[str]:
    """The keys of yarn that the engine's rotary module reads."""
    yarn = served.types.get("yarn")
    return {*yarn.must, *yarn.may} if yarn else set()


def with_nulls(reading: RotaryReading, served: ModelClass, config: Config) -> RotaryReading:
    """The reading, refused if the rotary module would compute with null."""
    try:
        settings = ConfigReader(config).layer_settings().values()
    except (InvalidValue, Unsupported):
        return reading
    why = next(filter(None, map(served.fails_on, settings)), "")
    if why and served.scaling == "passed":
        return replace(reading, layers={}, refused=reading.refused or why)
    return reading


def with_losses(reading: RotaryReading, served: ModelClass, config: Config) -> RotaryReading:
    """The reading, with what is lost between the setting and the rotary module of the class."""
    try:
        reader = ConfigReader(config)
        settings = reader.layer_settings().values()
    except (InvalidValue, Unsupported):
        return reading
    beside = {SHARE: reader.get(SHARE)}
    reading = with_nulls(reading, served, config)
    if reading.refused:
        return reading
    ropes = [{k: v for k, v in {**beside, **r}.items() if v is not None} for r in settings]
    ropes = [{**rope, "rope_type": kind_of(rope)} for rope in ropes]
    try:  # a class may read a key that the reading has left out
        for rope in ropes:
            for key in (BASE, SHARE, "factor"):
                real_number(rope.get(key, 1), key)
    except InvalidValue as error:
        return replace(reading, unread=reading.unread or str(error))
    said = (served.refusal(rope, nested=has_layer_types(reader)) for rope in ropes)
    notes = tuple(dict.fromkeys(why for why in said if why))
    return replace(reading, notes=notes, remedy=served.remedy if notes else "")


def one_base(reader: ConfigReader, rope: Config) -> Config:
    """One base for good, by the ratio of the stated length to `max_trained_positions`."""
    plain = with_base(rope, rope["rope_theta"])
    dimensions = reader.geometry(rope, 1).rotary_dim
    exponent = dimensions / (dimensions - 2)
    if isinstance(rope.get("alpha"), int | float):  # Hunyuan's: both engines, at every length
        return {**plain, "rope_theta": plain["rope_theta"] * rope["alpha"] ** exponent}
    key = "max_position_embeddings"
    stated = real_number(reader.need(key), reader.written(key))
    factor, trained = rope.get("factor"), rope.get("max_trained_positions", stated)
    if not isinstance(factor, int | float) or not isinstance(trained, int | float) or trained <= 0:
        return plain
    growth = factor * stated / trained - (factor - 1)
    return {**plain, "rope_theta": plain["rope_theta"] * growth**exponent}


def refuse_interleaved_longrope(reader: ConfigReader, rope: Config, runtime: str) -> None:
    kind = kind_of(rope)
    if kind == "longrope" and reader.geometry(rope, 1).pair_layout == "interleaved":
        raise InvalidValue(
            "rope_type", kind, f"{runtime} has it for pairs in halves only", "use linear or ntk"
        )


def times_attn_factor(reader: ConfigReader, rope: Config) -> tuple[PlanStep, ...]:
    """yarn's own attention factor, multiplied by `attn_factor`."""
    if (left := rope.get("extrapolation_factor", 1)) != 1:
        raise Unsupported(
            f"extrapolation_factor = {shortened(left)} turns the fast pairs in another way, "
            "which is not computed here; leave it out"
        )
    factor = rope.get("attn_factor")
    factor = float(factor) if isinstance(factor, int | float) else 1.0
    return tuple(
        scaled(step, step.schedule.attention_scaling * factor) for step in reader.steps(known(rope))
    )


def with_mscale(reader: ConfigReader, rope: Config) -> tuple[PlanStep, ...]:
    """longrope as Phi-3's class does it: the attention factor is a key of its own for each list."""
    steps = reader.steps(known(rope))
    stated = reader.need("max_position_embeddings")
    original = steps[0].schedule.geometry.original_length
    formula = 1.0
    if stated > original:
        formula = math.sqrt(1 + math.log(stated / original) / math.log(original))
    result = []
    for name, step in zip(("short", "long")[-len(steps) :], steps, strict=True):
        key = f"{name}_mscale"
        result.append(scaled(step, real_number(rope.get(key, formula), key)))
    return tuple(result)
