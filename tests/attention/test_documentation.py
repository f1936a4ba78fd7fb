"""What docs/attention.md shows is executed, and its figures are those that are committed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from transformers import LlamaConfig, LlamaForCausalLM

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "attention.md").read_text(encoding="utf-8")
RESULTS = ROOT / "benchmarks" / "results"


def example(heading: str) -> str:
    section = DOCUMENT.split(f"## {heading}\n")[1].split("\n## ")[0]
    return section.split("```python\n")[1].split("```")[0]


def results(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / name).read_text())
    return found


def trained(namespace: dict[str, Any]) -> list[torch.Tensor]:
    return [p.grad for p in namespace["model"].parameters() if p.grad is not None]


@pytest.fixture
def namespace() -> dict[str, Any]:
    """What a reader's own training loop has by then."""
    config = LlamaConfig(
        vocab_size=32,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
    )
    torch.manual_seed(0)
    lengths = [5, 3]
    tokens = torch.randint(0, 32, (1, 1 + sum(lengths)))
    return {
        "torch": torch,
        "model": LlamaForCausalLM(config),
        "tokens": tokens,
        "document_lengths": lengths,
    }


def test_the_training_loop_of_a_few_lines_trains(namespace: dict[str, Any]) -> None:
    code = example("In your own training loop")
    exec(code, namespace)
    assert all(gradient.isfinite().all() for gradient in trained(namespace))
    assert len(trained(namespace)) == len(list(namespace["model"].parameters()))
    statements = [line for line in code.splitlines() if line and not line.startswith("from ")]
    assert len(statements) <= 6  # five, and a check


def test_the_sequence_parallel_loop_trains_alike(namespace: dict[str, Any], tmp_path: Path) -> None:
    exec(example("In your own training loop"), namespace)
    expected = [gradient.clone() for gradient in trained(namespace)]
    namespace["model"].zero_grad()
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    try:
        exec(example("Sequence parallelism"), namespace | {"ranks": 1})
    finally:
        dist.destroy_process_group()
    for got, wanted in zip(trained(namespace), expected, strict=True):
        torch.testing.assert_close(got, wanted)


def test_what_the_committed_run_has_to_show() -> None:
    """At 8k with 16 documents, five times faster than a dense mask; memory linear in length."""
    rows = results("attention_cpu.json")["records"]

    def find(what: str, length: int) -> dict[str, Any]:
        wanted = {"what": what, "length": length, "layout": "anchor", "documents": "512"}
        return next(row for row in rows if wanted.items() <= row.items())

    dense, ours = find("sdpa, dense mask", 8192), find("per_document", 8192)
    assert dense["seconds"] >= 5 * ours["seconds"]
    assert (
        find("per_document", 16_384)["peak_bytes"] <= 4.5 * find("per_document", 4096)["peak_bytes"]
    )
