"""A checkpoint: a folder of safetensors, maybe in shards, whose tensors are read one at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from ropewalk.errors import InputError, Unsupported
from ropewalk.models.config import Config
from ropewalk.models.load import checked_config, checked_weights
from ropewalk.models.placement import STORED, check_dtype
from ropewalk.models.safetensors_header import Stored, read_header
from ropewalk.models.source import resolve

# What safetensors calls the types that a model can be computed in.
STORED_TYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}
DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in STORED}


@dataclass(frozen=True)
class Checkpoint:
    """A model folder whose files have been looked at, and none of its tensors yet."""

    source: str
    folder: Path
    config: Config
    files: tuple[Path, ...]

    @classmethod
    def open(cls, source: str, *, packed: Container[str] = ()) -> Checkpoint:
        """Look at a local folder, or at `bundled`; what cannot be exported is refused by name.

        `packed`: the methods of quantisation whose weights can be copied as they are.
        """
        folder = resolve(source).folder
        config = checked_config(folder)
        inner, kept = config.get("text_config"), False
        for part in (config, inner if isinstance(inner, Mapping) else {}):
            if (quantised := part.get("quantization_config")) is not None:
                method = quantised.get("quant_method") if isinstance(quantised, Mapping) else None
                if method in packed:
                    kept = True
                    continue
                raise Unsupported(
                    f"{folder}: its weights are quantised ({method or 'by a method not named'}), "
                    "and an export computes with the weights themselves; export the "
                    "checkpoint that it was quantised from, then quantise the result again"
                )
        checkpoint = cls(source, folder, config, tuple(checked_weights(folder)))
        for name, stored, _ in checkpoint.stored():
            plain = stored in STORED_TYPES or stored.startswith(("I", "BOOL"))
            if not plain and not (kept and stored == "U8"):
                raise Unsupported(
                    f"{folder}: {name} is stored as {stored}, a quantised type; export the "
                    "checkpoint that it was quantised from, then quantise the result again"
                )
        return checkpoint

    def stored(self) -> Iterator[tuple[str, str, tuple[int, ...]]]:
        """Every tensor's name, stored type and shape, without reading it."""
        for header in self._headers.values():
            for name, tensor in header.items():
                yield name, tensor.dtype, tensor.shape

    def tensor(self, name: str) -> Tensor:
        """One tensor by its name."""
        path = next((path for path, header in self._headers.items() if name in header), None)
        if path is None:
            raise InputError(f"{self.folder}: holds no {name}; download the complete model again")
        with safe_open(path, framework="pt") as file:
            tensor: Tensor = file.get_tensor(name)
            return tensor

    @cached_property
    def _headers(self) -> Mapping[Path, Mapping[str, Stored]]:
        return {path: read_header(path) for path in self.files}

    @property
    def dtype(self) -> torch.dtype:
        """The type in which most of its weights are stored."""
        sizes: Counter[str] = Counter()
        for _, stored, shape in self.stored():
            if stored in STORED_TYPES:
                sizes[stored] += torch.Size(shape).numel()
        return STORED_TYPES[sizes.most_common(1)[0][0]] if sizes else torch.float32

    def bytes(self, dtype: torch.dtype | None = None) -> int:
        """The size of all weights, stored in `dtype` if one is given."""
        if dtype is None:
            return sum(path.stat().st_size for path in self.files)
        return sum(
            torch.Size(shape).numel() * (dtype.itemsize if stored in STORED_TYPES else 8)
            for _, stored, shape in self.stored()
        )


def parse_dtype(name: str) -> torch.dtype | None:
    """A torch type by name; None for `auto`, which keeps every tensor in its own."""
    if name == "auto":
        return None
    check_dtype(name, STORED)
    return DTYPES[name]
