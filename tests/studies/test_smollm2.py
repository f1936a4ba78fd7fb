"""The study of SmolLM2: what its committed cells are, and how they are summed up."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ropewalk.data.corpora import HELD_OUT, read_documents
from ropewalk.errors import RopewalkError
from ropewalk.evaluation.encoding import Encoder
from ropewalk.models.load import LoadedModel, load
from ropewalk.number_formats.measurement import cut
from ropewalk.schedule import RotaryGeometry, RotarySchedule
from ropewalk.theory.decay import decay
from studies.precision.measurement import Measurement
from studies.smollm2 import distance, precision, served
from studies.smollm2.cells import DOCUMENTS, Cell, kept
from studies.smollm2.methods import (
    CELLS,
    METHODS,
    PREDICTED,
    SHORT,
    TARGET,
    mean,
    order,
    table,
)
from studies.steps import Step, usage


def cell(document: int, method: str, right: int) -> Cell:
    answers = tuple(i < right for i in range(8))
    return Cell(
        document, f"text {document}@0", method, TARGET, 1.5, (0.5,) * 8, answers, (0.1,) * 8, 1.0
    )


def test_the_committed_cells_are_each_there_once_and_of_the_same_facts() -> None:
    cells = kept(CELLS)
    assert len({each.key for each in cells}) == len(cells) > 0
    for each in cells:
        assert each.method in METHODS
        assert each.length in (TARGET, SHORT)
        assert each.document < DOCUMENTS
        assert len(each.answers) == len(each.right) == len(each.depths) == 8
        assert all(map(math.isfinite, (each.text, *each.answers)))
    sources = {each.document: each.source for each in cells}
    assert all(each.source == sources[each.document] for each in cells)


def test_a_difference_is_paired_over_documents() -> None:
    cells = [cell(i, "yarn", 4 + i % 3) for i in range(6)]
    cells += [cell(i, "linear", 2 + i % 3) for i in range(6)]
    apart = mean(cells, "yarn", TARGET, "right", "linear")
    assert apart is not None
    assert apart.interval == pytest.approx((0.25, 0.25))
    assert mean(cells[:6], "linear", TARGET, "right") is None


def test_a_share_that_is_the_same_everywhere_keeps_a_width() -> None:
    own = mean([cell(i, "linear", 0) for i in range(6)], "linear", TARGET, "right")
    assert own is not None
    assert own.interval is not None
    assert own.interval[1] > 0.02
    assert "| linear | 16k | 6 | 0% (0 to" in table([cell(i, "linear", 0) for i in range(6)])


def test_an_order_fails_only_by_a_difference_that_is_decided() -> None:
    rights = dict(zip(PREDICTED, (5, 4, 4, 1), strict=True))
    cells = [cell(i, method, n + i % 2) for method, n in rights.items() for i in range(6)]
    held = order(cells)
    assert held.startswith("No difference contradicts")
    assert "yarn over linear" in held
    assert "llama3 over ntk" not in held
    worse = [each._replace(right=(False,) * 8) if each.method == "yarn" else each for each in cells]
    assert "fails: llama3 over yarn, ntk over yarn, linear over yarn" in order(worse)


def test_a_step_is_measured_with_the_processes_it_starts() -> None:
    step = Step("", "inspect llama-3-8b --json", '"model"')
    found = served.JOURNEY.measured(step)
    assert found["of the command"]["peak GiB"] > 0.01
    assert found["of the command"]["CPU minutes"] >= 0
    assert found["of the command"]["said"].startswith('"model"')
    own = usage(os.getpid())
    assert 0.01 < own["peak GiB"] < 64
    with pytest.raises(RopewalkError, match="inspect nothing ended with"):
        served.JOURNEY.measured(Step("", "inspect nothing", ""))


def test_the_effective_length_is_what_theory_says_of_this_geometry() -> None:
    schedule = RotarySchedule.plain(RotaryGeometry(64, 64, 100_000.0, distance.WINDOW))
    assert decay(schedule, distance.WINDOW).effective_length == distance.EFFECTIVE


def test_the_committed_cells_of_distance_are_of_the_model_as_it_is() -> None:
    cells = kept(distance.CELLS)
    assert len({each.key for each in cells}) == len(cells)
    for each in cells:
        assert each.method == "none"
        assert each.length in distance.LENGTHS
    known = {each.document: each.source for each in kept(CELLS)}
    assert all(known.get(each.document, each.source) == each.source for each in cells)


def test_facts_are_counted_by_their_distance() -> None:
    own = [cell(0, "none", 3)._replace(length=8192, depths=(0.9, 0.8, 0.7, 0.6, 0.4, 0.3, 0.2, 0))]
    near = distance.retrieved(own, lambda far: far <= distance.EFFECTIVE)
    beyond = distance.retrieved(own, lambda far: far > distance.EFFECTIVE)
    assert (near.right, near.facts, beyond.right, beyond.facts) == (3, 4, 0, 4)
    value, _ = distance.far_less_near(own, distance.EFFECTIVE, 0.5)
    assert value == pytest.approx(-0.375)


def test_a_prediction_ends_in_one_of_three_words() -> None:
    depths = (0.95, 0.9, 0.85, 0.8, 0.4, 0.3, 0.2, 0)
    own = [cell(i, "none", 8)._replace(length=8192, depths=depths) for i in range(6)]
    far_as_near = distance.verdicts(own)[0]
    assert far_as_near.startswith("Prediction 1 is failed")
    assert distance.verdicts([each._replace(right=(True,) * 4 + (False,) * 4) for each in own])[
        0
    ].startswith("Prediction 1 is held")
    mixed = [
        each._replace(right=(True,) * (4 + i) + (False,) * (4 - i))
        for i, each in zip((0, 4, 1, 4, 2, 3), own, strict=True)
    ]
    assert "undecided" in distance.verdicts(mixed)[0]


@pytest.fixture(scope="module")
def bundled() -> LoadedModel:
    return load("bundled", dtype="float32", device="cpu")


def test_activations_are_those_of_every_layer_but_the_last(bundled: LoadedModel) -> None:
    encoder = Encoder(bundled.tokenizer, bundled.vocabulary)
    sequences = list(cut(encoder, list(read_documents(HELD_OUT)), 64, 2))
    largest, median = precision.activations(bundled, sequences)
    assert largest.shape == (bundled.model.config.num_hidden_layers - 1, 64)
    assert (largest > median[:, None]).all()


def test_what_is_told_of_a_part_can_be_read_back(bundled: LoadedModel) -> None:
    settings = replace(
        precision.PARTS["shifts"], length=32, lengths=(32,), shifts=(0, 8, 50), anchored=False
    )
    measurement = Measurement(bundled, list(read_documents(HELD_OUT)), settings)
    found = measurement.run()
    told = precision.told_of(found)
    arm = told["arms"]["bf16, given"]
    assert arm["strays"].mean > 0
    assert arm["predicted"].mean <= 1
    said = precision.sink(bundled, measurement.sequences, found)
    assert said["heads"] == 12
    assert -1 <= said["rank_correlation"] <= 1


def test_a_rank_correlation_is_of_ranks() -> None:
    assert precision.spearman(np.arange(5.0), np.exp(np.arange(5.0))) == pytest.approx(1)
    assert precision.spearman(np.arange(5.0), -np.arange(5.0)) == pytest.approx(-1)


def test_a_claim_is_judged_by_its_interval() -> None:
    own: dict[str, Any] = {
        "ratio": [50, 20, 80],
        "growth": [0.03, 0.01, 0.05],
        "rank": [1, 1, 1, 8],
    }
    part = {"arms": {"bf16, given": own}, "bf16 over fp32": [100, 90, 110]}
    sink = {"over_median": [5, 2000], "elsewhere_over_median": [4, 90]}
    [_, said] = precision.verdicts({"parts": {"first token": part}, "sink": sink})
    assert said == (
        "*Broken*: seen; *Grows with length*: contradicted; *The first token dominates*: seen; "
        "*Massive activations*: seen."
    )
    own |= {"ratio": [5, 0.5, 20], "growth": [0.1, 0.0, 0.3]}
    sink["elsewhere_over_median"] = [4, 1200]
    [_, said] = precision.verdicts({"parts": {"first token": part}, "sink": sink})
    assert said.count("undecided") == 2
    assert "*Massive activations*: not seen" in said
    assert precision.verdicts({"parts": {}}) == []
