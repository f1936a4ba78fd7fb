"""The shapes of tensors and the types of keys for which the installed llama.cpp asks.

    python -m tools.observatory.llama_cpp_tensors [--check] [ARCHITECTURE ...]

Writes ropewalk/gguf/tensor_shapes.json and key_types.json; takes some three minutes. With --check,
or for some architectures alone, nothing is written: it shows where llama.cpp contradicts the
tables, and ends with 1 if it does.

llama.cpp refuses a tiny file with one wrong thing, and its message names the right one, which the
next file has (tests/gguf/tiny_architectures.py). Shapes: the sizes in a file all differ, so that a
number tells its key, and each tensor that the file may have is offered in a wrong shape. Types: all
keys whose names occur in the compiled library are stored in a type that llama.cpp never asks for.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import struct
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import gguf

from ropewalk.gguf.header import GGUFHeader, read_header
from ropewalk.gguf.tensors import EMBEDDING, SHAPES, TYPES, in_full, of_any_block, sizes_of, total
from ropewalk.values import table_in
from tests.gguf import tiny_architectures
from tests.gguf.damages import own_keys
from tests.gguf.gguf_files import raw_file, text
from tests.gguf.tiny_architectures import KEYS, LoadingProcess, mended

Table = dict[str, dict[str, list[str]]]
Tensors = dict[str, list[int]]
SIZES = {
    "embedding_length": 104,
    "feed_forward_length": 72,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.key_length": 30,
    "attention.value_length": 20,
    "rope.dimension_count": 30,
    "attention.q_lora_rank": 31,
    "attention.kv_lora_rank": 37,
    "ssm.inner_size": 208,  # llama.cpp takes twice the width alone
    "ssm.conv_kernel": 5,
    "ssm.state_size": 17,
    "ssm.time_step_rank": 11,
}
TURNING = {"minicpm3": {"rope.dimension_count": 12}}
"""Architectures in which a part of each key may turn; most others refuse that."""
EXPERTS = {
    "expert_count": 3,
    "expert_used_count": 2,
    "expert_feed_forward_length": 33,
    "expert_shared_feed_forward_length": 47,
    "expert_shared_count": 2,
    "leading_dense_block_count": 1,
}
DIMENSIONS = (
    *("width", "feed", "expert", "shared", "experts", "tokens", "keys", "values", "heads"),
    *("groups", "turning", "pairs", "half_share", "half_feed", "query_rank", "rank", "inner"),
    *("conv", "state", "step", "one", "heads*keys", "groups*keys", "groups*values"),
    *("heads*values", "groups*share", "copies*expert", "feed+feed", "rank+turning"),
    *("heads*unturned+heads*values", "inner+inner", "step+state+state", "width+width+width"),
    *("heads*keys+groups*keys+groups*values", "width+groups*values+groups*values"),
    *("heads*keys+groups*keys+groups*keys", "heads*keys+groups*values+groups*values"),
    "heads*keys+heads*keys+heads*keys",
)
"""Names that a table may give a number, the first first; those of ropewalk/gguf/tensors.py."""
_NO_SHAPE = [7]
_APART = re.compile(r"blk\.\d+\.attn_[qkv]\.")
_STRANGE = "strange"
"""A tensor that no architecture takes: llama.cpp refuses each file, and computes nothing."""
_TYPES = {"bool": "bool", "f32": "float32", "str": "text", "u32": "uint32"}
_TYPE = re.compile(r"key ([\w.-]+) has wrong type \w+ but expected type (\w+)")
_ALIGNMENT = "general.alignment"
"""A uint32 too: llama.cpp ends the process on another type."""
_IN_BINARY = re.compile(rb"(?:%s|general|tokenizer)\.[a-z][a-z\d_.]+(?=\0)")


class ShapeProbe:
    """The answers of llama.cpp to files of one architecture, with or without experts."""

    def __init__(
        self, loading: LoadingProcess, path: Path, architecture: str, experts: bool
    ) -> None:
        self._loading, self._path, self._architecture = loading, path, architecture
        with_experts = {**KEYS["with experts"], **EXPERTS} if experts else {}
        every = {**tiny_architectures.keys_of(architecture), **with_experts}
        self._keys = {**every, **SIZES, **TURNING.get(architecture, {})}

    def shapes(self) -> dict[str, str]:
        """The shapes of the tensors that it takes, in the words of the table."""
        blocks = range(self._keys["block_count"])
        fused = {f"blk.{i}.attn_qkv.{end}" for i in blocks for end in ("weight", "bias")}
        # With nothing offered, too: of some tensors, llama.cpp takes either one or the other.
        found = self._settled(dict.fromkeys(_offered(len(blocks)) - fused, _NO_SHAPE))
        found |= self._settled({})
        factors = {f"rope_factors_{part}.weight": _NO_SHAPE for part in ("long", "short")}
        found |= self._settled(factors | found, {"rope.scaling.type": "longrope"})
        if any(_APART.match(name) for name in found):
            rest = {name: shape for name, shape in found.items() if not _APART.match(name)}
            found |= self._settled(rest | dict.fromkeys(fused, _NO_SHAPE))
        header = read_header(self._written({}))
        row: dict[str, str] = {}
        for tensor, shape in found.items():
            own = " × ".join(_name(size, header, tensor) for size in shape)
            if row.setdefault(of_any_block(tensor), own) != own:
                raise SystemExit(f"{self._architecture}: {tensor} differs from block to block.")
        row.pop(EMBEDDING)
        return row

    def _written(self, tensors: Tensors, more: Mapping[str, str] | None = None) -> Path:
        keys = {**self._keys, **(more or {})}
        return tiny_architectures.write(self._path, self._architecture, keys, tensors)

    def _settled(self, tensors: Tensors, more: Mapping[str, str] | None = None) -> Tensors:
        """The tensors with the shapes that llama.cpp names, without those that it does not take."""
        tensors, before, complaint = {**tensors, _STRANGE: _NO_SHAPE}, None, ""
        while tensors != before:
            before = {**tensors}
            complaint = self._loading.complaint(self._written(tensors, more))
            if not mended(complaint, tensors):
                break
            changed = next((name for name in tensors if tensors[name] != before.get(name)), "")
            for name, shape in tensors.items():  # blocks are alike, most often
                if shape == _NO_SHAPE and of_any_block(name) == of_any_block(changed):
                    tensors[name] = tensors[changed]
        if "wrong number of tensors" not in complaint:
            raise SystemExit(f"{self._architecture}: {complaint.strip()[:200]}")
        return {name: shape for name, shape in tensors.items() if shape != _NO_SHAPE}


@cache
def _offered(blocks: int) -> set[str]:
    """The tensors of all these architectures, any of which another may take too."""
    stems = {
        gguf.TENSOR_NAMES[tensor].replace("{bid}", str(i))
        for architecture, name in gguf.MODEL_ARCH_NAMES.items()
        if name in tiny_architectures.known()
        for tensor in gguf.MODEL_TENSORS[architecture]
        for i in range(blocks)
    }
    return {f"{stem}.{end}" for stem in stems for end in ("weight", "bias")}


def _name(size: int, header: GGUFHeader, tensor: str) -> str:
    sizes = sizes_of(header)
    for name in DIMENSIONS:
        if total(name, sizes) == size:
            return name
    raise SystemExit(f"{header.architecture}: no name is known for the size {size} of {tensor}.")


def shapes(architectures: Iterable[str], loading: LoadingProcess, room: Path) -> Table:
    """By tensor and shape, the architectures."""
    table: Table = defaultdict(lambda: defaultdict(list))
    for architecture in architectures:
        rows: dict[str, dict[str, str]] = {}
        plain = architecture not in KEYS["experts"]
        for experts in (False, True) if plain else (True,):
            row = ShapeProbe(loading, room / "shapes.gguf", architecture, experts).shapes()
            if row not in rows.values():
                rows[f"{architecture} with experts" if rows else architecture] = row
        for name, row in rows.items():
            for tensor, shape in row.items():
                table[tensor][shape].append(name)
    return {
        tensor: {shape: sorted(names) for shape, names in sorted(table[tensor].items())}
        for tensor in sorted(table)
    }


def key_types(
    architectures: Iterable[str], loading: LoadingProcess, room: Path
) -> dict[str, list[str]]:
    """The keys of each type; those of an architecture begin with a dot."""
    found = {_ALIGNMENT: "u32"}
    for architecture in architectures:
        base = tiny_architectures.made(room / "base.gguf", architecture)
        keys, header, data = own_keys(base), read_header(base), base.read_bytes()
        tensors = [
            (name, place.shape, place.kind, data[place.start :][: 4 * math.prod(place.shape)])
            for name, place in header.tensors.items()
        ]
        wrong = {
            in_full(architecture, key): struct.pack("<IH", 2, 1)
            for key in _keys_of_llama_cpp() - {*found, "general.architecture"}
        }
        while wrong:
            own = {"general.architecture": text(architecture), **keys, **wrong}
            complaint = loading.complaint(raw_file(room / "types.gguf", own, tensors))
            said = _TYPE.search(complaint)
            about = (
                said[1] if said else max((k for k in wrong if k in complaint), key=len, default="")
            )
            if wrong.pop(about, None) is None:
                break
            if said:
                found[about.removeprefix(architecture)] = said[2]
    return {
        name: sorted(key for key, kind in found.items() if kind == own)
        for own, name in _TYPES.items()
    }


@cache
def _keys_of_llama_cpp() -> frozenset[str]:
    """The names of keys in the installed library; those of an architecture begin with a dot."""
    package = find_spec("xllamacpp")
    assert package is not None and package.origin is not None  # noqa: PT018
    found = set()
    for library in Path(package.origin).parent.glob("*.so"):
        found |= {*_IN_BINARY.findall(library.read_bytes())}
    return frozenset(name.decode().removeprefix("%s") for name in found)


def contradictions(
    found: Table, types: Mapping[str, Sequence[str]], architectures: Sequence[str]
) -> Iterator[str]:
    """Differences between llama.cpp and the tables, for these architectures."""
    wanted = {*architectures, *(f"{name} with experts" for name in architectures)}
    old, new = _by_architecture(table_in(SHAPES)), _by_architecture(found)
    for tensor, name in sorted({*old, *new}):
        before, after = old.get((tensor, name)), new.get((tensor, name))
        if name in wanted and before != after:
            yield f"{tensor} of {name}: {before} -> {after}"
    kinds = {key: kind for kind, keys in table_in(TYPES).items() for key in keys}
    said = {key: kind for kind, keys in types.items() for key in keys}
    whole = {*architectures} >= {*tiny_architectures.known()}
    for key in sorted({*kinds, *said} if whole else said):
        if kinds.get(key) != said.get(key):
            yield f"{key}: {kinds.get(key)} -> {said.get(key)}"


def _by_architecture(table: Table) -> dict[tuple[str, str], str]:
    return {
        (tensor, name): shape
        for tensor, own in table.items()
        for shape, names in own.items()
        for name in names
    }


def _write(path: Path, table: Mapping[str, object]) -> None:
    rows = (f" {json.dumps(n)}: {json.dumps(own, ensure_ascii=False)}" for n, own in table.items())
    path.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("architectures", nargs="*", metavar="ARCHITECTURE")
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    architectures = given.architectures or tiny_architectures.known()
    with tempfile.TemporaryDirectory() as folder:
        room = Path(folder)
        with closing(LoadingProcess(room)) as loading:
            found = shapes(architectures, loading, room)
            types = key_types(architectures, loading, room)
    different = list(contradictions(found, types, architectures))
    print("\n".join(different) or "no difference")
    if not given.check and not given.architectures:
        _write(SHAPES, found)
        _write(TYPES, types)
    elif different:
        sys.exit(1)


if __name__ == "__main__":
    main()
