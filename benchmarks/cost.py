"""The memory that `ropewalk cost` calculates, beside what a process really takes.

    python -m benchmarks.cost            runs what is missing: about 15 minutes of one core
    python -m benchmarks.cost --report

Each case runs in a process of its own, in float32 on the CPU, and tells by how much its peak is
above that of the imports. Finished cases are kept in results/cost.json. The allowance, which is for
what a GPU's driver and libraries take, is left out on both sides.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal, NamedTuple

from benchmarks.machine import machine, measured_on
from ropewalk.costs.estimates import SINGLE, Way, Work, evaluating, training
from ropewalk.costs.machines import GIB, HERE
from ropewalk.costs.machines import machine as device
from ropewalk.costs.sizes import sizes_of

RESULTS = Path(__file__).parent / "results" / "cost.json"
WITHIN = 0.15
"""How far the formulas may be off, by the aim."""


class Case(NamedTuple):
    """One measurement."""

    does: Literal["evaluate", "train", "train --recompute"]
    layout: str
    length: int
    config: dict[str, Any]


def _llama(hidden: int, inner: int, layers: int, vocabulary: int, **more: Any) -> dict[str, Any]:
    return {
        "model_type": "llama", "hidden_size": hidden, "intermediate_size": inner,
        "num_hidden_layers": layers, "num_attention_heads": hidden // 64,
        "num_key_value_heads": hidden // 256, "head_dim": 64, "vocab_size": vocabulary,
        "max_position_embeddings": 65536, "rope_theta": 500000.0, "tie_word_embeddings": False,
        **more,
    }  # fmt: skip


WIDE, DEEP = _llama(1024, 4096, 4, 4000), _llama(512, 1536, 12, 4000)
HEAVY = _llama(1024, 4096, 12, 16000)
CASES = {
    "evaluate, 8k": Case("evaluate", "", 8192, HEAVY),
    "evaluate, 16k": Case("evaluate", "", 16384, HEAVY),
    "train, full, 4k": Case("train", "full", 4096, DEEP),
    "train, anchor, 4k": Case("train", "anchor", 4096, DEEP),
    "train, full, 2k, other shape": Case("train", "full", 2048, WIDE),
    "train --recompute, full, 16k": Case("train --recompute", "full", 16384, DEEP),
    "train --recompute, anchor, 16k": Case("train --recompute", "anchor", 16384, DEEP),
    "train, heavy weights, 512": Case("train", "full", 512, HEAVY),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--report", action="store_true", help="run nothing")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.case:
        print(json.dumps({"bytes": measured(CASES[asked.case])}))
        return
    if not asked.report:
        run()
    print(blocks()["docs/cost.md"])


def run() -> None:
    found = recorded()
    for name in CASES:
        if name in found["bytes"]:
            continue
        command = [sys.executable, "-m", "benchmarks.cost", "--case", name]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found["bytes"][name] = json.loads(said.splitlines()[-1])["bytes"]
        print(f"{name}: {found['bytes'][name] / GIB:.2f} GiB", flush=True)
        RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def recorded() -> dict[str, Any]:
    if RESULTS.exists():
        own: dict[str, Any] = json.loads(RESULTS.read_text("utf-8"))
        return own
    import torch

    return {"machine": {**machine(), "torch": torch.__version__}, "bytes": {}}


def calculated(case: Case) -> Way:
    """By the formulas, for numbers of four bytes."""
    work = Work(sizes_of(case.config), case.length, device(HERE), case.length, SINGLE)
    if case.does == "evaluate":
        return next(evaluating(work))
    return next(
        way for way in training(work) if way.told == case.does.removeprefix("train").strip()
    )


def measured(case: Case) -> int:
    """The peak of this process above that of its imports."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from ropewalk.attention import AttentionLayout, interface
    from ropewalk.evaluation.scoring import Scorer
    from ropewalk.training.loss import prepare_loss, summed_loss

    torch.set_num_threads(1)
    before = _peak()
    config = dict(case.config)
    made = AutoConfig.for_model(config.pop("model_type"), **config)
    model = AutoModelForCausalLM.from_config(made, dtype=torch.float32)
    tokens = torch.randint(config["vocab_size"], (1, case.length))
    if case.does == "evaluate":
        Scorer(model, in_chunks=True).score([tokens[0].numpy()], [case.length - 16])
        return _peak() - before
    interface.register()
    model.set_attn_implementation(interface.NAME)
    if case.does == "train --recompute":
        model.gradient_checkpointing_enable({"use_reentrant": False})
    prepare_loss(model)
    model.train()
    layout = AttentionLayout.full([case.length])
    if case.layout == "anchor":
        layout = AttentionLayout.anchor([case.length // 4] * 3 + [case.length // 4 - 1])
    positions = torch.tensor(layout.positions)[None]
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):  # the second has the optimizer's state
        inputs = {"input_ids": tokens, "position_ids": positions, "layout": layout}
        torch.autograd.backward(summed_loss(model, tokens, inputs) / case.length)
        optimizer.step()
        optimizer.zero_grad()
    return _peak() - before


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def blocks() -> dict[str, str]:
    found = recorded()
    lines = ["| case | measured | calculated | off by |", "|---|---|---|---|"]
    for name, case in CASES.items():
        formula = sum(calculated(case).parts.values())
        if name not in found["bytes"]:
            lines.append(f"| {name} | not yet | {formula / GIB:.2f} GiB | |")
            continue
        seen = found["bytes"][name]
        off = formula / seen - 1
        lines.append(f"| {name} | {seen / GIB:.2f} GiB | {formula / GIB:.2f} GiB | {off:+.0%} |")
    said = measured_on(found["machine"], "python -m benchmarks.cost")
    return {"docs/cost.md": "\n".join([*lines, "", f"{said}.", ""])}


if __name__ == "__main__":
    main()
