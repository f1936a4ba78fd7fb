"""Writes an exported folder: weights, and the files that go along with them.

Weights are copied as files where nothing changes them, so that tied weights and shards stay what
they were, and rewritten tensor by tensor where something does: one tensor is in memory at a time,
however large the model.
"""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from ropewalk.errors import printable
from ropewalk.exporting.manifest import CARD, SOURCE_CARD, is_listable
from ropewalk.models.checkpoint import STORED_TYPES, Checkpoint
from ropewalk.models.safetensors_header import INDEX, SINGLE
from ropewalk.untrusted import read_json

_STORED_NAMES = {dtype: name for name, dtype in STORED_TYPES.items()}
# What goes along with weights and config. No code, no pickles, and no subfolder.
_COMPANIONS = ("*.json", "*.txt", "*.jinja", "*.model", "LICENSE*", "NOTICE*", "README*")
# Two that are written anew, and Mistral's own config, which still has the source's rope setting.
_NOT_COPIED = ("config.json", INDEX, "params.json")

Rewrite = Callable[[str, Tensor], Tensor]
"""From a tensor's name and value to the value that is written in its place."""


def copy_companions(source: Path, folder: Path) -> tuple[str, ...]:
    """Copy tokenizer, generation config, licence, and the card, which gets another name.

    Returns the names of what was left out: links that lead out of the model, what is no file, and
    names that a manifest cannot list.
    """
    left_out = []
    files = {path for pattern in _COMPANIONS for path in source.glob(pattern)}
    if source / CARD in files:
        files.discard(source / SOURCE_CARD)  # of an extension's own source
    for path in sorted(path for path in files if path.name not in _NOT_COPIED):
        if is_listable(path.name) and path.is_file() and lies_within(path, source):
            shutil.copyfile(path, folder / (SOURCE_CARD if path.name == CARD else path.name))
        else:
            left_out.append(printable(path.name))
    return tuple(left_out)


def lies_within(path: Path, folder: Path) -> bool:
    """True if a file is really in the folder, or in the blobs that a hub's snapshot links to."""
    home = folder.resolve()
    roots = [home]
    if home.parent.name == "snapshots":
        roots.append(home.parent.parent / "blobs")
    return any(place in path.resolve().parents for place in roots)


def write_weights(
    checkpoint: Checkpoint, folder: Path, *, rewrite: Rewrite | None = None, linked: bool = False
) -> tuple[str, ...]:
    """The weights, in the files that they were in: copied, or tensor by tensor through `rewrite`.

    Copied and not linked, unless `linked`: whoever saves into the export later would write into the
    source. Returns the files that could not be linked, and were copied.
    """
    total, copied = 0, []
    for path in checkpoint.files:
        if rewrite is None:
            if not (linked and _link(path, folder / path.name)):
                shutil.copyfile(path, folder / path.name)
                copied.append(path.name)
        else:
            total += _rewritten(path, folder / path.name, rewrite)
    if checkpoint.files[0].name != SINGLE or len(checkpoint.files) > 1:
        index = read_json(checkpoint.folder / INDEX)
        assert isinstance(index, dict)
        if rewrite is not None and isinstance(index.get("metadata"), dict):
            index["metadata"]["total_size"] = total
        write_json(folder / INDEX, index)
    return tuple(copied) if linked else ()


def _link(source: Path, target: Path) -> bool:
    """Link a file by its own path, whatever disk it is on; False if links cannot be made here."""
    try:
        target.symlink_to(source.resolve())
    except (OSError, NotImplementedError):  # of a file system, or of Windows without the right
        return False
    return True


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
