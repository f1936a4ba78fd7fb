"""Runs a script in a process that has imported nothing of ropewalk."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence


def run_script(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """A script with its arguments in a fresh process, which sees the packages that this one does.

    `pip install --user` and PYTHONPATH, as modules of a cluster set it, bring some: without them a
    good model would be called wrong for lack of torch.
    """
    path = os.pathsep.join(filter(None, sys.path))
    own = {"PYTHONPATH": path, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    call, env = [sys.executable, "-P", *words], {**os.environ, **own}
    return subprocess.run(call, env=env, capture_output=True, text=True, check=False)
