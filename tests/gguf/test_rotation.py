"""From the header of a GGUF file to the plan that llama.cpp makes it follow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ropewalk as rw
from ropewalk.context_plan import FULL_ATTENTION, ContextPlan
from ropewalk.errors import InputError, InvalidValue
from ropewalk.exporting import llama_cpp
from ropewalk.gguf.header import FREQUENCIES, LONG, SHORT, read_header
from ropewalk.gguf.rotation import DEFAULT_BASE, geometry_of, present_plan
from ropewalk.planning.extension import extend
from ropewalk.runtimes import named
from ropewalk.schedule import RotaryGeometry, RotarySchedule
from tests.api.conformance import check_command, check_result
from tests.gguf.gguf_cases import SCHEDULES, named_plan, unproven
from tests.gguf.gguf_files import HEAD, PAIRS, header_only

FACTORS = np.geomspace(1, 8, PAIRS).astype(np.float32)
GEOMETRY = RotaryGeometry(HEAD, HEAD, 500_000.0, 512)
PLAIN = RotarySchedule.plain(GEOMETRY)


def plan_of(path: Path, **content: Any) -> ContextPlan:
    return present_plan(read_header(header_only(path / "a.gguf", **content)), "small")


def test_a_file_without_scaling_serves_its_context_by_plain_frequencies(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    assert (plan.model, plan.target_length, plan.original_length) == ("small", 4096, 512)
    assert plan.longest().geometry == GEOMETRY
    assert plan.longest().rescale_factors == pytest.approx(np.ones(PAIRS))
    assert plan.longest().length == 4096
    assert plan.provenance["model_type"] == "llama"


@pytest.mark.parametrize("method", ["linear", "yarn"])
@pytest.mark.parametrize("attention", [1.0, 1.25])
def test_a_scaling_type_is_its_method(method: str, attention: float, tmp_path: Path) -> None:
    keys = {
        "rope.scaling.type": method,
        "rope.scaling.factor": 8.0,
        "rope.scaling.attn_factor": attention,
    }
    found, said = plan_of(tmp_path, keys=keys).longest(), extend(PLAIN, 4096, method)
    np.testing.assert_allclose(found.rescale_factors, said.rescale_factors, rtol=1e-12)
    assert found.attention_scaling == pytest.approx(said.attention_scaling * attention)
    assert found.recipe == extend(PLAIN, 4096, method, {"factor": 8.0}).recipe


def test_the_older_key_of_the_factor_is_read_where_the_newer_is_missing(tmp_path: Path) -> None:
    for more, expected in (({}, 4.0), ({"rope.scaling.factor": 2.0}, 2.0)):
        plan = plan_of(tmp_path, keys={"rope.scale_linear": 4.0, **more})
        assert plan.longest().rescale_factors == pytest.approx(np.full(PAIRS, expected))


@pytest.mark.parametrize("kind", [None, "none", "longrope"])
def test_a_factor_without_a_type_is_linear(kind: str | None, tmp_path: Path) -> None:
    stated = {"rope.scaling.type": kind} if kind else {}
    plan = plan_of(tmp_path, keys={"rope.scaling.factor": 4.0, **stated})
    expected = 1.0 if kind == "none" else 4.0
    assert plan.longest().rescale_factors == pytest.approx(np.full(PAIRS, expected))


def test_a_tensor_of_factors_divides_the_frequencies_where_the_graph_takes_it(
    tmp_path: Path,
) -> None:
    tensors = {FREQUENCIES: FACTORS}
    found = plan_of(tmp_path, tensors=tensors, keys={"rope.scaling.attn_factor": 1.05}).longest()
    np.testing.assert_array_equal(found.rescale_factors, FACTORS.astype(np.float64))
    assert found.attention_scaling == pytest.approx(1.05)
    ignored = plan_of(tmp_path, architecture="qwen2", tensors=tensors).longest()
    assert {*ignored.rescale_factors} == {1.0}
    for wrong in (FACTORS[:-1], -FACTORS, FACTORS.astype(np.float16)):
        unusable = plan_of(tmp_path, tensors={FREQUENCIES: wrong}).longest()
        assert {*unusable.rescale_factors} == {1.0}


def test_two_lists_are_two_steps(tmp_path: Path) -> None:
    lists = {LONG: FACTORS, SHORT: np.ones(PAIRS, dtype=np.float32)}
    plan = plan_of(tmp_path, tensors=lists, keys={"rope.scaling.type": "longrope"})
    assert [step.up_to_length for step in plan.steps()] == [512, 4096]
    assert {*plan.schedule(512).rescale_factors} == {1.0}
    np.testing.assert_array_equal(plan.schedule(513).rescale_factors, FACTORS.astype(np.float64))


def test_the_audit_reads_the_same(tmp_path: Path) -> None:
    lists = {LONG: FACTORS, SHORT: np.ones(PAIRS, dtype=np.float32)}
    yarn = {"rope.scaling.type": "yarn", "rope.scaling.factor": 8.0}
    for content in ({}, {"keys": yarn}, {"tensors": {FREQUENCIES: FACTORS}}, {"tensors": lists}):
        header = read_header(header_only(tmp_path / "a.gguf", **content))
        plan, said = present_plan(header, "small"), named("llama.cpp").read_file(header)
        assert said.limit == plan.target_length
        for step in plan.steps():
            effective = said.at(step.up_to_length, FULL_ATTENTION)
            assert effective is not None
            frequencies = step.schedule.inverse_frequencies
            np.testing.assert_array_equal(effective.inverse_frequencies, frequencies)
            assert effective.attention_scaling == step.schedule.attention_scaling


def test_what_a_file_does_not_state_is_what_llama_cpp_takes(tmp_path: Path) -> None:
    unstated = ["rope.dimension_count", "rope.freq_base", "rope.scaling.original_context_length"]
    header = read_header(header_only(tmp_path / "a.gguf", drop=unstated))
    assert geometry_of(header) == RotaryGeometry(HEAD, HEAD, DEFAULT_BASE, 4096)
    keys = {"attention.key_length": 32, "rope.dimension_count": 8}
    in_part = geometry_of(read_header(header_only(tmp_path / "b.gguf", keys=keys)))
    assert (in_part.head_dim, in_part.pairs) == (32, 4)


def test_a_context_below_that_of_pretraining_is_what_the_file_serves(tmp_path: Path) -> None:
    for kind in ("linear", "yarn", "none"):
        keys = {"context_length": 256, "rope.scaling.type": kind, "rope.scaling.factor": 2.0}
        plan = plan_of(tmp_path, keys=keys)
        assert (plan.target_length, plan.original_length) == (256, 512)


@pytest.mark.parametrize("name", SCHEDULES)
def test_an_export_is_read_back_as_its_plan(name: str, tmp_path: Path) -> None:
    """Up to the float32 of the file."""
    plan, out = named_plan(name), tmp_path / "model.gguf"
    unproven(llama_cpp.export)("bundled", plan, out)
    found = rw.inspect(out).plan
    assert found.target_length == plan.target_length
    planned, own = plan.longest(), found.longest()
    np.testing.assert_allclose(own.inverse_frequencies, planned.inverse_frequencies, rtol=1e-6)
    assert own.attention_scaling == pytest.approx(planned.attention_scaling)


def test_a_file_is_inspected_and_extended_further(tmp_path: Path) -> None:
    path = header_only(tmp_path / "a.gguf", tensors={FREQUENCIES: FACTORS})
    found = check_result(rw.inspect(path))
    assert found.model == str(path)
    assert found.schedule.rescale_factors == pytest.approx(FACTORS)
    assert found.schedule.method == "factors"
    check_command(found, "inspect", path)
    planned = rw.plan(str(path), "8k", "linear")
    assert planned.schedule.rescale_factors == pytest.approx(2 * FACTORS)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"rope.freq_base": 0.5}, "rope.freq_base = 0.5"),
        ({"rope.freq_base": float("nan")}, "rope.freq_base = nan"),
        ({"rope.dimension_count": 15}, "rope.dimension_count = 15"),
        ({"rope.dimension_count": 64}, "rope.dimension_count = 64"),
        ({"rope.scaling.attn_factor": -1.0}, "rope.scaling.attn_factor = -1"),
        ({"rope.scaling.attn_factor": float("inf")}, "rope.scaling.attn_factor = inf"),
        (
            {
                "rope.scaling.type": "yarn",
                "rope.scaling.factor": 2.0,
                "rope.scaling.yarn_beta_slow": 64.0,
            },
            "rope.scaling.yarn_beta_fast = 32",
        ),
    ],
)
def test_an_impossible_header_names_file_and_key(
    keys: dict[str, Any], message: str, tmp_path: Path
) -> None:
    # Of the few architectures that read YaRN's betas.
    path = header_only(tmp_path / "a.gguf", architecture="mistral3", keys=keys)
    with pytest.raises(InvalidValue, match=message) as caught:
        rw.inspect(path)
    assert str(caught.value).startswith(f"{path}: ")


@pytest.mark.parametrize("length", [0, float("inf"), "4096"])
def test_a_context_length_that_is_no_count_is_none(length: object, tmp_path: Path) -> None:
    path = header_only(tmp_path / "a.gguf", keys={"context_length": length})
    with pytest.raises(InputError, match="states no head size or no context length"):
        rw.inspect(path)


def test_a_file_of_qwen3_counts_from_the_length_of_its_training(tmp_path: Path) -> None:
    keys, original = {"context_length": 40960}, "rope.scaling.original_context_length"
    path = header_only(tmp_path / "a.gguf", architecture="qwen3", keys=keys, drop=[original])
    found = rw.plan(path, "128k", "yarn", notice=lambda text: None)
    assert found.present.target_length == 40960
    assert found.schedule.geometry.original_length == 32768
    assert found.schedule.rescale_factors.max() == 4.0
    (text,) = found.assumptions
    assert "context_length is 40960" in text
    with pytest.raises(InputError, match="strict"):
        rw.plan(path, "128k", "yarn", strict=True)
    both = {**keys, original: 40960}
    stated = header_only(tmp_path / "b.gguf", architecture="qwen3", keys=both)
    assert present_plan(read_header(stated), "b").original_length == 40960
    llama = header_only(tmp_path / "c.gguf", keys=keys, drop=[original])
    assert present_plan(read_header(llama), "c").original_length == 40960
