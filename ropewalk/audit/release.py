"""A release's reading of a config: the rules of its runtime, with facts from its wheel."""

from __future__ import annotations

from dataclasses import replace

from ropewalk.models.config import Config
from ropewalk.runtimes import every
from ropewalk.runtimes.reading import BY_ITS_RULES, Reading, by_rules, known
from ropewalk.runtimes.transformers import without_todays_keys
from ropewalk.wheels.facts import WheelReading, before_5


def of_wheel(wheel: WheelReading, config: Config) -> Reading:
    """The wheel's reading; for transformers and mlx-lm by recorded rules if the code is equal."""
    name = wheel.runtime
    if wheel.table:
        if before_5(wheel.table):
            config = without_todays_keys(config)
        reading = every()[name].versions[name](config, wheel.table)
        return replace(reading, limit=wheel.limit)
    if wheel.changed or wheel.unread:
        why = f"{wheel.file} differs from {name} {wheel.recorded}, whose rules are recorded"
        return Reading(name, BY_ITS_RULES, unread=f"{why}; judge it by running it there")
    if (read := every()[name].versions.get(name)) is not None:
        return read(config)
    return by_rules(name, config, lambda r, rope: r.steps(known(rope)), "by the length at hand")
