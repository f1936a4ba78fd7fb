"""Training or evaluation mode, for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


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
