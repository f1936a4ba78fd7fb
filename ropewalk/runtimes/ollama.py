"""Ollama's rules, by its source (0.33.0-rc2, commit fb307609), not run.

A GGUF file goes to the llama.cpp server that it ships: since its own engine is gone, every file
rotates as in llama.cpp, and a Modelfile has no setting of RoPE. Only the length is Ollama's own: it
serves `num_ctx`, which is OLLAMA_CONTEXT_LENGTH or 4k, 32k or 256k by the memory of the graphics
cards where nobody sets it, and never more than the file's context_length.

A folder goes through a converter of its own, which reads `rope_theta` and `rope_scaling` alone, and
of those less than llama.cpp's does. Written down here are the classes that this project writes to
GGUF, or whose converter has no scaling at all; other classes it has are not established.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ropewalk.context_plan import ContextPlan, PlanStep
from ropewalk.errors import InvalidValue, Unsupported
from ropewalk.gguf.header import GGUFHeader
from ropewalk.gguf.rotation import DEFAULT_BASE
from ropewalk.models.config import ORIGINAL_LENGTH, Config, ConfigReader
from ropewalk.models.source import Source
from ropewalk.runtimes.llama_cpp import LlamaCppRuntime, served
from ropewalk.runtimes.model_classes import architecture
from ropewalk.runtimes.reading import (
    OLLAMA,
    RotaryReading,
    by_rules,
    known,
    whole,
    with_base,
    without,
)
from ropewalk.runtimes.runtime import Connection, Dialect, Runtime, members, plain
from ropewalk.runtimes.serving import Serving

_LLAMA = ("LlamaForCausalLM", "MixtralForCausalLM")
_NO_SCALING = ("CohereForCausalLM",)
_QWEN2 = "Qwen2ForCausalLM"
# Where each converter looks for the length: the first of these that is not 0.
_LENGTH = "max_position_embeddings"
_LENGTHS = {
    **dict.fromkeys(_LLAMA, (_LENGTH, "n_ctx")),
    **dict.fromkeys(_NO_SCALING, ("model_max_length", _LENGTH, "n_ctx")),
    _QWEN2: (_LENGTH,),
}
# It has these, and what each makes of a setting is not written down here.
_OTHERS = json.loads(Path(__file__).with_name("ollama_classes.json").read_text(encoding="utf-8"))
_EXPORT = "export a GGUF file (ropewalk export --runtime llama.cpp), and use that in the Modelfile"


def _described(server: Connection, entry: Mapping[str, Any], name: str) -> dict[str, object]:
    shown = members(server.post("/api/show", {"model": name}))
    details, about = members(shown.get("details")), members(shown.get("model_info"))
    trained = next((v for k, v in about.items() if k.endswith(".context_length")), None)
    return {
        "version": members(server.get("/api/version")).get("version"),
        **plain({"trained_length": trained, "parameters": shown.get("parameters")}),
        **plain({key: details.get(key) for key in ("quantization_level", "family")}),
    }


class Ollama(Runtime):
    """Ollama: its own converter for folders, llama.cpp's server for GGUF files."""

    name = OLLAMA
    place = 4
    loads = "GGUF file"
    dialect = Dialect("Ollama", "library", _described, takes_tokens=False)

    def read(self, config: Config) -> RotaryReading:
        """The reading of a folder by `ollama create`."""
        name = architecture(config)
        notes: list[str] = []

        def seen(reader: ConfigReader, rope: Config) -> tuple[PlanStep, ...]:
            if name in _OTHERS:
                raise Unsupported(
                    f"how Ollama's converter reads the rope settings of {name} is not known; "
                    f"{_EXPORT}"
                )
            if name not in (*_LLAMA, *_NO_SCALING, _QWEN2):
                raise InvalidValue(
                    "architectures", name[:80], "Ollama's converter has no class for it", _EXPORT
                )
            stated = reader.config.get("rope_scaling")
            scaling = dict(stated) if isinstance(stated, Mapping) else {}
            base = reader.config.get("rope_theta")
            if base is None and name not in _LLAMA:
                rule = "is all that Ollama's converter reads of the base; without it the file has 0"
                raise InvalidValue("rope_theta", None, rule, "export with --v4-keys, or to GGUF")
            if name in _LLAMA:
                _check_head(reader)
            arrives = _converted(name, scaling, base)
            if arrives.get("factor") != rope.get("factor", arrives.get("factor")):
                notes.append(f"Ollama's converter of {name} does not read this setting")
            # It looks for the original length in the scaling only.
            inner = ConfigReader(without(reader.config, {ORIGINAL_LENGTH}))
            return inner.steps(known({**with_base(rope, base or DEFAULT_BASE), **arrives}))

        reading = by_rules(self.name, config, seen, "by the declared length")
        stated = ConfigReader(config).config
        lengths = (whole(stated.get(key)) for key in _LENGTHS.get(name, (_LENGTH,)))
        limit = next((length for length in lengths if length), None)
        return replace(reading, limit=limit, notes=tuple(notes), remedy=_EXPORT)

    def read_file(self, header: GGUFHeader) -> RotaryReading:
        """A GGUF file rotates as in llama.cpp."""
        return replace(LlamaCppRuntime().read_file(header), runtime=self.name)

    def serve(self, plan: ContextPlan, source: Source) -> Serving:
        return served(LlamaCppRuntime(), plan, source)[1]


def _check_head(reader: ConfigReader) -> None:
    """Llama's converter states the width of a head that the model's width would give."""
    head, width, heads = map(reader.get, ("head_dim", "hidden_size", "num_attention_heads"))
    head, width, heads = whole(head), whole(width), whole(heads)
    if head and width and heads and head != width // heads:
        raise InvalidValue(
            "head_dim",
            head,
            f"Ollama's converter of Llama makes {width} / {heads} dimensions turn",
            _EXPORT,
        )


def _converted(name: str, scaling: Config, base: object) -> Config:
    """The part of a scaling that reaches the file."""
    if name in _LLAMA and scaling.get("type") == "linear":
        return {"rope_type": "linear", "factor": scaling.get("factor")}
    if name in _LLAMA and scaling.get("rope_type") == "llama3":
        if not base:  # without it, it computes no factors
            return {}
        return {ORIGINAL_LENGTH: 8192, **without(scaling, {"type"})}
    if name == _QWEN2:
        # It reads the factor as a list, and a number is none.
        if scaling.get("type") not in (None, "", "mrope", "default"):
            raise InvalidValue(
                "rope_scaling.type", scaling["type"], "Ollama's converter fails on it", _EXPORT
            )
        if not isinstance(scaling.get("factor"), list | None):
            raise InvalidValue(
                "rope_scaling.factor",
                scaling["factor"],
                "Ollama's converter of Qwen2 fails on a number here",
                _EXPORT,
            )
    return {}


RUNTIMES = (Ollama(),)
