"""What the config classes of the installed transformers fill in, for `ropewalk/models/`.

python -m tests.models.stock_defaults ropewalk/models/stock_defaults.json
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from transformers import CONFIG_MAPPING

_KEYS = (
    *("max_position_embeddings", "model_max_length", "original_max_position_embeddings"),
    *("head_dim", "global_head_dim", "qk_rope_head_dim", "qk_nope_head_dim", "rope_interleave"),
    *("full_attention_interval", "no_rope_layer_interval", "kv_channels"),
    *("hidden_size", "num_attention_heads"),
)


def rotary_configs() -> Iterator[tuple[str, Any]]:
    """Every model type that states rope settings, and its default config."""
    for model_type in sorted(CONFIG_MAPPING):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                config = CONFIG_MAPPING[model_type]()
            except Exception:  # needs parts that have no default
                continue
        if getattr(config, "rope_parameters", None):
            yield model_type, config


@cache
def configs() -> dict[str, Any]:
    """The default config of every model type that states rope settings."""
    return dict(rotary_configs())


def turns_pictures(config: Any) -> bool:
    """Whether it turns by places in a picture, which nothing here reads."""
    return bool(config.rope_parameters.get("rope_type") == "axial")


def table() -> dict[str, dict[str, Any]]:
    """Defaults by model type; of the rope settings, only those that are not plain."""
    found = {}
    for model_type, config in configs().items():
        if turns_pictures(config) or config.get_text_config() is not config:
            continue
        rope = dict(config.rope_parameters)
        # What is computed from other sizes is no default: only what the class itself states.
        own = {key: getattr(type(config), key, None) for key in _KEYS}
        row: dict[str, Any] = {k: v for k, v in own.items() if isinstance(v, bool | int)}
        if any(isinstance(value, dict) for value in rope.values()):
            row["rope_parameters"] = rope
        else:
            if _has_own_base(config):
                row["own_base"] = True
            row["rope_theta"] = rope.pop("rope_theta")
            if (share := rope.pop("partial_rotary_factor", 1.0)) != 1:
                row["partial_rotary_factor"] = share
            kind = rope.pop("rope_type")
            rope.pop("type", None)
            rope.pop("max_position_embeddings", None)
            if kind != "default" or rope:
                row["rope_parameters"] = {"rope_type": kind, **rope}
        found[model_type] = row
    return found


def _has_own_base(config: Any) -> bool:
    """Whether it takes no base from outside the rope settings, where it states them itself."""
    other = type(config)(rope_theta=1234567.0).rope_parameters
    return bool(other["rope_theta"] == config.rope_parameters["rope_theta"])


def text() -> str:
    lines = [f"  {json.dumps(key)}: {json.dumps(row)}" for key, row in table().items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(text(), encoding="utf-8")
