"""Exports of families that stock transformers once refused, and what goes along with a model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import FalconConfig, FalconForCausalLM

import ropewalk as rw
from ropewalk.models.config import load_config, present_plan
from ropewalk.planning.extension import extend_plan
from ropewalk.runtimes import targets
from tests.exporting.folders import TARGET, proven, saved
from tests.models.tiny import WINDOW

STOCK = targets()["transformers"]


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("method", ["ntk_mixed", "yarn"])
def test_falcon_loads_though_its_class_computes_the_head_size(method: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = FalconConfig(
        vocab_size=64,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=WINDOW,
    )
    FalconForCausalLM(config).save_pretrained(tmp_path / "falcon")
    source = str(tmp_path / "falcon")
    plan = extend_plan(present_plan(source), TARGET, method)
    made = targets()["vllm"].write(source, plan, tmp_path / "out")
    assert proven(made).passed
    assert "head_dim" not in load_config(tmp_path / "out")
    assert rw.verify(tmp_path / "out", run=False).verdict != "wrong"


@pytest.mark.usefixtures("in_process")
def test_an_export_raises_where_generate_stops_and_tells_of_a_window(tmp_path: Path) -> None:
    source = saved(tmp_path / "source", "mistral")
    limits = Path(source) / "generation_config.json"
    limits.write_text(json.dumps({"max_length": WINDOW, "bos_token_id": 1}), encoding="utf-8")
    plan = extend_plan(present_plan(source), TARGET, "ntk")
    made = STOCK.write(source, plan, tmp_path / "out")
    written = json.loads((tmp_path / "out" / "generation_config.json").read_text("utf-8"))
    assert written == {"max_length": TARGET, "bos_token_id": 1}
    assert any("sliding_window" in warning for warning in made.warnings)
    found = {finding.trap: finding for finding in rw.verify(tmp_path / "out", run=False).warnings}
    assert not found["window-in-every-layer"].wrong
    assert "generation-limit" not in found
