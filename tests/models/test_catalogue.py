"""The catalogue says what the publishers say, read by the publishers' own library."""

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import CONFIG_MAPPING

from ropewalk.errors import UnknownName
from ropewalk.models import catalogue

# What each model is known for: head size, base and length of its full-attention layers. Typed in a
# second time, so that a slip in the catalogue has to be made twice.
KNOWN = json.loads(Path(__file__).with_name("catalogue_facts.json").read_text())

# Model types that come as their own code only, and the stock type that rotates the same.
STOCK_TYPE = {"baichuan": "llama"}

GOLDEN = Path(__file__).parents[1] / "golden" / "configs"


def test_every_entry_is_known() -> None:
    assert set(catalogue.names()) == set(KNOWN)


@pytest.mark.parametrize("name", catalogue.names())
def test_transformers_reads_the_same_geometry(name: str) -> None:
    published = catalogue.find(name).config
    model_type = published.pop("model_type")
    config = CONFIG_MAPPING[STOCK_TYPE.get(model_type, model_type)](**published).get_text_config()
    rope = config.rope_parameters
    rope = rope.get("full_attention", rope)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    assert [head_dim, rope["rope_theta"], config.max_position_embeddings] == KNOWN[name]
    factors = [len(rope[key]) for key in ("short_factor", "long_factor") if key in rope]
    rotary_dim = int(head_dim * rope.get("partial_rotary_factor", 1.0))
    assert factors in ([], [rotary_dim // 2] * 2)


@pytest.mark.parametrize("name", sorted({path.stem for path in GOLDEN.glob("*.json")} & set(KNOWN)))
def test_an_entry_agrees_with_the_golden_config(name: str) -> None:
    def flat(config: dict[str, Any]) -> dict[str, Any]:
        text: dict[str, Any] = config.pop("text_config", {})
        return config | text

    ours = flat(catalogue.find(name).config)
    golden = flat(json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8")))
    assert {key: golden.get(key) for key in ours} == ours


def test_no_name_or_alias_stands_twice() -> None:
    entries = [catalogue.find(name) for name in catalogue.names()]
    spoken = [
        key.lower() for entry in entries for key in (entry.name, entry.hub_id, *entry.aliases)
    ]
    assert len(spoken) == len(set(spoken))
    assert [entry.name for entry in entries if entry.name != entry.name.lower()] == []


@pytest.mark.parametrize("name", catalogue.names())
def test_hub_ids_in_any_case_find_the_entry(name: str) -> None:
    entry = catalogue.find(name)
    for hub_id in (entry.hub_id, *entry.aliases):
        assert catalogue.find(hub_id) == catalogue.find(hub_id.upper()) == entry


def test_a_caller_may_change_what_it_found() -> None:
    catalogue.find("llama-3.1-8b").config["rope_scaling"]["factor"] = 2.0
    assert catalogue.find("llama-3.1-8b").config["rope_scaling"]["factor"] == 8.0


def test_an_unknown_name_lists_the_valid_ones() -> None:
    with pytest.raises(UnknownName) as refused:
        catalogue.find("Lama-3-8B")
    assert "did you mean 'llama-3-8b'?" in str(refused.value)
    assert all(name in str(refused.value) for name in catalogue.names())
