"""The study of number formats: its verdict on a model with a sink, its tables, and its price."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.data.corpora import read_documents
from ropewalk.evaluation.encoding import Encoder
from ropewalk.models.config import present_plan
from ropewalk.models.load import LoadedModel, load
from ropewalk.number_formats.arms import ARMS
from ropewalk.number_formats.measurement import cut
from ropewalk.number_formats.results import SequenceMean
from studies.precision import cost, tables
from studies.precision.findings import Findings, first_token, ratio, summarise
from studies.precision.measurement import Measurement, StudySettings, forwards
from studies.precision.variants import with_sink

LENGTH = 12
OTHERS = [0.05, 0.06, 0.06, 0.06, 0.06, 0.06, 0.07, 0.09, 0.1, 0.1, 0.1]

SETTINGS = StudySettings(
    256,
    arms=("bf16",),
    weights=("given",),
    shifts=(0,),
    lengths=(64, 128, 256),
    sequences=5,
    anchored=False,
)


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    torch.set_num_threads(1)
    return load("bundled", dtype="float32", device="cpu")


def verdict_on(loaded: LoadedModel, model: Any) -> tuple[Findings, str]:
    variant = replace(loaded, model=model, present_plan=present_plan(model.config, "variant"))
    found = Measurement(variant, list(read_documents("held-out")), SETTINGS).run()
    return found, first_token(found.arms[0])


def test_the_verdict_confirms_the_paper_on_a_model_with_a_sink(loaded: LoadedModel) -> None:
    """Its flow stays below half, so a verdict by the flow denied it where it led all others."""
    sequences = list(cut(Encoder(loaded.tokenizer), list(read_documents("held-out")), 256, 4))
    found, line = verdict_on(loaded, with_sink(loaded.model, sequences, 8.0))
    [arm] = found.arms
    assert line == "has, on average over sequences, the largest part of D"
    assert arm.first_token_flow.mean < 0.5
    assert arm.first_token_ratio is not None
    assert arm.first_token_ratio.low is not None
    assert arm.first_token_ratio.low > 10
    without, line = verdict_on(loaded, loaded.model)
    assert "largest part" not in line
    assert without.arms[0].first_token_rank.overall > 1


def test_every_arm_has_a_row_and_no_three_sequences_an_interval() -> None:
    results = json.loads(tables.RESULTS.read_text(encoding="utf-8"))
    shown = tables.tables(results)
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


def attention(rng: np.random.Generator, sink: float) -> Any:
    """Causal rows that sum to one, the first column raised."""
    logits = rng.normal(size=(LENGTH, LENGTH))
    logits[:, 0] += sink
    logits[np.triu_indices(LENGTH, 1)] = -np.inf
    weights = np.exp(logits - logits.max(1, keepdims=True))
    return weights / weights.sum(1, keepdims=True)


def record(tokens: list[float], sequence: int = 0, scale: float = 1.0) -> dict[str, Any]:
    total = sum(tokens)
    return {
        "weights": "given",
        "arm": "bf16",
        "sequence": sequence,
        "group": 16,
        "first": 0,
        "second": 16,
        "lengths": [3, 6, LENGTH],
        "attention": [total / 4, total / 2, total],
        "logit": [scale * length**0.5 for length in (3, 6, LENGTH)],
        "losses": [2.0, 2.0],
        "tokens": tokens,
        "by_layer_and_head": {
            "attention": [[total / 2, total / 2]],
            "first_token": [[tokens[0], 0.0]],
            "logit": [[scale, 0.0]],
        },
    }


@given(seed=st.integers(0, 2**32 - 1), sink=st.floats(0, 30), change=st.floats(0.01, 3))
def test_no_token_carries_more_than_half_of_d(seed: int, sink: float, change: float) -> None:
    """Rows sum to one, so what the first column gains, the others lose."""
    rng = np.random.default_rng(seed)
    first = attention(rng, sink)
    second = attention(rng, sink + change)
    tokens = np.abs(first - second).sum(0) / np.arange(LENGTH, 0, -1)
    [arm] = summarise([record(tokens.tolist())], 16)
    assert arm.first_token_share.mean <= 0.5 + 1e-9
    assert 0 <= arm.first_token_flow.mean <= 1 + 1e-9


def test_all_flows_through_the_first_token_where_others_only_trade_with_it() -> None:
    # In rows 1 to 3 of four, 0.2 moves from the first token to another one.
    changes = np.array([0.6, 0.2, 0.2, 0.2])
    [arm] = summarise([record((changes / np.arange(4, 0, -1)).tolist())], 16)
    assert arm.first_token_flow.mean == pytest.approx(1)


def test_estimates_are_means_over_sequences_by_layer_and_head_too() -> None:
    one = [0.4, *[0.1] * (LENGTH - 1)]
    two = [0.8, *[0.1] * (LENGTH - 1)]
    [arm] = summarise([record(one, 0, 1.0), record(two, 1, 3.0)], 16)
    heads = arm.by_layer_and_head
    assert heads.first_token[0][0].mean == pytest.approx(0.6)
    assert heads.logit[0][0] == SequenceMean(2, None, None), "two sequences give no interval"
    assert heads.logit[0][1] == SequenceMean(0, None, None)
    assert sum(v.mean for v in heads.attention[0]) == pytest.approx(arm.strays.mean)
    assert arm.growth is not None
    assert arm.growth.mean == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("firsts", "sentence"),
    [
        (
            [0.5, 0.6, 0.5, 0.6, 0.5],
            "has, on average over sequences, the largest part of D",
        ),
        ([0.08, 0.09, 0.08, 0.09, 0.08], "has more than the median token's part of D"),
        ([0.02, 0.03, 0.02, 0.03, 0.02], "has less than the median token's part of D"),
        ([0.03, 0.2, 0.03, 0.2, 0.07], "cannot be told from the median token by its part of D"),
        ([0.5, 0.6, 0.5, 0.6], "is not judged from fewer than 5 sequences"),
    ],
)
def test_the_verdict_on_the_first_token_goes_by_rank_and_ratio(
    firsts: list[float], sentence: str
) -> None:
    arms = summarise([record([f, *OTHERS], i) for i, f in enumerate(firsts)], 16)
    assert first_token(arms[0]) == sentence


def test_the_ratio_is_a_geometric_mean_over_sequences() -> None:
    parts = [[0.1, *[0.1] * 4], [0.4, *[0.1] * 4]]
    [arm] = summarise([record(own, i) for i, own in enumerate(parts)], 16)
    assert arm.first_token_ratio == pytest.approx((2, None, None))
    assert arm.first_token_rank == (1, 1, 1, 5)
    [still] = summarise([record([0.0] * 5, i) for i in range(2)], 16)
    assert still.first_token_ratio is None


def test_a_ratio_of_two_arms_is_paired_by_sequence() -> None:
    scales = (1.0, 2.0, 4.0, 8.0, 16.0)
    ours = [record([scale * part for part in OTHERS], i) for i, scale in enumerate(scales)]
    theirs = [{**r, "arm": "fp32", "attention": [a / 3 for a in r["attention"]]} for r in ours]
    arms = summarise([*ours, *theirs], 16)
    assert ratio(*arms) == pytest.approx((3, 3, 3))
