"""The intended set-ups: tiny models, each with a long-context setting, into which faults go.

Sizes are tiny, and the original length of most is 1,024, so that a CPU runs them at full length.
"""

from __future__ import annotations

import math
from typing import Any

_TINY: dict[str, Any] = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 4096,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": 0,
    "tie_word_embeddings": False,
}
_PAIRS = 16
YARN: dict[str, Any] = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 1024,
}
SHORT = [1.0 + 0.02 * i for i in range(_PAIRS)]
LONG = [round(4.0 ** min(1.0, i / 8) * (1 + 0.01 * i), 6) for i in range(_PAIRS)]
_LONGROPE_SCALING = math.sqrt(1 + math.log(4) / math.log(1024))
_MOE = {"num_experts_per_tok": 2, "num_local_experts": 4}
_VISION = {
    "depth": 1,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_heads": 2,
    "out_hidden_size": 64,
    "deepstack_visual_indexes": [0],
}
_MROPE = {"mrope_section": [6, 5, 5], "mrope_interleaved": True}

BASES: dict[str, dict[str, Any]] = {
    "llama yarn": {**_TINY, "model_type": "llama", "rope_parameters": YARN},
    "qwen3 yarn": {
        **_TINY,
        "model_type": "qwen3",
        "rope_parameters": {**YARN, "rope_theta": 1e6, "beta_fast": 32.0, "beta_slow": 1.0},
    },
    "qwen2 linear": {
        **_TINY,
        "model_type": "qwen2",
        "rope_parameters": {"rope_type": "linear", "rope_theta": 1e6, "factor": 4.0},
    },
    "llama ntk": {
        **_TINY,
        "model_type": "llama",
        "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0},
    },
    "llama llama3": {
        **_TINY,
        "model_type": "llama",
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 500000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 512,
        },
    },
    "llama longrope": {
        **_TINY,
        "model_type": "llama",
        "rope_parameters": {
            **YARN,
            "rope_type": "longrope",
            "short_factor": LONG,
            "long_factor": LONG,
            "attention_factor": _LONGROPE_SCALING,
            "short_mscale": _LONGROPE_SCALING,
            "long_mscale": _LONGROPE_SCALING,
        },
    },
    "phi3 longrope": {
        **_TINY,
        "model_type": "phi3",
        "original_max_position_embeddings": 1024,
        "rope_parameters": {
            "rope_type": "longrope",
            "rope_theta": 10000.0,
            "original_max_position_embeddings": 1024,
            "short_factor": SHORT,
            "long_factor": LONG,
        },
    },
    "phi3 partial": {
        **_TINY,
        "model_type": "phi3",
        "original_max_position_embeddings": 1024,
        "rope_parameters": {
            "rope_type": "longrope",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.75,
            "original_max_position_embeddings": 1024,
            "short_factor": SHORT[:12],
            "long_factor": LONG[:12],
        },
    },
    "gemma3 linear": {
        **_TINY,
        "model_type": "gemma3_text",
        "num_hidden_layers": 4,
        "query_pre_attn_scalar": 32,
        "sliding_window": 256,
        "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        },
    },
    "olmo3 yarn": {
        **_TINY,
        "model_type": "olmo3",
        "num_hidden_layers": 4,
        "sliding_window": 256,
        "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
        "rope_parameters": {
            "full_attention": {**YARN, "rope_theta": 500000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 500000.0},
        },
    },
    "mistral linear": {
        **_TINY,
        "model_type": "mistral",
        "sliding_window": None,
        "rope_parameters": {"rope_type": "linear", "rope_theta": 1e6, "factor": 2.0},
    },
    "gpt_oss yarn": {
        **_TINY,
        **_MOE,
        "model_type": "gpt_oss",
        "sliding_window": 128,
        "layer_types": ["sliding_attention", "full_attention"],
        "rope_parameters": {
            **YARN,
            "rope_theta": 150000.0,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "truncate": False,
        },
    },
    "deepseek yarn": {
        **_TINY,
        "model_type": "deepseek_v3",
        "head_dim": 16,
        "q_lora_rank": 32,
        "kv_lora_rank": 32,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 16,
        "v_head_dim": 16,
        "moe_intermediate_size": 32,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "n_group": 1,
        "topk_group": 1,
        "first_k_dense_replace": 1,
        "rope_interleave": True,
        "rope_parameters": {
            **YARN,
            "beta_fast": 32,
            "beta_slow": 1,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
        },
    },
    "smollm3 yarn": {
        **_TINY,
        "model_type": "smollm3",
        "num_hidden_layers": 4,
        "no_rope_layers": [1, 1, 1, 0],
        "rope_parameters": {**YARN, "rope_theta": 5e6},
    },
    "neox linear": {
        **_TINY,
        "model_type": "gpt_neox",
        "rope_parameters": {
            "rope_type": "linear",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.5,
            "factor": 4.0,
        },
    },
    "glm4 yarn": {
        **_TINY,
        "model_type": "glm4",
        "rope_parameters": {**YARN, "partial_rotary_factor": 0.5},
    },
    "ministral3 yarn": {
        **_TINY,
        "model_type": "ministral3",
        "rope_parameters": {
            **YARN,
            "rope_theta": 1e6,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
            "llama_4_scaling_beta": 0.1,
        },
    },
    "qwen3_vl yarn": {
        "model_type": "qwen3_vl",
        "text_config": {
            **_TINY,
            "model_type": "qwen3_vl_text",
            "rope_parameters": {**YARN, **_MROPE, "rope_theta": 5e6},
        },
        "vision_config": {**_VISION, "model_type": "qwen3_vl"},
        "tie_word_embeddings": False,
    },
    "qwen2 old keys": {
        **_TINY,
        "model_type": "qwen2",
        "rope_theta": 1e6,
        "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024},
    },
}
