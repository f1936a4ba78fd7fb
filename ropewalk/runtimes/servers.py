"""The OpenAI-compatible server of a runtime: how it says what it is, and what it takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


class Connection(Protocol):
    """A connection to a server."""

    def get(self, path: str) -> object: ...

    def post(self, path: str, body: dict[str, object]) -> object: ...


@dataclass(frozen=True)
class Dialect:
    """How one runtime's server says what it is. Of one that no runtime claims, little is known."""

    kind: str
    """The runtime's name in words."""
    owner: str
    """Its `owned_by` of each of its models."""
    describe: Callable[[Connection, Mapping[str, Any], str], dict[str, object]]
    """From its entry of a model, and that model's name: its `version`, the `length` that it serves,
    and whatever else it says of its settings."""
    takes_tokens: bool = True
    """Prompts may be tokens; else they are text alone."""
    asked: Mapping[str, object] = field(default_factory=dict)
    """Fields of a request besides OpenAI's own, for a greedy answer."""
    asked_for_top: Mapping[str, object] = field(default_factory=dict)
    """Fields that make the server name the alternatives of a token by number."""


def members(value: object) -> dict[str, Any]:
    """The members of an object; none for any other value."""
    return value if isinstance(value, dict) else {}


def plain(value: Mapping[str, object]) -> dict[str, object]:
    """The members that are a number, a text or a truth value."""
    return {k: v for k, v in value.items() if isinstance(v, str | int | float | bool)}
