"""The llama.cpp of the package `xllamacpp` as a server, by the flags of `llama-server` that we use.

It stands alone, because llama.cpp ends its whole process on a file that it cannot take. It is run
by path (llama_cpp_run.py does), serves over HTTP, and ends when its standard input does. With
`--program PATH`, the user's own `llama-server` takes the other flags, and ends with this process.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

ERRORS_ONLY = 1
_WRITES = 0.2
"""Seconds in which llama.cpp's own thread writes its reason to standard error."""
_PLACES = {
    "model": "model.path",
    "ctx_size": "n_ctx",
    "threads": "cpuparams.n_threads",
    "threads_batch": "cpuparams_batch.n_threads",
    "gpu_layers": "n_gpu_layers",
    "parallel": "n_parallel",
    "cache_ram": "cache_ram_mib",
    "ctx_checkpoints": "n_ctx_checkpoints",
    "port": "port",
    "verbosity": "verbosity",
    **{
        name: name
        for name in (
            *("check_tensors", "swa_full", "rope_freq_base", "rope_freq_scale", "yarn_orig_ctx"),
            *("yarn_ext_factor", "yarn_attn_factor", "yarn_beta_fast", "yarn_beta_slow"),
        )
    },
}
"""The parameters of llama.cpp by their flags."""
_KINDS = {
    "cache_type_k": ("cache_type_k", "ggml_type", "GGML_TYPE_"),
    "cache_type_v": ("cache_type_v", "ggml_type", "GGML_TYPE_"),
    "rope_scaling": ("rope_scaling_type", "llama_rope_scaling_type", "LLAMA_ROPE_SCALING_TYPE_"),
    "flash_attn": ("flash_attn_type", "llama_flash_attn_type", "LLAMA_FLASH_ATTN_TYPE_"),
}
"""The same of those that take a name: the parameter, and where llama.cpp has its values."""
_ATTENTION = {"on": "enabled", "off": "disabled"}


def main() -> None:
    # Ctrl-C in a terminal reaches this process too. The one that started it decides what to do.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.argv[1] == "--program":
        _run(sys.argv[2:])
    flags = _flags(sys.argv[1:])
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model_alias = {flags.pop("alias")}
    params.fit_params = flags.pop("fit") == "on"
    params.warmup = not flags.pop("no_warmup")
    params.cache_prompt = not flags.pop("no_cache_prompt")
    for flag, value in flags.items():
        if flag in _PLACES:
            *within, name = _PLACES[flag].split(".")
            setattr(getattr(params, within[0]) if within else params, name, value)
        else:
            name, values, prefix = _KINDS[flag]
            kind = getattr(getattr(xllamacpp, values), f"{prefix}{value.upper()}", None)
            if kind is None:
                sys.exit(f"--{flag.replace('_', '-')}: this llama.cpp knows no {value!r}")
            setattr(params, name, kind)
    try:
        server = xllamacpp.Server(params)
    except RuntimeError:
        time.sleep(_WRITES)
        sys.exit(1)
    sys.stdin.read()
    assert server is not None, "it serves until here"
    os._exit(0)  # not when a prompt has been read, which may take hours


def _flags(words: list[str]) -> dict[str, Any]:
    """The flags that are given, by their names."""
    parser = argparse.ArgumentParser(argument_default=argparse.SUPPRESS, allow_abbrev=False)
    for name in ("model", "alias", "fit", "cache_type_k", "cache_type_v", "rope_scaling"):
        parser.add_argument(f"--{name.replace('_', '-')}")
    parser.add_argument("--flash-attn", type=lambda word: _ATTENTION.get(word, word))
    for name in _PLACES:
        flag = f"--{name.replace('_', '-')}"
        if name in ("swa_full", "check_tensors"):
            parser.add_argument(flag, action="store_true")
        elif name != "model":
            fraction = name in ("rope_freq_base", "rope_freq_scale") or name[:5] == "yarn_"
            parser.add_argument(flag, type=float if fraction and name != "yarn_orig_ctx" else int)
    for flag in ("--no-warmup", "--no-cache-prompt"):
        parser.add_argument(flag, action="store_true", default=False)
    return vars(parser.parse_args(words))


def _run(command: list[str]) -> None:
    """Run a program until it ends, or standard input does."""
    try:
        program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=sys.stderr)
    except OSError as error:
        sys.exit(f"{command[0]}: cannot be run ({error.strerror})")

    def watch() -> None:
        sys.stdin.read()
        program.kill()

    threading.Thread(target=watch, daemon=True).start()
    code = program.wait()
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


if __name__ == "__main__":
    main()
