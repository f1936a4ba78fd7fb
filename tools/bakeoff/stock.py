"""What a stock tool says and does about a folder: each in a fresh process, warnings collected.

    python -m tools.bakeoff.stock TOOL < JOBS

A job is a line of JSON with a `folder` and the length of a `prompt`, an answer a line of JSON.
transformers loads the model and runs it. Of vLLM and SGLang run, from their wheels, what reads the
config, checks the length and makes the rotary modules, with the arguments that their classes for
Llama pass; no whole server. llama.cpp's converter writes a GGUF file, whose keys are read.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tools.bakeoff.fault import Config
from tools.bakeoff.folders import LENGTH, WORDS, model_class
from tools.bakeoff.forked import serve
from tools.engine_parts import real

Said = dict[str, Any]
"""`error`, `warnings`, and what was measured: `rotations`, `length`, `tokens`, `logits`."""
LENGTHS = (512, LENGTH)
CHECKED = 32
"""Of a row of logits, those of the last positions are kept."""


@contextmanager
def listened(said: list[str]) -> Iterator[None]:
    """Collect whatever is said at level WARNING, by logging or by Python's warnings."""
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    names = [None, "transformers", "hf-to-gguf"]
    for name in names:
        logging.getLogger(name).addHandler(handler)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield
        finally:
            said += [str(warning.message) for warning in caught]
            for name in names:
                logging.getLogger(name).removeHandler(handler)


def tokens(length: int) -> torch.Tensor:
    """The same random text for all."""
    return torch.randint(1, WORDS, (1, length), generator=torch.Generator().manual_seed(7))


def in_transformers(folder: Path, said: Said, prompt: int) -> None:
    """Load tokenizer and model, run it at both lengths, and generate."""
    from transformers import AutoTokenizer

    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    words = AutoTokenizer.from_pretrained(folder)
    text = " ".join(f"w{i % WORDS}" for i in range(LENGTH))
    words(text)
    said["tokens"] = len(words(text, truncation=True)["input_ids"])
    model = model_class(config).from_pretrained(folder, dtype=torch.float32).eval()
    rows = []
    for length in LENGTHS:
        rows.append(model(tokens(length)).logits[0, -CHECKED:].double().numpy())
    said["logits"] = np.stack(rows).round(6).tolist()
    said["rotations"] = rotations_of(model)
    said["length"] = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    model.generate(tokens(prompt))


def rotations_of(model: Any) -> dict[str, Any]:
    """Inverse frequencies and scaling of a model's rotary modules for text, after a long input."""
    found = {}
    for path, module in model.named_modules():
        if "vision" in path or "visual" in path:
            continue
        for name, buffer in module.named_buffers(recurse=False):
            kind = re.fullmatch(r"(?:(.+)_)?inv_freq", name)
            if kind and "original" not in name:
                prefix = f"{kind[1]}_" if kind[1] else ""
                scaling = getattr(module, f"{prefix}attention_scaling", 1.0)
                found[kind[1] or ""] = [buffer.double().tolist(), float(scaling)]
    return found


def in_vllm(folder: Path, said: Said, _: int) -> None:
    """vLLM's own reading of a setting, its check of the length and its rotary modules."""
    from transformers import AutoConfig

    reading = real("vllm.transformers_utils.config")
    config = AutoConfig.from_pretrained(folder)
    text = config.get_text_config()
    for part in {id(part): part for part in (config, text)}.values():
        reading.patch_rope_parameters(part)
    said["length"] = accepted("vllm", folder)
    package = real("vllm.model_executor.layers.rotary_embedding")
    rope = text.rope_parameters
    for name, own in layered(rope).items():
        module = package.get_rope(
            head_of(text),
            max_position=text.max_position_embeddings,
            rope_parameters=own,
            is_neox_style=True,
            dtype=torch.float32,
        )
        said.setdefault("tables", {})[name] = table(module)


def in_sglang(folder: Path, said: Said, _: int) -> None:
    """The same of SGLang."""
    reading = real("sglang.srt.utils.hf_transformers.config")
    config = reading.get_config(str(folder), trust_remote_code=False)
    text = config.get_text_config()
    said["length"] = accepted("sglang", folder)
    factory = real("sglang.srt.layers.rotary_embedding.factory")
    rope = getattr(text, "rope_parameters", None) or {}
    for name, own in layered(rope).items():
        module = factory.get_rope(
            head_of(text),
            rotary_dim=head_of(text),
            max_position=text.max_position_embeddings,
            base=own.get("rope_theta", 10000),
            rope_scaling=dict(own),
            partial_rotary_factor=own.get("partial_rotary_factor", 1.0),
            dtype=torch.float32,
        )
        said.setdefault("tables", {})[name] = table(module)


def layered(rope: Any) -> dict[str, Any]:
    """A setting by layer type, as both engines tell the two forms apart."""
    nested = rope and all(isinstance(value, dict) for value in rope.values())
    return dict(rope) if nested else {"": rope}


def head_of(text: Any) -> int:
    own = getattr(text, "qk_rope_head_dim", None) or getattr(text, "head_dim", None)
    return int(own or text.hidden_size // text.num_attention_heads)


def table(module: Any) -> list[list[float]]:
    """cos and sin at a few positions of an engine's table."""
    rows = module.cos_sin_cache if hasattr(module, "cos_sin_cache") else _both_lists(module)
    places = {min(place, len(rows) - 1) for place in (1, 511, 1023, LENGTH - 1)}
    return [[round(x, 6) for x in rows[place].double().tolist()] for place in sorted(places)]


def _both_lists(module: Any) -> Any:
    """The table of an engine's module for two lists of factors."""
    return next(b for name, b in module.named_buffers() if "cos_sin_cache" in name)


def accepted(engine: str, folder: Path) -> int | None:
    """The longest sequence that an engine's own function accepts (read from its code)."""
    from tools.observatory import facts
    from tools.observatory.sources import Sources

    wheels = map(Path, os.environ["ROPEWALK_WHEELS"].split(os.pathsep))
    wheel = next(wheel for wheel in wheels if wheel.name.startswith(f"{engine}-"))
    if wheel not in _SOURCES:
        _SOURCES[wheel] = Sources(wheel)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    try:
        return facts.limit_of(engine, _SOURCES[wheel], config.get("text_config", config))
    except Exception:  # the reader of its code is ours: what it cannot read is no word of vLLM
        return None


_SOURCES: dict[Path, Any] = {}


def in_llama_cpp(folder: Path, said: Said, _: int) -> None:
    """llama.cpp's converter, and the keys of the file that it writes."""
    import gguf

    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    model = converter(config["architectures"][0])
    model.set_vocab = lambda self: None  # it knows real tokenizers alone, by their hashes
    path = folder / "converted.gguf"
    model(folder, gguf.LlamaFileType.ALL_F32, path).write()
    reader = gguf.GGUFReader(path)
    said["keys"] = {
        name: str(field.contents()) for name, field in reader.fields.items() if ".rope." in name
    }
    said["keys"] |= {t.name: "tensor" for t in reader.tensors if "rope_f" in t.name}


def converter(architecture: str) -> Any:
    """The converter's class for an architecture."""
    package: Any = import_module("conversion")
    return package.get_model_class(architecture)


RUNS: dict[str, Callable[[Path, Said, int], None]] = {
    "transformers": in_transformers,
    "vllm": in_vllm,
    "sglang": in_sglang,
    "llama.cpp": in_llama_cpp,
}


def job(tool: str) -> Callable[[Config], Said]:
    """The function that a forked process runs."""

    def run(asked: Config) -> Said:
        said: Said = {"error": "", "warnings": []}
        torch.set_grad_enabled(False)
        with listened(said["warnings"]):
            try:
                RUNS[tool](Path(asked["folder"]), said, asked.get("prompt", 1100))
            except Exception as error:
                said["error"] = f"{type(error).__name__}: {error}"[:2000]
                said["trace"] = traceback.format_exc()[-1500:]
        return said

    return run


def ready(tool: str) -> None:
    """Import what every job needs, once."""
    import_module("transformers")
    if tool == "vllm":
        real("vllm.transformers_utils.config", "vllm.config.utils")
        real("vllm.model_executor.layers.rotary_embedding")
    elif tool == "sglang":
        real("sglang.srt.utils.hf_transformers.config")
        real("sglang.srt.layers.rotary_embedding.factory")
    elif tool == "llama.cpp":
        import_module("conversion.base")
    elif tool == "transformers":
        for name in ("llama", "qwen2", "qwen3", "gemma3", "phi3"):
            import_module(f"transformers.models.{name}.modeling_{name}")


if __name__ == "__main__":
    ready(sys.argv[1])
    serve(job(sys.argv[1]))
