"""The process that holds llama.cpp: run by path with one JSON argument (llama_cpp_run.py does).

It stands alone, because llama.cpp ends its whole process on a file that it cannot take. It serves
over HTTP, writes its address to standard output, and ends when its standard input does.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time

ERRORS_ONLY = 1
_WRITES = 0.2
"""Seconds in which llama.cpp's own thread writes its reason to standard error."""


def main() -> None:
    import xllamacpp

    # llama.cpp prints some complaints to standard output, which is for the address alone.
    answer = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    # Ctrl-C in a terminal reaches this process too. The one that started it decides what to do.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asked = json.loads(sys.argv[1])
    params = xllamacpp.CommonParams()
    params.model.path = asked["path"]
    params.n_ctx = asked["length"]
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = asked["threads"]
    params.n_parallel = 1
    params.n_gpu_layers = 0
    if asked["exact"]:  # nothing is rounded beyond what the file itself holds
        params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.cache_prompt = asked["keeps_prompts"]
    # Else a model with windows reads each prompt that is shorter than these from its beginning.
    params.swa_full = asked["keeps_prompts"]
    params.model_alias = {asked["name"]}
    params.fit_params = False  # it would lower n_ctx without a word
    params.cache_ram_mib = 0
    params.n_ctx_checkpoints = 0
    params.check_tensors = True  # else weights that are NaN load, and no answer is right
    params.warmup = False
    params.verbosity = ERRORS_ONLY
    if flags := asked.get("flags"):
        kinds = xllamacpp.llama_rope_scaling_type
        params.rope_freq_base = flags["base"]
        params.rope_freq_scale = 1 / flags["factor"]
        params.rope_scaling_type = getattr(
            kinds, f"LLAMA_ROPE_SCALING_TYPE_{flags['kind'].upper()}"
        )
        params.yarn_orig_ctx = flags["original_length"]
    try:
        server = xllamacpp.Server(params)
    except RuntimeError:
        time.sleep(_WRITES)
        sys.exit(1)
    print(server.listening_address, file=answer, flush=True)
    sys.stdin.read()
    os._exit(0)  # not when a prompt has been read, which may take hours


if __name__ == "__main__":
    main()
