"""The rotation that a set-up means, in float64, from the formulas of the papers alone.

Nothing of ropewalk or of a runtime is used here. The formulas are those of RoPE (Su et al. 2021),
linear interpolation (Chen et al. 2023), YaRN (Peng et al. 2023), Llama 3's smoothed steps and
LongRoPE (Ding et al. 2024), with the defaults that their first implementations have.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Rotation:
    """Radians by which each pair turns in one position, and the factor on cos and sin."""

    frequencies: Array
    scaling: float

    def distance(self, other: Rotation, position: int) -> float:
        """The greatest distance of two points (m cos, m sin) at a position; 9 for other shapes."""
        if self.frequencies.shape != other.frequencies.shape:
            return 9.0
        here, there = (r.scaling * np.exp(1j * r.frequencies * position) for r in (self, other))
        return float(np.abs(here - there).max())


def rotations(config: Mapping[str, Any], length: int) -> dict[str, Rotation]:
    """The rotation of each layer type ("" if there is one for all) of a set-up at a length."""
    text = config.get("text_config", config)
    rope = text.get("rope_parameters")
    if rope is None:
        rope = {"rope_theta": text["rope_theta"], **text["rope_scaling"]}
        rope["rope_type"] = rope.pop("type")
    by_layer = rope if "rope_type" not in rope else {"": rope}
    return {name: _rotation(text, own, length) for name, own in by_layer.items()}


def _rotation(text: Mapping[str, Any], rope: Mapping[str, Any], length: int) -> Rotation:
    size = text.get("qk_rope_head_dim", text["head_dim"])
    size = int(size * rope.get("partial_rotary_factor", 1.0))
    plain = rope["rope_theta"] ** (-np.arange(0, size, 2) / size)
    factors, scaling = _METHODS[rope["rope_type"]](rope, plain, length)
    return Rotation(plain / factors, scaling)


def _default(rope: Mapping[str, Any], plain: Array, _: int) -> tuple[Array, float]:
    return np.ones_like(plain), 1.0


def _linear(rope: Mapping[str, Any], plain: Array, _: int) -> tuple[Array, float]:
    return np.full_like(plain, rope["factor"]), 1.0


def _yarn(rope: Mapping[str, Any], plain: Array, _: int) -> tuple[Array, float]:
    original, factor = rope["original_max_position_embeddings"], rope["factor"]
    fast, slow = rope.get("beta_fast", 32.0), rope.get("beta_slow", 1.0)

    def pair(turns: float) -> float:
        """The pair, as a real number, that turns so often within the original length."""
        return float(
            len(plain) * math.log(original / (turns * 2 * math.pi)) / math.log(rope["rope_theta"])
        )

    first, last = pair(fast), pair(slow)
    if rope.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, 2 * len(plain) - 1)
    ramp = np.clip((np.arange(len(plain)) - first) / ((last - first) or 0.001), 0, 1)
    kept = 1 / (1 - ramp + ramp / factor)

    def growth(by: float) -> float:
        return 0.1 * by * math.log(factor) + 1

    if "mscale" in rope:
        scaling = growth(rope["mscale"]) / growth(rope["mscale_all_dim"])
    else:
        scaling = growth(1.0)
    return kept, rope.get("attention_factor", scaling)


def _llama3(rope: Mapping[str, Any], plain: Array, _: int) -> tuple[Array, float]:
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    turns = rope["original_max_position_embeddings"] * plain / (2 * math.pi)
    smooth = np.clip((turns - low) / (high - low), 0, 1)
    return 1 / (smooth + (1 - smooth) / rope["factor"]), 1.0


def _longrope(rope: Mapping[str, Any], plain: Array, length: int) -> tuple[Array, float]:
    original = rope["original_max_position_embeddings"]
    own = rope["long_factor" if length > original else "short_factor"]
    formula = math.sqrt(1 + math.log(rope.get("factor", length / original)) / math.log(original))
    return np.asarray(own, dtype=float), rope.get("attention_factor", formula)


_METHODS = {
    "default": _default,
    "linear": _linear,
    "yarn": _yarn,
    "llama3": _llama3,
    "longrope": _longrope,
}
