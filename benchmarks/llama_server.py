"""The real llama.cpp as a server with any settings: `serving(path, n_ctx=4096, …)`.

The settings are those of `xllamacpp.CommonParams`, by name; a member of one of its enumerations is
given as `ggml_type.GGML_TYPE_Q4_0`. As a script, it is the process that serves.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

DEFAULTS = {
    "n_ctx": 4096,
    "n_parallel": 1,
    "n_gpu_layers": 0,
    "fit_params": False,
    "cache_ram_mib": 0,
    "n_ctx_checkpoints": 0,
    "warmup": False,
    "verbosity": 0,
}


@contextmanager
def serving(
    path: str | Path, python: str | Path = sys.executable, **settings: object
) -> Iterator[str]:
    """The address of a llama.cpp that serves a file, until the end of the `with` block."""
    process = start(path, python, **settings)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        if not address:
            raise RuntimeError(f"llama.cpp does not serve {path}")
        yield address
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def start(
    path: str | Path, python: str | Path = sys.executable, **settings: object
) -> subprocess.Popen[str]:
    asked = {"path": str(Path(path).resolve()), **DEFAULTS, **settings}
    return subprocess.Popen(
        [python, "-P", __file__, json.dumps(asked)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def main() -> None:
    import xllamacpp

    settings = json.loads(sys.argv[1])
    params = xllamacpp.CommonParams()
    params.model.path = settings.pop("path")
    for name, value in settings.items():
        kind, dot, member = value.partition(".") if isinstance(value, str) else ("", "", "")
        if dot and hasattr(xllamacpp, kind):
            value = getattr(getattr(xllamacpp, kind), member)
        setattr(params, name, value)
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
