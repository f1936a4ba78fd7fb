"""The cost of switching plans in a live model, compared with loading it anew.

    python -m benchmarks.install            prints the table and writes results/install.json

The model is a random llama of 24 layers and some 20 million weights, so that loading it is as cheap
as it gets: a real model takes as much longer to load as it is larger, and swaps in the same time.
The four ways run in turn; the figures are medians.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, LlamaConfig
from transformers.utils import logging

from benchmarks.machine import machine
from ropewalk.context_plan import ContextPlan
from ropewalk.models.config import present_plan
from ropewalk.models.install import install
from ropewalk.planning.extension import extend_plan

ROUNDS = 21
TARGET = 32768


def main() -> None:
    logging.disable_progress_bar()
    config = LlamaConfig(
        vocab_size=512,
        hidden_size=256,
        intermediate_size=704,
        num_hidden_layers=24,
        num_attention_heads=4,
        max_position_embeddings=4096,
    )
    model = AutoModelForCausalLM.from_config(config)
    present = present_plan(config)
    plans = [extend_plan(present, TARGET, name) for name in ("yarn", "ntk")]
    kept = [_keeping_initial_positions(plan) for plan in plans]
    ways: dict[str, Callable[[int], object]] = {
        "swap": lambda i: install(model, plans[i % 2], check=False),
        "swap, kept positions": lambda i: install(model, kept[i % 2], check=False),
        "install, with its check": lambda i: install(model, plans[i % 2]),
    }
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        ways["load the model anew"] = lambda i: AutoModelForCausalLM.from_pretrained(folder)
        times: dict[str, list[float]] = {name: [] for name in ways}
        for i in range(ROUNDS + 2):
            for name, way in ways.items():
                start = time.perf_counter()
                way(i)
                times[name].append(time.perf_counter() - start)
    # The first two rounds fill caches.
    medians = {name: statistics.median(values[2:]) for name, values in times.items()}
    for name, median in medians.items():
        print(f"{name:26}{1e6 * median:12,.0f} µs")
    result = {
        "machine": {**machine(), "torch": torch.__version__},
        "weights": model.num_parameters(),
        "rounds": ROUNDS,
        "median_seconds": medians,
    }
    path = Path(__file__).parent / "results" / "install.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(result, indent=2) + "\n")


def _keeping_initial_positions(plan: ContextPlan) -> ContextPlan:
    """The same plan, as only a rotary module of ours can follow it."""
    schedules = {
        layer_type: tuple(
            replace(step, schedule=replace(step.schedule, kept_initial_positions=4))
            for step in steps
        )
        for layer_type, steps in plan.schedules.items()
    }
    return ContextPlan(plan.model, schedules)


if __name__ == "__main__":
    main()
