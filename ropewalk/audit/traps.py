"""The known ways in which a setting is silently dropped, squared or ignored, each found by name.

A trap is one function from a `Subject` to its findings. Some look at the keys of a config, where
the fault lies; most compare what a runtime does (readings.py, stock_rotary.py) with what it should
do, and name the fault by its effect. `wrong` findings fail a verification, the others inform.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace

import numpy as np

from ropewalk.audit.readings import Effective, Reading, kind_of, ropes_of
from ropewalk.context_plan import FULL_ATTENTION, ContextPlan
from ropewalk.errors import RopewalkError
from ropewalk.lengths import format_length
from ropewalk.models.config import Config, ConfigReader
from ropewalk.scaling import rebuild
from ropewalk.schedule import MAX_BASE, FloatArray, RotarySchedule
from ropewalk.theory.published import MEN_2024

TOLERANCE = 2.0**-20
"""Of frequencies and scalings, in parts: a stock module computes both in float32."""
FAR_BELOW = 10
"""A base this many times below what a length needs was not pretrained for that length."""


@dataclass(frozen=True)
class Finding:
    """Something that a user would not see until the model fails."""

    trap: str
    """Its name, for scripts and for docs/verify.md."""
    runtimes: tuple[str, ...]
    """Where it bites; empty: wherever the file is used."""
    what: str
    consequence: str
    remedy: str
    wrong: bool = True

    def to_json(self) -> dict[str, object]:
        return asdict(self) | {"runtimes": list(self.runtimes)}


@dataclass(frozen=True, eq=False)
class Subject:
    """A folder or file under examination."""

    readings: tuple[Reading, ...]
    length: int
    """The length that it should serve."""
    plan: ContextPlan | None = None
    """What it should do: the user's plan, else what its own config says; None: nothing known."""
    planned: bool = False
    """The plan is the user's."""
    config: Config | None = None
    tokenizer_limit: int | None = None

    @property
    def ropes(self) -> dict[str, Config]:
        return {} if self.config is None else ropes_of(self.config)

    @property
    def inner(self) -> Config:
        """The part of the config that speaks of the language model."""
        return {} if self.config is None else ConfigReader(self.config).config


Trap = Callable[[Subject], Iterator[Finding]]


def find(subject: Subject) -> tuple[Finding, ...]:
    """Every trap that this subject is in; what is the same in several runtimes is said once."""
    merged: dict[tuple[object, ...], Finding] = {}
    for trap in TRAPS:
        for found in trap(subject):
            key = (found.trap, found.what, found.consequence, found.remedy)
            known = merged.get(key, replace(found, runtimes=()))
            runtimes = dict.fromkeys((*known.runtimes, *found.runtimes))
            merged[key] = replace(known, runtimes=tuple(runtimes))
    return tuple(merged.values())


# Keys of a config.


def ignored_keys(subject: Subject) -> Iterator[Finding]:
    """Keys that no runtime reads under this rope type, misspelt or left over from another."""
    for rope in _stated_ropes(subject):
        kind = kind_of(rope)
        if kind not in _READ or not {"rope_type", "type"} & set(rope):
            continue
        for key in sorted(set(rope) - _READ[kind] - _ALWAYS):
            yield Finding(
                "ignored-key",
                (),
                f"{key} = {_shown(rope[key])} stands in a rope setting of type {kind!r}",
                "no runtime reads it there: it changes nothing",
                "remove it, or correct its name or the type; type "
                f"{kind!r} reads {', '.join(sorted(_READ[kind])) or 'no keys of its own'}",
                # Beside a plan, all that it should do is compared: what is left over is harmless.
                wrong=not subject.planned,
            )


def no_rope_type(subject: Subject) -> Iterator[Finding]:
    for rope in _stated_ropes(subject):
        if "rope_type" not in rope and "type" not in rope and set(rope) & _SCALES:
            yield Finding(
                "no-rope-type",
                (),
                f"a rope setting with {', '.join(sorted(set(rope) & _SCALES))} names no rope_type",
                "transformers takes it for plain RoPE and ignores the rest without a word",
                'add "rope_type"',
            )


def factor_count(subject: Subject) -> Iterator[Finding]:
    reader = _reader(subject)
    for rope in _stated_ropes(subject):
        if reader is None or kind_of(rope) != "longrope":
            continue
        full = {**rope, "rope_theta": rope.get("rope_theta") or reader.get("rope_theta") or 1e4}
        try:
            pairs = reader.geometry(full, 1).pairs
        except RopewalkError:
            continue
        for name in ("short_factor", "long_factor"):
            factors = rope.get(name)
            count = len(factors) if isinstance(factors, list) else 0
            if count != pairs:
                yield Finding(
                    "factor-count",
                    (),
                    f"{name} has {count} factors, and the heads of this model turn as {pairs} "
                    "pairs",
                    "transformers only warns; then one factor stretches over all pairs, or the "
                    "model cannot be built",
                    f"write {pairs} factors, one a pair",
                )


def theta_missing(subject: Subject) -> Iterator[Finding]:
    inner, reader = subject.inner, _reader(subject)
    if reader is None or not isinstance(inner.get("rope_parameters"), Mapping):
        return
    stated = [inner.get(key) for key in ("rope_theta", "rotary_emb_base", "global_rope_theta")]
    for rope in _stated_ropes(subject):
        if rope.get("rope_theta") is None and not any(stated):
            yield Finding(
                "theta-missing",
                (),
                "rope_parameters states no rope_theta, and nothing else does",
                "each runtime takes a default of its own, mostly 10000, whatever base the model "
                "was pretrained with",
                'write the model\'s base as "rope_theta" into rope_parameters',
            )
            return


def theta_conflict(subject: Subject) -> Iterator[Finding]:
    top = subject.inner.get("rope_theta")
    parameters = subject.inner.get("rope_parameters")
    if top is None or not isinstance(parameters, Mapping):
        return
    for rope in (parameters, *(v for v in parameters.values() if isinstance(v, Mapping))):
        inside = rope.get("rope_theta")
        if inside is not None and inside != top and not _nested(subject):
            yield Finding(
                "theta-conflict",
                (),
                f"rope_theta is {_shown(top)} in the config and {_shown(inside)} in "
                "rope_parameters",
                "transformers 5 follows the second; transformers 4 and what reads its keys follow "
                "the first",
                "write the same base in both, or only the second",
            )


def scaling_conflict(subject: Subject) -> Iterator[Finding]:
    old, new = (subject.inner.get(key) for key in ("rope_scaling", "rope_parameters"))
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return
    differing = sorted(k for k in set(old) & set(new) if old[k] != new[k])
    missing = sorted((set(new) ^ set(old)) - {"rope_theta", "type", "rope_type"})
    kinds = {kind_of(dict(old)), kind_of(dict(new))}
    if differing or missing or len(kinds) > 1:
        yield Finding(
            "scaling-conflict",
            (),
            "rope_scaling and rope_parameters say different things "
            f"({', '.join([*differing, *missing]) or 'rope_type'})",
            "transformers follows rope_scaling, other readers rope_parameters",
            "keep one of the two",
        )


def original_length_missing(subject: Subject) -> Iterator[Finding]:
    reader = _reader(subject)
    for rope in _stated_ropes(subject):
        kind = kind_of(rope)
        if reader is None or kind not in ("yarn", "llama3", "longrope"):
            continue
        if "original_max_position_embeddings" in rope or reader.get(
            "original_max_position_embeddings"
        ):
            continue
        stated = reader.get("max_position_embeddings")
        if isinstance(stated, int) and stated >= subject.length:
            yield Finding(
                "original-length-missing",
                (),
                f"{kind} without original_max_position_embeddings, beside max_position_embeddings "
                f"= {stated}",
                f"every runtime takes {format_length(stated)} for the length of pretraining, and "
                "scales the wrong pairs",
                "write original_max_position_embeddings into the rope setting",
            )


def truncate_nested(subject: Subject) -> Iterator[Finding]:
    setting = subject.inner.get("rope_parameters") or subject.inner.get("rope_scaling")
    if not isinstance(setting, Mapping):
        return
    for layer_type, rope in setting.items():
        if not isinstance(rope, Mapping) or "truncate" not in rope:
            continue
        if rope["truncate"] != setting.get("truncate", True):
            yield Finding(
                "truncate-ignored",
                ("transformers",),
                f"truncate = {_shown(rope['truncate'])} stands inside the setting of {layer_type}",
                "transformers looks for it beside the layer types only and takes the default: the "
                "pairs at the ends of the ramp turn at other speeds",
                "write truncate beside the layer types too, or export the factors as longrope",
            )


def unscaled_length(subject: Subject) -> Iterator[Finding]:
    """A long length stated over a plain base: fine-tuned with scaling, published without it."""
    plan, inner = subject.plan, subject.inner
    if plan is None or subject.planned or FULL_ATTENTION not in plan.schedules:
        return
    schedule = plan.longest()
    geometry = schedule.geometry
    if inner.get("sliding_window") or geometry.rotary_dim != geometry.head_dim:
        return
    if schedule.geometric_base is None or np.any(schedule.rescale_factors != 1):
        return
    needed = max((b for length, b in MEN_2024.items() if length <= schedule.length), default=0.0)
    if geometry.base * FAR_BELOW < needed:
        yield Finding(
            "unscaled-length",
            (),
            f"the config states {format_length(schedule.length)} over plain frequencies of base "
            f"{geometry.base:g}; such a length needs a base of about {needed:g}",
            "a model fine-tuned with scaled positions was probably published without its scaling: "
            "it runs unscaled and answers with garbage beyond its first length",
            "find out how it was trained, and add that rope setting",
        )


def not_extended(subject: Subject) -> Iterator[Finding]:
    plan = subject.plan
    if plan is None or plan.target_length >= subject.length:
        return
    serves = format_length(plan.target_length)
    plain = all(
        np.all(step.schedule.rescale_factors == 1)
        for own in plan.schedules.values()
        for step in own
    )
    yield Finding(
        "not-extended",
        (),
        f"it is asked for {format_length(subject.length)}, and its own setting serves {serves}"
        + (": nothing in it scales the rotation" if plain else ""),
        f"beyond {serves} the pairs turn to angles that it was not made for",
        f"extend it: ropewalk plan … --to {format_length(subject.length)}",
    )


def tokenizer_limit(subject: Subject) -> Iterator[Finding]:
    limit = subject.tokenizer_limit
    if limit is None or limit >= subject.length:
        return
    stopped = [
        reading.runtime
        for reading in subject.readings
        if reading.runtime == "vllm" and reading.limit is not None
        if reading.limit < subject.length
    ]
    yield Finding(
        "tokenizer-limit",
        ("transformers", *stopped),
        f"the tokenizer's model_max_length is {limit}",
        "transformers cuts longer text where truncation is on, and vLLM refuses it",
        f"write model_max_length = {subject.length} into tokenizer_config.json",
    )


def remote_code(subject: Subject) -> Iterator[Finding]:
    if subject.config is not None and subject.config.get("auto_map"):
        yield Finding(
            "remote-code",
            (),
            "the config names code of its own (auto_map)",
            "with trust_remote_code that code runs in place of the stock model that was read here; "
            "ropewalk never runs it",
            "load it without trust_remote_code",
            wrong=False,
        )


# What a runtime does, beside what it should do.


def refused(subject: Subject) -> Iterator[Finding]:
    if any(factor_count(subject)):  # named already, and better
        return
    for reading in subject.readings:
        if reading.refused:
            yield Finding(
                "refused",
                (reading.runtime,),
                reading.refused,
                "it does not load",
                "correct that value, or export the model anew",
            )


def rotation(subject: Subject) -> Iterator[Finding]:
    """Frequencies and attention scaling, layer type by layer type, step by step."""
    for reading, layer_type, want, got in _compared(subject):
        where = f"{layer_type} at {format_length(want.length)}: "
        if not _close(got.inverse_frequencies, want.inverse_frequencies):
            trap, what, remedy = _explained(subject, layer_type, want, got)
            yield Finding(
                trap,
                (reading.runtime,),
                where + what,
                "the model turns by other angles than it should, and fails beyond its old length",
                remedy,
            )
        wanted, found = want.attention_scaling, got.attention_scaling
        if abs(found / wanted - 1) > TOLERANCE:
            yield Finding(
                _attention_trap(wanted, found),
                (reading.runtime,),
                f"{where}cos and sin are multiplied by {found:.6g} instead of {wanted:.6g}",
                f"attention is {(found / wanted) ** 2:.3g} times as sharp as it should be",
                _attention_remedy(subject, reading.runtime, wanted),
            )


def cache_switch(subject: Subject) -> Iterator[Finding]:
    for reading in subject.readings:
        if reading.switches == "by the length at hand":
            yield Finding(
                "switches-with-cache",
                (reading.runtime,),
                "the factors change with the length at hand, and keys in the cache keep those of "
                "their time",
                "decoding across the change gives other text than a full recompute; a long "
                "sequence changes the short ones of its batch",
                "write one list of factors for all lengths (ropewalk export does)",
            )


def one_position(subject: Subject) -> Iterator[Finding]:
    for reading in subject.readings:
        for rope in subject.ropes.values() if reading.runtime == "sglang" else ():
            original = rope.get("original_max_position_embeddings")
            original = subject.inner.get("original_max_position_embeddings", original)
            if kind_of(rope) != "longrope" or not isinstance(original, int):
                continue
            if original < subject.length:
                yield Finding(
                    "one-position-lost",
                    (reading.runtime,),
                    f"longrope with original_max_position_embeddings = {original}",
                    "SGLang, decoding one token at a time, turns the one at that position as if "
                    "it were the first",
                    "export it for SGLang (ropewalk export --to sglang), where it stands at the "
                    "target",
                    wrong=False,
                )


def declared_switch(subject: Subject) -> Iterator[Finding]:
    for reading in subject.readings:
        if reading.switches == "by the declared length":
            yield Finding(
                "short-text-taxed",
                (reading.runtime,),
                "the factors are chosen once, by the length that the server declares",
                "a server started for long sequences serves short ones with the long factors too",
                "start a second server with a short --max-model-len for short text",
                wrong=False,
            )


def length_limit(subject: Subject) -> Iterator[Finding]:
    if any(not_extended(subject)):
        return
    for reading in subject.readings:
        limit = reading.limit
        if limit is None or limit >= subject.length:
            continue
        if reading.runtime == "vllm" and any(tokenizer_limit(subject)):
            continue  # the tokenizer's limit is named as its own
        yield Finding(
            "length-limit",
            (reading.runtime,),
            f"takes sequences up to {format_length(limit)}, and {format_length(subject.length)} is "
            "asked for",
            "longer requests are refused or cut",
            f"raise max_position_embeddings to {subject.length} where the rope type allows it, or "
            "override it when the server starts",
        )


def length_multiplied(subject: Subject) -> Iterator[Finding]:
    reader = _reader(subject)
    if reader is None or not any(
        kind_of(r) in ("linear", "dynamic") for r in subject.ropes.values()
    ):
        return
    stated = reader.get("max_position_embeddings")
    for reading in subject.readings:
        limit = reading.limit
        if limit is None or not isinstance(stated, int) or stated < subject.length:
            continue
        if limit > stated:
            yield Finding(
                "length-multiplied",
                (reading.runtime,),
                f"max_position_embeddings = {stated} is the extended length already, and is "
                f"multiplied by the factor again, to {limit}",
                "it accepts, and reserves memory for, lengths at which the model fails",
                "leave max_position_embeddings at the original length with this rope type",
            )


def beyond_stock(subject: Subject) -> Iterator[Finding]:
    """What no stock runtime can say at all."""
    if subject.plan is None:
        return
    for layer_type, steps in subject.plan.schedules.items():
        schedule = steps[-1].schedule
        if schedule.kept_initial_positions:
            yield Finding(
                "kept-positions-lost",
                (),
                f"{layer_type}: the plan keeps the first {schedule.kept_initial_positions} "
                "positions unscaled",
                "no stock runtime does",
                "plan with kept_initial_positions = 0",
            )
        if schedule.log_n is not None:
            yield Finding(
                "log-n-lost",
                (),
                f"{layer_type}: the plan scales queries by log n",
                "no stock runtime does",
                "plan without log-n",
            )


TRAPS: tuple[Trap, ...] = (
    ignored_keys,
    no_rope_type,
    factor_count,
    theta_missing,
    theta_conflict,
    scaling_conflict,
    original_length_missing,
    truncate_nested,
    unscaled_length,
    not_extended,
    tokenizer_limit,
    remote_code,
    refused,
    rotation,
    cache_switch,
    one_position,
    declared_switch,
    length_limit,
    length_multiplied,
    beyond_stock,
)

_REWRITE = "write the setting anew: ropewalk export does"
# What at least one runtime reads, by rope type.
_READ: Mapping[str, set[str]] = {
    "default": set(),
    "linear": {"factor"},
    "dynamic": {"factor", "alpha", "max_trained_positions"},
    "llama3": {"factor", "low_freq_factor", "high_freq_factor"},
    "yarn": {
        *("factor", "beta_fast", "beta_slow", "truncate", "attention_factor", "attn_factor"),
        *("extrapolation_factor", "mscale", "mscale_all_dim"),
    },
    "longrope": {
        *("factor", "short_factor", "long_factor", "attention_factor"),
        *("short_mscale", "long_mscale", "mscale_all_dim"),
    },
}
_ALWAYS = {
    *("rope_type", "type", "rope_theta", "partial_rotary_factor", "finetuned"),
    *("original_max_position_embeddings", "mrope_section", "mrope_interleaved"),
}
_SCALES = {"factor", "short_factor", "long_factor", "beta_fast", "low_freq_factor"}


def _stated_ropes(subject: Subject) -> list[Config]:
    """The rope settings as the file writes them, before anything is filled in."""
    stated = [subject.inner.get(key) for key in ("rope_parameters", "rope_scaling")]
    ropes = [dict(rope) for rope in stated if isinstance(rope, Mapping)]
    settings = []
    for rope in ropes:
        nested = [dict(value) for value in rope.values() if isinstance(value, Mapping)]
        settings += nested or [rope]
    return [{key: v for key, v in rope.items() if v is not None} for rope in settings]


def _nested(subject: Subject) -> bool:
    return len(subject.ropes) > 1


def _reader(subject: Subject) -> ConfigReader | None:
    return None if subject.config is None else ConfigReader(subject.config)


def _compared(
    subject: Subject,
) -> Iterator[tuple[Reading, str, RotarySchedule, Effective]]:
    if subject.plan is None:
        return
    for reading in subject.readings:
        for layer_type, steps in subject.plan.schedules.items():
            # What is chosen by the declared length is compared at the length that is declared.
            chosen = steps[-1:] if reading.switches == "by the declared length" else steps
            for step in chosen:
                got = reading.at(step.up_to_length, layer_type)
                if got is not None:
                    yield reading, layer_type, step.schedule, got


def _explained(
    subject: Subject, layer_type: str, want: RotarySchedule, got: Effective
) -> tuple[str, str, str]:
    """The trap's name, what happens, and what to do, for frequencies that are not those wanted."""
    found, geometry = got.inverse_frequencies, want.geometry
    if found.shape != want.inverse_frequencies.shape:
        return (
            "frequencies-differ",
            f"its heads turn as {found.size} pairs instead of {geometry.pairs}",
            "make the plan from this model's own config",
        )
    if _close(found, geometry.plain_frequencies):
        return (
            "factors-dropped",
            "the pairs turn at their plain speeds, as if nothing were extended",
            _REWRITE,
        )
    last = want.recipe[-1] if want.recipe else None
    if last is not None and last.parameters.get("truncate") is False:
        truncated = replace(last, parameters={**last.parameters, "truncate": True})
        if _close(found, rebuild((*want.recipe[:-1], truncated), geometry).inverse_frequencies):
            return (
                "truncate-ignored",
                "truncate = false is ignored, and the ramp begins and ends at whole pairs",
                "write the factors as longrope (ropewalk export does)",
            )
    others = subject.plan.steps(layer_type) if subject.plan else ()
    for step in others:
        if _close(found, step.schedule.inverse_frequencies):
            longer = format_length(step.up_to_length)
            if step.up_to_length > want.length:
                return (
                    "short-text-taxed",
                    f"short sequences turn by the factors that are for {longer}",
                    "serve short text from the model without this setting, or plan one schedule "
                    "for all lengths",
                )
            return (
                "wrong-step",
                f"it turns by the factors that are for {longer}",
                "write one list of factors for all lengths",
            )
    lost = _lost_base(want, found)
    if lost is not None:
        return (
            "theta-lost",
            f"the pairs turn as those of base {lost:g}; the model's is {geometry.base:g}",
            'write "rope_theta" into rope_parameters, and for transformers 4 beside it',
        )
    if _close(found * want.rescale_factors, want.inverse_frequencies):
        return ("factors-doubled", "the factors are applied twice", _REWRITE)
    worst = int(np.argmax(np.abs(found / want.inverse_frequencies - 1)))
    ratio = found[worst] / want.inverse_frequencies[worst]
    return (
        "frequencies-differ",
        f"pair {worst} turns {ratio:.6g} times as fast as it should",
        _REWRITE,
    )


def _lost_base(want: RotarySchedule, found: FloatArray) -> float | None:
    """The base that these frequencies are of, where only the base is not the one wanted."""
    geometry = want.geometry
    if geometry.pairs < 3:
        return None
    for factors in (want.rescale_factors, np.ones(geometry.pairs)):
        plain = found * factors
        if plain[1] <= 0 or plain[1] >= 1:
            continue
        base = float(plain[1] ** (-geometry.rotary_dim / 2))
        if 1 < base <= MAX_BASE:
            of_base = replace(geometry, base=base).plain_frequencies
            if np.allclose(plain, of_base, rtol=geometry.pairs * TOLERANCE, atol=0):
                return float(f"{base:.4g}")
    lost = replace(geometry, base=1e4)
    try:
        if _close(found, rebuild(want.recipe, lost).inverse_frequencies):
            return lost.base
    except RopewalkError:
        return None
    return None


def _attention_trap(wanted: float, found: float) -> str:
    if abs(found - 1) <= TOLERANCE:
        return "attention-factor-dropped"
    if abs(found / wanted**2 - 1) <= TOLERANCE:
        return "attention-factor-squared"
    return "attention-factor-ignored"


def _attention_remedy(subject: Subject, runtime: str, wanted: float) -> str:
    if runtime == "llama.cpp":
        return "write factors and rope.scaling.attn_factor in place of yarn (ropewalk export does)"
    if runtime not in ("vllm", "vllm-2025", "sglang"):
        return _REWRITE
    if any(kind_of(rope) == "longrope" for rope in subject.ropes.values()):
        return f"add short_mscale and long_mscale = {wanted:.6g} to the rope setting"
    return (
        "write it as longrope with equal lists, and with short_mscale and long_mscale, which both "
        "vLLM and SGLang read (ropewalk export does)"
    )


def _close(one: FloatArray, other: FloatArray) -> bool:
    return one.shape == other.shape and np.allclose(one, other, rtol=TOLERANCE, atol=0)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:39]}…"
