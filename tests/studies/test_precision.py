"""The study of number formats: its verdict on a model with a sink, its tables, and its price."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import torch

from ropewalk.data.corpora import read_documents
from ropewalk.evaluation.encoding import Encoder
from ropewalk.models.config import present_plan
from ropewalk.models.load import LoadedModel, load
from ropewalk.number_formats.arms import ARMS
from ropewalk.number_formats.results import Findings
from ropewalk.number_formats.runner import Measurement, PrecisionSettings, cut, forwards
from studies.precision import cost, tables
from studies.precision.variants import with_sink

SETTINGS = PrecisionSettings(
    256,
    arms=("bf16",),
    weights=("given",),
    shifts=(0,),
    lengths=(64, 128, 256),
    sequences=5,
    anchored=False,
    retrieval_samples=0,
    loading=False,
)


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    torch.set_num_threads(1)
    return load("bundled", dtype="float32", device="cpu")


def verdict_on(loaded: LoadedModel, model: Any) -> tuple[Findings, str]:
    variant = replace(loaded, model=model, present_plan=present_plan(model.config, "variant"))
    found = Measurement(variant, list(read_documents("held-out")), SETTINGS).run()
    [line] = [line for line in found.diagnosis if "the first token " in line and "rank" in line]
    return found, line


def test_the_verdict_confirms_the_paper_on_a_model_with_a_sink(loaded: LoadedModel) -> None:
    """Its flow stays below half, so a verdict by the flow denied it where it led all others."""
    sequences = list(cut(Encoder(loaded.tokenizer), list(read_documents("held-out")), 256, 4))
    found, line = verdict_on(loaded, with_sink(loaded.model, sequences, 8.0))
    [arm] = found.arms
    assert "has, on average over sequences, the largest part of D: rank 1 of 256" in line
    assert arm.first_token_flow.mean < 0.5
    assert arm.first_token_ratio is not None
    assert arm.first_token_ratio.low is not None
    assert arm.first_token_ratio.low > 10
    without, line = verdict_on(loaded, loaded.model)
    assert "largest part" not in line
    assert without.arms[0].first_token_rank.overall > 1


def test_every_arm_has_a_row_and_no_three_sequences_an_interval() -> None:
    results = json.loads(tables.RESULTS.read_text(encoding="utf-8"))
    shown = tables.summary(results)
    for name in ARMS:
        assert f"| `{name}` |" in shown
    assert "no TF32 units" in shown
    assert all(part["sequences"] >= 5 for part in results["parts"].values())


def test_the_cost_counts_what_a_measurement_does(loaded: LoadedModel) -> None:
    asked = replace(SETTINGS, length=16, lengths=(16,), weights=("given", "kaiming"))
    asked = replace(asked, arms=("fp32", "bf16"), shifts=(0, 2, 4), sequences=2, anchored=True)
    seen: list[int] = []
    measurement = Measurement(loaded, list(read_documents("held-out")), asked)
    measurement.run(None, lambda done, _total: seen.append(done))
    assert seen[-1] == forwards(asked)


def test_the_command_that_would_settle_it_is_in_the_study() -> None:
    page = (tables.HERE / "README.md").read_text(encoding="utf-8")
    model = cost.MODELS[0]
    assert f"    {cost.command(model)}\n" in page
    found = cost.cost(model, cost.settings())
    assert found.tokens == found.forwards * cost.LENGTH
    assert found.operations > 2 * model.parameters * found.tokens
