"""Rope type `llama3`: Llama 3.1's ramp between two wavelengths."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ropewalk.context_plan import PlanStep
from ropewalk.errors import InvalidValue
from ropewalk.scaling import llama3

if TYPE_CHECKING:
    from ropewalk.models.config.setting import RopeSetting


def steps(setting: RopeSetting) -> tuple[PlanStep, ...]:
    factor, lengths, plain = setting.scaled()
    bands: dict[str, float] = {}
    for key in ("low_freq_factor", "high_freq_factor"):
        if (value := setting.number(key)) is None:
            rule = "is missing, and runtimes do not load rope type 'llama3' without it"
            raise InvalidValue(
                f"{setting.place}.{key}", None, rule, "add it: Llama 3.1 has 1 and 4"
            )
        bands[key] = value
    schedule = llama3.schedule(plain, lengths.trained, factor=factor, **bands)
    return (PlanStep(lengths.served, schedule),)
