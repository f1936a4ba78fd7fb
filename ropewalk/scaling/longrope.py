"""LongRoPE: explicit factors, one for each pair, as from a search.

Ding et al. 2024. The attention scaling is sqrt(1 + ln s / ln L₀) unless given. With `recover` the
target may lie below the length that the start serves: factors for short sequences on an extended
model, whose attention scaling is then left as it is.

`factors` may also be `longrope:NAME`, a list that the paper's authors published (`published`). Such
factors count from the plain frequencies of their models, so another geometry, a scaled start or
another target is refused unless `force` is given.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ropewalk.errors import InvalidValue, UnknownName
from ropewalk.lengths import format_length, parse_length
from ropewalk.scaling import PUBLISHED, scale_of, scaling_method
from ropewalk.schedule import RotarySchedule


class PublishedFactors(NamedTuple):
    """A list of factors that the authors of LongRoPE published."""

    name: str
    """`2048k_la2_256k`, in a plan `longrope:2048k_la2_256k`."""
    model: str
    length: int
    """The target that they are for."""
    fine_tuned_at: int
    """The length that the model was fine-tuned at, before they were searched or (`ft_`) by them."""
    head_dim: int
    base: float
    origin: str
    licence: str
    factors: tuple[float, ...]


@cache
def published() -> tuple[PublishedFactors, ...]:
    """All published lists, in the order of their names."""
    file: dict[str, Any] = json.loads(Path(__file__).with_name("longrope.json").read_text("utf-8"))
    models, tables = file.pop("models"), file.pop("tables")
    lists = []
    for name, factors in sorted(tables.items()):
        length, model, fine_tuned_at = name.split("_")
        at = parse_length(fine_tuned_at)
        target = at if length == "ft" else parse_length(length)
        lists.append(
            PublishedFactors(name, models[model], target, at, **file, factors=tuple(factors))
        )
    return tuple(lists)


@scaling_method(identity_at_one=False, monotone=False)
def schedule(
    start: RotarySchedule,
    target_length: int,
    *,
    factors: Sequence[float] | str,
    attention_factor: float | None = None,
    recover: bool = False,
    force: bool = False,
) -> RotarySchedule:
    if isinstance(factors, str):
        factors = _published(factors, start, target_length, force=force)
    s = scale_of(start, target_length)
    if attention_factor is None:
        if s > 1 and start.length == 1:
            raise InvalidValue(
                "attention_factor", None, "its formula divides by ln L₀, and L₀ is 1", "give it"
            )
        attention_factor = 1.0 if s <= 1 else math.sqrt(1 + math.log(s) / math.log(start.length))
    return start.rescaled(factors, target_length, attention_scaling=attention_factor)


def _published(
    text: str, start: RotarySchedule, target_length: int, *, force: bool
) -> tuple[float, ...]:
    """The factors of `longrope:NAME`, for a model that they fit."""
    tables = {each.name: each for each in published()}
    name = text.removeprefix(PUBLISHED)
    if name not in tables:
        raise UnknownName("published list of factors", name, tables)
    table, geometry = tables[name], start.geometry
    base = start.geometric_base
    checks = (
        ("head size", table.head_dim, geometry.rotary_dim),
        ("base of the frequencies", f"{table.base:g}", "none" if base is None else f"{base:.6g}"),
        ("target", format_length(table.length), format_length(target_length)),
    )
    for what, needed, actual in checks:
        if needed != actual and not force:
            raise InvalidValue(
                "factors",
                text,
                f"is for {table.model} with a {what} of {needed}, and here it is {actual}",
                "choose another list or method, or take these all the same (force=true)",
            )
    return table.factors
