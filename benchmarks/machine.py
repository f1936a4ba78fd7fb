"""The machine that a figure was measured on, and the page that shows it."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from pathlib import Path

import numpy as np

PAGE = "benchmarks/README.md"
"""The page of the measured tables: `python -m docs.figures` writes them there."""


def machine() -> dict[str, str | int]:
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count() or 1,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def _cpu_model() -> str:
    """Linux names the model only in /proc; elsewhere platform does."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def measured_on(where: Mapping[str, object], command: str) -> str:
    """A line under a timing: command and machine."""
    packages = ", ".join(
        f"{name} {where[name.lower()]}" for name in ("Python", "torch") if name.lower() in where
    )
    return f"`{command}`, on {where['cores']} cores of {where['cpu']} ({packages})"
