"""A GGUF file run in the real llama.cpp, with and without each of its rotary settings.

Whether a setting takes effect is seen, not believed: a copy of the file in which nothing but this
setting is neutralised must give other log-probabilities. Where it gives the same, the setting is a
silent no-op in this llama.cpp.
"""

from __future__ import annotations

import shutil
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ropewalk.errors import RopewalkError
from ropewalk.export import llama_cpp_run
from ropewalk.export.gguf_header import F32, GGUFHeader
from ropewalk.export.gguf_reading import FREQUENCIES, LONG, RUNTIME
from ropewalk.export.traps import Finding
from ropewalk.schedule import FloatArray

MOST_BYTES = 2**30
"""Of a file that is copied and run for every setting; a larger one is only loaded."""
TOKENS = 64
# What leaves a model as if the setting were not there.
_NEUTRAL = {
    "rope.scaling.attn_factor": 1.0,
    "rope.scaling.factor": 1.0,
    "rope.freq_base": None,  # another base, whatever it is
}


def trial(header: GGUFHeader) -> Iterator[Finding]:
    """Load the file, and neutralise its settings one by one."""
    small = header.path.stat().st_size <= MOST_BYTES
    try:
        whole = _log_probabilities(header.path)
    except RopewalkError as error:
        yield Finding(
            "refused",
            (RUNTIME,),
            str(error),
            "it does not load",
            "convert or export the model anew",
        )
        return
    if not np.isfinite(whole).all():
        yield Finding(
            "model-differs",
            (RUNTIME,),
            "llama.cpp computes log-probabilities that are no numbers",
            "every answer is garbage",
            "convert or export the model anew, with more precise weights",
        )
    if not small:
        return
    for name, start, content in _settings(header):
        with tempfile.TemporaryDirectory(prefix="ropewalk-verify-") as room:
            copy = Path(room) / "neutral.gguf"
            shutil.copyfile(header.path, copy)
            with copy.open("r+b") as file:
                file.seek(start)
                file.write(content)
            without = _log_probabilities(copy)
        if np.array_equal(whole, without):
            yield Finding(
                "no-effect",
                (RUNTIME,),
                f"{name} changes nothing: llama.cpp computes the same without it",
                "the model runs as if it were not there",
                "export the plan in a way that llama.cpp honours (ropewalk export does)",
            )


def _settings(header: GGUFHeader) -> Iterator[tuple[str, int, bytes]]:
    """Every rotary setting that says something, and the bytes that take it back."""
    for key, neutral in _NEUTRAL.items():
        value, place = header.number(key), header.places.get(f"{header.architecture}.{key}")
        if value is None or place is None or value == neutral:
            continue
        start, form = place
        yield key, start, struct.pack(form, value * 2 if neutral is None else neutral)
    for name in (FREQUENCIES, LONG):
        tensor = header.tensors.get(name)
        if tensor is None or tensor.kind != F32:
            continue
        factors = header.floats(name)
        if np.any(factors != 1):
            yield name, tensor.start, np.ones(factors.size, dtype="<f4").tobytes()


def _log_probabilities(path: Path) -> FloatArray:
    tokens = [3 + i % 29 for i in range(TOKENS)]
    found = llama_cpp_run.log_probabilities(path, tokens, start=TOKENS // 2, top=8)
    return found.values
