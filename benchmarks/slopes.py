"""What a backward pass of a search by gradient takes: memory measured, and cost for real models.

    python -m benchmarks.slopes             measures, prints, and writes results/slopes.json

Measured is the growth of a process's peak on a model of one narrow layer, at lengths up to 128k,
where layers are computed again in the backward pass and where all is kept; each in a process of its
own, since a peak never comes down. The cost for real models is calculated from their shapes: it was
not measured.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.machine import machine

RESULTS = Path(__file__).with_name("results") / "slopes.json"
LENGTHS = {True: [2**n * 1024 for n in range(3, 8)], False: [2**n * 1024 for n in range(3, 6)]}
TARGET = 2**17
SHAPES: dict[str, dict[str, Any]] = {
    "Llama 3 8B": {
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
    },
    "Qwen3 0.6B": {
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151936,
        "tie_word_embeddings": True,
    },
}
SUSTAINED = 400e12
"""Floating-point operations a second that are assumed: 40% of the peak of an H100 in bf16."""
MEASURED = """
import json, resource, sys
import numpy as np, torch
from transformers import LlamaConfig, LlamaForCausalLM
from ropewalk.context_plan import FULL_ATTENTION
from ropewalk.evaluation.scoring import Scorer
from ropewalk.models.config import present_plan
from ropewalk.models.install import applied
from ropewalk.models.heads import head_layouts
from ropewalk.models.slopes import differentiable

def peak():
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit

length, recompute = int(sys.argv[1]), sys.argv[2] == "True"
torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(
    vocab_size=512, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
    num_attention_heads=1, num_key_value_heads=1, max_position_embeddings=length,
)).eval()
plan, scorer = present_plan(model.config), Scorer(model)
layouts = head_layouts(model, FULL_ATTENTION)

def slopes(tokens):
    weights = np.full(16, 1 / 16)
    with applied(model, plan, check=False), differentiable(
        model, plan.longest(), layouts, recompute=recompute
    ) as coordinates:
        scorer.loss(tokens, len(tokens) - 16, weights).backward()
        return coordinates.slopes()

tokens = np.random.default_rng(0).integers(0, 512, size=length)
slopes(tokens[:256])
before = peak()
found = slopes(tokens)
print(json.dumps({"bytes": peak() - before, "finite": bool(torch.isfinite(found).all())}))
"""


def measure(length: int, recompute: bool) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(length), str(recompute)],
        check=True,
        capture_output=True,
        text=True,
    )
    return {"length": length, "recompute": recompute, **json.loads(done.stdout)}


def calculated(name: str) -> dict[str, Any]:
    """Operations of a pass over the target, weights frozen, with layers computed again."""
    import torch
    from transformers import LlamaConfig

    from ropewalk.searching.descent import PASSES
    from ropewalk.searching.model.gradient import needed

    config = LlamaConfig(**SHAPES[name])
    head_dim = config.head_dim
    queries, keys = (n * head_dim for n in (config.num_attention_heads, config.num_key_value_heads))
    layer = config.hidden_size * (2 * queries + 2 * keys + 3 * config.intermediate_size)
    linear = 2 * TARGET * layer * config.num_hidden_layers
    attention = 4 * TARGET**2 * queries * config.num_hidden_layers / 2  # half of it is masked
    # Frozen weights need no gradient, so a linear map's backward is one more product; that of
    # attention is two and a half forwards.
    operations = (1 + 1 + 1) * linear + (1 + 1 + 2.5) * attention
    weights = layer * config.num_hidden_layers + config.vocab_size * config.hidden_size * (
        1 if config.tie_word_embeddings else 2
    )
    seconds = operations / SUSTAINED
    return {
        "model": name,
        "operations": operations,
        "weights_bytes": 2 * weights,
        "pass_bytes": needed(config, torch.bfloat16, TARGET, True),
        "seconds": round(seconds, 1),
        "hours": round(PASSES * seconds / 3600, 2),
        "passes": PASSES,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.parse_args()
    rows = [measure(length, again) for again in LENGTHS for length in LENGTHS[again]]
    value = {
        "machine": machine(),
        "measured": rows,
        "calculated": [calculated(name) for name in SHAPES],
        "sustained": SUSTAINED,
    }
    RESULTS.write_text(json.dumps(value, indent=1) + "\n")
    print(page(value))


def page(value: dict[str, Any]) -> str:
    """Two tables."""
    lines = ["| tokens | layers computed again | all kept |", "|---|---|---|"]
    by_length: dict[int, dict[bool, str]] = {}
    for row in value["measured"]:
        by_length.setdefault(row["length"], {})[row["recompute"]] = (
            f"{row['bytes'] / 2**20:.0f} MiB"
        )
    for length, found in by_length.items():
        lines.append(f"| {length // 1024}k | {found[True]} | {found.get(False, 'not run')} |")
    lines += [
        "",
        f"At {TARGET // 1024}k tokens, in bf16 with layers computed again, at "
        f"{value['sustained'] / 1e12:.0f} TFLOP/s (calculated, not measured):",
        "",
        "| | weights | a pass | a pass takes | all passes |",
        "|---|---|---|---|---|",
    ]
    for row in value["calculated"]:
        lines.append(
            f"| {row['model']} | {row['weights_bytes'] / 2**30:.1f} GiB | "
            f"{row['pass_bytes'] / 2**30:.1f} GiB | {row['seconds']:.0f} s | "
            f"{row['passes']} in {row['hours']:.1f} h |"
        )
    return "\n".join(lines)


def blocks() -> dict[str, str]:
    return {"docs/search.md": page(json.loads(RESULTS.read_text()))}


if __name__ == "__main__":
    main()
