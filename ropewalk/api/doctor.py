"""`doctor`: this installation, as a report of a fault should describe it."""

from __future__ import annotations

import json
import platform
import secrets
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from typing import NamedTuple

from ropewalk import __version__
from ropewalk.blocks import Block, Paragraph
from ropewalk.extras import EXTRAS
from ropewalk.options import command
from ropewalk.run_directory import machine
from ropewalk.values import Result

CORE = ("numpy", "rich", "typer")
NATIVE = ("numba", "safetensors", "tokenizers", "torch", "matplotlib", "xllamacpp", "pyarrow")
"""Packages with compiled code, which can be installed and yet fail; tried in a process apart."""
SECONDS = 60
_TRIAL = """
import importlib, json, sys
mark, *names = sys.argv[1:]
for name in names:
    fault = device = ""
    try:
        module = importlib.import_module(name)
        if name == "torch":
            gpus = range(module.cuda.device_count())
            device = ", ".join(map(module.cuda.get_device_name, gpus)) or "cpu"
            if module.backends.mps.is_available():
                device = "mps"
    except BaseException as error:
        fault = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    print("\\n" + mark + json.dumps([name, fault, device]), flush=True)
"""


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
        there = sum(each.version is not None for each in self.packages)
        told = [
            f"ropewalk {self.ropewalk}, Python {self.python}; device: {self.device}; {there} of "
            f"{len(self.packages)} packages",
            *(f"{each.name} is broken: {each.fault}" for each in self.broken),
        ]
        return "; ".join(told)

    def blocks(self) -> Iterator[Block]:
        yield Paragraph(f"ropewalk {self.ropewalk}, Python {self.python}, {self.system}")
        yield Paragraph(f"{self.machine}; device: {self.device}\n")
        for extra in dict.fromkeys(each.extra for each in self.packages):
            own = [each for each in self.packages if each.extra == extra]
            told = ", ".join(f"{each.name} {each.version or 'missing'}" for each in own)
            whole = all(each.version for each in own)
            remedy = "" if whole else f"; pip install 'ropewalk[{extra}]'"
            yield Paragraph(f"{extra or 'core':8}{told}{remedy}")
        for each in self.broken:
            yield Paragraph(f"{each.name} is broken: {each.fault}", "warning")


@command(
    "doctor",
    "This installation",
    example="ropewalk doctor",
    status=lambda found: int(bool(found.broken)),
)
def doctor() -> Diagnosis:
    """Describe this installation: versions, extras, device, and packages that fail to import.

    Nothing that an extra brings is imported here, so that a broken one cannot end the call.
    """
    versions = {name: _version(name) for name in (*CORE, *EXTRAS)}
    faults, device = _tried([name for name in NATIVE if versions[name] is not None])
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
        return str(metadata.version(name))
    except metadata.PackageNotFoundError:
        return None
    except Exception as error:  # its metadata may be damaged in any way
        return f"unknown ({type(error).__name__})"


def _tried(names: list[str]) -> tuple[dict[str, str], str]:
    """The errors of imports by package, and the device that torch finds."""
    mark = secrets.token_hex()  # packages may print as they are imported
    call = [sys.executable, "-P", "-c", _TRIAL, mark, *names]
    try:
        done = subprocess.run(call, capture_output=True, timeout=SECONDS, check=False)
        told, end = done.stdout, f"its import ended the process with status {done.returncode}"
    except subprocess.TimeoutExpired as late:
        told, end = late.stdout or b"", f"its import took over {SECONDS} s"
    found: dict[str, tuple[str, str]] = {}
    for line in told.decode(errors="replace").splitlines():
        if line.startswith(mark):
            name, fault, device = json.loads(line.removeprefix(mark))
            found[name] = (fault, device)
    faults = {name: fault for name, (fault, _) in found.items() if fault}
    stopped = next((name for name in names if name not in found), None)
    device = found.get("torch", ("", ""))[1]
    return faults | ({} if stopped is None else {stopped: end}), device
