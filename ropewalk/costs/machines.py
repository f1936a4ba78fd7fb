"""The machines that a cost is asked for: `8xh100`, `2x24GiB`, `here`."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ropewalk.errors import InvalidValue
from ropewalk.untrusted import text_value

FILE = Path(__file__).with_name("machines.json")
HERE = "here"
MEASURED = (HERE, "h100")
"""The machines whose figures were compared with runs of ours, on one device (docs/cost.md)."""
_WRITTEN = re.compile(r"(?:([0-9]{1,9})\s*x\s*)?(.+)", re.IGNORECASE)
_MEMORY = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)\s*g(?:i?b)?", re.IGNORECASE)
GIB, MOST = 2**30, 100_000


@dataclass(frozen=True)
class Machine:
    """So many devices of one kind."""

    name: str
    devices: int
    memory: int
    """Bytes of one device, as its driver reports them."""
    operations: float | None = None
    """A second, of one device, in bfloat16 without sparsity, by its data sheet."""
    source: str = ""
    at_most: int = MOST
    """The devices there can be: more ranks on one machine have no more of its main memory."""

    @property
    def is_gpu(self) -> bool:
        """True if it has memory of its own, of which another device brings more."""
        return self.at_most == MOST

    @property
    def caution(self) -> str:
        """A warning if nothing of ours was measured on it; else empty."""
        if self.name in MEASURED and self.devices == 1:
            return ""
        on = f"{self.devices}x{self.name}"
        return f"ropewalk was never run on {on}: nothing here is checked by a measurement"

    def __str__(self) -> str:
        name = self.name if self.devices == 1 else f"{self.devices}x{self.name}"
        return f"{name} ({self.memory / GIB:.3g} GiB each)" if self.devices > 1 else name


def machine(text: str) -> Machine:
    """The machine of a name in the table, with or without a number of devices, or of its memory."""
    match = _WRITTEN.fullmatch(text_value(text, "on").strip())
    assert match is not None or not text.strip()
    count, kind = (int(match[1] or 1), match[2].strip()) if match else (0, "")
    if count < 1:
        raise _unknown(text)
    if count > MOST:
        raise InvalidValue("on", text, f"must be at most {MOST:,} devices", "give fewer")
    if kind.lower() == HERE and count == 1:
        return of_main_memory(HERE, 1, _here())
    if (memory := _MEMORY.fullmatch(kind)) and float(memory[1]) > 0:
        return Machine(kind, count, int(float(memory[1]) * GIB))
    entry = next((row for row in table() if row.name == kind.lower()), None)
    if entry is None:
        raise _unknown(text)
    return Machine(entry.name, count, entry.memory, entry.operations, entry.source)


@cache
def table() -> tuple[Machine, ...]:
    rows = json.loads(FILE.read_text("utf-8"))
    return tuple(
        Machine(
            row["name"], 1, int(row["gib"] * GIB), row["tflops"] * 1e12,
            row["source"],
        )
        for row in rows
    )  # fmt: skip


def main_memory() -> int | None:
    """The bytes of this machine's, if they are known."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not on every system
        return None


def of_main_memory(name: str, ranks: int, memory: int) -> Machine:
    """Ranks on processors, each with so many bytes of one machine's memory."""
    return Machine(name, ranks, memory, source="this machine's main memory", at_most=ranks)


def _here() -> int:
    memory = main_memory()
    if memory is None:
        raise InvalidValue(
            "on", HERE, "this system does not say how much memory it has", "write 1x16GiB"
        )
    return memory


def _unknown(text: str) -> InvalidValue:
    names = ", ".join(row.name for row in table())
    return InvalidValue(
        "on", text, f"is not a machine of the table ({names})", "write 8xh100, 2x24GiB or here"
    )
