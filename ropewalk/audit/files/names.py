"""The names of the tensors that a model type asks for, if its naming is known.

The rows of names.json are those of transformers' classes, with which the tests compare them.
Experts are left out, since files store them in several ways: they are the feed-forward part of a
type whose layers name no other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from ropewalk.models.config import ConfigReader


class _Naming(NamedTuple):
    """The parts of a layer, each with a weight."""

    parts: Sequence[str]
    optional: Sequence[tuple[str, bool, bool, Sequence[str]]] = ()
    """Names that are there if a key of the config, or its default, has a value: key, default, value
    and names. Without a key, they always are."""
    last: Sequence[str] = ("norm.weight",)
    compressed_queries: bool = False
    """It has those of multi-head latent attention too, compressed or not."""
    also: Sequence[str] = ()
    """The beginnings of other names that a layer may have."""


_BUFFERS = ("rotary_emb.inv_freq", "rotary_emb.cos_cached", "rotary_emb.sin_cached")
_EXPERTS = ("mlp.", "block_sparse_moe.")
_ROWS = json.loads(Path(__file__).with_name("names.json").read_text(encoding="utf-8"))
NAMINGS = {kind: _Naming(**row) for kinds, row in _ROWS for kind in kinds}
"""Model types whose every tensor of the usual names is known, in every layer."""


def in_each_layer(reader: ConfigReader) -> tuple[str, ...]:
    """The names that every layer must have; none for a model type that is not known."""
    naming = NAMINGS.get(reader.model_type)
    if naming is None:
        return ()
    parts = list(naming.parts)
    if naming.compressed_queries:
        compressed = reader.config.get("q_lora_rank", 1536) is not None
        queries = ("q_a_proj", "q_a_layernorm", "q_b_proj") if compressed else ("q_proj",)
        parts += [f"self_attn.{part}" for part in queries]
    optional = (
        name
        for key, default, value, names in naming.optional
        if reader.config.get(key, default) is value
        for name in names
    )
    return (*(f"{part}.weight" for part in parts), *optional)


def strangers(reader: ConfigReader, names: Iterable[str]) -> tuple[str, ...]:
    """The names of a layer that its model type has not; none for a type that is not known."""
    naming = NAMINGS.get(reader.model_type)
    if naming is None:
        return ()
    experts = () if any(part.startswith("mlp.") for part in naming.parts) else _EXPERTS
    usual, may = in_each_layer(reader), (*naming.also, *experts)
    return tuple(
        name for name in names if not (name in usual or name.startswith(may) or is_buffer(name))
    )


def is_buffer(name: str) -> bool:
    """True for frequencies and their tables, which older files store, and every class computes."""
    return name.endswith(_BUFFERS)


def after_the_layers(reader: ConfigReader) -> tuple[str, ...]:
    """The names of the final norm; none for a model type that is not known."""
    naming = NAMINGS.get(reader.model_type)
    return tuple(naming.last) if naming is not None else ()
