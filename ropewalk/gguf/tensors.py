"""The tensors that llama.cpp asks for in a file, as far as its header can be compared with them.

The tables are what the real llama.cpp said of files, one architecture after another.
required_tensors.json is what it missed in files without tensors, and without keys
(tests/gguf/tiny_architectures.py). tensor_shapes.json has the shapes that it asked for, of these
and of all that it takes besides, in files whose sizes all differ, so that a number tells its key;
key_types.json the types that it asked for where a key had another
(tools/observatory/llama_cpp_tensors.py makes both). Experts are not required: which
layers have them, and beside what, is said by keys of each architecture.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path

from ropewalk.gguf.header import F32, GGUFHeader
from ropewalk.models.config import MAX_EPSILON
from ropewalk.values import table_in

TABLE = Path(__file__).with_name("required_tensors.json")
"""By architecture: the tensors of the whole model, those of each block, and the keys."""
EMBEDDING = "token_embd.weight"
_MOST_BLOCKS = 10_000
_MOST_KINDS = 100
_PER_LAYER = ("attention.head_count", "attention.head_count_kv", "feed_forward_length")
"""A list under one of these: the layers differ, and some lack what others have."""
SHAPES = TABLE.with_name("tensor_shapes.json")
"""By tensor and shape, the architectures; some take other tensors when they have experts."""
_SIZES = {
    "experts": "expert_count",
    "expert": "expert_feed_forward_length",
    "shared": "expert_shared_feed_forward_length",
    "copies": "expert_shared_count",
    "query_rank": "attention.q_lora_rank",
    "rank": "attention.kv_lora_rank",
    "inner": "ssm.inner_size",
    "conv": "ssm.conv_kernel",
    "state": "ssm.state_size",
    "step": "ssm.time_step_rank",
}
"""Sizes in shapes that a key states, or nothing does."""
_SCALES = ("scale", "input_scale")
_EPSILONS = ("attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon")
_BY_LAYER = "block_count"
_LISTS: Mapping[str, tuple[str, str | int]] = {
    **{f".{key}": ("Ii?", _BY_LAYER) for key in _PER_LAYER},
    ".attention.sliding_window_pattern": ("Ii?", ""),
    ".rope.dimension_sections": ("Ii?", 4),
    ".classifier.output_labels": ("s", ""),
    **{f"xielu.{key}": ("f", _BY_LAYER) for key in ("alpha_n", "alpha_p", "beta", "eps")},
}
"""The keys under which llama.cpp takes a list: of these types, by struct's letters, and of so many
items, or of any number but none."""
TYPES = TABLE.with_name("key_types.json")
"""The keys that llama.cpp loads, by their type; those of an architecture begin with a dot."""
_NO_WEIGHTS = {24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64"}
_SHOWN = 3


def unjudged(header: GGUFHeader) -> str:
    """Why the names of the tensors cannot be judged; empty if they can."""
    architecture = header.architecture
    if architecture not in table_in(TABLE):
        return f"which tensors architecture {architecture[:40]!r} asks for is not known here"
    if any(f"{architecture}.{key}" in header.lengths for key in _PER_LAYER):
        return "its layers differ from each other, so its tensors cannot be compared with them"
    for part in ("key_length", "value_length"):
        own = header.get(f"attention.{part}_swa")
        if own is not None and own != header.get(f"attention.{part}"):
            return "its layers with a window have heads of another size, which are not compared"
    if header.number("nextn_predict_layers"):
        return "it has layers that predict further tokens, which are not compared"
    return ""


def problems(header: GGUFHeader) -> Iterator[str]:
    """Each thing for which llama.cpp refuses the file, or computes garbage."""
    yield from _mistyped_keys(header)
    experts, used = (header.number(key) or 0 for key in ("expert_count", "expert_used_count"))
    if not min(experts, 1) <= used <= experts:
        yield f"expert_used_count = {used:g}, and expert_count = {experts:g}"
    groups = header.number("expert_group_count") or 0
    taken = header.number("expert_group_used_count") or 0
    if groups and (
        groups >= experts or (groups > 1 and (experts % groups or not 0 < taken < groups))
    ):
        yield f"expert_group_count = {groups:g}, {taken:g} used, and expert_count = {experts:g}"
    gating = header.get("expert_gating_func")
    if gating is not None and gating not in range(1, 5):
        yield f"expert_gating_func = {gating}, which must be from 1 to 4"
    width, place = header.count("embedding_length"), header.tensors.get(EMBEDDING)
    if place is None and EMBEDDING in table_in(TABLE).get(header.architecture, [[]])[0]:
        yield f"there is no tensor {EMBEDDING}"
    elif place is not None and width is not None and place.shape[:1] != (width,):
        yield f"{EMBEDDING} has the shape {list(place.shape)}, and embedding_length = {width}"
    stated = header.count("block_count")
    blocks = {name.split(".")[1] for name in header.tensors if name.startswith("blk.")}
    if stated is not None and blocks != {str(i) for i in range(min(stated, _MOST_BLOCKS))}:
        yield f"{len(blocks)} blocks are there, and block_count = {stated}"
    elif not unjudged(header):
        yield from _keys(header)
        yield from _missing(header, len(blocks))
        yield from _mistyped(header)
        yield from _misshapen(header)


def _mistyped_keys(header: GGUFHeader) -> Iterator[str]:
    for kind, key in ((kind, key) for kind, keys in table_in(TYPES).items() for key in keys):
        stated = in_full(header.architecture, key)
        listed = key in _LISTS and stated in header.lengths
        if not listed and header.mistyped(stated, kind):
            yield f"{key.removeprefix('.')} must be stored as {kind} to be loaded"
    for key, (types, length) in _LISTS.items():
        stated = in_full(header.architecture, key)
        count = header.lengths.get(stated)
        wanted = header.count(length) if isinstance(length, str) and length else length or count
        if count is not None and (header.items[stated] not in types or not count == wanted != 0):
            kind = {"f": "float32 numbers", "s": "texts"}.get(types, "whole numbers")
            yield f"{key.removeprefix('.')} must list {wanted or 'some'} {kind}"


def in_full(architecture: str, key: str) -> str:
    """The name of a key, which begins with the architecture if the table's begins with a dot."""
    return f"{architecture}{key}" if key.startswith(".") else key


def unfamiliar(header: GGUFHeader) -> str:
    """A tensor that llama.cpp may not ask for, and then refuses the file; empty without one."""
    if unjudged(header):
        return ""
    known = {*_shapes(header), *table_in(TABLE)[header.architecture][0]}
    blocks: dict[str, set[str]] = defaultdict(set)
    for name in header.tensors:
        if name.startswith("blk."):
            block, _, rest = name.removeprefix("blk.").partition(".")
            blocks[block].add(rest)
        stem, _, ending = of_any_block(name).rpartition(".")
        if not {of_any_block(name), f"{stem}.weight" if ending in _SCALES else ""} & known:
            return f"{name} is not known as a tensor of architecture {header.architecture}"
    # Blocks are alike; with experts, they are of some kinds, none of which lacks parts of another.
    kinds = {frozenset(own): block for block, own in blocks.items()}
    if len(kinds) > _MOST_KINDS:
        return f"its blocks are of {len(kinds)} kinds"
    for fewer, more in itertools.permutations(kinds, 2):
        if more - fewer and (fewer < more or not header.number("expert_count")):
            said = f"blk.{kinds[more]}.{min(more - fewer)} is there"
            return f"{said}, and block {kinds[fewer]} has no tensor of that name"
    return ""


def _keys(header: GGUFHeader) -> Iterator[str]:
    """Keys without which no file of these architectures loads."""
    _, inside, required = table_in(TABLE)[header.architecture]
    wanted = ["embedding_length", "block_count", "attention.head_count"]
    if "ffn_up.weight" in inside and not header.number("expert_count"):
        wanted.append("feed_forward_length")
    for key in wanted if "attn_output.weight" in inside else ():
        if header.count(key) is None:
            yield f"{key} is missing, or is not a number of things"
    for key in required:
        epsilon = key in _EPSILONS and header.number(key)
        if header.get(key) is None or epsilon is None or not 0 <= epsilon <= MAX_EPSILON:
            rule = f", a number from 0 to {MAX_EPSILON}" if key in _EPSILONS else ""
            yield f"{key} must be there{rule}: architecture {header.architecture} asks for it"
    if header.number("expert_count") and not any("ffn_gate_inp" in n for n in header.tensors):
        yield f"expert_count = {header.get('expert_count')}, and no block chooses among experts"


def _mistyped(header: GGUFHeader) -> Iterator[str]:
    for name, place in header.tensors.items():
        if place.kind in _NO_WEIGHTS:
            kind = _NO_WEIGHTS[place.kind]
            yield f"{name} is stored as {kind}, with which llama.cpp multiplies nothing"
            return
        if (name.endswith((".bias", "norm.weight")) or len(place.shape) == 1) and place.kind != F32:
            yield f"{name} is not stored in F32, in which llama.cpp computes with norms and biases"
            return


def _missing(header: GGUFHeader, blocks: int) -> Iterator[str]:
    after, inside, _ = table_in(TABLE)[header.architecture]
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
    """Queries, keys and values may be in one tensor, or in three."""
    stem, _, part = name.rpartition(".attn_")
    kind, _, ending = part.partition(".")
    if kind in ("q", "k", "v"):
        return f"{stem}.attn_qkv.{ending}" in there
    return kind == "qkv" and all(f"{stem}.attn_{one}.{ending}" in there for one in "qkv")


def _misshapen(header: GGUFHeader) -> Iterator[str]:
    """Tensors that are not of the shape that the keys give them; unknown sizes are not compared."""
    sizes, shapes = sizes_of(header), _shapes(header)
    for name, place in header.tensors.items():
        wanted = [total(dim, sizes) for dim in shapes.get(of_any_block(name), "").split(" × ")]
        stem, _, ending = of_any_block(name).rpartition(".")
        if ending in _SCALES:  # one number for a matrix
            matrices = "experts" if stem.endswith("_exps") else "one"
            wanted = [sizes[matrices]]
        if None not in wanted and _without_ones(place.shape) != _without_ones(wanted):
            asked = " × ".join(map(str, wanted))
            yield f"{name} is {' × '.join(map(str, place.shape))}, and its keys ask for {asked}"
            return


def _shapes(header: GGUFHeader) -> dict[str, str]:
    """The shapes of the tensors of this architecture, in which a block has no number."""
    names = {header.architecture, f"{header.architecture} with experts"}
    rows = [
        (name, shape, names & {*architectures})
        for name, shapes in table_in(SHAPES).items()
        for shape, architectures in shapes.items()
    ]
    taken = set().union(*(each for _, _, each in rows))
    wanted = max(taken, key=len) if header.number("expert_count") else header.architecture
    return {name: shape for name, shape, each in rows if wanted in each}


def of_any_block(name: str) -> str:
    """The name of a tensor without the number of its block."""
    return re.sub(r"^blk\.\d+\.", "blk.", name)


def sizes_of(header: GGUFHeader) -> dict[str, int | None]:
    """The sizes in shapes, by the keys; None where they state none."""
    width, heads = header.count("embedding_length"), header.count("attention.head_count")
    share = width // heads if width and heads else None
    keys = _stated(header, "attention.key_length", share)
    turning = _stated(header, "rope.dimension_count", keys)
    feed = _stated(header, "feed_forward_length", 0)
    return {
        **{name: _stated(header, key, None) for name, key in _SIZES.items()},
        "": None,
        "one": 1,
        "width": width,
        "heads": heads,
        "share": share,
        "half_share": share and share // 2,
        "keys": keys,
        "values": _stated(header, "attention.value_length", share),
        "groups": _stated(header, "attention.head_count_kv", heads),
        "turning": turning,
        "pairs": turning and turning // 2,
        "unturned": None if keys is None or turning is None else keys - turning,
        "feed": feed,
        "half_feed": feed and feed // 2,
        "tokens": header.lengths.get("tokenizer.ggml.tokens"),
    }


def total(dim: str, sizes: Mapping[str, int | None]) -> int | None:
    """A size such as heads*keys+groups*keys; None if a part is unknown."""
    terms = [reduce(times, (sizes[name] for name in term.split("*"))) for term in dim.split("+")]
    return None if None in terms else sum(filter(None, terms))


def times(one: int | None, other: int | None) -> int | None:
    """The product of two sizes; None if one is unknown."""
    return None if one is None or other is None else one * other


def _without_ones(shape: Sequence[int | None]) -> list[int | None]:
    """A shape without the ones at its end, which change nothing."""
    dimensions = list(shape)
    while dimensions and dimensions[-1] == 1:
        dimensions.pop()
    return dimensions


def _stated(header: GGUFHeader, key: str, default: int | None) -> int | None:
    """A size that has a default where it is missing, and is none where it is 0."""
    return default if header.get(key) is None else header.count(key) or 0
