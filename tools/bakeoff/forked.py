"""A process that answers each job in a fork of itself, so that no job sees what another left."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

ROOT = Path(__file__).parents[2]


def serve(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Answer each line of standard input with a line."""
    out = os.dup(1)
    os.dup2(2, 1)  # what tools print is not an answer
    for line in sys.stdin:
        read, write = os.pipe()
        if child := os.fork():
            os.close(write)
            with os.fdopen(read, "rb") as pipe:
                said = pipe.read()
            os.waitpid(child, 0)
            os.write(out, (said or b'{"error": "the process died", "warnings": []}') + b"\n")
            continue
        os.close(read)
        with os.fdopen(write, "wb") as pipe:
            pipe.write(json.dumps(answer(json.loads(line))).encode())
        os._exit(0)


def answers(
    module: str, words: list[str], jobs: list[dict[str, Any]], env: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    """The answers of `python -m MODULE` to these jobs, one by one."""
    if not jobs:
        return
    own = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    process = Popen(
        [sys.executable, "-m", module, *words],
        stdin=PIPE,
        stdout=PIPE,
        stderr=(ROOT / os.devnull).open("w") if not os.environ.get("BAKEOFF_STDERR") else None,
        text=True,
        env={**os.environ, **own, **env},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        for job in jobs:
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(f"{module} {' '.join(words)} ended; BAKEOFF_STDERR=1 shows why")
            yield json.loads(line)
    finally:
        process.stdin.close()
        process.wait()
