"""The tensors that llama.cpp asks for in a file, as far as its header can be compared with them.

required_tensors.json is what the real llama.cpp missed in files without tensors, one architecture
after another (tests/gguf/tiny_architectures.py). Experts are left out: which layers have them, and
beside what, is said by keys of each architecture.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from ropewalk.gguf.header import GGUFHeader

TABLE = Path(__file__).with_name("required_tensors.json")
EMBEDDING = "token_embd.weight"
_MOST_BLOCKS = 10_000
_PER_LAYER = ("attention.head_count", "attention.head_count_kv", "feed_forward_length")
"""A list under one of these: the layers differ, and some lack what others have."""
_TWICE_AS_WIDE = ("arctic", "chatglm", "glm4", "qwen")
"""In these, feed_forward_length is not the width of each tensor of a feed-forward layer."""
_SHOWN = 3


def untold(header: GGUFHeader) -> str:
    """Why the names of the tensors cannot be judged; empty where they can."""
    own = header.architecture
    if own not in _table():
        return f"which tensors architecture {own[:40]!r} asks for is not known here"
    if any(f"{own}.{key}" in header.lengths for key in _PER_LAYER):
        return "its layers differ from each other, so its tensors cannot be compared with them"
    return ""


def problems(header: GGUFHeader) -> Iterator[str]:
    """Each thing for which llama.cpp refuses the file, or computes garbage."""
    width, place = header.count("embedding_length"), header.tensors.get(EMBEDDING)
    if place is None and EMBEDDING in _table().get(header.architecture, [[]])[0]:
        yield f"there is no tensor {EMBEDDING}"
    elif place is not None and width is not None and place.shape[:1] != (width,):
        yield f"{EMBEDDING} is {place.shape[0]} wide, and embedding_length = {width}"
    stated = header.count("block_count")
    blocks = {name.split(".")[1] for name in header.tensors if name.startswith("blk.")}
    if stated is not None and blocks != {str(i) for i in range(min(stated, _MOST_BLOCKS))}:
        yield f"{len(blocks)} blocks are there, and block_count = {stated}"
    elif not untold(header):
        yield from _missing(header, len(blocks))
        yield from _misshapen(header, len(blocks))


def unfamiliar(header: GGUFHeader) -> str:
    """A tensor that one block has and another lacks: llama.cpp refuses a name it does not know."""
    if untold(header) or header.number("expert_count"):
        return ""
    names: dict[str, set[str]] = {}
    for name in header.tensors:
        if name.startswith("blk."):
            _, block, rest = name.split(".", 2)
            names.setdefault(rest, set()).add(block)
    count = max(map(len, names.values()), default=0)
    odd = [f"blk.{min(blocks)}.{rest}" for rest, blocks in names.items() if len(blocks) < count]
    return f"{odd[0]} is there, and other blocks have no tensor of that name" if odd else ""


def _missing(header: GGUFHeader, blocks: int) -> Iterator[str]:
    after, inside = _table()[header.architecture]
    if header.number("expert_count"):
        inside = [name for name in inside if not name.startswith(("ffn_", "exp_"))]
    wanted = [*after, *(f"blk.{i}.{name}" for i in range(blocks) for name in inside)]
    absent = [
        name
        for name in wanted
        if name not in header.tensors and not _otherwise(name, header.tensors)
    ]
    if absent:
        more = f" and {len(absent) - _SHOWN} more" if len(absent) > _SHOWN else ""
        are = "is" if len(absent) == 1 else "are"
        yield (
            f"{', '.join(absent[:_SHOWN])}{more} {are} missing, and architecture "
            f"{header.architecture} asks for {'it' if len(absent) == 1 else 'them'}"
        )


def _otherwise(name: str, there: Mapping[str, object]) -> bool:
    """Queries, keys and values may stand in one tensor, or in three."""
    stem, _, part = name.rpartition(".attn_")
    kind, _, ending = part.partition(".")
    if kind in ("q", "k", "v"):
        return f"{stem}.attn_qkv.{ending}" in there
    return kind == "qkv" and all(f"{stem}.attn_{one}.{ending}" in there for one in "qkv")


def _misshapen(header: GGUFHeader, blocks: int) -> Iterator[str]:
    """Tensors that are not of the shape that the keys give them; unknown sizes are not compared."""
    width, heads = header.count("embedding_length"), header.count("attention.head_count")
    own = width // heads if width and heads else None
    keys = header.count("attention.key_length") or own
    values = header.count("attention.value_length") or own
    groups = header.count("attention.head_count_kv") or heads
    inner = header.count("feed_forward_length")
    if header.architecture in _TWICE_AS_WIDE or header.number("expert_count"):
        inner = None
    shapes = {
        "attn_q.weight": (width, _times(heads, keys)),
        "attn_k.weight": (width, _times(groups, keys)),
        "attn_v.weight": (width, _times(groups, values)),
        "attn_output.weight": (_times(heads, values), width),
        **dict.fromkeys(("ffn_gate.weight", "ffn_up.weight"), (width, inner)),
        "ffn_down.weight": (inner, width),
    }
    norms = ("attn_norm", "ffn_norm", "post_attention_norm", "post_ffw_norm")
    all_shapes: dict[str, tuple[int | None, ...]] = {
        "output_norm.weight": (width,),
        "output.weight": (width, header.lengths.get("tokenizer.ggml.tokens")),
    }
    for i in range(blocks):
        all_shapes |= {f"blk.{i}.{name}": shape for name, shape in shapes.items()}
        all_shapes |= {f"blk.{i}.{name}.weight": (width,) for name in norms}
    for name, wanted in all_shapes.items():
        place = header.tensors.get(name)
        if place is None or None in wanted:
            continue
        if place.shape != wanted:
            asked = " × ".join(map(str, wanted))
            yield f"{name} is {' × '.join(map(str, place.shape))}, and its keys ask for {asked}"
            return


def _times(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one * other


@cache
def _table() -> Mapping[str, list[list[str]]]:
    """By architecture: the tensors of the whole model, and those of each block."""
    table: Mapping[str, list[list[str]]] = json.loads(TABLE.read_text(encoding="utf-8"))
    return table
