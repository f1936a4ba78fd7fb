"""The geometry of a model's heads: how many of their dimensions rotate, in which pairs."""

from __future__ import annotations

from collections.abc import Mapping

from ropewalk.context_plan import FULL_ATTENTION
from ropewalk.errors import InvalidValue, Unsupported, shortened
from ropewalk.models.config.keys import MAX_WIDTH, SPECULATORS, Config, ConfigKeys, rope_type
from ropewalk.models.families import follows_share
from ropewalk.schedule import MAX_DIM, RotaryGeometry
from ropewalk.untrusted import counted, real_number


def geometry(keys: ConfigKeys, rope: Config, original_length: int) -> RotaryGeometry:
    head_dim, rotary_dim = _dimensions(keys, rope)
    resting = 0
    if rope_type(rope) == "proportional":  # the other pairs are there, and rest
        rotary_dim, resting = head_dim, (head_dim - rotary_dim) // 2
    interleaved = keys.flag("rope_interleave")
    default = keys.family.defaults.get("rope_interleave")
    # A class that reads the key takes null for no.
    if interleaved is None and (default is None or "rope_interleave" not in keys.config):
        interleaved = bool(default) or keys.family.pair_layout == "interleaved"
    return RotaryGeometry(
        head_dim=head_dim,
        rotary_dim=rotary_dim,
        base=real_number(rope["rope_theta"], "base"),
        original_length=original_length,
        pair_layout="interleaved" if interleaved else "half",
        resting_pairs=resting,
    )


def _dimensions(keys: ConfigKeys, rope: Config) -> tuple[int, int]:
    """The dimensions of a head, and how many of them rotate."""
    if keys.get("qk_rope_head_dim"):  # multi-head latent attention: only this part turns
        rotary_dim = keys.count("qk_rope_head_dim", MAX_DIM)
        unrotated = keys.count("qk_nope_head_dim", MAX_DIM) if keys.get("qk_nope_head_dim") else 0
        _check_pairs(keys.written("qk_rope_head_dim"), rotary_dim, rotary_dim)
        return rotary_dim + unrotated, rotary_dim
    head_dim, head_key = _head_dim(keys, rope.get("layer_type"))
    share = rope.get("partial_rotary_factor")
    key = f"{keys.prefix}{keys.rope_key}.partial_rotary_factor"
    if share is None:
        share, key = keys.get("partial_rotary_factor"), keys.written("partial_rotary_factor")
    stated = keys.config.get("rotary_dim") is not None and "rotary_dim" not in keys.family.unread
    if share is None and stated:
        rotary_dim = keys.count("rotary_dim", head_dim)
        _check_pairs(keys.written("rotary_dim"), rotary_dim, rotary_dim)
        return head_dim, rotary_dim
    if share is None:
        _check_pairs(head_key, head_dim, head_dim)
        return head_dim, head_dim
    share = real_number(share, key)
    if not 0 < share <= 1:
        raise InvalidValue(
            key, share, "must be above 0 and at most 1, the share of each head that rotates",
            "correct it",
        )  # fmt: skip
    proportional = rope_type(rope) == "proportional"
    rotary_dim = 2 * int(share * head_dim // 2) if proportional else int(head_dim * share)
    _check_pairs(key, share, rotary_dim)
    stock = SPECULATORS not in keys.path  # no class of transformers reads that part
    if share < 1 and not proportional and stock and not follows_share(keys.model_type):
        raise Unsupported(
            f"{key} = {share:g}: transformers rotates whole heads in models of type "
            f"{shortened(keys.model_type)}, whatever this key says, and another runtime may follow "
            "it; remove it if the model was trained with whole heads"
        )
    return head_dim, rotary_dim


def _head_dim(keys: ConfigKeys, layer_type: str | None) -> tuple[int, str]:
    """The size of a head in the layers of a type, and the key that states it."""
    kinds, layers = keys.config.get("layer_types"), keys.config.get("per_layer_config")
    if isinstance(kinds, list) and isinstance(layers, Mapping):
        for index, values in layers.items():
            at = int(index) if str(index).isdecimal() else len(kinds)
            stated = values.get("head_dim") if isinstance(values, Mapping) else None
            if stated is not None and at < len(kinds) and kinds[at] == layer_type:
                key = f"{keys.prefix}per_layer_config.{index}.head_dim"
                return counted(stated, key, MAX_DIM), key
    if layer_type == FULL_ATTENTION and keys.get("global_head_dim") is not None:
        return keys.count("global_head_dim", MAX_DIM), keys.written("global_head_dim")
    return _common_head_dim(keys), keys.written("head_dim")


def _common_head_dim(keys: ConfigKeys) -> int:
    if keys.get("head_dim") is not None:
        return keys.count("head_dim", MAX_DIM)
    heads = keys.count("num_attention_heads", MAX_WIDTH)
    hidden = keys.count("hidden_size", MAX_WIDTH)
    if hidden % heads:
        raise InvalidValue(
            keys.written("hidden_size"),
            hidden,
            f"is not divisible by {keys.written('num_attention_heads')} = {heads}, and no "
            "head_dim says how large a head is",
            "correct it, or add head_dim",
        )
    if hidden // heads > MAX_DIM:
        raise InvalidValue(
            keys.written("hidden_size"),
            hidden,
            f"makes heads of {hidden // heads} dimensions, and at most {MAX_DIM} are read",
            f"check it and {keys.written('num_attention_heads')}",
        )
    return hidden // heads


def _check_pairs(key: str, value: object, rotary_dim: int) -> None:
    if rotary_dim < 2 or rotary_dim % 2:
        raise InvalidValue(
            key, value, f"makes {rotary_dim} dimensions of a head rotate, and they rotate in pairs",
            "give a value that makes it an even number of at least 2",
        )  # fmt: skip
