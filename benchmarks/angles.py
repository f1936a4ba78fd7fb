"""The error of a stock module's angles in float32, up to two million tokens.

    python -m benchmarks.angles            a few seconds

transformers' own rotary module of Llama, heads of 128, against float64. A position times a
frequency is rounded to 24 bits, so an angle of a million is known to a sixteenth of a radian; a
frequency is rounded too, which matters as much. Slow pairs, whose angles stay small, stay exact.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from benchmarks.machine import PAGE, machine
from ropewalk.lengths import format_length
from ropewalk.outputs import write_atomically
from ropewalk.schedule import RotaryGeometry, RotarySchedule

RESULTS = Path(__file__).with_name("results") / "angles.json"
BASES = (10_000.0, 500_000.0, 1e8)
LENGTHS = tuple(2**power for power in (17, 19, 20, 21))
HEAD, LAST = 128, 4096
"""Errors are taken over this many last positions of a length."""
FAR = 0.01


def main() -> None:
    rows = [measured(base, length) for base in BASES for length in LENGTHS]
    write_atomically(RESULTS, json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n")
    print(table())


def measured(base: float, length: int) -> dict[str, float]:
    """Errors of cos and sin, and of the angle between two tokens, near the end of a length."""
    config = LlamaConfig(
        hidden_size=HEAD,
        num_attention_heads=1,
        max_position_embeddings=length,
        rope_parameters={"rope_type": "default", "rope_theta": base},
    )
    positions = torch.arange(length - LAST, length)[None]
    cos, sin = LlamaRotaryEmbedding(config)(torch.zeros(1, 1, HEAD), positions)
    half = slice(0, HEAD // 2)
    stock = np.angle(cos[0, :, half].double().numpy() + 1j * sin[0, :, half].double().numpy())
    exact = RotarySchedule.plain(RotaryGeometry(HEAD, HEAD, base, length)).angles(
        positions[0].numpy()
    )
    error = np.abs((stock - exact + np.pi) % (2 * np.pi) - np.pi)
    between = np.abs(((stock - exact)[1:] - (stock - exact)[:-1] + np.pi) % (2 * np.pi) - np.pi)
    worst = error.max(0)
    return {
        "base": base,
        "length": length,
        "worst": float(worst.max()),
        "median": float(np.median(error)),
        "pairs": int((worst > FAR).sum()),
        "neighbours": float(between.max()),
    }


SHOWN = (2**17, 2**21)
"""The lengths that the page shows."""


def blocks() -> dict[str, str]:
    return {PAGE: table()}


def table() -> str:
    lines = [
        "| base | position | worst error of an angle | pairs beyond 0.01, of 64 "
        "| worst error between neighbours |",
        "|---" * 5 + "|",
    ]
    for row in json.loads(RESULTS.read_text("utf-8"))["rows"]:
        if row["length"] not in SHOWN:
            continue
        lines.append(
            f"| {row['base']:,.0f} | {format_length(row['length'])} | {row['worst']:.3f} "
            f"| {row['pairs']} | {row['neighbours']:.3f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
