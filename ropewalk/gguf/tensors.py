"""The tensors that llama.cpp asks for in a file, as far as its header can be compared with them.

required_tensors.json is what the real llama.cpp missed in files without tensors, and without keys,
one architecture after another (tests/gguf/tiny_architectures.py). Experts are left out of it: which
layers have them, and beside what, is said by keys of each architecture.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from ropewalk.gguf.header import F32, GGUFHeader
from ropewalk.models.config import MAX_EPSILON
from ropewalk.values import table_in

TABLE = Path(__file__).with_name("required_tensors.json")
"""By architecture: the tensors of the whole model, those of each block, and the keys."""
EMBEDDING = "token_embd.weight"
_MOST_BLOCKS = 10_000
_PER_LAYER = ("attention.head_count", "attention.head_count_kv", "feed_forward_length")
"""A list under one of these: the layers differ, and some lack what others have."""
_ALLOWED = table_in(TABLE.with_name("optional_tensors.json"))
"""Tensors that llama.cpp takes without asking for them; the architectures (`twice_as_wide`) where
feed_forward_length is not the width of each tensor of a feed-forward layer; and the key that is the
width of an expert (`experts`)."""
_ENDINGS = ("", "weight", "bias", "scale", "input_scale")
_EPSILONS = ("attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon")
_PATTERN = "attention.sliding_window_pattern"
_COUNTS = (
    *("attention.head_count_kv", "attention.value_length", "block_count", "context_length"),
    *("expert_count", "expert_used_count", "expert_group_count", "expert_group_used_count"),
    *("feed_forward_length", _PATTERN),
)
_LOADED = {
    **dict.fromkeys(_COUNTS, "uint32"),
    **dict.fromkeys(_EPSILONS, "float32"),
    **dict.fromkeys(("attention.causal", "rope.scaling.finetuned"), "bool"),
}
"""What llama.cpp loads in all architectures, next to the numbers of the rotation, by its type."""
_NO_WEIGHTS = {24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64"}
_SHOWN = 3


def unjudged(header: GGUFHeader) -> str:
    """Why the names of the tensors cannot be judged; empty if they can."""
    architecture = header.architecture
    if architecture not in table_in(TABLE):
        return f"which tensors architecture {architecture[:40]!r} asks for is not known here"
    if any(f"{architecture}.{key}" in header.lengths for key in _PER_LAYER):
        return "its layers differ from each other, so its tensors cannot be compared with them"
    if header.number("nextn_predict_layers"):
        return "it has layers that predict further tokens, which are not compared"
    return ""


def problems(header: GGUFHeader) -> Iterator[str]:
    """Each thing for which llama.cpp refuses the file, or computes garbage."""
    for key, kind in _LOADED.items():
        listed = key in (*_PER_LAYER, _PATTERN) and f"{header.architecture}.{key}" in header.lengths
        if not listed and header.mistyped(key, kind):
            yield f"{key} must be stored as {kind} to be loaded"
    experts, used = (header.number(key) or 0 for key in ("expert_count", "expert_used_count"))
    if not min(experts, 1) <= used <= experts:
        yield f"expert_used_count = {used:g}, and expert_count = {experts:g}"
    width, place = header.count("embedding_length"), header.tensors.get(EMBEDDING)
    if place is None and EMBEDDING in table_in(TABLE).get(header.architecture, [[]])[0]:
        yield f"there is no tensor {EMBEDDING}"
    elif place is not None and width is not None and place.shape[:1] != (width,):
        yield f"{EMBEDDING} is {place.shape[0]} wide, and embedding_length = {width}"
    stated = header.count("block_count")
    blocks = {name.split(".")[1] for name in header.tensors if name.startswith("blk.")}
    if stated is not None and blocks != {str(i) for i in range(min(stated, _MOST_BLOCKS))}:
        yield f"{len(blocks)} blocks are there, and block_count = {stated}"
    elif not unjudged(header):
        yield from _keys(header)
        yield from _missing(header, len(blocks))
        yield from _mistyped(header)
        yield from _misshapen(header, len(blocks))


def unfamiliar(header: GGUFHeader) -> str:
    """A tensor that llama.cpp may not ask for, and then refuses the file; empty without one."""
    if unjudged(header):
        return ""
    after, inside, _ = table_in(TABLE)[header.architecture]
    blocks: dict[str, set[str]] = {}
    for name in header.tensors:
        known = name in (*after, *_ALLOWED["optional"])
        if name.startswith("blk."):
            block, _, rest = name.removeprefix("blk.").partition(".")
            blocks.setdefault(rest, set()).add(block)
            stem, _, ending = rest.partition(".")
            known = stem in _ALLOWED["optional_in_blocks"] or any(
                each.partition(".")[0] == stem for each in inside
            )
            known = known and ending in _ENDINGS
        if not known:
            return f"{name} is not known as a tensor of architecture {header.architecture}"
    count = max(map(len, blocks.values()), default=0)
    odd = [f"blk.{min(numbers)}.{rest}" for rest, numbers in blocks.items() if len(numbers) < count]
    if odd and not header.number("expert_count"):
        return f"{odd[0]} is there, and other blocks have no tensor of that name"
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
        if name.endswith("norm.weight") and place.kind != F32:
            yield f"{name} is not stored in F32, in which llama.cpp multiplies by norms"
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


def _misshapen(header: GGUFHeader, blocks: int) -> Iterator[str]:
    """Tensors that are not of the shape that the keys give them; unknown sizes are not compared."""
    # The sizes that the keys state; None where they state none.
    width, heads = header.count("embedding_length"), header.count("attention.head_count")
    head = width // heads if width and heads else None
    keys = _stated(header, "attention.key_length", head)
    values = _stated(header, "attention.value_length", head)
    groups = _stated(header, "attention.head_count_kv", heads)
    inner = header.count("feed_forward_length")
    experts, key = header.count("expert_count"), _ALLOWED["experts"].get(header.architecture)
    default = 0 if key == "feed_forward_length" else None
    expert = _stated(header, key, default) if key else None
    if header.architecture in _ALLOWED["twice_as_wide"] or experts:
        inner = None
    # The shapes that follow; one with an unknown size is not compared.
    shapes = {
        "attn_q.weight": (width, times(heads, keys)),
        "attn_k.weight": (width, times(groups, keys)),
        "attn_v.weight": (width, times(groups, values)),
        "attn_output.weight": (times(heads, values), width),
        **dict.fromkeys(("ffn_gate.weight", "ffn_up.weight"), (width, inner)),
        "ffn_down.weight": (inner, width),
        **dict.fromkeys(("ffn_gate_exps.weight", "ffn_up_exps.weight"), (width, expert, experts)),
        "ffn_down_exps.weight": (expert, width, experts),
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
            expected = " × ".join(map(str, wanted))
            yield f"{name} is {' × '.join(map(str, place.shape))}, and its keys ask for {expected}"
            return


def _stated(header: GGUFHeader, key: str, default: int | None) -> int | None:
    """A size that has a default where it is missing, and is none where it is 0."""
    return default if header.get(key) is None else header.count(key) or 0


def times(one: int | None, other: int | None) -> int | None:
    """The product of two sizes; None if one is unknown."""
    return None if one is None or other is None else one * other
