"""Traps when a runtime loads a model.

refused, remote-code.
"""

from __future__ import annotations

from collections.abc import Iterator

from ropewalk.models.config import QUERY_GROWTH
from ropewalk.runtimes.finding import ExaminedModel, Finding
from ropewalk.runtimes.reading import STOCK, whole
from ropewalk.runtimes.traps.config_keys import factor_count, scaling_null

LAYERS, HEADS, KEYS = "num_hidden_layers", "num_attention_heads", "num_key_value_heads"


def remote_code(subject: ExaminedModel) -> Iterator[Finding]:
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


def refused(subject: ExaminedModel) -> Iterator[Finding]:
    if any((*factor_count(subject), *scaling_null(subject))):  # named already, and better
        return
    counts = _bad_counts(subject)
    for reading in subject.readings:
        if counts:
            yield Finding(
                "refused", (reading.runtime,), counts, "it does not run", "correct these counts"
            )
        elif reading.refused:
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


def _lacks_growth(subject: ExaminedModel) -> bool:
    grows = bool(subject.config) and subject.reader.family.steps_log_n
    return grows and any(rope.get(QUERY_GROWTH) is None for rope in subject.ropes.values())


def _bad_counts(subject: ExaminedModel) -> str:
    """Counts with which no model runs, though transformers builds some without a word."""
    if not subject.config:
        return ""
    counts = {key: whole(subject.reader.get(key)) for key in (LAYERS, HEADS, KEYS)}
    for key, count in counts.items():
        if count is not None and count < 1:
            return f"{key} = {count}: must be at least 1"
    heads, keys = counts[HEADS], counts[KEYS]
    if heads is None or keys is None or heads % keys == 0:
        return ""
    return f"{HEADS} = {heads} is not divisible by {KEYS} = {keys}, and heads share keys evenly"
