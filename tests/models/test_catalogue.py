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
KNOWN = {
    "llama-7b": (128, 1e4, 2048),
    "llama-2-7b": (128, 1e4, 4096),
    "llama-3-8b": (128, 5e5, 8192),
    "llama-3.1-8b": (128, 5e5, 131072),
    "llama-3.1-70b": (128, 5e5, 131072),
    "llama-3.2-1b": (64, 5e5, 131072),
    "llama-3.2-3b": (128, 5e5, 131072),
    "llama-3.3-70b": (128, 5e5, 131072),
    "llama-4-scout": (128, 5e5, 10 * 1024**2),
    "mistral-7b-v0.1": (128, 1e4, 32768),
    "mistral-7b-v0.2": (128, 1e6, 32768),
    "mistral-7b-v0.3": (128, 1e6, 32768),
    "mistral-nemo": (128, 1e6, 128000),
    "mixtral-8x7b": (128, 1e6, 32768),
    "qwen1.5-7b": (128, 1e6, 32768),
    "qwen2-7b": (128, 1e6, 131072),
    "qwen2.5-7b": (128, 1e6, 131072),
    "qwen2.5-7b-instruct": (128, 1e6, 32768),
    "qwen2.5-7b-1m": (128, 1e7, 1010000),
    "qwen3-8b": (128, 1e6, 40960),
    "qwen3-30b-a3b": (128, 1e6, 40960),
    "qwq-32b": (128, 1e6, 40960),
    "gemma-7b": (256, 1e4, 8192),
    "gemma-2-9b": (256, 1e4, 8192),
    "gemma-3-1b": (256, 1e6, 32768),
    "gemma-3-4b": (256, 1e6, 131072),
    "gemma-3-27b": (128, 1e6, 131072),
    "phi-2": (80, 1e4, 2048),
    "phi-3-mini-4k": (96, 1e4, 4096),
    "phi-3-mini-128k": (96, 1e4, 131072),
    "phi-4": (128, 2.5e5, 16384),
    "phi-4-mini": (128, 1e4, 131072),
    "olmo-2-7b": (128, 5e5, 4096),
    "olmo-3-7b": (128, 5e5, 65536),
    "deepseek-v2-lite": (64, 1e4, 163840),
    "deepseek-v3": (64, 1e4, 163840),
    "deepseek-r1": (64, 1e4, 163840),
    "baichuan2-7b": (128, 1e4, 4096),
    "gpt-oss-20b": (64, 1.5e5, 131072),
    "yi-6b": (128, 5e6, 4096),
    "smollm2-1.7b": (64, 1.3e5, 8192),
    "smollm3-3b": (128, 5e6, 65536),
    "stablelm-2-1.6b": (64, 1e4, 4096),
    "starcoder2-7b": (128, 1e6, 16384),
    "granite-3.1-8b": (128, 1e7, 131072),
    "command-r": (128, 8e6, 8192),
    "falcon-7b": (64, 1e4, 2048),
    "pythia-1.4b": (128, 1e4, 2048),
    "glm-4-9b-0414": (128, 1e4, 32768),
}

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
    assert (head_dim, rope["rope_theta"], config.max_position_embeddings) == KNOWN[name]
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


def test_an_entry_names_its_source() -> None:
    assert catalogue.find("llama-3-8b").source == "meta-llama/Meta-Llama-3-8B config.json"
    assert catalogue.find("qwq-32b").source.endswith("config.json (the first revision said 131072)")


def test_a_caller_may_change_what_it_found() -> None:
    catalogue.find("llama-3.1-8b").config["rope_scaling"]["factor"] = 2.0
    assert catalogue.find("llama-3.1-8b").config["rope_scaling"]["factor"] == 8.0


def test_an_unknown_name_lists_the_valid_ones() -> None:
    with pytest.raises(UnknownName) as refused:
        catalogue.find("Lama-3-8B")
    assert "did you mean 'llama-3-8b'?" in str(refused.value)
    assert all(name in str(refused.value) for name in catalogue.names())
