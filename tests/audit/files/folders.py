"""A model that is well, and its safetensors file taken apart and put together again."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ropewalk.audit.examination import audit
from ropewalk.audit.result import Audit
from ropewalk.models.config import BUNDLED_FOLDER

NAMES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"


def bundled(folder: Path) -> Path:
    """The bundled model, without what is not needed to judge it."""
    folder.mkdir()
    for name in NAMES:
        shutil.copyfile(BUNDLED_FOLDER / name, folder / name)
    return folder


def judged(model: Path) -> Audit:
    """By a runtime's rules alone, so that nothing of torch is needed."""
    return audit(model, runtimes=["vllm"], run=False)


def edit(path: Path, change: Callable[[Any], object]) -> None:
    """Change a JSON file; what `change` returns is written, or else what it changed in place."""
    value = json.loads(path.read_text(encoding="utf-8"))
    changed = change(value)
    path.write_text(json.dumps(value if changed is None else changed), encoding="utf-8")


def taken_apart(path: Path) -> tuple[dict[str, Any], bytes]:
    """The header of a safetensors file, and the bytes behind it."""
    content = path.read_bytes()
    (length,) = struct.unpack_from("<Q", content)
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def put_together(path: Path, header: object, tensors: bytes) -> None:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + tensors)


def keep(path: Path, names: Iterable[str], to: Path | None = None) -> None:
    """A safetensors file of only these tensors."""
    header, tensors = taken_apart(path)
    kept, content = {}, b""
    for name in names:
        start, end = header[name]["data_offsets"]
        place = [len(content), len(content) + end - start]
        kept[name] = {**header[name], "data_offsets": place}
        content += tensors[start:end]
    put_together(to or path, kept, content)


def in_shards(folder: Path) -> Path:
    """The same model in two files with an index."""
    path = folder / SINGLE
    names = [name for name in taken_apart(path)[0] if name != "__metadata__"]
    files = {f"model-0000{i + 1}-of-00002.safetensors": names[i::2] for i in range(2)}
    for file, own in files.items():
        keep(path, own, folder / file)
    path.unlink()
    weight_map = {name: file for file, own in files.items() for name in own}
    write_index(folder, weight_map)
    return folder


def write_index(folder: Path, weight_map: dict[str, str]) -> None:
    """The index as transformers writes it, which does not load one without metadata."""
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
