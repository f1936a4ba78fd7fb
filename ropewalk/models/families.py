"""The facts about single model types that their config.json need not say.

What a config class fills in stands in stock_defaults.json, written from the installed transformers.
How a model type rotates, and the words of its own that its config uses, are one row here. The tests
compare both with every model type of transformers, and find new ones by themselves; types with code
of their own (Baichuan, ChatGLM, Qwen 1) are compared with nothing. A type that is nowhere is read
by what its config says itself, and nothing is filled in.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ropewalk.context_plan import FULL_ATTENTION, SLIDING_ATTENTION
from ropewalk.schedule import LogNForm, PairLayout


@dataclass(frozen=True)
class Family:
    """Properties of a model type that its config.json need not state."""

    defaults: Mapping[str, object] = field(default_factory=dict)
    """Values of its config class, for keys that publishers leave out."""
    rope: Mapping[str, object] = field(default_factory=dict)
    """The rope settings of its config class, if a config states none."""
    pair_layout: PairLayout = "half"
    rotates: str = FULL_ATTENTION
    """The layers that rotate, if one setting serves them all."""
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
    names: Mapping[str, str] = field(default_factory=dict)
    """Its own words: our key to the path of its own, as `attn_config.rope_theta`."""
    base_ratio: str | None = None
    """A key whose value multiplies the base."""
    windows_rotate: bool = False
    """Only layers with a sliding window rotate; without a window, all do."""
    rotates_if: tuple[str, object] | None = None
    """A key, and the value with which alone it rotates."""
    otherwise: str = "no positions"
    """Its position encoding if `rotates_if` does not hold."""
    scaling_flag: tuple[str, Mapping[str, object]] | None = None
    """A key of its own code, and the scaling that it switches on."""
    log_n_flag: tuple[str, LogNForm] | None = None
    """A key of its own code, and the log-n that it switches on."""
    steps_log_n: bool = False
    """Its attention multiplies queries by 1 + llama_4_scaling_beta · ln(1 + ⌊p / L₀⌋)."""
    refused: str | None = None
    """Why no schedule says how it rotates."""
    unread: tuple[str, ...] = ()
    """Keys that its config states and its code does not follow."""
    own_code: bool = False
    """Its code comes with the model and reads no stock keys, so no stock config can be written."""


UNKNOWN = Family()

NOT_ATTENTION = frozenset(
    ("mamba", "linear_attention", "conv", "recurrent", "moe", "mlp", "dense", "sparse")
)
"""Layer types that are no attention, so nothing in them rotates."""

_FOLLOW_A_SHARE = frozenset(
    (
        *("deepseek_v4", "diffusion_gemma_text", "dots3_note_text", "glm4_moe_lite", "glm4v_text"),
        *("glm_image_text", "glm_ocr_text", "gpt_neox_japanese", "laguna", "mellum"),
        *("mimo_v2_flash", "minimax_m2", "minimax_m3_vl_text", "nemotron3_diarization_audio"),
        *("neomme", "phi3", "phi4_multimodal", "qwen4_exp_text", "solar_open", "step3p5", "zaya"),
    )
)
"""Types that turn a part of each head where a config says so, besides those that always do."""


def follows_share(model_type: str) -> bool:
    """True unless the code of a known type turns whole heads, whatever `partial_rotary_factor`."""
    if model_type not in FAMILIES or model_type in _FOLLOW_A_SHARE:
        return True
    return "partial_rotary_factor" in FAMILIES[model_type].defaults


_PAIRS = Family(pair_layout="interleaved")
_MLA = Family(softmax_mscale=True)
_PAIRED_MLA = replace(_PAIRS, softmax_mscale=True)
_IN_WINDOWS = Family(rotates=SLIDING_ATTENTION)
_LOCAL = Family(local_base="rope_local_base_freq", length_is_scaled=True)
_MODERNBERT = Family(local_base="local_rope_theta", sliding_scales=True)
_PICTURES = Family(refused="it turns by places in a picture, not by positions in a text")

_FAMILIES: dict[str, Family] = {
    "afmoe": _IN_WINDOWS,
    "axk1": _MLA,
    "axk2": _PAIRED_MLA,
    # Its 7B model rotates and its 13B model does not; vLLM too tells them apart by their size.
    "baichuan": Family(
        defaults={"rope_theta": 1e4},
        names={"max_position_embeddings": "model_max_length"},
        rotates_if=("hidden_size", 4096),
        otherwise="ALiBi",
    ),
    "bailing_hybrid": replace(_PAIRED_MLA, names={"max_position_embeddings": "model_max_length"}),
    "blt": Family(refused="its four transformers have configs of their own, inside this one"),
    **dict.fromkeys(
        ("blt_global_transformer", "blt_local_decoder", "blt_local_encoder", "blt_patcher"), _PAIRS
    ),
    "chatglm": Family(
        defaults={"rope_theta": 1e4, "partial_rotary_factor": 0.5},
        pair_layout="interleaved",
        names={"max_position_embeddings": "seq_length"},
        base_ratio="rope_ratio",
        own_code=True,
    ),
    "cohere": _PAIRS,
    "cohere2": replace(_PAIRS, rotates=SLIDING_ATTENTION),
    "cohere2_moe": replace(_PAIRS, rotates=SLIDING_ATTENTION),
    "dbrx": Family(
        names={
            "hidden_size": "d_model",
            "num_attention_heads": "n_heads",
            "num_hidden_layers": "n_layers",
            "max_position_embeddings": "max_seq_len",
            "rope_theta": "attn_config.rope_theta",
        },
        defaults={"max_position_embeddings": 2048},
    ),
    "deepseek_v2": _PAIRED_MLA,
    "deepseek_v3": _PAIRED_MLA,
    "deepseek_v32": _PAIRED_MLA,
    "deepseek_v4": _PAIRS,
    "dots3_note_audio_encoder": _PAIRS,
    "dots3_note_text": _PAIRS,
    "efficientloftr": _PICTURES,
    "eomt_dinov3": _PICTURES,
    "ernie4_5": _PAIRS,
    "ernie4_5_moe": _PAIRS,
    "ernie4_5_vl_moe_text": Family(
        refused="its rotary module orders frequencies for pictures other than for text, so no pair "
        "has one frequency"
    ),
    "exaone4": Family(windows_rotate=True),
    "exaone_moe": Family(windows_rotate=True),
    "flint": _IN_WINDOWS,
    "gemma3_text": _LOCAL,
    "gemma3n_text": _LOCAL,
    "glm": _PAIRS,
    "glm4": _PAIRS,
    "glm4_moe_lite": _MLA,
    "glm4v_text": _PAIRS,
    "glm_moe_dsa": _PAIRED_MLA,
    "glm_ocr_text": _PAIRS,
    "granitemoehybrid": Family(rotates_if=("position_embedding_type", "rope")),
    "helium": _PAIRS,
    "hy_v4": _MLA,
    "kolibri1": Family(windows_rotate=True),
    "llama4_text": replace(_PAIRS, rotates="chunked_attention"),
    "llama4_vision_model": _PICTURES,
    "longcat_flash": _PAIRED_MLA,
    "minicpm": Family(defaults={"rope_theta": 1e4}),
    "minicpm3": _MLA,
    "minimax_m3_vl_text": Family(unread=("rotary_dim",)),
    "ministral3": Family(steps_log_n=True),
    "mistral4": replace(_PAIRED_MLA, steps_log_n=True),
    "mistral_large4_text": _PAIRED_MLA,
    "modernbert": _MODERNBERT,
    "modernbert-decoder": _MODERNBERT,
    "moonshine": replace(
        _PAIRS,
        names={
            "num_attention_heads": "decoder_num_attention_heads",
            "num_hidden_layers": "decoder_num_hidden_layers",
        },
    ),
    "moonshine_streaming": _PAIRS,
    "olmo3": Family(local_base="rope_theta"),
    "openai_privacy_filter": _PAIRS,
    **dict.fromkeys(("pe_audio_encoder", "pe_audio_video_encoder", "pe_video_encoder"), _PAIRS),
    "phi3": Family(only_longrope=True),
    "phimoe": Family(only_longrope=True),
    # Its own code raises the base as dynamic NTK does, at each doubling of the trained length.
    "qwen": Family(
        defaults={"rope_theta": 1e4},
        names={"original_max_position_embeddings": "seq_length"},
        scaling_flag=("use_dynamic_ntk", {"rope_type": "dynamic", "factor": 2.0}),
        log_n_flag=("use_logn_attn", "beyond"),
        own_code=True,
    ),
    "qwen3_5_moe_text": Family(defaults={"full_attention_interval": 4}),
    "qwen3_5_text": Family(defaults={"full_attention_interval": 4}),
    "qwen3_next": Family(defaults={"full_attention_interval": 4}),
    "youtu": _MLA,
    "zamba2": Family(rotates_if=("use_mem_rope", True)),
}
# Types that published configs name and transformers does not, and which one their code equals.
_LIKE = {
    "kimi_k2": "deepseek_v3",
    "qwen2_5_vl": "qwen2_5_vl_text",
    "qwen2_vl": "qwen2_vl_text",
}


def _filled(family: Family, stock: Mapping[str, Any]) -> Family:
    """The family, with what its config class fills in."""
    defaults = dict(stock)
    rope = defaults.pop("rope_parameters", {})
    if family.local_base:  # v4 configs state two bases instead of nested settings
        sliding = rope[SLIDING_ATTENTION]["rope_theta"]
        defaults |= {family.local_base: sliding, "rope_theta": rope[FULL_ATTENTION]["rope_theta"]}
        rope = {}
    return replace(family, defaults={**defaults, **family.defaults}, rope=rope)


def _families() -> dict[str, Family]:
    file = Path(__file__).with_name("stock_defaults.json")
    stock: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    found = {
        **_FAMILIES,
        **{t: _filled(_FAMILIES.get(t, UNKNOWN), own) for t, own in stock.items()},
    }
    return found | {model_type: found[other] for model_type, other in _LIKE.items()}


FAMILIES: Mapping[str, Family] = _families()
"""All model types that are known to rotate, or to be no text models although they do."""

ENCODERS = frozenset(
    (
        *("esmc", "eurobert", "gte", "jina_embeddings_v3", "modernbert", "neomme", "nomic_bert"),
        "ultrabert",
    )
)
"""Those that read a text in both directions and predict no next token."""

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
    **dict.fromkeys(
        ("jamba", "kimi_linear", "nemotron_h", "zamba"),
        "recurrent layers that carry the order, with attention that knows no positions",
    ),
}
"""Model types that do not rotate, and how they tell positions apart instead."""

ROTATES_OTHERWISE: Mapping[str, str] = {
    **dict.fromkeys(("gptj", "codegen"), "by a base of 10000 that stands in its code"),
    **dict.fromkeys(("clvp", "clvp_encoder", "clvp_decoder"), "in speech, by a base in its code"),
    **dict.fromkeys(
        ("seamless_m4t", "wav2vec2-conformer"),
        "in speech, by rotary_embedding_base, where position_embeddings_type = 'rotary'",
    ),
    "roformer": "by a table of sines that is as long as max_position_embeddings",
    **dict.fromkeys(("esm", "esmfold2"), "in proteins, where position_embedding_type = 'rotary'"),
}
"""Model types that rotate, and by what, in code of their own that no plan reaches."""
