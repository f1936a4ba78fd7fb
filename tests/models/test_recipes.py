"""Documented extensions: the table, which configs have one, and what `plan` writes."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

import ropewalk as rw
from ropewalk.context_plan import ContextPlan
from ropewalk.errors import InputError
from ropewalk.models.config import load_config, present_plan
from ropewalk.models.recipes import FILE, documented, is_documented
from ropewalk.models.source import resolve
from ropewalk.models.stock_config import with_plan
from tests.models.test_lengths import config, yarn

PUBLISHED = Path(__file__).parent / "published"
K = 1024
SMOLLM3 = Path(__file__).parents[1] / "golden" / "configs" / "smollm3-3b.json"


def sized(model_type: str, length: int, width: int, layers: int, **values: Any) -> dict[str, Any]:
    own = {"hidden_size": width, "num_hidden_layers": layers, "head_dim": 128}
    return config(model_type, length, **{**own, **values})


QWEN3 = sized("qwen3", 40960, 4096, 36)
SMALL = sized("qwen3", 40960, 1024, 28)
QWEN25 = sized("qwen2", 32768, 3584, 28, intermediate_size=18944)
VL = {
    "model_type": "qwen3_vl",
    "text_config": sized(
        "qwen3_vl_text", 262144, 4096, 36, rope_theta=5e6,
        rope_scaling={"rope_type": "default", "mrope_section": [24, 20, 20],
                      "mrope_interleaved": True}),
}  # fmt: skip
QWEN35 = load_config(PUBLISHED / "qwen3.5-9b.json")
NEXT = load_config(PUBLISHED / "qwen3-next-80b.json")


@pytest.mark.parametrize(
    ("own", "target", "factor", "original"),
    [
        (QWEN3, 131072, 4.0, 32768),
        (QWEN3, 65536, 2.0, 32768),
        (sized("qwen3_moe", 40960, 4096, 94), 131072, 4.0, 32768),
        (QWEN25, 131072, 4.0, 32768),
        (sized("qwen2", 40960, 5120, 64, intermediate_size=27648), 131072, 4.0, 32768),
        (load_config(PUBLISHED / "qwen2.5-vl-7b.json"), 131072, 4.0, 32768),
        (sized("glm4", 32768, 6144, 61, partial_rotary_factor=0.5), 131072, 4.0, 32768),
        (NEXT, 1010000, 4.0, 262144),
        (VL, 1000000, 3.0, 262144),
        (QWEN35, 1010000, 4.0, 262144),
        ({"model_type": "qwen3_5", "text_config": QWEN35}, 524288, 2.0, 262144),
        (load_config(SMOLLM3), 131072, 2.0, 65536),
        (load_config(SMOLLM3), 262144, 4.0, 65536),
    ],
)
def test_a_documented_extension_is_named_and_written(
    own: dict[str, Any], target: int, factor: float, original: int
) -> None:
    found = rw.plan(own, target, "vendor", notice=lambda text: None)
    assert found.documented.startswith("Documented by the vendor (")
    assert "Source: " in found.documented
    written = with_plan(own, found.plan)
    text = written.get("text_config", written)
    rope = text["rope_parameters"]
    assert text["max_position_embeddings"] == target
    assert (rope["rope_type"], rope["factor"]) == ("yarn", factor)
    assert rope["original_max_position_embeddings"] == original
    # What the model needs, and no method changes.
    before = own.get("text_config", own)
    stated = before.get("rope_scaling") or before.get("rope_parameters") or {}
    for key in ("mrope_section", "mrope_interleaved", "partial_rotary_factor"):
        assert rope.get(key) == (stated.get(key) or before.get(key))
    assert is_documented(written)
    assert present_plan(written).longest().rescale_factors.max() == factor
    assert found.plan.provenance["recipe"] in found.documented
    assert ContextPlan.from_json(found.plan.to_json()) == found.plan


def test_a_target_below_the_factor_stays_the_vendors_alone() -> None:
    """exllamav3 takes the factor of a plan of ours from the two lengths."""
    own = rw.plan(NEXT, 1010000, "yarn", parameters={"factor": 4.0}, notice=lambda text: None)
    assert with_plan(NEXT, own.plan)["max_position_embeddings"] == 4 * 262144


def test_the_comparison_names_it_first() -> None:
    found = rw.plan(QWEN3, "128k", notice=lambda text: None)
    assert found.summary().startswith("Documented by the vendor (Qwen")
    assert rw.plan(QWEN3, "100k", "yarn", notice=lambda text: None).documented.startswith(
        "Qwen documents no extension of Qwen3 4B, 8B, 14B, 32B to 100k, only"
    )


def test_where_a_vendor_documents_none_for_a_size_it_says_so() -> None:
    for own in (SMALL, sized("qwen2", 32768, 896, 24), sized("qwen3_moe", 262144, 2048, 48)):
        told = rw.plan(own, "512k", "yarn", notice=lambda text: None).documented
        assert "documents no extension of" in told
        with pytest.raises(InputError, match="documents no extension of"):
            rw.plan(own, "512k", "vendor", notice=lambda text: None)


@pytest.mark.parametrize(
    "change",
    [
        {"rope_theta": 5e6},
        {"hidden_size": 3584},
        {"num_hidden_layers": 30},
        {"max_position_embeddings": 65536},
        {"max_position_embeddings": 131072},
        {"head_dim": 64},
        {"model_type": "llama"},
        {"model_type": "qwen2"},
        {"original_max_position_embeddings": 8192},
        yarn(4.0, 32768),
        {"rope_scaling": {"type": "linear", "factor": 2.0}},
    ],
)
def test_no_recipe_is_claimed_for_a_config_that_differs(change: dict[str, Any]) -> None:
    assert documented(QWEN3) is not None
    assert documented({**QWEN3, **change}) is None
    with pytest.raises(InputError, match="no documented extension is known"):
        rw.plan({**QWEN3, **change}, "256k", "vendor", notice=lambda text: None)


def test_no_recipe_is_claimed_inside_another_model_or_for_another_trained_length() -> None:
    assert documented({"model_type": "internvl_chat", "llm_config": QWEN3}) is None
    assert documented(QWEN3, trained=40960) is None
    # Qwen1.5-32B has the sizes of Qwen2.5-32B but for its feed-forward layers.
    assert documented(sized("qwen2", 32768, 5120, 64, intermediate_size=27392)) is None
    other: Any = copy.deepcopy(VL)
    other["text_config"]["rope_scaling"]["mrope_section"] = [16, 24, 24]
    assert documented(other) is None


def test_a_stated_length_that_takes_the_recipe_away_is_named() -> None:
    with pytest.raises(InputError, match=r"length of 32k, not from the stated 40k; leave out"):
        rw.plan(QWEN3, "128k", "vendor", trained_length="40k", notice=lambda text: None)


def test_a_name_says_nothing() -> None:
    named = {**QWEN3, "_name_or_path": "somebody/another-model"}
    assert documented(named) == documented(QWEN3)
    liar = {**sized("llama", 4096, 4096, 32), "_name_or_path": "Qwen/Qwen3-8B"}
    assert documented(liar) is None


def test_the_catalogues_models_have_their_recipes() -> None:
    for name, models in (
        ("qwen3-8b", "Qwen3 4B, 8B, 14B, 32B"),
        ("qwen3-30b-a3b", "Qwen3 30B-A3B, 235B-A22B"),
        ("qwen2.5-7b-instruct", "Qwen2-Instruct and Qwen2.5-Instruct, 7B to 72B"),
        ("smollm3-3b", "SmolLM3 3B"),
        ("qwq-32b", "QwQ 32B"),
    ):
        found = resolve(name).documented
        assert found is not None
        assert found.models == models
    for name in ("llama-3.1-8b", "qwen2.5-7b", "gpt-oss-20b", "mistral-7b-v0.1"):
        assert resolve(name).documented is None


def test_each_row_has_a_source_and_a_method_with_a_factor() -> None:
    table = json.loads(FILE.read_text(encoding="utf-8"))
    for row in table["recipes"]:
        assert row["source"]
        assert row["basis"] in ("V", "C", "P")
        for each in row["extensions"]:
            assert each["method"] == "yarn"
            assert each["target"] > row["reference"]
            assert each["parameters"]["factor"] > 1


def test_settings_beside_a_documented_extension_are_refused() -> None:
    with pytest.raises(InputError, match="uses those that the vendor"):
        rw.plan(QWEN3, "128k", "vendor", parameters={"factor": 2.0}, notice=lambda text: None)
