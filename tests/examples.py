"""How many random examples a test takes, where their usual number does not fit it."""

from __future__ import annotations

from typing import Any

from hypothesis import settings

FULL = 50
"""Examples of a test in the slow suite, unless it asks for another number."""


def examples(count: int, **more: Any) -> settings:
    """So many in the slow suite, and as much fewer in the fast one as other tests take."""
    return settings(max_examples=max(1, count * settings().max_examples // FULL), **more)
