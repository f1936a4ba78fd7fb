"""`doctor`: this installation, as a report of a fault should describe it."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from typing import NamedTuple

from ropewalk import __version__
from ropewalk.blocks import Block, Paragraph
from ropewalk.extras import EXTRAS, imported
from ropewalk.options import command
from ropewalk.run_directory import machine
from ropewalk.values import Result

CORE = ("numpy", "rich", "typer")


class Package(NamedTuple):
    name: str
    extra: str
    """The extra that brings it; empty for what every installation needs."""
    version: str | None
    """None if it is not installed."""
    fault: str
    """The error of its import; empty if there was none, or if it was not tried."""


@dataclass(frozen=True, eq=False)
class Diagnosis(Result):
    """Versions, extras and device."""

    rows_in = "packages"

    ropewalk: str
    python: str
    system: str
    machine: str
    device: str
    """Where torch would compute."""
    packages: tuple[Package, ...]

    @property
    def broken(self) -> tuple[Package, ...]:
        return tuple(each for each in self.packages if each.fault)

    def summary(self) -> str:
        versions = f"ropewalk {self.ropewalk}, Python {self.python}; device: {self.device}"
        return "; ".join([versions, *(f"{p.name} is broken: {p.fault}" for p in self.broken)])

    def blocks(self) -> Iterator[Block]:
        yield Paragraph(f"ropewalk {self.ropewalk}, Python {self.python}, {self.system}")
        yield Paragraph(f"{self.machine}; device: {self.device}\n")
        for extra in dict.fromkeys(each.extra for each in self.packages):
            packages = [each for each in self.packages if each.extra == extra]
            versions = ", ".join(f"{each.name} {each.version or 'missing'}" for each in packages)
            whole = all(each.version for each in packages)
            remedy = "" if whole else f"; pip install 'ropewalk[{extra}]'"
            yield Paragraph(f"{extra or 'core':8}{versions}{remedy}")
        for each in self.broken:
            yield Paragraph(f"{each.name} is broken: {each.fault}", "warning")


@command(
    "doctor",
    "This installation",
    example="ropewalk doctor",
    status=lambda result: int(bool(result.broken)),
)
def doctor() -> Diagnosis:
    """Describe this installation: versions, extras, device, and packages that fail to import.

    Nothing that an extra brings is imported here, so that a broken one cannot end the call.
    """
    versions = {name: _version(name) for name in (*CORE, *EXTRAS)}
    faults, device = imported([name for name in EXTRAS if versions[name] is not None])
    return Diagnosis(
        __version__,
        platform.python_version(),
        platform.platform(),
        machine(),
        device or "unknown, without torch",
        tuple(
            Package(name, EXTRAS.get(name, ""), version, faults.get(name, ""))
            for name, version in versions.items()
        ),
    )


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except Exception:  # it is not there, or its metadata are damaged in any way
        return None
