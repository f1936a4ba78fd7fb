"""The published rotary geometry of well-known models, so that a name is enough to plan.

An entry of catalogue.json holds the keys of the model's own `config.json` that say how it rotates,
as published: what the publisher does not say, the defaults of the model type fill in, as they do
for the file itself. So an entry and a downloaded config go through the same reader. (A published
null is kept only where the default is something else: Mistral's window.)
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from ropewalk.errors import UnknownName
from ropewalk.values import fields_of, table_in

FILE = Path(__file__).with_name("catalogue.json")


@dataclass(frozen=True)
class CatalogueEntry:
    """One model: the rotation keys of its config, and where they were published."""

    name: str
    hub_id: str
    config: dict[str, Any]
    # Hub ids whose configs say the same of rotation.
    aliases: tuple[str, ...] = ()
    note: str = ""
    trained_length: int | None = None
    """The longest sequences of training, long-context stages included, as its publisher's papers
    and model card state them; None if they state none."""
    sizes: dict[str, Any] = field(default_factory=dict)
    """Keys of its config that state its size, besides those of rotation; not of every model."""

    @property
    def source(self) -> str:
        return f"{self.hub_id} config.json" + (f" ({self.note})" if self.note else "")


def names() -> tuple[str, ...]:
    """Every short name, by family."""
    return tuple(entry.name for entry in _entries())


def find(name: str) -> CatalogueEntry:
    """The entry of a short name or a hub id, in any case. Its config is the caller's to change."""
    wanted = name.strip().lower()
    for entry in _entries():
        if wanted in (entry.name, *map(str.lower, (entry.hub_id, *entry.aliases))):
            return copy.deepcopy(entry)
    raise UnknownName("model", wanted, names())


@cache
def _entries() -> tuple[CatalogueEntry, ...]:
    return tuple(CatalogueEntry(**fields_of(row)) for row in table_in(FILE))
