"""`doctor`: this installation, as a report of a fault should describe it."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from typing import NamedTuple

from ropewalk import __version__
from ropewalk.blocks import Block, Paragraph
from ropewalk.extras import EXTRAS, environment
from ropewalk.options import command
from ropewalk.run_directory import machine
from ropewalk.values import Result

CORE = ("numpy", "rich", "typer")
NATIVE = ("numba", "safetensors", "tokenizers", "torch", "matplotlib", "xllamacpp", "pyarrow")
"""Packages with compiled code, which can be installed and yet fail; tried in a process apart."""
SECONDS = 60
_TRIAL = """
import importlib, json, os, sys
told = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what packages print is no answer
for name in sys.argv[1:]:
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
    print(json.dumps([name, fault, device]), file=told, flush=True)
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
        return metadata.version(name)
    except Exception:  # it is not there, or its metadata are damaged in any way
        return None


def _tried(names: list[str]) -> tuple[dict[str, str], str]:
    """The errors of imports by package, and the device that torch finds."""
    call, env = [sys.executable, "-P", "-c", _TRIAL, *names], environment()
    try:
        done = subprocess.run(call, env=env, capture_output=True, timeout=SECONDS, check=False)
        output, end = done.stdout, f"its import ended the process with status {done.returncode}"
    except subprocess.TimeoutExpired as late:
        output, end = late.stdout or b"", f"its import took over {SECONDS} s"
    answers = [json.loads(line) for line in output.splitlines()]
    faults = {name: fault for name, fault, _ in answers if fault}
    if len(answers) < len(names):
        faults[names[len(answers)]] = end
    return faults, "".join(device for *_, device in answers)
