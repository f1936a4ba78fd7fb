"""Attention over windows of many documents: layouts, engines, and sequence parallelism (ulysses).

`layout.py` defines which tokens see each other and needs only numpy; start reading there.
`engines.py` lists the ways to compute it, `interface.py` registers them in transformers as
`ropewalk`, and `ulysses.py` spreads them over processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ropewalk.attention.layout import AttentionLayout

if TYPE_CHECKING:
    from ropewalk.attention.engines import ENGINES, choose
    from ropewalk.attention.interface import check_apart, register

__all__ = ["ENGINES", "AttentionLayout", "check_apart", "choose", "register"]


def __getattr__(name: str) -> Any:
    """Import torch and transformers only for those who compute: a layout needs neither."""
    if name in ("ENGINES", "choose"):
        from ropewalk.attention import engines

        return getattr(engines, name)
    if name in ("check_apart", "register"):
        from ropewalk.attention import interface

        return getattr(interface, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
