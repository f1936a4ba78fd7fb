"""Runs a script in a process that has imported nothing of ropewalk."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from ropewalk.extras import environment


def run_script(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """A script with its arguments in a fresh process, which sees the packages that this one does.

    Isolated, it could lack torch, and a good model would be called wrong.
    """
    own = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    call, env = [sys.executable, "-P", *words], {**environment(), **own}
    return subprocess.run(call, env=env, capture_output=True, text=True, check=False)
