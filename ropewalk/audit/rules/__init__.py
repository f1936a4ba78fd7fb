"""What each runtime makes of a config, by its written-down rules: one file a runtime.

A runtime differs from transformers in which keys it reads, not in the formulas behind them. So its
rules leave out of a setting what the runtime does not see, put in what it would fill in, and hand
the rest to the reader of transformers' own configs (models/config.py). None of this is run: a
reading's `source` says so. What transformers itself does is measured instead (stock_rotary.py).

The rules are those of vLLM 0.33, SGLang 0.5.23, llama.cpp, mlx-lm 0.32 and Ollama 0.33, read in
their sources; those of the first two are compared with the rotary modules of the released wheels by
tests/external/readings.py, and mlx-lm's with its models by tests/external/mlx_lm_classes.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from ropewalk.audit.reading import BY_ITS_RULES, Reading, by_rules, known
from ropewalk.audit.rules import llama_cpp, mlx_lm, ollama, sglang, transformers_4, vllm
from ropewalk.models.config import Config
from ropewalk.wheels.facts import WheelReading, before_5

Rules = Callable[[Config], Reading]
BY_RULES: Mapping[str, Rules] = {
    "vllm": vllm.read,
    "vllm-2025": vllm.read_2025,
    "sglang": sglang.read,
    "llama.cpp": llama_cpp.read,
    mlx_lm.RUNTIME: mlx_lm.read,
    ollama.RUNTIME: ollama.read,
    "transformers-4": transformers_4.read,
}


def of_wheel(wheel: WheelReading, config: Config) -> Reading:
    """What a release does with a config: the rules, with what was read in its wheel.

    For transformers and mlx-lm the rules of the recorded version, unless the code has changed.
    """
    name = wheel.runtime
    if wheel.table:
        if before_5(wheel.table):
            config = transformers_4.without_todays_keys(config)
        reading = {"vllm": vllm.read, "sglang": sglang.read}[name](config, wheel.table)
        return replace(reading, limit=wheel.limit)
    if wheel.changed or wheel.unread:
        why = f"{wheel.file} differs from {name} {wheel.recorded}, whose rules are recorded"
        return Reading(name, BY_ITS_RULES, unread=f"{why}; judge it by running it there")
    if name == mlx_lm.RUNTIME:
        return mlx_lm.read(config)
    return by_rules(name, config, lambda r, rope: r.steps(known(rope)), "by the length at hand")
