"""What transformers calls by other names in some of the versions that we run with."""

from __future__ import annotations

from inspect import signature
from typing import Any


def cache_name(model: Any) -> str:
    """The cache's, as an argument of a forward and in its output."""
    takes = signature(uncompiled(model).forward).parameters
    return "cache" if "cache" in takes else "past_key_values"


def uncompiled(model: Any) -> Any:
    """The model itself: torch.compile's wrapper has no names of arguments, and no plan."""
    return getattr(model, "_orig_mod", model)


def recompute_name(arguments: type) -> str:
    """The setting of TrainingArguments."""
    fields = arguments.__dataclass_fields__  # type: ignore[attr-defined]
    new = "activation_checkpointing"  # from 5.23 on
    return new if new in fields else "gradient_checkpointing"


def recompute_activations(model: Any) -> None:
    enable = getattr(model, "activation_checkpointing_enable", None)
    (enable or model.gradient_checkpointing_enable)()
