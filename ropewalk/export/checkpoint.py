"""The source of an export, and the place it is written to.

A checkpoint is a folder of safetensors, maybe in shards. Its weights are copied as files where
nothing changes them, so that tied weights and shards stay what they were, and rewritten tensor by
tensor where something does: one tensor is in memory at a time, however large the model.

What is written stands under a temporary name beside its final one until the block that writes it
ends without an error. So whoever finds an export under its name finds a whole one.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from ropewalk.errors import InputError, InvalidValue, RopewalkError, UnknownName, Unsupported
from ropewalk.models.config import Config
from ropewalk.models.load import WEIGHT_INDEX, checked_config, checked_weights, model_folder
from ropewalk.untrusted import read_json

# What safetensors calls the types that a model can be computed in.
_STORED = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}
_STORED_NAMES = {dtype: name for name, dtype in _STORED.items()}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
# What goes along with weights and config. No code, no pickles, and no subfolder.
_COMPANIONS = ("*.json", "*.txt", "*.jinja", "*.model", "LICENSE*", "NOTICE*", "README*")
# Room for what is small: tokenizer, config, index.
_SPARE_BYTES = 32 * 2**20

Rewrite = Callable[[str, Tensor], Tensor]
"""From a tensor's name and value to the value that is written in its place."""


@dataclass(frozen=True)
class Checkpoint:
    """A model folder whose files have been looked at, and none of its tensors yet."""

    source: str
    folder: Path
    config: Config
    files: tuple[Path, ...]

    @classmethod
    def open(cls, source: str) -> Checkpoint:
        """Look at a local folder, or at `bundled`; what cannot be exported is refused by name."""
        folder = model_folder(source)
        config = checked_config(folder)
        inner = config.get("text_config")
        for part in (config, inner if isinstance(inner, Mapping) else {}):
            if (quantised := part.get("quantization_config")) is not None:
                method = quantised.get("quant_method") if isinstance(quantised, Mapping) else None
                raise Unsupported(
                    f"{folder}: its weights are quantised ({method or 'by a method not named'}), "
                    "and an export computes with the weights themselves; export the "
                    "checkpoint that it was quantised from, then quantise the result again"
                )
        checkpoint = cls(source, folder, config, tuple(checked_weights(folder)))
        for name, stored, _ in checkpoint.stored():
            if stored not in _STORED and not stored.startswith(("I", "BOOL")):
                raise Unsupported(
                    f"{folder}: {name} is stored as {stored}, a quantised type; export the "
                    "checkpoint that it was quantised from, then quantise the result again"
                )
        return checkpoint

    def stored(self) -> Iterator[tuple[str, str, tuple[int, ...]]]:
        """Every tensor's name, stored type and shape, without reading it."""
        for path in self.files:
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118 (it is no mapping)
                    part = file.get_slice(name)
                    yield name, part.get_dtype(), tuple(part.get_shape())

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Every tensor, one at a time."""
        for path in self.files:
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118
                    yield name, file.get_tensor(name)

    @property
    def dtype(self) -> torch.dtype:
        """The type in which most of its weights are stored."""
        sizes: dict[str, int] = {}
        for _, stored, shape in self.stored():
            if stored in _STORED:
                sizes[stored] = sizes.get(stored, 0) + int(torch.Size(shape).numel())
        return _STORED[max(sizes, key=sizes.__getitem__)] if sizes else torch.float32

    def bytes(self, dtype: torch.dtype | None = None) -> int:
        """The size of all weights, stored in `dtype` where one is given."""
        if dtype is None:
            return sum(path.stat().st_size for path in self.files)
        return sum(
            torch.Size(shape).numel() * (dtype.itemsize if stored in _STORED else 8)
            for _, stored, shape in self.stored()
        )


def parse_dtype(name: str) -> torch.dtype | None:
    """A torch type by name; None for `auto`, which keeps every tensor in its own."""
    if name == "auto":
        return None
    if name not in DTYPES:
        raise UnknownName("dtype", name, ("auto", *DTYPES))
    return DTYPES[name]


@contextmanager
def staged(
    out: str | Path, *, needs_bytes: int, overwrite: bool = False, sources: tuple[Path, ...] = ()
) -> Iterator[Path]:
    """A temporary path beside `out`, for a file or folder that is renamed to it at the end.

    Refused before anything is written: an `out` that exists, without `overwrite`; one that is or
    holds one of the `sources`; a disk with too little room. After an error nothing is left.
    """
    # abspath, not resolve: an `out` that is a link is replaced, and what it leads to is kept.
    out = Path(os.path.abspath(out))
    _check_place(out, overwrite, sources)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(out.parent).free
    except OSError as error:
        raise InputError(f"{out}: cannot be written ({error.strerror})") from None
    if free < needs_bytes + _SPARE_BYTES:
        raise InputError(
            f"{out}: needs {_gigabytes(needs_bytes + _SPARE_BYTES)}, and its disk has "
            f"{_gigabytes(free)} free; make room, or write to another disk"
        )
    try:
        room = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    except OSError as error:
        raise InputError(f"{out}: cannot be written ({error.strerror})") from None
    try:
        yield room / out.name
        _move_into_place(room, out)
    except OSError as error:
        # What is read was opened before: what fails now is the writing.
        raise RopewalkError(f"{out}: cannot be written ({error})") from None
    finally:
        shutil.rmtree(room, ignore_errors=True)


def copy_companions(checkpoint: Checkpoint, folder: Path) -> None:
    """Tokenizer, generation config, licence: all that goes along, but config and weights."""
    for pattern in _COMPANIONS:
        for path in sorted(checkpoint.folder.glob(pattern)):
            if path.is_file() and path.name not in ("config.json", WEIGHT_INDEX):
                shutil.copyfile(path, folder / path.name)


def write_weights(checkpoint: Checkpoint, folder: Path, *, rewrite: Rewrite | None = None) -> None:
    """The weights, in the files that they were in: copied, or tensor by tensor through `rewrite`.

    Copied and not linked: whoever saves into the export later would write into the source.
    """
    total = 0
    for path in checkpoint.files:
        if rewrite is None:
            shutil.copyfile(path, folder / path.name)
        else:
            total += _rewritten(path, folder / path.name, rewrite)
    index_path = checkpoint.folder / WEIGHT_INDEX
    if checkpoint.files[0].name != "model.safetensors" or len(checkpoint.files) > 1:
        index = read_json(index_path)
        assert isinstance(index, dict)
        if rewrite is not None and isinstance(index.get("metadata"), dict):
            index["metadata"]["total_size"] = total
        write_json(folder / WEIGHT_INDEX, index)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _rewritten(source: Path, target: Path, rewrite: Rewrite) -> int:
    """One safetensors file, streamed into another; the bytes of its tensors.

    The format: eight bytes with the header's length, a JSON header with each tensor's type, shape
    and place, and the tensors. What type a tensor has is known once it is rewritten, so the header
    is written last, into room left for the longest that it can become.
    """
    with safe_open(source, framework="pt") as file, target.open("wb") as out:
        names = list(file.keys())
        header: dict[str, object] = {"__metadata__": file.metadata() or {"format": "pt"}}
        far = 10 * source.stat().st_size  # no offset has more digits: a type grows fourfold at most
        for name in names:
            header[name] = _entry("BF16", file.get_slice(name).get_shape(), far, far)
        room = len(json.dumps(header).encode())
        room += -room % 8  # tensors begin at multiples of eight bytes
        out.seek(8 + room)
        end = 0
        for name in names:
            tensor = rewrite(name, file.get_tensor(name)).contiguous()
            start, end = end, end + tensor.nbytes
            stored = _STORED_NAMES.get(tensor.dtype) or file.get_slice(name).get_dtype()
            header[name] = _entry(stored, tensor.shape, start, end)
            out.write(tensor.flatten().view(torch.uint8).numpy().tobytes())
        out.seek(0)
        out.write(struct.pack("<Q", room) + json.dumps(header).encode().ljust(room))
    return end


def _entry(stored: str, shape: Sequence[int], start: int, end: int) -> dict[str, object]:
    return {"dtype": stored, "shape": list(shape), "data_offsets": [start, end]}


def _check_place(out: Path, overwrite: bool, sources: tuple[Path, ...]) -> None:
    for source in sources:
        kept = source.resolve()
        if kept == out.resolve() or out.resolve() in kept.parents:
            raise InvalidValue(
                "out", str(out), f"is or holds the source {kept}", "give another place"
            )
    if not os.path.lexists(out):
        return
    if not overwrite:
        raise InputError(f"{out}: exists already; allow it to be replaced (--overwrite)")
    # A slip of the keyboard must not delete somebody's home.
    folder = out.is_dir() and not out.is_symlink()
    if folder and any(out.iterdir()) and not (out / "config.json").is_file():
        raise InputError(
            f"{out}: is a folder without a model in it, which --overwrite does not replace; "
            "remove it yourself, or give another place"
        )


def _move_into_place(room: Path, out: Path) -> None:
    written = room / out.name
    replaced = os.path.lexists(out)
    if replaced:
        os.rename(out, room / "replaced")  # deleted with the room
    try:
        os.rename(written, out)
    except OSError:
        if replaced:
            os.rename(room / "replaced", out)
        raise


def _gigabytes(count: int) -> str:
    return f"{count / 2**30:.3g} GiB"
