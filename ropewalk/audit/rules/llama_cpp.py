"""llama.cpp's rules for a folder, after its own converter has made a GGUF file of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from ropewalk.audit.reading import Reading, by_rules, kind_of, known, share, without
from ropewalk.context_plan import PlanStep
from ropewalk.errors import Unsupported
from ropewalk.gguf.rotation import DEFAULT_BASE, LLAMA_CPP_FACTORS
from ropewalk.models.config import Config, ConfigReader

# What the converter writes of the settings of these: no scaling, and of stablelm not even the base.
_CONVERTED_WITHOUT: Mapping[str, Callable[[Config], Config]] = {
    "stablelm": lambda rope: {"rope_theta": DEFAULT_BASE},
    "falcon_h1": lambda rope: {"rope_theta": rope["rope_theta"]},
}


def read(config: Config) -> Reading:
    """The converter drops or replaces some keys, and the graph computes the rest."""

    def seen(reader: ConfigReader, rope: Config) -> tuple[PlanStep, ...]:
        kind = kind_of(rope)
        if reader.family.softmax_mscale:
            raise Unsupported("llama.cpp's rules for DeepSeek's two mscales are not known here")
        if reader.model_type in _CONVERTED_WITHOUT:
            return reader.steps({**_CONVERTED_WITHOUT[reader.model_type](rope), **share(rope)})
        takes_factors = reader.model_type in LLAMA_CPP_FACTORS
        if kind == "longrope" and reader.model_type not in ("phi3", "phimoe", "minicpm"):
            rope = {"rope_theta": rope["rope_theta"], **share(rope)}  # the converter drops them
        elif kind == "yarn":
            rope = without(rope, {"attention_factor", "mscale", "mscale_all_dim", "truncate"})
        elif kind == "llama3" and takes_factors:
            top = reader.config.get("original_max_position_embeddings")
            rope = {**rope, "original_max_position_embeddings": top or 8192}
        elif kind in ("llama3", "dynamic"):
            rope = {"rope_theta": rope["rope_theta"], **share(rope)}
        return reader.steps(known(rope))

    reading = by_rules("llama.cpp", config, seen, "by the declared length")
    stated = ConfigReader(config).get("max_position_embeddings")
    return replace(reading, limit=stated if isinstance(stated, int) else None)
