"""What a figure was measured on."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import numpy as np


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
