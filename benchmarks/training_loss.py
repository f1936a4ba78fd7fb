"""Memory and time of the loss in parts, next to transformers' own over whole logits.

    python -m benchmarks.training_loss     half a minute, 6 GiB; writes results/training_loss.json

A llama with the vocabulary of Llama 3 reads one window, forward and backward. It has one narrow
layer, so nearly all of its memory is logits. Each loss runs in a process of its own, and is charged
the CPU time and the memory beyond what the model takes with its gradients.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.machine import PAGE, machine, measured_on
from ropewalk.training.loss import prepare_loss, summed_loss

VOCABULARY, TOKENS, WIDTH = 128_256, 4096, 128
COMMAND = "python -m benchmarks.training_loss"
RESULTS = Path(__file__).with_name("results") / "training_loss.json"


def main() -> int:
    if len(sys.argv) > 1:
        print(json.dumps(one(sys.argv[1])))
        return 0
    rows = {name: _apart(name) for name in LOSSES}
    ours, stock = rows["parts"], rows["stock"]
    assert abs(ours["loss"] / stock["loss"] - 1) < 1e-5
    where = {**machine(), "torch": torch.__version__}
    found = {"tokens": TOKENS, "vocabulary": VOCABULARY, "rows": rows, "machine": where}
    RESULTS.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print(sentence(found))
    return 0


def _apart(name: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.training_loss", name],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def one(name: str) -> dict[str, Any]:
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=WIDTH, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=TOKENS,
    )  # fmt: skip
    torch.manual_seed(0)
    model = LlamaForCausalLM(config).train()
    prepare_loss(model)
    tokens = torch.randint(0, VOCABULARY, (1, TOKENS))
    targets = tokens.roll(-1, dims=1)
    for own in model.parameters():
        own.grad = torch.zeros_like(own)
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before, begin = _peak(), time.process_time()
    loss = LOSSES[name](model, tokens, targets)
    torch.autograd.backward(loss)
    seconds = time.process_time() - begin
    return {"mib": _peak() - before, "cpu_seconds": seconds, "loss": loss.item()}


def _stock(model: Any, tokens: Tensor, targets: Tensor) -> Tensor:
    loss: Tensor = model(
        input_ids=tokens, labels=targets, shift_labels=targets, use_cache=False
    ).loss
    return loss


def _parts(model: Any, tokens: Tensor, targets: Tensor) -> Tensor:
    return summed_loss(model, targets, {"input_ids": tokens}) / TOKENS


LOSSES: dict[str, Callable[[Any, Tensor, Tensor], Tensor]] = {"stock": _stock, "parts": _parts}


def _peak() -> float:
    """MiB that this process has taken at most."""
    [line] = [x for x in Path("/proc/self/status").read_text().splitlines() if x[:6] == "VmHWM:"]
    return int(line.split()[1]) / 1024


def blocks() -> dict[str, str]:
    if not RESULTS.exists():
        return {}
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    where = measured_on(found["machine"], COMMAND)
    return {PAGE: f"{sentence(found)}\n\n{where}."}


def sentence(found: dict[str, Any]) -> str:
    stock, parts = found["rows"]["stock"], found["rows"]["parts"]
    lines = [
        f"{found['tokens']:,} tokens, a vocabulary of {found['vocabulary']:,}, forward and "
        "backward of a model of one narrow layer:",
        "",
        "| loss | memory | CPU seconds |",
        "|---|---|---|",
        f"| transformers, `labels=` | {stock['mib']:,.0f} MiB | {stock['cpu_seconds']:.2g} |",
        f"| ropewalk, in parts | {parts['mib']:,.0f} MiB | {parts['cpu_seconds']:.2g} |",
        "",
        f"That is 1/{stock['mib'] / parts['mib']:.0f} of the memory.",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
