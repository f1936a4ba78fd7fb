"""Training or evaluation mode, or another attention, for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn


@contextmanager
def attending(config: Any, name: str) -> Iterator[None]:
    """Attention under a name that is registered in transformers, within a `with` block."""
    stock = config._attn_implementation
    config._attn_implementation = name
    try:
        yield
    finally:
        config._attn_implementation = stock


@contextmanager
def in_mode(model: nn.Module, *, training: bool) -> Iterator[None]:
    """All parts of a model in one mode; then each in the one that it was in."""
    former = [(part, part.training) for part in model.modules()]
    for part, _ in former:
        part.training = training
    try:
        yield
    finally:
        for part, mode in former:
            part.training = mode
