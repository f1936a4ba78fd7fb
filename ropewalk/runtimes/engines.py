"""Common parts of vLLM and SGLang: rotary modules of the same names, and one class a model.

What a class hands to its rotary module stands in model_classes.py.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from ropewalk.context_plan import ContextPlan, PlanStep
from ropewalk.errors import InvalidValue, RopewalkError, Unsupported, shortened
from ropewalk.models.config import Config, ConfigReader, text_config
from ropewalk.models.source import Source
from ropewalk.models.stock_config import with_part
from ropewalk.runtimes import every, follows
from ropewalk.runtimes.configs import (
    Engine,
    loses_a_position,
    override,
    serving_config,
    with_length,
)
from ropewalk.runtimes.drafters import beyond_overrides
from ropewalk.runtimes.features import (
    BY_SERVER,
    EXACT,
    LONGEST,
    WHOLE_BASE,
    Cell,
    Feature,
    expressible,
    support,
    untold,
)
from ropewalk.runtimes.model_classes import (
    BASE,
    GROWTH_BESIDE,
    GROWTH_IN_ROPE,
    SHARE,
    ModelClass,
    model_class,
)
from ropewalk.runtimes.reading import Reading, Switch, kind_of, known, scaled, with_base
from ropewalk.runtimes.serving import (
    NOT_RUN,
    Serving,
    export_line,
    place,
    reason_of,
    row,
)
from ropewalk.schedule import MAX_FACTOR
from ropewalk.untrusted import real_number

ONE_POSITION = (
    "SGLang, when decoding, rotates the token at the original length as the first one: where "
    "queries grow with their position, its longrope cannot avoid that; plan with ntk, linear or "
    "yarn and --from-original"
)
STATED_SCALED = ("su", "longrope", "llama3", "yarn")
"""Rope types whose config states the scaled length."""
_ONE_LENGTH = ("dbrx",)
"""Model types whose config class keeps their own name and max_position_embeddings as one value."""


def cell(engine: Engine, attention: str, feature: Feature) -> Cell:
    """The rotary module's support of a feature, as far as the model's class hands it on."""
    if feature.kind == "turning":
        return _turning(engine, feature)
    if feature.kind == "attention":
        return Cell("exact", attention)
    if feature.kind == "softmax":
        if feature.rope_type == "yarn":
            return Cell("exact", "mscale_all_dim")
        return Cell("refused", "it reads mscale_all_dim only with YaRN")
    if feature.kind == "growth":
        return _growth(model_class(feature.config, engine))
    return _switching(engine, feature)


def _turning(engine: Engine, feature: Feature) -> Cell:
    config, setting, kind = feature.config, dict(feature.setting), feature.rope_type
    served = model_class(config, engine)
    if served.kept and not feature.nested:  # an export writes these
        inner = {**text_config(config), **served.written_beside(setting)}
        served = model_class(with_part(config, ConfigReader(config).path, inner), engine)
    if served.scaling == "unknown" and kind != "default":
        return Cell("unknown", f"what {served} hands to its rotary module is not known")
    if why := served.refusal(setting, nested=feature.nested):
        return Cell("refused", why)
    last = [steps[-1].schedule for steps in feature.plan.schedules.values()]
    bases = {each.geometric_base or each.geometry.base for each in last}
    if feature.nested and served.old_keys is not None and len(bases) > 1:
        return Cell("refused", f"{served} has one base for layers with a window and without")
    if served.cuts(setting["rope_theta"]):
        return Cell("approximated", WHOLE_BASE)
    found = EXACT
    if kind == "dynamic":
        found = Cell("approximated", LONGEST)
    elif feature.name == "factors by pair":
        found = Cell("equivalent", "longrope with equal lists")
        halves = ConfigReader(config).geometry(setting, 1).pair_layout != "interleaved"
        # Else transformers' code turns the pairs.
        if not halves and model_class(config, engine).scaling != "transformers":
            why = "its longrope supports only half-split pairs, and these are interleaved"
            found = Cell("refused", why)
    lost = served.lost_on_a_cpu([kind])
    return Cell(found.fit, lost) if lost else found


def _switching(engine: Engine, feature: Feature) -> Cell:
    """vLLM's own code takes one of two lists for good when it starts; others change with a batch.

    Its folder is proven in transformers, so only where that has the two lists as well.
    """
    by_server = engine == "vllm" and model_class(feature.config, engine).scaling != "transformers"
    if by_server and support("transformers", feature).fit == "exact":
        return Cell("equivalent", BY_SERVER)
    return Cell("approximated", LONGEST)


def _growth(served: ModelClass) -> Cell:
    """The growth of queries that the model was trained with, by the key that the class reads."""
    if served.growth_key is None:
        return Cell("unknown", f"it is not known by which key {served} reads it")
    if served.growth_key:
        return Cell("exact", served.growth_key)
    return Cell("refused", f"{served} reads neither {GROWTH_IN_ROPE} nor {GROWTH_BESIDE}")


def serve(engine: Engine, plan: ContextPlan, source: Source) -> Serving:
    """The command, with the changes to the config on its line."""
    runtime = every()[engine]
    assert runtime.line is not None
    length, here = plan.target_length, place(source)
    # Of a config whose frequencies are right, the stated length may be too short for the engine.
    owned = ((source.config, ""), (with_length(source.config, length), " with its length"))
    near: tuple[str, ...] = ()
    for written, what in owned if plan == source.present_plan else ():
        found = follows(engine, written, plan, folder=source.path, own=True)
        if found.unknown or found.exactly:
            not_run = found.unknown or f"the model's own config{what}, {NOT_RUN}"
            followed = plan
            break
    else:
        try:
            followed, near = expressible(plan, source.config, engine, approximate=True)
            written = serving_config(source.config, followed, engine=engine)
        except RopewalkError as error:
            return Serving(engine, "impossible", reason_of(error, engine))
        not_run = NOT_RUN
    not_run = "; ".join((not_run, *caveats(followed, written, engine)))
    same = written is source.config
    overrides = {} if same else override(source.config, written, engine)
    lines = [] if overrides is None else [runtime.line(here, length, overrides or None)]
    if overrides is None:
        not_run += "; export it: its command line reaches no part of a part of a config"
    elif engine == "vllm" and overrides and (kept := beyond_overrides(source.config, length)):
        not_run += f"; {kept}: to draft with them, export it"
    if "export it" in not_run:
        out = f"{Path(here).name}-{engine}"
        allow = " --approximate" if near else ""
        exported = f"{export_line(source, engine, out)}{allow}"
        lines += [exported, runtime.line(out, length, None)]
    if unknown := untold(plan, source.config, engine):
        return Serving(engine, "unknown", "; ".join((*unknown, *near)), tuple(lines))
    return row(engine, near, not_run, *lines)


def caveats(followed: ContextPlan, written: Config, engine: str) -> tuple[str, ...]:
    """The losses of an engine that neither the plan nor a config can avoid."""
    ropes = ConfigReader(written).layer_settings().values()
    lost = model_class(written, engine).lost_on_a_cpu(map(kind_of, ropes))
    one = ONE_POSITION if engine == "sglang" and any(map(loses_a_position, ropes)) else ""
    return tuple(filter(None, (lost, one, *two_servers(followed, engine))))


def two_servers(followed: ContextPlan, engine: str) -> tuple[str, ...]:
    """Say which server takes which of the two lists."""
    if engine != "vllm" or not (two := [s for s in followed.schedules.values() if len(s) > 1]):
        return ()
    border = min(steps[0].up_to_length for steps in two)
    return (
        f"this server turns short text by the long list too; another, of the same weights, with "
        f"--max-model-len {border} takes the short list, and sequences that stay within {border} "
        "belong there (`fingerprint` tells which list a server takes, and calls it a deviation)",
    )


def yarn_keys(served: ModelClass) -> set[str]:
    """The keys of yarn that the engine's rotary module reads."""
    own = served.types.get("yarn")
    return {*own.must, *own.may} if own else set()


def handed(served: ModelClass, reader: ConfigReader, rope: Config) -> Config:
    """The setting that the model's class hands to its rotary module; refused if it fails."""
    if served.scaling == "unknown":
        raise Unsupported(
            f"chooses its class by the architecture {shortened(served.architecture)}, and what "
            "that hands to its rotary module is not known; judge it by running it there"
        )
    geometry = reader.geometry(rope, 1)
    in_part = geometry.rotary_dim < geometry.head_dim and not reader.get("qk_rope_head_dim")
    if in_part and not served.turns_parts:
        rope = {**rope, "partial_rotary_factor": 1.0}
    elif served.own_share is not None:
        rope = {**rope, "partial_rotary_factor": served.own_share}
    try:
        return served.handed(rope, nested=by_layer(reader))
    except KeyError as error:
        raise InvalidValue(
            "rope_type",
            kind_of(rope),
            f"fails in {served}, which looks for {error.args[0]}",
            "export the model for this runtime: ropewalk export",
        ) from None


def by_layer(reader: ConfigReader) -> bool:
    """True if its engine sees a setting for each layer type."""
    return bool(reader.family.local_base) or reader.is_nested


def with_nulls(reading: Reading, served: ModelClass, config: Config) -> Reading:
    """The reading, refused if the rotary module would compute with null."""
    try:
        settings = ConfigReader(config).layer_settings().values()
    except (InvalidValue, Unsupported):
        return reading
    why = next(filter(None, map(served.fails_on, settings)), "")
    if why and served.scaling == "passed":
        return replace(reading, layers={}, refused=reading.refused or why)
    return reading


def with_losses(reading: Reading, served: ModelClass, config: Config) -> Reading:
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
    said = (served.refusal(rope, nested=by_layer(reader)) for rope in ropes)
    notes = tuple(dict.fromkeys(why for why in said if why))
    return replace(reading, notes=notes, remedy=served.remedy if notes else "")


def switches_of(served: ModelClass, own: Switch) -> Switch:
    """The rule by which longrope's lists change: the engine's, or that of transformers' code."""
    return "by the length at hand" if served.scaling == "transformers" else own


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
            f"extrapolation_factor = {shortened(left)} turns the fast pairs otherwise, which is "
            "not computed here; leave it out"
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
    found = []
    for name, step in zip(("short", "long")[-len(steps) :], steps, strict=True):
        key = f"{name}_mscale"
        found.append(scaled(step, real_number(rope.get(key, formula), key)))
    return tuple(found)


def stating(config: Config) -> ConfigReader:
    """The config as its class has it: of two names of one value, max_position_embeddings wins."""
    reader = ConfigReader(config)
    own, key = reader.family.names.get("max_position_embeddings"), "max_position_embeddings"
    if reader.model_type in _ONE_LENGTH and own and reader.config.get(key) is not None:
        return ConfigReader({**reader.config, own: reader.config[key]})
    return reader


def times(length: int, factor: float) -> int | None:
    """None for a factor that no length can be multiplied by; reading the setting names it."""
    return int(length * factor) if abs(factor) <= MAX_FACTOR else None
