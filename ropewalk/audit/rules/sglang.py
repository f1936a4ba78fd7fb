"""SGLang's rules: vLLM's classes, but longrope's tables change with the positions at hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ropewalk.audit.reading import (
    Reading,
    by_rules,
    kind_of,
    known,
    without,
)
from ropewalk.audit.rules.vllm import (
    handed,
    one_base,
    refuse_interleaved_longrope,
    said_of,
    times_attn_factor,
    with_mscale,
    yarn_keys,
)
from ropewalk.context_plan import PlanStep
from ropewalk.exporting.accepted import by_sglang
from ropewalk.exporting.model_classes import model_class
from ropewalk.models.config import Config, ConfigReader


def read(config: Config, table: Mapping[str, Any] | None = None) -> Reading:
    """dynamic keeps one base for good; yarn multiplies its own factor by `attn_factor`."""

    served = model_class(config, "sglang", table)

    def seen(reader: ConfigReader, rope: Config) -> tuple[PlanStep, ...]:
        if served.scaling == "transformers" or served.by:
            return reader.steps(known(rope))
        rope = handed(served, reader, rope)
        refuse_interleaved_longrope(reader, rope, "sglang")
        kind = kind_of(rope)
        if kind == "longrope":
            return with_mscale(reader, rope)
        if kind == "yarn":
            lost = {"truncate", "mscale", "mscale_all_dim"} - yarn_keys(served)
            return times_attn_factor(reader, without(rope, {"attention_factor", *lost}))
        if kind == "dynamic" and rope.get("alpha"):
            return reader.steps(one_base(reader, rope))
        # Of dynamic's bases one is taken for good: that of the whole extended length.
        return reader.steps(known(rope))[-1:]

    reading = by_rules("sglang", config, seen, "by the length at hand")
    notes = said_of(served, config)
    remedy = served.remedy if notes else ""
    return replace(reading, limit=by_sglang(config), notes=notes, remedy=remedy)
