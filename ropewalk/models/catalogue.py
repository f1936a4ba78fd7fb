"""The published rotary geometry of well-known models, so that a name is enough to plan.

An entry holds the keys of the model's own `config.json` that say how it rotates, as published: what
the publisher does not say, the defaults of the model type fill in, as they do for the file itself.
So an entry and a downloaded config go through the same reader. (A published null is kept only where
the default is something else: Mistral's window.)
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from ropewalk.errors import UnknownName


@dataclass(frozen=True)
class CatalogueEntry:
    """One model: what its config says of rotation, and where that was published."""

    name: str
    hub_id: str
    config: dict[str, Any]
    # Hub ids whose configs say the same of rotation.
    aliases: tuple[str, ...] = ()
    note: str = ""

    @property
    def trained_length(self) -> int | None:
        """The longest sequences that it was trained on, where its publisher says."""
        return _TRAINED_LENGTHS.get(self.name)

    @property
    def source(self) -> str:
        return f"{self.hub_id} config.json" + (f" ({self.note})" if self.note else "")


def names() -> tuple[str, ...]:
    """Every short name, by family."""
    return tuple(entry.name for entry in _CATALOGUE)


def find(name: str) -> CatalogueEntry:
    """The entry of a short name or a hub id, in any case. Its config is the caller's to change."""
    wanted = name.strip().lower()
    for entry in _CATALOGUE:
        if wanted in (entry.name, *map(str.lower, (entry.hub_id, *entry.aliases))):
            return copy.deepcopy(entry)
    raise UnknownName("model", wanted, names())


def _numbers(text: str) -> list[float]:
    return [float(number) for number in text.split()]


_PHI3_MINI_SHORT = _numbers(
    """
    1.1 1.1 1.1 1.3000000000000003 1.3500000000000003 1.3500000000000003 1.4000000000000004
    1.5500000000000005
    """
    + 17 * " 2.000000000000001"
    + 6 * " 2.0500000000000007"
    + """
    2.1000000000000005 2.1000000000000005 2.1500000000000004 2.25 2.25 2.25 2.25 2.25
    2.3999999999999995 2.4499999999999993 2.499999999999999 2.6999999999999984 2.6999999999999984
    2.7499999999999982 2.799999999999998 2.8999999999999977 3.049999999999997
    """
)
_PHI3_MINI_LONG = _numbers(
    """
    1.0700000524520874 1.1200000047683716 1.149999976158142 1.4199999570846558 1.5699999332427979
    1.7999999523162842 2.129999876022339 2.129999876022339 3.009999990463257 5.910000324249268
    6.950000286102295 9.070000648498535 9.930000305175781 10.710000038146973 11.130000114440918
    14.609999656677246 15.409998893737793 19.809999465942383 37.279998779296875 38.279998779296875
    38.599998474121094 40.12000274658203 46.20000457763672 50.940006256103516 53.66000747680664
    54.9373893737793 56.89738845825195 57.28738784790039 59.98738479614258 60.86738586425781
    60.887386322021484 61.71739196777344 62.91739273071289 62.957393646240234 63.41739273071289
    63.8173942565918 63.83739471435547 63.897396087646484 63.93739700317383 64.06739807128906
    64.11434936523438 64.12435150146484 64.15435028076172 64.19435119628906 64.24435424804688
    64.57435607910156 64.69000244140625 64.76000213623047
    """
)
_PHI4_MINI_LONG = _numbers(
    """
    1 1.118320672 1.250641126 1.398617824 1.564103225 1.74916897 1.956131817 2.187582649
    2.446418898 2.735880826 3.059592084 3.421605075 3.826451687 4.279200023 4.785517845 5.351743533
    5.984965424 6.693110555 7.485043894 8.370679318 9.36110372 10.4687158 11.70738129 13.09260651
    14.64173252 16.37415215 18.31155283 20.47818807 22.90118105 25.61086418 28.64115884 32.03 32.1
    32.13 32.23 32.6 32.61 32.64 32.66 32.7 32.71 32.93 32.97 33.28 33.49 33.5 44.16 47.77
    """
)

_LLAMA_3_1_SCALING = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
    "rope_type": "llama3",
}
_LLAMA_3_2_SCALING = {**_LLAMA_3_1_SCALING, "factor": 32.0}
_GEMMA_3_SCALING = {"factor": 8.0, "rope_type": "linear"}
_DEEPSEEK_SCALING = {
    "beta_fast": 32,
    "beta_slow": 1,
    "factor": 40,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "original_max_position_embeddings": 4096,
    "type": "yarn",
}
_DEEPSEEK_V3 = {
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "num_attention_heads": 128,
    "num_hidden_layers": 61,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "max_position_embeddings": 163840,
    "rope_theta": 10000,
    "rope_scaling": _DEEPSEEK_SCALING,
}

# fmt: off
# The longest sequences of training, long-context stages included, as the publishers' papers and
# model cards state them; a model that is not here states none.
_TRAINED_LENGTHS = {
    "llama-7b": 2048, "llama-2-7b": 4096, "llama-3-8b": 8192, "llama-3.1-8b": 131072,
    "llama-3.1-70b": 131072, "llama-3.2-1b": 131072, "llama-3.2-3b": 131072,
    "llama-3.3-70b": 131072, "llama-4-scout": 262144, "mistral-7b-v0.1": 8192,
    "mistral-7b-v0.2": 32768, "mistral-7b-v0.3": 32768, "mistral-nemo": 131072,
    "mixtral-8x7b": 32768, "qwen1.5-7b": 32768, "qwen2-7b": 32768, "qwen2.5-7b": 32768,
    "qwen2.5-7b-instruct": 32768, "qwen2.5-7b-1m": 262144, "qwen3-8b": 32768,
    "qwen3-30b-a3b": 32768, "qwq-32b": 32768, "gemma-7b": 8192, "gemma-2-9b": 8192,
    "gemma-3-1b": 32768,
    "gemma-3-4b": 131072, "gemma-3-27b": 131072, "phi-2": 2048, "phi-3-mini-4k": 4096,
    "phi-3-mini-128k": 131072, "phi-4": 16384, "phi-4-mini": 131072, "olmo-2-7b": 4096,
    "olmo-3-7b": 65536, "deepseek-v2-lite": 32768, "deepseek-v3": 131072, "deepseek-r1": 131072,
    "baichuan2-7b": 4096, "gpt-oss-20b": 131072, "yi-6b": 4096, "smollm2-1.7b": 8192,
    "smollm3-3b": 65536, "stablelm-2-1.6b": 4096, "starcoder2-7b": 16384,
    "granite-3.1-8b": 131072, "falcon-7b": 2048, "pythia-1.4b": 2048, "glm-4-9b-0414": 32768,
}

# One paragraph a model reads better than one key a line.
_CATALOGUE: tuple[CatalogueEntry, ...] = (
    CatalogueEntry(
        "llama-7b", "huggyllama/llama-7b",
        {"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32,
         "num_hidden_layers": 32, "max_position_embeddings": 2048}),
    CatalogueEntry(
        "llama-2-7b", "meta-llama/Llama-2-7b-hf",
        {"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32,
         "num_hidden_layers": 32, "max_position_embeddings": 4096},
        aliases=("meta-llama/Llama-2-7b-chat-hf",)),
    CatalogueEntry(
        "llama-3-8b", "meta-llama/Meta-Llama-3-8B",
        {"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32,
         "num_hidden_layers": 32, "max_position_embeddings": 8192, "rope_theta": 500000.0},
        aliases=("meta-llama/Meta-Llama-3-8B-Instruct",)),
    CatalogueEntry(
        "llama-3.1-8b", "meta-llama/Llama-3.1-8B",
        {"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32,
         "num_hidden_layers": 32, "max_position_embeddings": 131072, "rope_theta": 500000.0,
         "rope_scaling": _LLAMA_3_1_SCALING},
        aliases=("meta-llama/Meta-Llama-3.1-8B", "meta-llama/Llama-3.1-8B-Instruct",
                 "meta-llama/Meta-Llama-3.1-8B-Instruct")),
    CatalogueEntry(
        "llama-3.1-70b", "meta-llama/Llama-3.1-70B",
        {"model_type": "llama", "hidden_size": 8192, "num_attention_heads": 64,
         "num_hidden_layers": 80, "max_position_embeddings": 131072, "rope_theta": 500000.0,
         "rope_scaling": _LLAMA_3_1_SCALING},
        aliases=("meta-llama/Meta-Llama-3.1-70B", "meta-llama/Llama-3.1-70B-Instruct",
                 "meta-llama/Meta-Llama-3.1-70B-Instruct")),
    CatalogueEntry(
        "llama-3.2-1b", "meta-llama/Llama-3.2-1B",
        {"model_type": "llama", "hidden_size": 2048, "num_attention_heads": 32, "head_dim": 64,
         "num_hidden_layers": 16, "max_position_embeddings": 131072, "rope_theta": 500000.0,
         "rope_scaling": _LLAMA_3_2_SCALING},
        aliases=("meta-llama/Llama-3.2-1B-Instruct",)),
    CatalogueEntry(
        "llama-3.2-3b", "meta-llama/Llama-3.2-3B",
        {"model_type": "llama", "hidden_size": 3072, "num_attention_heads": 24, "head_dim": 128,
         "num_hidden_layers": 28, "max_position_embeddings": 131072, "rope_theta": 500000.0,
         "rope_scaling": _LLAMA_3_2_SCALING},
        aliases=("meta-llama/Llama-3.2-3B-Instruct",)),
    CatalogueEntry(
        "llama-3.3-70b", "meta-llama/Llama-3.3-70B-Instruct",
        {"model_type": "llama", "hidden_size": 8192, "num_attention_heads": 64,
         "num_hidden_layers": 80, "max_position_embeddings": 131072, "rope_theta": 500000.0,
         "rope_scaling": _LLAMA_3_1_SCALING}),
    CatalogueEntry(
        "llama-4-scout", "meta-llama/Llama-4-Scout-17B-16E-Instruct",
        {"model_type": "llama4", "text_config": {
            "model_type": "llama4_text", "hidden_size": 5120, "num_attention_heads": 40,
            "head_dim": 128, "num_hidden_layers": 48, "max_position_embeddings": 10485760,
            "attention_chunk_size": 8192, "no_rope_layers": [], "rope_theta": 500000.0,
            "rope_scaling": {"factor": 16.0, "low_freq_factor": 1.0, "high_freq_factor": 1.0,
                             "original_max_position_embeddings": 8192, "rope_type": "llama3"}}},
        note="as corrected in April 2025: both frequency factors are 1, so nothing is blended"),
    CatalogueEntry(
        "mistral-7b-v0.1", "mistralai/Mistral-7B-v0.1",
        {"model_type": "mistral", "hidden_size": 4096, "num_attention_heads": 32,
         "num_hidden_layers": 32, "max_position_embeddings": 32768, "rope_theta": 10000.0,
         "sliding_window": 4096},
        aliases=("mistralai/Mistral-7B-Instruct-v0.1",)),
    CatalogueEntry(
        "mistral-7b-v0.2", "mistralai/Mistral-7B-Instruct-v0.2",
        {"model_type": "mistral", "hidden_size": 4096, "num_attention_heads": 32,
         "num_hidden_layers": 32, "max_position_embeddings": 32768, "rope_theta": 1000000.0,
         "sliding_window": None}),
    CatalogueEntry(
        "mistral-7b-v0.3", "mistralai/Mistral-7B-v0.3",
        {"model_type": "mistral", "hidden_size": 4096, "num_attention_heads": 32,
         "num_hidden_layers": 32, "max_position_embeddings": 32768, "rope_theta": 1000000.0,
         "sliding_window": None},
        aliases=("mistralai/Mistral-7B-Instruct-v0.3",)),
    CatalogueEntry(
        "mistral-nemo", "mistralai/Mistral-Nemo-Base-2407",
        {"model_type": "mistral", "hidden_size": 5120, "num_attention_heads": 32, "head_dim": 128,
         "num_hidden_layers": 40, "max_position_embeddings": 128000, "rope_theta": 1000000.0,
         "sliding_window": None}),
    CatalogueEntry(
        "mixtral-8x7b", "mistralai/Mixtral-8x7B-v0.1",
        {"model_type": "mixtral", "hidden_size": 4096, "num_attention_heads": 32,
         "num_hidden_layers": 32, "max_position_embeddings": 32768, "rope_theta": 1000000.0},
        aliases=("mistralai/Mixtral-8x7B-Instruct-v0.1",)),
    CatalogueEntry(
        "qwen1.5-7b", "Qwen/Qwen1.5-7B",
        {"model_type": "qwen2", "hidden_size": 4096, "num_attention_heads": 32,
         "num_hidden_layers": 32, "max_position_embeddings": 32768, "rope_theta": 1000000.0,
         "use_sliding_window": False},
        aliases=("Qwen/Qwen1.5-7B-Chat",)),
    CatalogueEntry(
        "qwen2-7b", "Qwen/Qwen2-7B",
        {"model_type": "qwen2", "hidden_size": 3584, "num_attention_heads": 28,
         "num_hidden_layers": 28, "max_position_embeddings": 131072, "rope_theta": 1000000.0,
         "use_sliding_window": False},
        note="the instruct model's config says 32768"),
    CatalogueEntry(
        "qwen2.5-7b", "Qwen/Qwen2.5-7B",
        {"model_type": "qwen2", "hidden_size": 3584, "num_attention_heads": 28,
         "num_hidden_layers": 28, "max_position_embeddings": 131072, "rope_theta": 1000000.0,
         "use_sliding_window": False},
        note="the instruct model's config says 32768"),
    CatalogueEntry(
        "qwen2.5-7b-instruct", "Qwen/Qwen2.5-7B-Instruct",
        {"model_type": "qwen2", "hidden_size": 3584, "num_attention_heads": 28,
         "num_hidden_layers": 28, "max_position_embeddings": 32768, "rope_theta": 1000000.0,
         "use_sliding_window": False}),
    CatalogueEntry(
        "qwen2.5-7b-1m", "Qwen/Qwen2.5-7B-Instruct-1M",
        {"model_type": "qwen2", "hidden_size": 3584, "num_attention_heads": 28,
         "num_hidden_layers": 28, "max_position_embeddings": 1010000, "rope_theta": 10000000.0,
         "use_sliding_window": False},
        note="without its dual chunk attention, which is no rotation"),
    CatalogueEntry(
        "qwen3-8b", "Qwen/Qwen3-8B",
        {"model_type": "qwen3", "hidden_size": 4096, "num_attention_heads": 32, "head_dim": 128,
         "num_hidden_layers": 36, "max_position_embeddings": 40960, "rope_theta": 1000000,
         "use_sliding_window": False}),
    CatalogueEntry(
        "qwen3-30b-a3b", "Qwen/Qwen3-30B-A3B",
        {"model_type": "qwen3_moe", "hidden_size": 2048, "num_attention_heads": 32,
         "head_dim": 128, "num_hidden_layers": 48, "max_position_embeddings": 40960,
         "rope_theta": 1000000.0, "use_sliding_window": False}),
    CatalogueEntry(
        "qwq-32b", "Qwen/QwQ-32B",
        {"model_type": "qwen2", "hidden_size": 5120, "num_attention_heads": 40,
         "num_hidden_layers": 64, "max_position_embeddings": 40960, "rope_theta": 1000000.0,
         "use_sliding_window": False},
        note="the first revision said 131072"),
    CatalogueEntry(
        "gemma-7b", "google/gemma-7b",
        {"model_type": "gemma", "hidden_size": 3072, "num_attention_heads": 16, "head_dim": 256,
         "num_hidden_layers": 28, "max_position_embeddings": 8192, "rope_theta": 10000.0},
        aliases=("google/gemma-7b-it",)),
    CatalogueEntry(
        "gemma-2-9b", "google/gemma-2-9b",
        {"model_type": "gemma2", "hidden_size": 3584, "num_attention_heads": 16, "head_dim": 256,
         "num_hidden_layers": 42, "max_position_embeddings": 8192, "rope_theta": 10000.0,
         "sliding_window": 4096},
        aliases=("google/gemma-2-9b-it",)),
    CatalogueEntry(
        "gemma-3-1b", "google/gemma-3-1b-it",
        {"model_type": "gemma3_text", "hidden_size": 1152, "num_attention_heads": 4,
         "head_dim": 256, "num_hidden_layers": 26, "max_position_embeddings": 32768,
         "rope_theta": 1000000, "rope_local_base_freq": 10000, "sliding_window": 512,
         "sliding_window_pattern": 6},
        aliases=("google/gemma-3-1b-pt",)),
    CatalogueEntry(
        "gemma-3-4b", "google/gemma-3-4b-it",
        {"model_type": "gemma3", "text_config": {
            "model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 34,
            "rope_scaling": _GEMMA_3_SCALING, "sliding_window": 1024}},
        aliases=("google/gemma-3-4b-pt",)),
    CatalogueEntry(
        "gemma-3-27b", "google/gemma-3-27b-it",
        {"model_type": "gemma3", "text_config": {
            "model_type": "gemma3_text", "hidden_size": 5376, "num_attention_heads": 32,
            "head_dim": 128, "num_hidden_layers": 62, "rope_scaling": _GEMMA_3_SCALING,
            "sliding_window": 1024}},
        aliases=("google/gemma-3-27b-pt",)),
    CatalogueEntry(
        "phi-2", "microsoft/phi-2",
        {"model_type": "phi", "hidden_size": 2560, "num_attention_heads": 32,
         "num_hidden_layers": 32, "max_position_embeddings": 2048, "rope_theta": 10000.0,
         "partial_rotary_factor": 0.4}),
    CatalogueEntry(
        "phi-3-mini-4k", "microsoft/Phi-3-mini-4k-instruct",
        {"model_type": "phi3", "hidden_size": 3072, "num_attention_heads": 32,
         "num_hidden_layers": 32, "max_position_embeddings": 4096,
         "original_max_position_embeddings": 4096, "rope_theta": 10000.0,
         "sliding_window": 2047}),
    CatalogueEntry(
        "phi-3-mini-128k", "microsoft/Phi-3-mini-128k-instruct",
        {"model_type": "phi3", "hidden_size": 3072, "num_attention_heads": 32,
         "num_hidden_layers": 32, "max_position_embeddings": 131072,
         "original_max_position_embeddings": 4096, "rope_theta": 10000.0,
         "sliding_window": 262144,
         "rope_scaling": {"type": "longrope", "short_factor": _PHI3_MINI_SHORT,
                          "long_factor": _PHI3_MINI_LONG}},
        note="revision of July 2024"),
    CatalogueEntry(
        "phi-4", "microsoft/phi-4",
        {"model_type": "phi3", "hidden_size": 5120, "num_attention_heads": 40,
         "num_hidden_layers": 40, "max_position_embeddings": 16384,
         "original_max_position_embeddings": 16384, "rope_theta": 250000}),
    CatalogueEntry(
        "phi-4-mini", "microsoft/Phi-4-mini-instruct",
        {"model_type": "phi3", "hidden_size": 3072, "num_attention_heads": 24,
         "num_hidden_layers": 32, "max_position_embeddings": 131072,
         "original_max_position_embeddings": 4096, "rope_theta": 10000.0,
         "partial_rotary_factor": 0.75, "sliding_window": 262144,
         "rope_scaling": {"type": "longrope", "short_factor": [1.0] * 48,
                          "long_factor": _PHI4_MINI_LONG}}),
    CatalogueEntry(
        "olmo-2-7b", "allenai/OLMo-2-1124-7B",
        {"model_type": "olmo2", "hidden_size": 4096, "num_attention_heads": 32,
         "num_hidden_layers": 32, "max_position_embeddings": 4096, "rope_theta": 500000},
        aliases=("allenai/OLMo-2-1124-7B-Instruct",)),
    CatalogueEntry(
        "olmo-3-7b", "allenai/Olmo-3-7B-Instruct",
        {"model_type": "olmo3", "hidden_size": 4096, "num_attention_heads": 32,
         "num_hidden_layers": 32, "max_position_embeddings": 65536, "rope_theta": 500000,
         "sliding_window": 4096,
         "layer_types": (3 * ["sliding_attention"] + ["full_attention"]) * 8,
         "rope_scaling": {"attention_factor": 1.2079441541679836, "beta_fast": 32.0,
                          "beta_slow": 1.0, "factor": 8.0,
                          "original_max_position_embeddings": 8192, "rope_type": "yarn"}},
        aliases=("allenai/Olmo-3-1025-7B", "allenai/Olmo-3-7B-Think")),
    CatalogueEntry(
        "deepseek-v2-lite", "deepseek-ai/DeepSeek-V2-Lite",
        {"model_type": "deepseek_v2", "hidden_size": 2048, "num_attention_heads": 16,
         "num_hidden_layers": 27, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
         "max_position_embeddings": 163840, "rope_theta": 10000,
         "rope_scaling": {**_DEEPSEEK_SCALING, "mscale": 0.707, "mscale_all_dim": 0.707}},
        aliases=("deepseek-ai/DeepSeek-V2-Lite-Chat",)),
    CatalogueEntry(
        "deepseek-v3", "deepseek-ai/DeepSeek-V3", _DEEPSEEK_V3,
        aliases=("deepseek-ai/DeepSeek-V3-Base",)),
    CatalogueEntry(
        "deepseek-r1", "deepseek-ai/DeepSeek-R1", _DEEPSEEK_V3,
        aliases=("deepseek-ai/DeepSeek-R1-Zero",)),
    CatalogueEntry(
        "baichuan2-7b", "baichuan-inc/Baichuan2-7B-Base",
        {"model_type": "baichuan", "hidden_size": 4096, "num_attention_heads": 32,
         "num_hidden_layers": 32, "max_position_embeddings": 4096, "model_max_length": 4096},
        aliases=("baichuan-inc/Baichuan2-7B-Chat",),
        note="not a model type of transformers; its own code rotates as Llama does, base 10000"),
    CatalogueEntry(
        "gpt-oss-20b", "openai/gpt-oss-20b",
        {"model_type": "gpt_oss", "hidden_size": 2880, "num_attention_heads": 64, "head_dim": 64,
         "num_hidden_layers": 24, "max_position_embeddings": 131072, "rope_theta": 150000,
         "sliding_window": 128, "layer_types": ["sliding_attention", "full_attention"] * 12,
         "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0,
                          "original_max_position_embeddings": 4096, "rope_type": "yarn",
                          "truncate": False}}),
    CatalogueEntry(
        "yi-6b", "01-ai/Yi-6B",
        {"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32,
         "num_hidden_layers": 32, "max_position_embeddings": 4096, "rope_theta": 5000000.0},
        aliases=("01-ai/Yi-6B-Chat",)),
    CatalogueEntry(
        "smollm2-1.7b", "HuggingFaceTB/SmolLM2-1.7B",
        {"model_type": "llama", "hidden_size": 2048, "num_attention_heads": 32,
         "num_hidden_layers": 24, "max_position_embeddings": 8192, "rope_theta": 130000},
        aliases=("HuggingFaceTB/SmolLM2-1.7B-Instruct",)),
    CatalogueEntry(
        "smollm3-3b", "HuggingFaceTB/SmolLM3-3B",
        {"model_type": "smollm3", "hidden_size": 2048, "num_attention_heads": 16,
         "num_hidden_layers": 36, "max_position_embeddings": 65536, "rope_theta": 5000000.0,
         "no_rope_layers": [1, 1, 1, 0] * 9, "no_rope_layer_interval": 4,
         "layer_types": ["full_attention"] * 36, "use_sliding_window": False}),
    CatalogueEntry(
        "stablelm-2-1.6b", "stabilityai/stablelm-2-1_6b",
        {"model_type": "stablelm", "hidden_size": 2048, "num_attention_heads": 32,
         "num_hidden_layers": 24, "max_position_embeddings": 4096, "rope_theta": 10000,
         "partial_rotary_factor": 0.25},
        aliases=("stabilityai/stablelm-2-zephyr-1_6b",)),
    CatalogueEntry(
        "starcoder2-7b", "bigcode/starcoder2-7b",
        {"model_type": "starcoder2", "hidden_size": 4608, "num_attention_heads": 36,
         "num_hidden_layers": 32, "max_position_embeddings": 16384, "rope_theta": 1000000,
         "sliding_window": 4096}),
    CatalogueEntry(
        "granite-3.1-8b", "ibm-granite/granite-3.1-8b-base",
        {"model_type": "granite", "hidden_size": 4096, "num_attention_heads": 32,
         "num_hidden_layers": 40, "max_position_embeddings": 131072, "rope_theta": 10000000.0},
        aliases=("ibm-granite/granite-3.1-8b-instruct",)),
    CatalogueEntry(
        "command-r", "CohereForAI/c4ai-command-r-v01",
        {"model_type": "cohere", "hidden_size": 8192, "num_attention_heads": 64,
         "num_hidden_layers": 40, "max_position_embeddings": 8192, "model_max_length": 131072,
         "rope_theta": 8000000.0},
        aliases=("CohereLabs/c4ai-command-r-v01",)),
    CatalogueEntry(
        "falcon-7b", "tiiuae/falcon-7b",
        {"model_type": "falcon", "hidden_size": 4544, "num_attention_heads": 71,
         "num_hidden_layers": 32, "alibi": False},
        aliases=("tiiuae/falcon-7b-instruct",)),
    CatalogueEntry(
        "pythia-1.4b", "EleutherAI/pythia-1.4b",
        {"model_type": "gpt_neox", "hidden_size": 2048, "num_attention_heads": 16,
         "num_hidden_layers": 24, "max_position_embeddings": 2048, "rotary_emb_base": 10000,
         "rotary_pct": 0.25},
        aliases=("EleutherAI/pythia-1.4b-deduped",)),
    CatalogueEntry(
        "glm-4-9b-0414", "zai-org/GLM-4-9B-0414",
        {"model_type": "glm4", "hidden_size": 4096, "num_attention_heads": 32, "head_dim": 128,
         "num_hidden_layers": 40, "max_position_embeddings": 32768, "rope_theta": 10000.0,
         "partial_rotary_factor": 0.5},
        aliases=("THUDM/GLM-4-9B-0414",)),
)
# fmt: on
