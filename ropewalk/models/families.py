"""The facts about single model types that their config.json need not say.

What a config class fills in stands in stock_defaults.json, written from the installed transformers.
How a model type rotates, and the words of its own that its config uses, are a row of families.json
(`Family` says what its keys mean). The tests compare both with every model type of transformers,
and find new ones by themselves; types with code of their own (Baichuan, ChatGLM, Qwen 1) are
compared with nothing. A type that is nowhere is read by what its config says itself, and nothing is
filled in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ropewalk.context_plan import FULL_ATTENTION, SLIDING_ATTENTION
from ropewalk.schedule import LogNForm, PairLayout
from ropewalk.values import fields_of, table_in


@dataclass(frozen=True)
class Family:
    """Properties of a model type that its config.json need not state."""

    defaults: Mapping[str, object] = field(default_factory=dict)
    """Values of its config class, for keys that publishers leave out."""
    rope: Mapping[str, object] = field(default_factory=dict)
    """The rope settings of its config class, if a config states none."""
    pair_layout: PairLayout = "half"
    rotates: str = FULL_ATTENTION
    """The layers that rotate, if one setting serves them all."""
    local_base: str | None = None
    """It has a setting for each layer type; in v4, this key holds the sliding layers' base."""
    sliding_scales: bool = False
    """In v4, `rope_scaling` is meant for its sliding layers too."""
    length_is_scaled: bool = False
    """With linear scaling, `max_position_embeddings` holds the extended length already."""
    softmax_mscale: bool = False
    """Its attention multiplies all logits by the square of mscale_all_dim's growth."""
    only_longrope: bool = False
    """Its config class refuses every rope type but `default` and `longrope`."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Its own words: our key to the path of its own, as `attn_config.rope_theta`."""
    base_ratio: str | None = None
    """A key whose value multiplies the base."""
    windows_rotate: bool = False
    """Only layers with a sliding window rotate; without a window, all do."""
    rotates_if: tuple[str, object] | None = None
    """A key, and the value with which alone it rotates."""
    otherwise: str = "no positions"
    """Its position encoding if `rotates_if` does not hold."""
    scaling_flag: tuple[str, Mapping[str, object]] | None = None
    """A key of its own code, and the scaling that it switches on."""
    log_n_flag: tuple[str, LogNForm] | None = None
    """A key of its own code, and the log-n that it switches on."""
    steps_log_n: bool = False
    """Its attention multiplies queries by 1 + llama_4_scaling_beta · ln(1 + ⌊p / L₀⌋)."""
    refused: str | None = None
    """Why no schedule says how it rotates."""
    unread: tuple[str, ...] = ()
    """Keys that its config states and its code does not follow."""
    own_code: bool = False
    """Its code comes with the model and reads no stock keys, so no stock config can be written."""


UNKNOWN = Family()

NOT_ATTENTION = frozenset(
    ("mamba", "linear_attention", "conv", "recurrent", "moe", "mlp", "dense", "sparse")
)
"""Layer types that are no attention, so nothing in them rotates."""

_TABLE = table_in(Path(__file__).with_name("families.json"))
"""Rows of types and their properties; `follow_a_share` are types that turn a part of each head
where a config says so, besides those that always do."""


def follows_share(model_type: str) -> bool:
    """True unless a known type rotates whole heads, whatever `partial_rotary_factor`."""
    if model_type not in FAMILIES or model_type in _TABLE["follow_a_share"]:
        return True
    return "partial_rotary_factor" in FAMILIES[model_type].defaults


def _filled(family: Family, stock: Mapping[str, Any]) -> Family:
    """The family, with what its config class fills in."""
    defaults = dict(stock)
    rope = defaults.pop("rope_parameters", {})
    if family.local_base:  # v4 configs state two bases instead of nested settings
        sliding = rope[SLIDING_ATTENTION]["rope_theta"]
        defaults |= {family.local_base: sliding, "rope_theta": rope[FULL_ATTENTION]["rope_theta"]}
        rope = {}
    return replace(family, defaults={**defaults, **family.defaults}, rope=rope)


def _families() -> dict[str, Family]:
    stated = {t: _family(**row) for row in _TABLE["families"] for t in row["types"]}
    stock = table_in(Path(__file__).with_name("stock_defaults.json"))
    families = stated | {t: _filled(stated.get(t, UNKNOWN), each) for t, each in stock.items()}
    # Types that published configs name and transformers does not, and which one their code equals.
    return families | {model_type: families[other] for model_type, other in _TABLE["like"].items()}


def _family(types: Sequence[str], why: str = "", **stated: Any) -> Family:
    return Family(**fields_of(stated))


FAMILIES: Mapping[str, Family] = _families()
"""All model types that are known to rotate, or to be no text models although they do."""

ENCODERS = frozenset(_TABLE["encoders"])
"""Those that read a text in both directions and predict no next token."""

WITHOUT_ROPE: Mapping[str, str] = {t: how for how, of in _TABLE["without_rope"].items() for t in of}
"""Model types that do not rotate, and how they tell positions apart instead."""

ROTATES_OTHERWISE: Mapping[str, str] = {
    t: how for how, of in _TABLE["rotates_otherwise"].items() for t in of
}
"""Model types that rotate, and by what, in code of their own that no plan reaches."""
