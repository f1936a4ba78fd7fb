"""The layers of a model that rotate, and the rope setting of each type of them."""

from __future__ import annotations

from collections.abc import Mapping

from ropewalk.context_plan import FULL_ATTENTION, SLIDING_ATTENTION
from ropewalk.errors import InvalidValue, Unsupported, shortened
from ropewalk.lengths import MAX_LENGTH
from ropewalk.models.config.keys import KNOWN_KEYS, MAX_WIDTH, Config, ConfigKeys
from ropewalk.models.families import (
    FAMILIES,
    NOT_ATTENTION,
    ROTATES_OTHERWISE,
    UNKNOWN,
    WITHOUT_ROPE,
)
from ropewalk.models.lengths import DUAL_CHUNK
from ropewalk.schedule import MAX_FACTOR
from ropewalk.untrusted import counted, list_value, real_number, text_value

ROTATES_BY_LAYER = ("no_rope_layers", "layer_rope_theta")
"""Lists by layer, in which 0 is a layer that does not rotate, despite the name of the first."""
_LAYER_TYPES = {"mamba": "linear_attention", "attention": FULL_ATTENTION}


def check_rotates(keys: ConfigKeys) -> None:
    # Types whose rotation is of another kind: their keys look like ours and mean something else.
    if how := ROTATES_OTHERWISE.get(keys.model_type):
        raise Unsupported(
            f"model type {shortened(keys.model_type)} rotates {how}; ropewalk does not extend "
            "that: use a model type of the table in docs/families.md"
        )
    # Types without RoPE, or for which a key turns it off.
    other = WITHOUT_ROPE.get(keys.model_type)
    because = ""
    if other is None and keys.flag("alibi"):
        other = "ALiBi"
    if other is None and keys.family.rotates_if is not None:
        key, value = keys.family.rotates_if
        if keys.get(key) != value:
            other = keys.family.otherwise
            because = f" where {keys.written(key)} = {shortened(keys.get(key))}"
    if other is None and keys.config.get("position_embedding_type") == "nope":
        other, because = "no positions", f" where {keys.prefix}position_embedding_type = 'nope'"
    if other is not None:
        raise Unsupported(
            f"model type {shortened(keys.model_type)} uses {other}{because}, not a rotary "
            "embedding, so nothing in it can be rescaled, and a rope_theta in its config has "
            "no effect"
        )
    # Types that rotate, by rules that no schedule can say; the outer type counts as well.
    for model_type in (str(keys.outer.get("model_type")), keys.model_type):
        if (why := FAMILIES.get(model_type, UNKNOWN).refused) is not None:
            raise Unsupported(f"model type {shortened(model_type)}: {why}")
    if keys.config.get(DUAL_CHUNK):
        raise Unsupported(
            f"{keys.prefix}{DUAL_CHUNK}: with dual chunk attention, positions start again in each "
            "chunk, which no schedule can express; SGLang follows it with --attention-backend "
            "dual_chunk_flash_attn, and transformers, llama.cpp and vLLM since 0.11 ignore it; "
            "remove the key to plan for these three"
        )


def layer_settings(keys: ConfigKeys, *, unused: bool = False) -> dict[str, Config]:
    """The rope settings by layer type, each a flat dict with its base.

    Types that no layer has are left out, unless `unused` asks for them.
    """
    key, flagged = keys.family.scaling_flag or ("", None)
    default = flagged if flagged and keys.flag(key) else keys.family.rope
    rope = keys.config.get(keys.rope_key) or default
    if not isinstance(rope, Mapping):
        raise InvalidValue(keys.written(keys.rope_key), rope, "must be an object", "write {…}")
    nested = {key: value for key, value in rope.items() if isinstance(value, Mapping)}
    for key in sorted(KNOWN_KEYS & nested.keys()):
        name = f"{keys.prefix}{keys.rope_key}.{key}"
        raise InvalidValue(name, nested[key], "must be a value, not an object", "correct it")
    _refuse_other_form(keys, rope)
    # A setting for each layer type, in whichever of three forms the config has it.
    if nested:
        layers = {key: dict(value) for key, value in nested.items()}
        for setting in layers.values():
            if "truncate" in setting:  # transformers looks for it beside the layer types only
                setting["truncate"] = rope.get("truncate", True)
    elif keys.family.local_base:
        local = {"rope_theta": keys.need(keys.family.local_base)}
        if keys.family.sliding_scales:
            local = {**rope, **local}
        layers = {FULL_ATTENTION: dict(rope), SLIDING_ATTENTION: local}
    else:
        layers = {_rotating_type(keys): dict(rope)}
    # Each setting gets its base: the list by layer, its own, or the one next to the settings.
    base, by_layer = _base(keys), _base_by_layer(keys)
    for layer_type, setting in layers.items():
        setting["layer_type"] = layer_type
        if by_layer is not None:
            setting["rope_theta"] = by_layer
        if setting.get("rope_theta") is None:
            setting["rope_theta"] = base
        if setting["rope_theta"] is None and keys.is_nested:
            key = f"{keys.prefix}{keys.rope_key}.{layer_type}.rope_theta"
            raise InvalidValue(key, None, "is missing", "add it")
        if setting["rope_theta"] is None:
            part = f" in {'.'.join(keys.path)}" if keys.path else ""
            raise Unsupported(
                f"the config of model type {shortened(keys.model_type)} has no rope_theta, "
                f"rope_parameters or rotary_emb_base{part}, so it has no RoPE that "
                "ropewalk can change"
            )
    for key in ROTATES_BY_LAYER:
        list_value(keys.config.get(key) or [], f"{keys.prefix}{key}")
    kinds = keys.config.get("layer_types")
    for i, kind in enumerate(list_value(kinds or [], f"{keys.prefix}layer_types")):
        text_value(kind, f"{keys.prefix}layer_types[{i}]")
    used = {key: setting for key, setting in layers.items() if kinds and key in kinds}
    return layers if unused or not used else used


def _refuse_other_form(keys: ConfigKeys, rope: Mapping[str, object]) -> None:
    """Refuse a flat setting if the config class has one for each layer type, and the reverse.

    transformers ignores it (Gemma 3, OLMo 3), fails on it (Gemma 4, ModernBERT), or takes parts
    of it (DeepSeek V4). `rope_scaling` of v4 was flat for types that state two bases.
    """
    layers = [key for key, value in keys.family.rope.items() if isinstance(value, Mapping)]
    if keys.family.local_base and keys.rope_key == "rope_parameters":
        layers = [FULL_ATTENTION, SLIDING_ATTENTION]
    stated = keys.config.get(keys.rope_key)
    if stated and layers and not keys.is_nested:
        raise InvalidValue(
            f"{keys.prefix}{keys.rope_key}",
            dict(rope),
            f"is a single setting, and models of type {shortened(keys.model_type)} need one "
            "for each layer type",
            f"nest them: {{{', '.join(f'{layer!r}: {{…}}' for layer in layers)}}}",
        )
    by_layer = bool(layers or keys.family.local_base)
    if by_layer and not keys.is_nested and "type" in rope and "rope_type" not in rope:
        raise InvalidValue(  # which such a class has already, as default
            f"{keys.prefix}{keys.rope_key}.type",
            rope["type"],
            f"is not read for models of type {shortened(keys.model_type)}, whose class looks "
            "for rope_type",
            "name it rope_type",
        )
    one = not by_layer and keys.model_type in FAMILIES
    if one and keys.is_nested:
        raise InvalidValue(
            f"{keys.prefix}{keys.rope_key}",
            list(rope),
            f"has a setting for each layer type, and models of type "
            f"{shortened(keys.model_type)} read a single one",
            f"write that of {next(iter(rope))!r} alone, without the layer type",
        )


def _rotating_type(keys: ConfigKeys) -> str:
    """The layer type that rotates, if one setting serves all that do."""
    if keys.family.windows_rotate:
        window = keys.config.get("sliding_window")
        if window:
            counted(window, f"{keys.prefix}sliding_window", MAX_LENGTH)
        windowless = "sliding_window" in keys.config and not window
        return FULL_ATTENTION if windowless else SLIDING_ATTENTION
    return keys.family.rotates


def _base_by_layer(keys: ConfigKeys) -> object:
    """The base of a list by layer, which overrides all others; 0 is a layer that rests."""
    bases, key = keys.config.get("layer_rope_theta"), f"{keys.prefix}layer_rope_theta"
    if bases is None:
        return None
    if not isinstance(bases, list):
        raise InvalidValue(key, bases, "must be a list of numbers", "write [a, b, …]")
    distinct = {real_number(base, f"{key}[{i}]") for i, base in enumerate(bases)} - {0.0}
    if len(distinct) != 1:
        raise Unsupported(
            f"{key} states {len(distinct)} different bases above 0, and a plan has one schedule "
            "for all layers of a type"
        )
    return distinct.pop()


def _base(keys: ConfigKeys) -> object:
    """The base that the config states next to its rope settings."""
    base = keys.get("rope_theta")
    ratio = keys.get(keys.family.base_ratio) if keys.family.base_ratio else None
    if base is None or ratio is None:
        return base
    key = keys.written(str(keys.family.base_ratio))
    ratio = real_number(ratio, key)
    if not 0 < ratio <= MAX_FACTOR:
        raise InvalidValue(key, ratio, f"must be above 0 and at most {MAX_FACTOR:g}", "correct it")
    return real_number(base, keys.written("rope_theta")) * ratio


def rotating_layers(keys: ConfigKeys) -> tuple[int, int] | None:
    """The number of layers that rotate, and of all; None if the config does not say."""
    if not isinstance(keys.get("num_hidden_layers"), int):
        return None
    count = keys.count("num_hidden_layers", MAX_WIDTH)
    stated = _turning(keys, count)
    if stated is None:
        return None
    key, turning = stated
    if not any(turning):
        raise Unsupported(
            f"{keys.prefix}{key}: none of the {count} layers of this model rotates, so there "
            "is no RoPE to change"
        )
    return sum(turning), count


def _turning(keys: ConfigKeys, count: int) -> tuple[str, list[bool]] | None:
    """True if each layer rotates, and the key that says so."""
    for key in ROTATES_BY_LAYER:
        stated = keys.config.get(key)
        if isinstance(stated, list) and len(stated) == count:
            return key, [bool(value) for value in stated]
    rests_every = keys.get("no_rope_layer_interval")
    if isinstance(rests_every, int) and rests_every > 0:
        return "no_rope_layer_interval", [(i + 1) % rests_every != 0 for i in range(count)]
    by_kind = "layer_types" if keys.config.get("layer_types") else "layers_block_type"
    kinds = keys.config.get(by_kind)
    if isinstance(kinds, list) and len(kinds) == count:
        layers = tuple(layer_settings(keys))
        only = None if FULL_ATTENTION in layers or len(layers) > 1 else layers[0]
        kinds = [_LAYER_TYPES.get(str(kind), str(kind)) for kind in kinds]
        return by_kind, [kind not in NOT_ATTENTION and only in (None, kind) for kind in kinds]
    attends_every = keys.get("full_attention_interval")
    if isinstance(attends_every, int) and attends_every > 0:
        return "full_attention_interval", [(i + 1) % attends_every == 0 for i in range(count)]
    indices = keys.config.get("full_attn_idxs")
    if isinstance(indices, list):
        return "full_attn_idxs", [i in indices for i in range(count)]
    return None
