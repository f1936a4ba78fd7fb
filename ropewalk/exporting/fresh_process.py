"""Runs a script in a process that knows nothing of ropewalk."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence


def run_script(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """A script with its arguments in a fresh process, which sees installed packages only."""
    return subprocess.run(
        [sys.executable, "-I", *words],
        env={**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"},
        capture_output=True,
        text=True,
        check=False,
    )
