"""Traps where the factors change with the length of a sequence.

switches-with-cache, one-position-lost, short-text-taxed.
"""

from __future__ import annotations

from collections.abc import Iterator

from ropewalk.context_plan import APPROXIMATES
from ropewalk.models.stock_config import is_dynamic, two_lists
from ropewalk.runtimes.finding import ExaminedModel, Finding
from ropewalk.runtimes.reading import STOCK, kind_of


def cache_switch(subject: ExaminedModel) -> Iterator[Finding]:
    """Wrong, unless that is how transformers has the plan: two lists, dynamic, or one near it."""
    plan = subject.plan
    meant = plan is not None and (
        APPROXIMATES in plan.provenance
        or is_dynamic(plan)
        or all(len(steps) == 1 or two_lists(steps) for steps in plan.schedules.values())
    )
    for reading in subject.readings:
        if reading.switches == "by the length at hand":
            yield Finding(
                "switches-with-cache",
                (reading.runtime,),
                "the factors change with the current length, but cached keys keep the factors that "
                "they were computed with",
                "decoding across the change gives other text than a full recompute; a long "
                "sequence changes the short ones of its batch",
                "write one list of factors for all lengths (ropewalk export does)",
                wrong=not meant or reading.runtime != STOCK,
            )


def one_position(subject: ExaminedModel) -> Iterator[Finding]:
    for reading in subject.readings:
        for rope in subject.ropes.values() if reading.runtime == "sglang" else ():
            original = rope.get("original_max_position_embeddings")
            original = subject.inner.get("original_max_position_embeddings", original)
            if kind_of(rope) != "longrope" or not isinstance(original, int):
                continue
            if original < subject.length:
                yield Finding(
                    "one-position-lost",
                    (reading.runtime,),
                    f"longrope with original_max_position_embeddings = {original}",
                    "SGLang, decoding one token at a time, turns the token at that position as if "
                    "it were the first",
                    "export it for SGLang (ropewalk export --runtime sglang), which sets it to the "
                    "target",
                    wrong=False,
                )


def declared_switch(subject: ExaminedModel) -> Iterator[Finding]:
    for reading in subject.readings:
        if reading.switches == "by the declared length":
            yield Finding(
                "short-text-taxed",
                (reading.runtime,),
                "the factors are chosen once, by the length that the server declares",
                "a server started for long sequences serves short ones with the long factors too",
                "start a second server with a short --max-model-len for short text",
                wrong=False,
            )
