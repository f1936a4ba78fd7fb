"""What each published config means for rotation, worked out by hand: writes `expected/*.json`.

Nothing here uses ropewalk or reads `configs/`: every number of a model is typed in again, and the
formulas are those of the papers, in float64. So a config reader that agrees with these files
agrees with two independent readings. Run `python tests/golden/make_expected.py` to write them.

A file holds, per layer type, a list of schedules by rising `served_length` (LongRoPE has two):
`served_length` is the length up to which the schedule applies, `trained_length` the one up to which
the publisher says that it works, `original_length` the one the plain frequencies were trained at. A
model that cannot be read holds `refused` instead.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Frequencies = NDArray[np.float64]
Schedule = dict[str, Any]

FOLDER = Path(__file__).parent / "expected"


def plain(base: float, rotary_dim: int) -> Frequencies:
    """RoPE: base^(−2i/d)."""
    return np.array([base ** (-2.0 * i / rotary_dim) for i in range(rotary_dim // 2)])


def linear(base: float, rotary_dim: int, factor: float) -> Frequencies:
    """Position interpolation: every frequency divided by the factor."""
    return plain(base, rotary_dim) / factor


def llama3(
    base: float, rotary_dim: int, factor: float, original: int, low: float, high: float
) -> Frequencies:
    """Llama 3.1: by the number of turns inside the original length, kept, divided or blended."""

    def scaled(frequency: float) -> float:
        turns = original * frequency / (2 * math.pi)
        if turns > high:
            return frequency
        if turns < low:
            return frequency / factor
        kept = (turns - low) / (high - low)
        return (1 - kept) * frequency / factor + kept * frequency

    return np.array([scaled(frequency) for frequency in plain(base, rotary_dim)])


def yarn(
    base: float,
    rotary_dim: int,
    factor: float,
    original: int,
    *,
    beta_fast: float = 32,
    beta_slow: float = 1,
    truncate: bool = True,
) -> Frequencies:
    """YaRN: a ramp over the pair index, from kept (above beta_fast turns) to divided."""

    def pair_with(turns: float) -> float:
        return rotary_dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))

    first, last = pair_with(beta_fast), pair_with(beta_slow)
    if truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, rotary_dim - 1)
    pairs = np.arange(rotary_dim // 2, dtype=np.float64)
    divided: Frequencies = np.clip((pairs - first) / (last - first), 0, 1)
    frequencies = plain(base, rotary_dim)
    return (1 - divided) * frequencies + divided * frequencies / factor


def longrope(base: float, rotary_dim: int, factors: list[float]) -> Frequencies:
    """LongRoPE: each frequency divided by its own searched factor."""
    return plain(base, rotary_dim) / np.array(factors, dtype=np.float64)


def proportional(base: float, head_dim: int, rotated: float) -> Frequencies:
    """Gemma 4: exponents over the whole head, but only the first share of the pairs turns."""
    frequencies = plain(base, head_dim)
    frequencies[int(rotated * head_dim // 2) :] = 0.0
    return frequencies


def schedule(
    frequencies: Frequencies,
    *,
    base: float,
    head_dim: int,
    original: int,
    served: int,
    trained: int | None = None,
    rotary_dim: int | None = None,
    layout: str = "half",
    attention_scaling: float = 1.0,
    softmax_scaling: float = 1.0,
) -> Schedule:
    return {
        "base": float(base),
        "head_dim": head_dim,
        "rotary_dim": rotary_dim or head_dim,
        "original_length": original,
        "trained_length": trained or served,
        "served_length": served,
        "pair_layout": layout,
        "attention_scaling": attention_scaling,
        "softmax_scaling": softmax_scaling,
        "inverse_frequencies": frequencies.tolist(),
    }


def unscaled(
    base: float,
    head_dim: int,
    length: int,
    *,
    rotary_dim: int | None = None,
    layout: str = "half",
) -> Schedule:
    return schedule(
        plain(base, rotary_dim or head_dim),
        base=base,
        head_dim=head_dim,
        rotary_dim=rotary_dim,
        original=length,
        served=length,
        layout=layout,
    )


def every_layer(*schedules: Schedule) -> dict[str, Any]:
    return {"layer_types": {"full_attention": list(schedules)}}


def sliding_and_full(sliding: Schedule, full: Schedule) -> dict[str, Any]:
    return {"layer_types": {"sliding_attention": [sliding], "full_attention": [full]}}


# Phi-3-mini-128k, 48 pairs each (head size 96).
PHI3 = json.loads(Path(__file__).with_name("phi3_factors.json").read_text())


def phi3_mini_128k() -> dict[str, Any]:
    def half(factors: list[float], served: int) -> Schedule:
        return schedule(
            longrope(10000.0, 96, factors),
            base=10000.0,
            head_dim=96,
            original=4096,
            served=served,
            # Phi-3 applies it to the short half too: √(1 + ln 32 / ln 4096)
            attention_scaling=math.sqrt(1 + math.log(131072 / 4096) / math.log(4096)),
        )

    return every_layer(half(PHI3["short"], 4096), half(PHI3["long"], 131072))


def gpt_oss_20b() -> dict[str, Any]:
    stretched = schedule(
        yarn(150000.0, 64, 32.0, 4096, truncate=False),
        base=150000.0,
        head_dim=64,
        original=4096,
        served=131072,
        attention_scaling=0.1 * math.log(32.0) + 1,
    )
    return sliding_and_full(stretched, stretched)  # one rotation for both kinds of layer


def expected() -> dict[str, dict[str, Any]]:
    """File name -> content, one paragraph a model."""
    return {
        "llama-2-7b": every_layer(unscaled(10000.0, 128, 4096)),
        "mistral-7b-v0.3": every_layer(unscaled(1000000.0, 128, 32768)),
        "pythia-1.4b": every_layer(unscaled(10000.0, 128, 2048, rotary_dim=32)),
        "stablelm-2-1.6b": every_layer(unscaled(10000.0, 64, 4096, rotary_dim=16)),
        "command-r": every_layer(unscaled(8000000.0, 128, 8192, layout="interleaved")),
        # Every fourth layer has no rotation; those that have one share this.
        "smollm3-3b": every_layer(unscaled(5000000.0, 128, 65536)),
        "modernbert-base": sliding_and_full(
            unscaled(10000.0, 64, 8192), unscaled(160000.0, 64, 8192)
        ),
        "llama-3.1-8b": every_layer(
            schedule(
                llama3(500000.0, 128, 8.0, 8192, low=1.0, high=4.0),
                base=500000.0,
                head_dim=128,
                original=8192,
                served=131072,
            )
        ),
        "gemma-3-4b": sliding_and_full(
            unscaled(10000.0, 256, 131072),
            schedule(
                linear(1000000.0, 256, 8.0),
                base=1000000.0,
                head_dim=256,
                original=32768,  # of pretraining; the factor of 8 over it is four times enough
                served=131072,
            ),
        ),
        "phi-3-mini-128k": phi3_mini_128k(),
        "qwen2.5-7b-instruct-yarn": every_layer(
            schedule(
                yarn(1000000.0, 128, 4.0, 32768),
                base=1000000.0,
                head_dim=128,
                original=32768,
                served=4 * 32768,
                attention_scaling=0.1 * math.log(4.0) + 1,
            )
        ),
        "gpt-oss-20b": gpt_oss_20b(),
        "deepseek-v3": every_layer(
            schedule(
                yarn(10000.0, 64, 40.0, 4096),
                base=10000.0,
                head_dim=128 + 64,  # qk_nope_head_dim, which does not turn, and qk_rope_head_dim
                rotary_dim=64,
                original=4096,
                trained=131072,  # as its card says: 40 · 4096 is stated
                served=163840,
                layout="interleaved",
                # mscale and mscale_all_dim are equal, so their ratio leaves cos and sin alone …
                attention_scaling=1.0,
                # … and the softmax scale carries the whole of it.
                softmax_scaling=(0.1 * 1.0 * math.log(40.0) + 1) ** 2,
            )
        ),
        "olmo-3-7b": sliding_and_full(
            unscaled(500000.0, 128, 65536),
            schedule(
                yarn(500000.0, 128, 8.0, 8192),
                base=500000.0,
                head_dim=128,
                original=8192,
                served=65536,
                attention_scaling=1.2079441541679836,
            ),
        ),
        "gemma-4-26b-a4b": sliding_and_full(
            unscaled(10000.0, 256, 262144),
            schedule(
                proportional(1000000.0, 512, 0.25),
                base=1000000.0,
                head_dim=512,
                original=262144,
                served=262144,
            ),
        ),
        "gpt-j-6b": {"refused": "gptj"},
    }


def as_json(content: dict[str, Any]) -> str:
    """Indented, with each list of numbers on one line."""
    text = json.dumps(content, indent=2)
    return re.sub(r"\[[^\[\]{}]*\]", lambda found: " ".join(found[0].split()), text) + "\n"


if __name__ == "__main__":
    for name, content in expected().items():
        (FOLDER / f"{name}.json").write_text(as_json(content), encoding="utf-8")
