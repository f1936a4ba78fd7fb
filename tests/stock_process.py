"""The process in which stock transformers answers for an export, in a fork (tests/forks.py).

Most of such a process is `import transformers`; what runs is the real script.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.forks import Forks

_IMPORTS = """
import torch, safetensors.torch, transformers.models.llama.modeling_llama
from transformers import AutoModelForCausalLM, AutoTokenizer
"""


class StockProcess:
    """Stands for `subprocess.run` where it starts the script of stock transformers."""

    def __init__(self) -> None:
        self.real = subprocess.run
        self._forks = Forks(_IMPORTS, "-I")

    def run(self, command: Sequence[str], **given: Any) -> subprocess.CompletedProcess[Any]:
        starts = list(command[:2]) == [sys.executable, "-I"]
        if not starts or Path(command[2]).name != "stock_run.py":
            return self.real(command, **given)
        return self._forks.run(command[2:], given["env"])

    def close(self) -> None:
        self._forks.close()
