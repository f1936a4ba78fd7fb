"""The process in which stock transformers answers for an export, in a fork (tests/forks.py).

Most of such a process is `import transformers`; what runs is the real script.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from ropewalk.exporting import fresh_process
from tests.forks import Forks

_IMPORTS = """
import torch, safetensors.torch, transformers.models.llama.modeling_llama
from transformers import AutoModelForCausalLM, AutoTokenizer
"""


class StockProcess:
    """Stands for `fresh_process.run_script`; its forks start programs of ours too."""

    def __init__(self) -> None:
        self.real = fresh_process.run_script
        self.forks = Forks(_IMPORTS, "-I")

    def run_script(self, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
        return self.forks.run(words, env, path=())

    def close(self) -> None:
        self.forks.close()
