"""A planted fault as a value, and the edits of a config that plant one.

A fault is stated before any tool sees it: an intended set-up, one change to it, and the words of
which a useful report has at least one. Whether it matters to the model is computed later, by
formulas that share no code with ropewalk (reference.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Config = dict[str, Any]
Edit = Callable[[Config], None]


@dataclass(frozen=True)
class FolderFault:
    """A model folder whose files say something other than its author meant."""

    name: str
    base: str
    """The intended set-up, by its name in `BASES`."""
    story: str
    """How such a folder comes about."""
    edits: tuple[Edit, ...]
    words: tuple[str, ...]
    """A report names the fault if it contains one of these: settings, or names of traps."""
    file: str = "config.json"


@dataclass(frozen=True)
class LiveFault:
    """A change to a model in memory, a training or a server; `plant` is a function of its place."""

    name: str
    base: str
    story: str
    words: tuple[str, ...]


def _holder(config: Config, path: str) -> tuple[Config, str]:
    *outer, last = path.split("/")
    for key in outer:
        config = config.setdefault(key, {})
    return config, last


def put(path: str, value: Any) -> Edit:
    """Write a value; `a/b` is the key b of the dict under a."""

    def edit(config: Config) -> None:
        holder, key = _holder(config, path)
        holder[key] = value

    return edit


def drop(path: str) -> Edit:
    """Remove a key, which must be there."""

    def edit(config: Config) -> None:
        holder, key = _holder(config, path)
        del holder[key]

    return edit


def move(path: str, to: str) -> Edit:
    """Give a key another name or another place."""

    def edit(config: Config) -> None:
        holder, key = _holder(config, path)
        target, name = _holder(config, to)
        target[name] = holder.pop(key)

    return edit


def swap(one: str, other: str) -> Edit:
    """Exchange two values."""

    def edit(config: Config) -> None:
        (a, key), (b, name) = _holder(config, one), _holder(config, other)
        a[key], b[name] = b[name], a[key]

    return edit


def change(path: str, how: Callable[[Any], Any]) -> Edit:
    """Replace a value by a function of it."""

    def edit(config: Config) -> None:
        holder, key = _holder(config, path)
        holder[key] = how(holder[key])

    return edit


def repeat_key(key: str, value: Any) -> Edit:
    """Write a key a second time, as a careless merge does: JSON readers take the last one."""

    def edit(config: Config) -> None:
        config[f"{key}\0again"] = value

    return edit


def written(config: Config) -> str:
    """The config as JSON, with repeated keys."""
    return json.dumps(config, indent=2).replace("\\u0000again", "")


def plant(fault: FolderFault, folder: Path) -> None:
    """Edit the file of a folder that holds the intended set-up."""
    path = folder / fault.file
    config = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for edit in fault.edits:
        edit(config)
    path.write_text(written(config), encoding="utf-8")
