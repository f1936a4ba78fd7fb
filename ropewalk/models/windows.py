"""Sliding windows: the positions that attention of some or all layers is limited to."""

from __future__ import annotations

from ropewalk.context_plan import SLIDING_ATTENTION
from ropewalk.models.config import Config, ConfigReader, text_config

# With one window for all layers; the value where a config states none, as the config class has it.
_ONE_WINDOW = {"mistral": 4096, "mixtral": None, "phi3": None, "phimoe": None, "starcoder2": None}


def window_everywhere(config: Config) -> int | None:
    """The sliding window that every layer has; None if some layer sees further."""
    inner, kind = text_config(config), ConfigReader(config).model_type
    window = inner.get("sliding_window", _ONE_WINDOW.get(kind))
    if not isinstance(window, int) or inner.get("use_sliding_window") is False:
        return None
    types = inner.get("layer_types")
    if isinstance(types, list) and types:
        return window if set(types) == {SLIDING_ATTENTION} else None
    if kind.startswith("qwen"):  # the first layers see all; by its class, without the switch too
        below = inner.get("max_window_layers", 28)
        return window if inner.get("use_sliding_window") and below == 0 else None
    return window if kind in _ONE_WINDOW else None
