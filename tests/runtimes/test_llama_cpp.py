"""llama.cpp: its reading of a config, before any file is converted."""

from __future__ import annotations

from ropewalk.runtimes import named


def test_a_scaling_that_the_converter_drops_leaves_each_layer_its_head_size() -> None:
    plain = {"rope_type": "default", "rope_theta": 1e4}
    config = {
        "model_type": "gemma4_text",
        "hidden_size": 128,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 2,
        "head_dim": 32,
        "global_head_dim": 64,
        "layer_types": ["sliding_attention", "full_attention"],
        "max_position_embeddings": 1024,
        "rope_parameters": {
            "sliding_attention": plain,
            "full_attention": {**plain, "rope_type": "dynamic", "factor": 4.0},
        },
    }
    layers = named("llama.cpp").read(config).layers
    pairs = {kind: steps[-1].inverse_frequencies.size for kind, steps in layers.items()}
    assert pairs == {"sliding_attention": 16, "full_attention": 32}
