"""HTML and SVG as values. What is not `Markup` is text; text is escaped here and nowhere else."""

from __future__ import annotations

from html import escape
from typing import TypeAlias

from ropewalk.errors import printable


class Markup(str):
    """A string that is HTML already. Only `tag` and `joined` make it."""

    __slots__ = ()


Child: TypeAlias = "Markup | str | None"
EMPTY = frozenset({"meta", "br", "img", "path", "line", "circle"})


def text(value: str) -> Markup:
    """A text, harmless: control characters, which could turn the text around, become visible."""
    return Markup(escape(printable(value, keep="\n"), quote=True))


def joined(*children: Child) -> Markup:
    parts = (each if isinstance(each, Markup) else text(each) for each in children if each)
    return Markup("".join(parts))


def marked(value: str) -> Markup:
    """A text whose words between backticks are code."""
    parts = value.split("`")
    if len(parts) % 2 == 0:
        return text(value)
    return joined(*(tag("code", part) if i % 2 else part for i, part in enumerate(parts)))


def tag(name: str, *children: Child, **attributes: str | float | None) -> Markup:
    """An element. An attribute's underscores are hyphens, and a final one is none at all."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_attribute(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in EMPTY and not children:
        return Markup(f"<{name}{written}/>")
    return Markup(f"<{name}{written}>{joined(*children)}</{name}>")


def _attribute(value: str | float) -> str:
    if isinstance(value, str):
        return text(value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)
