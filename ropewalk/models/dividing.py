"""One copy of a model over several ranks, each with some of the heads and their part of the cache.

transformers divides its own models so (tensor parallelism), by the plan of their class: each rank
reads its part of the weights, and two sums over ranks join every layer. All ranks of a copy read
the same text in step, and get the same hidden states. What a class does not divide stays whole.
"""

from __future__ import annotations

from typing import Any

from ropewalk.errors import InvalidValue, Unsupported
from ropewalk.torchrun import Ranks, check_heads, check_ranks, started

_KEYS = ("k_proj", "qkv_proj", "query_key_value")
"""The projections that make keys, alone or with others."""


def all_ranks(per_copy: int, command: str) -> Ranks:
    """The ranks that torchrun started, so many to a copy of the model, to be used as a context."""
    check_ranks(per_copy, command)
    if started() == 1:
        return Ranks()
    from ropewalk.models.ranks import StoreRanks

    return StoreRanks.of_environment(per_copy)


def distributed(parts: int) -> Any:
    """transformers' word for a division into so many parts."""
    from transformers.distributed import DistributedConfig

    return DistributedConfig(tp_size=parts)


def check_divides(config: Any, ranks: int) -> str:
    """Refuse a division that a class does not have; say what stays whole on each rank, if any."""
    text = config.get_text_config()
    plan = getattr(text, "base_model_tp_plan", None)
    if not plan:
        raise Unsupported(
            f"transformers defines no tensor-parallel plan for model type {text.model_type!r}; use "
            "one rank per copy (`ranks_per_copy` 1), so that the copies share the samples"
        )
    if text.model_type == "cohere" and text.use_qk_norm:
        raise Unsupported(
            "transformers' tensor-parallel plan for cohere does not divide the norms of its "
            "queries and keys, whose weights differ by head; use one rank per copy "
            "(`ranks_per_copy` 1)"
        )
    heads = []
    for name, key in (("query", "num_attention_heads"), ("key", "num_key_value_heads")):
        counts = getattr(text, key, None) or []
        heads += [(n, name) for n in ([counts] if isinstance(counts, int) else counts)]
    columns = {name.rsplit(".", 1)[-1] for name, style in plan.items() if style == "colwise"}
    if columns & set(_KEYS):
        check_heads(heads, ranks)
    else:
        return "keys and values are not divided by this class: each rank keeps the whole cache"
    if "linear_attention" in (getattr(text, "layer_types", None) or ()):
        return "recurrent states are not divided by this class: each rank keeps all of them"
    return ""


def by_heads(config: Any, ranks: int) -> bool:
    """True if all that grows with a text can be divided so; else layers can (sharding.py)."""
    try:
        return not check_divides(config, ranks)
    except (InvalidValue, Unsupported):
        return False
