"""The place that an export is written to.

Weights are copied as files where nothing changes them, so that tied weights and shards stay what
they were, and rewritten tensor by tensor where something does: one tensor is in memory at a time,
however large the model.

What is written stands under a temporary name beside its final one until the block that writes it
ends without an error. So whoever finds an export under its name finds a whole one.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from ropewalk.errors import InputError, RopewalkError, printable
from ropewalk.exporting.manifest import is_listable
from ropewalk.exporting.places import check_export_place
from ropewalk.models.checkpoint import STORED_TYPES, Checkpoint
from ropewalk.models.load import WEIGHT_INDEX
from ropewalk.outputs import TEMPORARY, cannot_write
from ropewalk.untrusted import read_json

_STORED_NAMES = {dtype: name for name, dtype in STORED_TYPES.items()}
# What goes along with weights and config. No code, no pickles, and no subfolder.
_COMPANIONS = ("*.json", "*.txt", "*.jinja", "*.model", "LICENSE*", "NOTICE*", "README*")
_WRITTEN_ANEW = ("config.json", WEIGHT_INDEX)
_LOCK, _REPLACED = "lock", "replaced"
# Room for what is small: tokenizer, config, index.
_SPARE_BYTES = 32 * 2**20

Rewrite = Callable[[str, Tensor], Tensor]
"""From a tensor's name and value to the value that is written in its place."""


@contextmanager
def staged(
    out: str | Path, *, needs_bytes: int, overwrite: bool = False, sources: tuple[Path, ...] = ()
) -> Iterator[Path]:
    """A temporary path next to `out`, for a file or folder that is renamed to it at the end.

    Refused before anything is written: what the policy of outputs.py refuses; an `out` that exists,
    without `overwrite`; a disk with too little room. After an error nothing is left. What a killed
    process left is removed by the next export to the same place: a lock tells who is alive.
    """
    out = Path(os.path.abspath(out))
    _remove_dead_rooms(out)
    check_export_place(out, sources=sources, overwrite=overwrite)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(out.parent).free
    except OSError as error:
        raise cannot_write(out, error) from None
    if free < needs_bytes + _SPARE_BYTES:
        raise InputError(
            f"{out}: needs {_gigabytes(needs_bytes + _SPARE_BYTES)}, and its disk has "
            f"{_gigabytes(free)} free; free some space, or write to another disk"
        )
    try:
        room = Path(tempfile.mkdtemp(prefix=_prefix(out), suffix=TEMPORARY, dir=out.parent))
        lock = os.open(room / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
    except OSError as error:
        raise cannot_write(out, error) from None
    try:
        yield room / out.name
        _move_into_place(room, out)
    except OSError as error:
        # What is read was opened before: what fails now is the writing.
        raise RopewalkError(f"{out}: cannot be written ({error})") from None
    finally:
        shutil.rmtree(room, ignore_errors=True)
        os.close(lock)


def _remove_dead_rooms(out: Path) -> None:
    """Remove what processes left that were killed while they wrote to the same place."""
    for room in out.parent.glob(f"{_prefix(out)}*{TEMPORARY}"):
        try:
            lock = os.open(room / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:  # not ours, or just being made
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _restore(room, out)
            shutil.rmtree(room, ignore_errors=True)
        except BlockingIOError:  # its process is alive
            continue
        finally:
            os.close(lock)


def _prefix(out: Path) -> str:
    """How the names of an export's temporary folders begin: a name may be as long as it can be."""
    return f".ropewalk-{hashlib.sha256(os.fsencode(out.name)).hexdigest()[:12]}-"


def _restore(room: Path, out: Path) -> None:
    """Put back what was moved away by a process that was killed before it put the new one there."""
    if os.path.lexists(room / _REPLACED) and not os.path.lexists(out):
        os.rename(room / _REPLACED, out)


def copy_companions(source: Path, folder: Path) -> tuple[str, ...]:
    """Copy tokenizer, generation config, licence: all but config and weights.

    Returns the names of what was left out: links that lead out of the model, what is no file, and
    names that a manifest cannot list.
    """
    left_out = []
    found = {path for pattern in _COMPANIONS for path in source.glob(pattern)}
    for path in sorted(path for path in found if path.name not in _WRITTEN_ANEW):
        if is_listable(path.name) and path.is_file() and _lies_within(path, source):
            shutil.copyfile(path, folder / path.name)
        else:
            left_out.append(printable(path.name))
    return tuple(left_out)


def _lies_within(path: Path, folder: Path) -> bool:
    """Whether a file is really in the folder, or in the blobs that a hub's snapshot links to."""
    home = folder.resolve()
    places = [home]
    if home.parent.name == "snapshots":
        places.append(home.parent.parent / "blobs")
    return any(place in path.resolve().parents for place in places)


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


def _move_into_place(room: Path, out: Path) -> None:
    written = room / out.name
    replaced = os.path.lexists(out)
    if replaced:
        os.rename(out, room / _REPLACED)  # deleted with the room
    try:
        os.rename(written, out)
    except OSError:
        if replaced:
            os.rename(room / _REPLACED, out)
        raise


def _gigabytes(count: int) -> str:
    return f"{count / 2**30:.3g} GiB"
