"""The facts about single model types that their config.json need not say.

Each row is what transformers' config class and attention code of that type do; the tests compare
every row with the installed transformers (but for Baichuan's, whose code is on the hub only). A
type that is not here is read by what its config says itself, and nothing is filled in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ropewalk.context_plan import FULL_ATTENTION, SLIDING_ATTENTION
from ropewalk.schedule import PairLayout


@dataclass(frozen=True)
class Family:
    """What a model type does that its config.json need not say."""

    defaults: Mapping[str, object] = field(default_factory=dict)
    """Values of its config class, for keys that publishers leave out."""
    rope: Mapping[str, object] = field(default_factory=dict)
    """The scaling of its config class, where a config states none."""
    pair_layout: PairLayout = "half"
    rotates: str = FULL_ATTENTION
    """The layers that rotate, where one setting serves them all."""
    local_base: str | None = None
    """It has a setting for each layer type; in v4, this key holds the sliding layers' base."""
    sliding_scales: bool = False
    """In v4, `rope_scaling` is meant for its sliding layers too."""
    length_is_scaled: bool = False
    """With linear scaling, `max_position_embeddings` holds the extended length already."""
    softmax_mscale: bool = False
    """Its attention multiplies all logits by the square of mscale_all_dim's growth."""
    only_longrope: bool = False
    """Its config class refuses every rope type but `default` and `longrope`."""


UNKNOWN = Family()


def _family(
    base: float,
    length: int,
    *,
    head_dim: int | None = None,
    rotated_share: float | None = None,
    original_length: int | None = None,
    local_base: tuple[str, float] | None = None,
    interleaved: bool = False,
    rotates: str = FULL_ATTENTION,
) -> Family:
    defaults: dict[str, object] = {"rope_theta": base, "max_position_embeddings": length}
    if head_dim is not None:
        defaults["head_dim"] = head_dim
    if rotated_share is not None:
        defaults["partial_rotary_factor"] = rotated_share
    if original_length is not None:
        defaults["original_max_position_embeddings"] = original_length
    if local_base is not None:
        defaults[local_base[0]] = local_base[1]
    return Family(
        defaults=defaults,
        pair_layout="interleaved" if interleaved else "half",
        rotates=rotates,
        local_base=local_base[0] if local_base else None,
    )


_LOCAL = ("rope_local_base_freq", 1e4)
_MODERNBERT = replace(
    _family(160000.0, 8192, local_base=("local_rope_theta", 1e4)), sliding_scales=True
)

FAMILIES: dict[str, Family] = {
    "apertus": replace(
        _family(12e6, 65536),
        rope={
            "rope_type": "llama3",
            "factor": 8.0,
            "original_max_position_embeddings": 8192,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
        },
    ),
    "arcee": _family(1e4, 4096),
    "baichuan": Family(defaults={"rope_theta": 1e4}),
    "cohere": _family(5e5, 8192, interleaved=True),
    "cohere2": _family(1e4, 8192, interleaved=True, rotates=SLIDING_ATTENTION),
    "deepseek_v2": replace(_family(1e4, 2048, interleaved=True), softmax_mscale=True),
    "deepseek_v3": replace(_family(1e4, 4096, interleaved=True), softmax_mscale=True),
    "ernie4_5": _family(5e5, 131072, head_dim=128, interleaved=True),
    "exaone4": _family(1e4, 2048, rotates=SLIDING_ATTENTION),
    "falcon": _family(1e4, 2048),
    "gemma": _family(1e4, 8192, head_dim=256),
    "gemma2": _family(1e4, 8192, head_dim=256),
    "gemma3_text": replace(
        _family(1e6, 131072, head_dim=256, local_base=_LOCAL), length_is_scaled=True
    ),
    "gemma3n_text": replace(
        _family(1e6, 32768, head_dim=256, local_base=_LOCAL), length_is_scaled=True
    ),
    "glm": _family(1e4, 131072, head_dim=128, rotated_share=0.5, interleaved=True),
    "glm4": _family(1e4, 131072, head_dim=128, rotated_share=0.5, interleaved=True),
    "gpt_neox": _family(1e4, 2048, rotated_share=0.25),
    "gpt_oss": replace(
        _family(150000.0, 131072, head_dim=64),
        rope={
            "rope_type": "yarn",
            "factor": 32.0,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "truncate": False,
            "original_max_position_embeddings": 4096,
        },
    ),
    "granite": _family(1e4, 2048),
    "granitemoe": _family(1e4, 2048),
    "helium": _family(1e5, 4096, head_dim=128, interleaved=True),
    "llama": _family(1e4, 2048),
    "llama4_text": _family(
        5e5, 131072, head_dim=128, interleaved=True, rotates="chunked_attention"
    ),
    "mistral": _family(1e4, 131072),
    "mixtral": _family(1e6, 131072),
    "modernbert": _MODERNBERT,
    "modernbert-decoder": _MODERNBERT,
    "nemotron": _family(1e4, 4096, rotated_share=0.5),
    "olmo": _family(1e4, 2048),
    "olmo2": _family(1e4, 2048),
    "olmo3": _family(5e5, 2048, local_base=("rope_theta", 5e5)),
    "olmoe": _family(1e4, 4096),
    "phi": _family(1e4, 2048, rotated_share=0.5),
    "phi3": replace(_family(1e4, 4096, original_length=4096), only_longrope=True),
    "phimoe": replace(_family(1e6, 131072), only_longrope=True),
    "qwen2": _family(1e4, 32768),
    "qwen2_moe": _family(1e4, 32768),
    "qwen3": _family(1e4, 32768, head_dim=128),
    "qwen3_moe": _family(1e4, 32768),
    "seed_oss": _family(1e4, 524288, head_dim=128),
    "smollm3": _family(2e6, 32768),
    "stablelm": _family(1e4, 4096, rotated_share=0.25),
    "starcoder2": _family(1e4, 4096),
}

WITHOUT_ROPE: Mapping[str, str] = {
    **dict.fromkeys(
        (
            *("gpt2", "gpt_neo", "gpt_bigcode", "openai-gpt", "opt", "biogpt", "ctrl", "xglm"),
            *("albert", "bart", "bert", "camembert", "distilbert", "electra", "ernie", "mbart"),
            *("pegasus", "roberta", "whisper", "xlm", "xlm-roberta"),
        ),
        "absolute positions",
    ),
    **dict.fromkeys(
        ("deberta", "deberta-v2", "mt5", "mpnet", "t5", "umt5"),
        "relative positions of another kind",
    ),
    **dict.fromkeys(("bloom", "mpt"), "ALiBi"),
    **dict.fromkeys(("falcon_mamba", "mamba", "mamba2", "rwkv", "xlstm"), "no positions"),
}
"""Model types that do not rotate, and how they tell positions apart instead."""
