"""Imports chosen modules of an engine from its released wheel, with stand-ins for all others.

vLLM and SGLang need a GPU, and releases of torch of their own; their files that read a config and
build a rotation need neither. `real("sglang.srt.models.olmo2")` is the engine's own module, read
from a wheel that is never installed. What it imports in turn is its own too if ALWAYS names it, and
otherwise a stand-in that computes nothing.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import os
import sys
import zipimport
from pathlib import Path
from typing import Any

from tools.observatory.serving_rotary import _Nothing, _StandIns

WHEELS = "ROPEWALK_WHEELS"
"""The environment variable that lists wheels of engines."""
ALWAYS = {
    "vllm": ("vllm.model_executor.layers.rotary_embedding",),
    "sglang": (
        "sglang.srt.configs",
        "sglang.srt.layers.rotary_embedding",
        "sglang.srt.multimodal.customized_mm_processor_utils",
        "sglang.srt.utils.hf_transformers",
        "sglang.srt.utils.hf_transformers_patches",
        "sglang.srt.utils.hf_transformers_utils",
    ),
}
"""Modules that are an engine's own whatever is asked for: those that read configs and rotate."""
LACKING = {
    name
    for name in ("torchvision", "triton", "sentencepiece", "PIL")
    if importlib.util.find_spec(name) is None
}
"""Packages that engines import, and that this machine may not have."""


class _Absent(_Nothing):
    def __call__(self, *_: object, **__: object) -> _Absent:
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # those are Python's
            raise AttributeError(name)
        return self


class _OpenClass(type):
    def __getattr__(cls, name: str) -> Any:
        return getattr(_Absent(), name)


class _Class(metaclass=_OpenClass):
    """A class of the engine: as a base, or as a layer that does nothing."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __class_getitem__(cls, _: object) -> type:
        return cls

    def __getattr__(self, name: str) -> Any:
        return getattr(_Absent(), name)


class _OneProcess:
    """The sizes and ranks of an engine that runs in one process."""

    def __getattr__(self, name: str) -> Any:
        return int(name.endswith("size"))


class _Parts(_StandIns):
    """Finds an engine's own modules in its wheel, and a stand-in for any other."""

    def __init__(self, engine: str, wheel: Path) -> None:
        super().__init__(engine, 16384)
        self.wheel, self.own = wheel, set(ALWAYS[engine])
        self.values |= {
            "get_parallel": _OneProcess,
            "get_tensor_model_parallel_world_size": lambda: 1,
            "extract_layer_index": lambda _: 0,
            "append_stages": lambda *_, **__: (None, None),
            "lru_cache_frozenset": lambda **_: lambda function: function,
        }

    def find_spec(self, name: str, path: object, target: object = None) -> Any:
        # The package itself is its own: SGLang's patches transformers when it is imported.
        if name == self.engine or any(f"{name}.".startswith(f"{own}.") for own in self.own):
            folder = self.wheel.joinpath(*name.split(".")[:-1])
            if spec := zipimport.zipimporter(str(folder)).find_spec(name):
                return spec
        if name.partition(".")[0] in LACKING:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return super().find_spec(name, path or (), target)

    def value(self, name: str) -> object:
        known = super().value(name)
        if type(known) is not _Nothing:
            return known
        is_class = name[:1].isupper() and not name.isupper()
        return type(name, (_Class,), {}) if is_class else _Absent()


def real(name: str, *more: str) -> Any:
    """The engine's own module of this name; `more` names modules that it imports."""
    engine = name.partition(".")[0]
    wheels = map(Path, os.environ.get(WHEELS, "").split(os.pathsep))
    parts = next((found for found in sys.meta_path if isinstance(found, _Parts)), None)
    if parts is None:
        parts = _Parts(engine, next(w for w in wheels if w.name.startswith(f"{engine}-")))
        sys.meta_path.insert(0, parts)
    parts.own |= {name, *more}
    return importlib.import_module(name)
