"""Forty configs as published: what each model does now, or the true reason why it is refused.

The frequencies of types that transformers has are compared with its own rotary module; the rest
stands here, from the models' own code and cards.
"""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import CONFIG_MAPPING

from ropewalk.context_plan import FULL_ATTENTION, SLIDING_ATTENTION
from ropewalk.errors import InputError, RopewalkError, Unsupported
from ropewalk.models.assumptions import assumptions
from ropewalk.models.config import load_config, present_plan
from ropewalk.models.stock_config import with_plan
from ropewalk.planning.extension import extend_plan
from ropewalk.runtimes import every, named
from tests.models import truth

FOLDER = Path(__file__).parent / "published"
NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))


READ: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).with_name("published_rotations.json").read_text()
)
"""By model, of its main layer type: the size of a head and how much of it rotates, and the rest."""
REFUSED = {
    "baichuan2-13b": "'baichuan' uses ALiBi where hidden_size = 5120, not a rotary embedding",
    "granite-4.0-h": "uses no positions where position_embedding_type = 'nope'",
    "mpt-7b": "'mpt' uses ALiBi, not a rotary embedding",
    "nemotron-h": "attention that knows no positions, not a rotary embedding",
    "qwen2.5-7b-1m": "dual_chunk_attention_config: with dual chunk attention, positions start ag",
}
# transformers 5 reads `rope_theta` at the top level alone, where no DBRX states it.
OTHERWISE_IN_TRANSFORMERS = {"dbrx"}


def published(name: str) -> dict[str, Any]:
    return load_config(FOLDER / f"{name}.json")


OWN_CODE = {"chatglm3-6b-32k", "glm-4-9b-chat-1m", "qwen-7b"}
STOCK = [name for name in READ if published(name)["model_type"] in CONFIG_MAPPING]


def test_each_config_has_its_expectation() -> None:
    assert set(NAMES) == {*READ, *REFUSED}


@pytest.mark.parametrize("name", READ)
def test_a_published_config_is_read_right(name: str) -> None:
    plan = present_plan(published(name))
    schedule, expected = plan.longest(plan.main_layer), READ[name]
    geometry = schedule.geometry
    read = {
        "heads": [geometry.head_dim, geometry.rotary_dim],
        "base": pytest.approx(geometry.base, rel=1e-12),
        "original": geometry.original_length,
        "served": plan.target_length,
        "method": schedule.method,
        "layout": geometry.pair_layout,
        "softmax": pytest.approx(schedule.softmax_scaling, rel=1e-12),
        "log_n": schedule.log_n and schedule.log_n.to_json(),
        "rotating": plan.provenance.get("rotating_layers"),
    }
    usual = {"method": "plain", "layout": "half", "softmax": 1, "log_n": None, "rotating": None}
    assert {**usual, **expected} == read


@pytest.mark.parametrize("name", STOCK)
def test_it_turns_as_the_rotary_module_of_transformers(name: str) -> None:
    config = published(name)
    plan = present_plan(config)
    model = CONFIG_MAPPING[config["model_type"]].from_dict(config).get_text_config()
    for own in truth.rotations(model):
        steps = plan.schedules[own.layer_type] if own.layer_type else plan.steps(plan.main_layer)
        close = np.allclose(
            steps[0].schedule.inverse_frequencies, own.inverse_frequencies, rtol=1e-4, atol=0
        )
        assert close != (name in OTHERWISE_IN_TRANSFORMERS)


@pytest.mark.parametrize(("name", "reason"), REFUSED.items())
def test_a_published_config_is_refused_for_the_true_reason(name: str, reason: str) -> None:
    with pytest.raises(Unsupported, match=reason):
        present_plan(published(name))


def test_gemma_4_rests_in_three_quarters_of_its_full_layers() -> None:
    plan = present_plan(published("gemma-4-e4b"))
    full = plan.longest(FULL_ATTENTION)
    assert full.geometry.resting_pairs == 192
    assert (full.inverse_frequencies[64:] == 0).all()
    assert plan.longest(SLIDING_ATTENTION).geometry.resting_pairs == 0


def test_dual_chunk_attention_can_be_left_out_of_the_plan() -> None:
    config = published("qwen2.5-7b-1m")
    del config["dual_chunk_attention_config"]
    assert present_plan(config).longest().geometry.base == 1e7


@pytest.mark.parametrize("name", sorted(OWN_CODE))
def test_no_stock_config_is_written_for_a_model_with_its_own_code(name: str) -> None:
    with pytest.raises(Unsupported, match="own code"):
        with_plan(published(name), present_plan(published(name)))


@pytest.mark.parametrize("name", STOCK)
def test_an_extended_config_makes_the_rotary_module_follow(name: str) -> None:
    config = published(name)
    present = present_plan(config)
    longest = max(present.target_length, present.longest(present.main_layer).length)
    plan = extend_plan(present, 2 * longest, "linear")
    written = with_plan(config, plan)
    model = CONFIG_MAPPING[config["model_type"]].from_dict(written).get_text_config()
    for own in truth.rotations(model):
        steps = plan.schedules[own.layer_type] if own.layer_type else plan.steps(plan.main_layer)
        np.testing.assert_allclose(
            steps[0].schedule.inverse_frequencies, own.inverse_frequencies, rtol=1e-4, atol=0
        )
    again = present_plan(json.loads(json.dumps(written)))
    assert again.longest(plan.main_layer).log_n == plan.longest(plan.main_layer).log_n
    np.testing.assert_allclose(
        again.longest(plan.main_layer).inverse_frequencies,
        plan.longest(plan.main_layer).inverse_frequencies,
        rtol=1e-12,
    )
    assert again.target_length == plan.target_length


@pytest.mark.parametrize("name", ["qwen2.5-vl-7b", "qwen3.5-9b"])
def test_sections_of_positions_stay_in_a_written_config(name: str) -> None:
    config = published(name)
    before = config.get("rope_scaling") or config["rope_parameters"]
    plan = extend_plan(present_plan(config), 4 * present_plan(config).target_length, "yarn")
    after = with_plan(config, plan)["rope_parameters"]
    for key in ("mrope_section", "mrope_interleaved"):
        assert after.get(key) == before.get(key)


MISSING = object()
DAMAGES: tuple[object, ...] = (
    *("abc", -1, math.nan, [], MISSING),
    *(0, 1e308, 10**30, True, {"full_attention": {"rope_theta": 1e4}}, [{}], "x" * 10**5),
)
# What is said of these names no key: a model type and a rope type are values.
SAID_OTHERWISE = {
    "model_type": "model type",
    "rope_type": "rope type",
    "type": "rope type",
    "alibi": "ALiBi",
}


def fields(config: dict[str, Any], *path: str) -> Iterator[tuple[str, ...]]:
    """The path of each field of a config."""
    for key, value in config.items():
        yield (*path, key)
        if isinstance(value, dict):
            yield from fields(value, *path, key)


def refusal(config: dict[str, Any]) -> str | None:
    try:
        present_plan(config)
        assumptions(config)
    except InputError as error:
        return str(error)
    return None


def damaged(name: str, each: int) -> Iterator[tuple[tuple[str, ...], object, dict[str, Any]]]:
    """The config with one field damaged: each field in so many ways, always the same ones."""
    for path in fields(published(name)):
        for damage in random.Random(f"{name} {path}").sample(DAMAGES, each):
            config = published(name)
            part = config
            for key in path[:-1]:
                part = part[key]
            if damage is MISSING:
                del part[path[-1]]
            else:
                part[path[-1]] = damage
            yield path, damage, config


@pytest.mark.parametrize("name", NAMES)
def test_a_damaged_field_is_named_in_one_line(name: str) -> None:
    before = refusal(published(name))
    for path, damage, config in damaged(name, 6):
        began = time.process_time()
        found = refusal(config)  # and nothing else is raised
        assert time.process_time() - began < 1, (path, damage)
        if found is None or found == before:
            continue
        assert "\n" not in found
        assert len(found) < 450
        if damage is not MISSING:
            told = (path[-1], SAID_OTHERWISE.get(path[-1], path[-1]))
            assert any(each in found for each in told), (path, damage)


@pytest.mark.parametrize("name", NAMES)
def test_each_runtime_reads_a_damaged_config_or_refuses_it(name: str) -> None:
    for _, _, config in damaged(name, 1):
        for read in (each.read for each in every().values()):
            with suppress(RopewalkError):  # and nothing else
                read(config)


@pytest.mark.parametrize(
    ("name", "path", "damage", "text"),
    [
        # An object below a known key is no layer type.
        ("phi-3.5-moe", "rope_scaling.long_factor", {"a": {}}, "must be a value, not an object"),
        ("qwen3-8b-yarn", "rope_scaling.rope_type", {"a": {}}, "must be a value, not an object"),
        ("exaone-4-1.2b", "sliding_window", "abc", "sliding_window = 'abc'"),
        ("gemma-3n-e2b", "text_config", {"a": {}}, "no rope_theta, .* in text_config, so"),
        ("lfm2-1.2b", "full_attn_idxs", [], "full_attn_idxs: none of the 16 layers .* rotates"),
    ],
)
def test_damage_that_once_had_a_false_reason(
    name: str, path: str, damage: object, text: str
) -> None:
    config = published(name)
    *outer, last = path.split(".")
    part = config
    for key in outer:
        part = part[key]
    part[last] = damage
    with pytest.raises(InputError, match=text):
        present_plan(config)


def test_engines_are_judged_by_a_damaged_number_too() -> None:
    """Factors and bases that Python cannot make a whole number of."""
    linear = published("internlm2.5-1m")
    for factor in (math.nan, math.inf, 1e308):
        linear["rope_scaling"]["factor"] = factor
        assert (named("vllm").accepts(linear), named("sglang").accepts(linear)) == (None, None)
    for base in (math.nan, 0):
        scout = published("llama-4-scout")
        scout["text_config"]["rope_theta"] = base
        assert named("sglang").read(scout).refused


@pytest.mark.parametrize("name", sorted(set(READ) - OWN_CODE))
def test_it_is_written_back_as_it_was(name: str) -> None:
    config = published(name)
    plan = present_plan(config)
    written = with_plan(config, plan)
    again = present_plan(written)
    assert again.schedules == plan.schedules
    assert again.provenance == plan.provenance
