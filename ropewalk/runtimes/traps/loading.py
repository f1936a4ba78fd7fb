"""Traps when a runtime loads a model.

refused, remote-code.
"""

from __future__ import annotations

from collections.abc import Iterator

from ropewalk.models.config import QUERY_GROWTH
from ropewalk.runtimes.finding import Finding, Subject
from ropewalk.runtimes.reading import STOCK
from ropewalk.runtimes.traps.config_keys import factor_count

HEADS = ("num_attention_heads", "num_key_value_heads")


def remote_code(subject: Subject) -> Iterator[Finding]:
    if subject.config.get("auto_map"):
        yield Finding(
            "remote-code",
            (),
            "the config names custom code (auto_map)",
            "with trust_remote_code that code runs in place of the stock model that was read here; "
            "ropewalk never runs it",
            "load the model without trust_remote_code",
            wrong=False,
        )


def refused(subject: Subject) -> Iterator[Finding]:
    if any(factor_count(subject)):  # named already, and better
        return
    for reading in subject.readings:
        if reading.refused:
            yield Finding(
                "refused",
                (reading.runtime,),
                reading.refused,
                "it does not load",
                "correct that value, or export the model again",
            )
        elif reading.runtime == STOCK and _lacks_growth(subject):
            yield Finding(
                "refused",
                (STOCK,),
                f"a rope setting has no {QUERY_GROWTH}, with which the class computes",
                "it fails when it runs",
                "write it, 0 for none (ropewalk export does)",
            )
        elif uneven := _uneven_heads(subject):
            yield Finding(
                "refused",
                (reading.runtime,),
                uneven,
                "query heads cannot share keys evenly, so it does not run",
                "correct these counts",
            )


def _lacks_growth(subject: Subject) -> bool:
    grows = bool(subject.config) and subject.reader.family.steps_log_n
    return grows and any(rope.get(QUERY_GROWTH) is None for rope in subject.ropes.values())


def _uneven_heads(subject: Subject) -> str:
    """Query and key heads of which one count does not divide the other; transformers builds such a
    model without a word."""
    heads, keys = (subject.config.get(key) for key in HEADS)
    if not (isinstance(heads, int) and isinstance(keys, int) and keys > 0) or heads % keys == 0:
        return ""
    return f"{HEADS[0]} = {heads} is not divisible by {HEADS[1]} = {keys}"
