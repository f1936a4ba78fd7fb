"""Assumptions made in reading a config: contradictions, unknown types, keys not read.

A config may leave open what its model does. Where one reading is likely, it is taken and stated
here, in a sentence that names the keys; where none is safe, reading the config is refused
(config.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from ropewalk.errors import shortened
from ropewalk.models.config import Config, ConfigReader
from ropewalk.models.config.keys import (
    ALIASES,
    LENGTH_BESIDE,
    ORIGINAL_LENGTH,
    named_in,
    rope_type,
)
from ropewalk.models.families import FAMILIES
from ropewalk.models.lengths import STATE_IT
from ropewalk.untrusted import real_number


class Assumption(NamedTuple):
    """One thing that a config leaves open, and how it is read."""

    name: str
    """For scripts, as the names of traps in docs/verify.md."""
    text: str


SHORTEST_TRAINED = 2048
"""No published model was pretrained at less, so a length that would be below is unscaled."""

# Keys by which a model's own code changes how it rotates, none of which stock runtimes read.
_FLAGS = {
    "use_dynamic_ntk": (
        "the model's own code raises its base with the length of a text, and stock runtimes do not"
    ),
    "use_logn_attn": (
        "the model's own code multiplies queries by log n beyond its trained length, and stock "
        "runtimes do not; to plan with it, pass --log-n beyond"
    ),
}
# What the language model's part of a config and the top level may both state.
_BOTH_LEVELS = (
    *("rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor", "head_dim"),
    *("max_position_embeddings", ORIGINAL_LENGTH),
)


def assumptions(
    config: Config, file: str | Path | None = None, *, trained: int | None = None, by: str = ""
) -> tuple[Assumption, ...]:
    """The assumptions made in reading this config; each text names the file.

    `trained` is the trained length where it is known, and `by` names who else than the user knows
    it.
    """
    with named_in(file):
        reader = ConfigReader(config)
        texts = (*_all(reader), *_lengths(reader, trained, by))
    place = f"{file}: " if file else ""
    return tuple(Assumption(name, f"{place}{text}") for name, text in texts)


def _all(reader: ConfigReader) -> Iterator[Assumption]:
    for find in (_model_type, _two_settings, _two_bases, _one_base, _two_names, _two_levels):
        yield from find(reader)
    yield from _beside_the_rope(reader, "two-names", "partial_rotary_factor", "second")
    first = "first" if reader.model_type in LENGTH_BESIDE else "second"
    yield from _beside_the_rope(reader, "two-original-lengths", ORIGINAL_LENGTH, first)
    for find in (_length_of_linear, _layout, _unread, _own_code):
        yield from find(reader)


def _lengths(reader: ConfigReader, trained: int | None, by: str) -> Iterator[Assumption]:
    """Guesses at the trained length, doubts of it, and keys that contradict each other."""
    lengths, stated = reader.lengths(), reader.get("max_position_embeddings")
    key = reader.written("max_position_embeddings")
    if lengths.conflict:
        yield Assumption(
            "lengths-conflict",
            f"{lengths.conflict} (in order: `trained_length`, keys of the config, known models, "
            "the stated length)",
        )
    if trained is None:
        if lengths.guess:
            yield Assumption("length-guessed", lengths.guess)
        if lengths.doubt:
            yield Assumption("length-open", lengths.doubt)
    elif by and trained != lengths.trained:
        yield Assumption(
            "length-known",
            f"{by} says that this model was trained at {trained}, which is followed; its config "
            f"alone reads as {lengths.trained} ({key} = {shortened(stated)}); "
            f"if you mean a model that was trained at that, {STATE_IT}",
        )


def _model_type(reader: ConfigReader) -> Iterator[Assumption]:
    if reader.is_encoder:
        yield Assumption(
            "encoder",
            f"this {reader.model_type} is an encoder, which predicts no next token; its rotation "
            "is planned as that of other models, but the methods were measured on models that "
            "write, and ropewalk cannot run it",
        )
    if reader.model_type in FAMILIES:
        return
    stated = f"model_type {shortened(reader.model_type)} is not known to ropewalk"
    if not reader.model_type:
        stated = "no model_type is stated"
    yield Assumption(
        "unknown-model-type",
        f"{stated}; the model is taken to rotate as Llama does: in every layer, with pair i in "
        "dimensions i and i + d/2, and with nothing that the config does not state",
    )


def _two_settings(reader: ConfigReader) -> Iterator[Assumption]:
    old, new = reader.config.get("rope_scaling"), reader.config.get("rope_parameters")
    if not isinstance(old, Mapping) or not isinstance(new, Mapping) or not (old and new):
        return
    left, right = _normal(old), _normal(new)
    differing = sorted(key for key in {*left, *right} if left.get(key) != right.get(key))
    # A base that only rope_parameters states is the one thing that nobody means to contradict.
    if "rope_theta" in differing and reader.get("rope_theta") == right.get("rope_theta"):
        differing.remove("rope_theta")
    if differing:
        yield Assumption(
            "scaling-conflict",
            "rope_scaling and rope_parameters differ in "
            f"{', '.join(str(key)[:40] for key in differing[:8])}; rope_scaling is followed, as in "
            "transformers, and rope_parameters is ignored",
        )


def _normal(rope: Mapping[str, object]) -> dict[str, object]:
    stated = {key: value for key, value in rope.items() if value is not None and key != "type"}
    return {**stated, "rope_type": rope_type(rope)}


def _two_bases(reader: ConfigReader) -> Iterator[Assumption]:
    """A base at the top level, and others in the rope settings."""
    key, rope = reader.written("rope_theta"), reader.config.get(reader.rope_key)
    top = reader.config.get(key.removeprefix(reader.prefix))
    if top is None or not isinstance(rope, Mapping):
        return
    nested = [value for value in rope.values() if isinstance(value, Mapping)]
    inside = [each["rope_theta"] for each in nested or [rope] if each.get("rope_theta") is not None]
    if inside and top not in inside:
        shown = " and ".join(map(shortened, inside[:3]))
        yield Assumption(
            "theta-conflict",
            f"{key} is {shortened(top)}, and {reader.prefix}{reader.rope_key} states {shown}; the "
            f"base in {reader.rope_key} is followed, as in transformers 5",
        )


def _one_base(reader: ConfigReader) -> Iterator[Assumption]:
    """A base at the top level alone, which transformers 5 does not follow in all layers."""
    default, base = reader.family.defaults.get("rope_theta"), reader.get("rope_theta")
    if reader.one_base and base != default:
        yield Assumption(
            "theta-of-windows",
            f"{reader.written('rope_theta')} is {shortened(base)}, and is taken for all layers, as "
            f"in transformers 4; transformers 5 turns those with a sliding window by {default}; if "
            "all were trained with it, state it for each layer type in rope_parameters",
        )


def _two_names(reader: ConfigReader) -> Iterator[Assumption]:
    for names in ALIASES.values():
        read = (name for name in names if name not in reader.unread)
        stated = {n: reader.config[n] for n in read if reader.config.get(n) is not None}
        first, *others = stated or [""]
        for other in others:
            if stated[other] != stated[first]:
                yield Assumption(
                    "two-names",
                    f"{reader.prefix}{first} is {shortened(stated[first])} and "
                    f"{reader.prefix}{other} is {shortened(stated[other])}, two names of one "
                    f"value; {first} is followed",
                )
    rope = reader.config.get(reader.rope_key)
    kinds = rope if isinstance(rope, Mapping) else {}
    kind, old = kinds.get("rope_type"), kinds.get("type")
    if kind is not None and old is not None and kind != old:
        yield Assumption(
            "two-names",
            f"{reader.prefix}{reader.rope_key} has rope_type {shortened(kind)} and type "
            f"{shortened(old)}; rope_type is followed",
        )


def _two_levels(reader: ConfigReader) -> Iterator[Assumption]:
    if not reader.path:
        return
    for key in _BOTH_LEVELS:
        top, inner = reader.outer.get(key), reader.config.get(key)
        if top and inner is None and key in ("rope_scaling", "rope_parameters"):
            if reader.config.get(reader.rope_key) is None:
                yield Assumption(
                    "two-levels",
                    f"{key} is stated at the top level, where transformers does not read it, and "
                    "not in text_config; it is ignored",
                )
        elif top is not None and inner is not None and top != inner:
            yield Assumption(
                "two-levels",
                f"{key} is {shortened(top)} at the top level and {shortened(inner)} in "
                "text_config; text_config is followed",
            )


def _beside_the_rope(
    reader: ConfigReader, name: str, key: str, followed: str
) -> Iterator[Assumption]:
    """A key that is in the rope settings and next to them, with different values."""
    written, rope = reader.written(key), reader.config.get(reader.rope_key)
    top = reader.config.get(written.removeprefix(reader.prefix))
    inside = rope.get(key) if isinstance(rope, Mapping) else None
    if top is not None and inside is not None and top != inside:
        yield Assumption(
            name,
            f"{written} is {shortened(top)}, and {reader.prefix}{reader.rope_key} states "
            f"{shortened(inside)}; the {followed} is followed",
        )


def _length_of_linear(reader: ConfigReader) -> Iterator[Assumption]:
    """Linear scaling over one stated length, which publishers mean in two ways."""
    if reader.family.length_is_scaled or reader.get(ORIGINAL_LENGTH) is not None:
        return
    key, stated = reader.written("max_position_embeddings"), reader.get("max_position_embeddings")
    for rope in reader.layer_settings().values():
        factor = rope.get("factor")
        if rope_type(rope) != "linear" or rope.get(ORIGINAL_LENGTH) is not None:
            continue
        if not (isinstance(factor, int | float) and isinstance(stated, int) and factor > 1):
            continue
        if stated / factor < SHORTEST_TRAINED:
            continue
        long = stated * factor
        yield Assumption(
            "length-open",
            f"rope type 'linear' with factor {factor:g} states no {ORIGINAL_LENGTH}; {key} = "
            f"{stated} is taken for the length before scaling, as vLLM and SGLang take it, so the "
            f"model serves {long:.10g}; if {stated} is the scaled length, add {ORIGINAL_LENGTH} = "
            f"{stated / factor:.10g} to {reader.prefix}{reader.rope_key}",
        )
        return


def _layout(reader: ConfigReader) -> Iterator[Assumption]:
    stated = reader.flag("rope_interleave")
    interleaved = reader.family.pair_layout == "interleaved"
    if stated is None or stated == interleaved or reader.model_type not in FAMILIES:
        return
    if "rope_interleave" not in reader.family.defaults:  # else its class in transformers reads it
        yield Assumption(
            "layout-conflict",
            f"{reader.prefix}rope_interleave = {str(stated).lower()} is followed, although models "
            f"of type {reader.model_type} in transformers do not read it and "
            f"{'interleave their pairs' if interleaved else 'do not interleave their pairs'}",
        )


def _unread(reader: ConfigReader) -> Iterator[Assumption]:
    # Flags that change the rotation in the code of other types.
    followed = (reader.family.scaling_flag or ("",))[0], (reader.family.log_n_flag or ("",))[0]
    for key, consequence in _FLAGS.items():
        if reader.flag(key) and key not in followed:
            yield Assumption(
                "key-not-read", f"{reader.prefix}{key} = true is not followed: {consequence}"
            )
    # Numbers that the class of this type computes without.
    base, used = reader.config.get("rope_theta"), reader.get("rope_theta")
    if "rope_theta" in reader.unread and base not in (None, used):
        yield Assumption(
            "key-not-read",
            f"{reader.prefix}rope_theta = {shortened(base)} is not read by the class of model type "
            f"{shortened(reader.model_type)}, whose base is {shortened(used)}",
        )
    # Numbers of ChatGLM's configs, which types of other names copied.
    length, stated = reader.config.get("seq_length"), reader.get("max_position_embeddings")
    named = "seq_length" in reader.family.names.values()
    if not named and length is not None and stated is not None and length != stated:
        yield Assumption(
            "key-not-read",
            f"{reader.prefix}seq_length is {shortened(length)}; it is not read, and "
            f"{reader.written('max_position_embeddings')} = {shortened(stated)} is taken for the "
            "length of pretraining",
        )
    ratio = reader.config.get("rope_ratio")
    read = reader.family.base_ratio == "rope_ratio"
    if not read and ratio is not None and real_number(ratio, f"{reader.prefix}rope_ratio") != 1:
        yield Assumption(
            "key-not-read",
            f"{reader.prefix}rope_ratio = {shortened(ratio)} is not read, and the base is that of "
            f"{reader.written('rope_theta')}",
        )


def _own_code(reader: ConfigReader) -> Iterator[Assumption]:
    """Differences of stock runtimes from the model's own code."""
    if reader.family.scaling_flag and reader.flag(reader.family.scaling_flag[0]):
        yield Assumption(
            "own-code",
            f"{reader.prefix}{reader.family.scaling_flag[0]} = true is followed as in the model's "
            "own code, which raises the base at each doubling of the trained length; stock "
            "runtimes do not",
        )
    base = reader.family.names.get("rope_theta")
    if base is not None and reader.written("rope_theta") == f"{reader.prefix}{base}":
        yield Assumption(
            "own-code",
            f"{reader.prefix}{base} is the base, as in the model's own code and in vLLM; "
            "transformers 5 does not read it and turns with 10000",
        )
