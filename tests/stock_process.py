"""The fresh process in which stock transformers answers for an export, without its slow start.

Most of such a process is `import transformers`. Here one process imports it, and nothing of
ropewalk, and does each job in a fork of itself: no job knows of another, and what runs is the real
script.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_SERVER = """
import json, os, runpy, sys, traceback
import torch, safetensors.torch, transformers, transformers.models.llama.modeling_llama
from transformers import AutoModelForCausalLM, AutoTokenizer

def work(argv, env, output):
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for stream, path in zip((1, 2), output):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), stream)
        os.environ.clear(), os.environ.update(env)
        sys.argv[:] = argv
        runpy.run_path(argv[0], run_name="__main__")
        status = 0
    except SystemExit as left:
        status = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush(), sys.stderr.flush()
    os._exit(status)

for line in sys.stdin:
    assert not any(name.partition(".")[0] == "ropewalk" for name in sys.modules)
    child = os.fork()
    if child == 0:
        work(**json.loads(line))
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class StockProcess:
    """Stands for `subprocess.run` where it starts the script of stock transformers."""

    def __init__(self) -> None:
        self.real = subprocess.run
        self._server: subprocess.Popen[str] | None = None

    def run(self, command: Sequence[str], **given: Any) -> subprocess.CompletedProcess[Any]:
        starts = list(command[:2]) == [sys.executable, "-I"]
        if not starts or Path(command[2]).name != "stock_run.py":
            return self.real(command, **given)
        with tempfile.TemporaryDirectory() as room:
            output = [str(Path(room) / name) for name in ("out", "errors")]
            job = {"argv": list(command[2:]), "env": dict(given["env"]), "output": output}
            status = self._ask(json.dumps(job), given["env"])
            said = [Path(path).read_text(encoding="utf-8") for path in output]
        return subprocess.CompletedProcess(command, status, *said)

    def _ask(self, job: str, env: Mapping[str, str]) -> int:
        if self._server is None:
            self._server = subprocess.Popen(
                [sys.executable, "-I", "-c", _SERVER],
                env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )  # fmt: skip
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        print(job, file=self._server.stdin, flush=True)
        return int(self._server.stdout.readline())

    def close(self) -> None:
        if self._server is not None:
            self._server.communicate()
