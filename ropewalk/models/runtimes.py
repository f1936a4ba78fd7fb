"""Which stock runtimes can load a plan, by what its stock setting says.

What each can express was found by running transformers and llama.cpp, and by reading vLLM and
SGLang. Only an export proves that a runtime does the same arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping

from ropewalk.errors import RopewalkError
from ropewalk.models.config import Config
from ropewalk.models.stock_config import rope_parameters
from ropewalk.plan import ContextPlan

RUNTIMES = ("transformers", "vllm", "sglang", "llama.cpp")

# llama.cpp's graphs of these take a factor a pair; others silently ignore the tensor.
LLAMA_CPP_FACTORS = {
    *("llama", "mistral", "mixtral", "mistral3", "phi3", "phimoe", "minicpm", "granite"),
    *("deci", "apertus", "arcee", "exaone", "llama4", "llama4_text"),
}


def loadable_by(plan: ContextPlan, config: Config) -> tuple[str, ...]:
    """The runtimes that can follow the plan; none if no stock config can say it."""
    try:
        written = rope_parameters(plan, config)
    except RopewalkError:
        return ()
    settings = [value for value in written.values() if isinstance(value, Mapping)] or [written]
    inner = config.get("text_config") or config
    families = {str(found.get("model_type")) for found in (config, inner)}
    return tuple(
        runtime
        for runtime in RUNTIMES
        if all(_says(runtime, setting, families) for setting in settings)
    )


def _says(runtime: str, setting: Mapping[str, object], families: set[str]) -> bool:
    kind = setting.get("rope_type")
    if runtime == "transformers":
        return True
    if kind == "dynamic":  # the others take it as static, or not at all
        return False
    if runtime != "llama.cpp" or kind in ("default", "linear"):
        return True
    if kind == "yarn":  # it computes the attention factor and truncates, whatever the file says
        return not {"attention_factor", "mscale", "mscale_all_dim"} & set(setting) and bool(
            setting.get("truncate", True)
        )
    return bool(families & LLAMA_CPP_FACTORS)
