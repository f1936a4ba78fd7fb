"""The rules of transformers 4, and of all that reads its keys: `rope_theta` and `rope_scaling`."""

from __future__ import annotations

from collections.abc import Mapping

from ropewalk.audit.reading import Reading, by_rules, known, without
from ropewalk.models.config import Config


def read(config: Config) -> Reading:
    """Nothing of `rope_parameters` is read."""
    return by_rules(
        "transformers-4",
        without_todays_keys(config),
        lambda reader, rope: reader.steps(known(rope)),
        "by the length at hand",
    )


def without_todays_keys(config: Config) -> Config:
    """The config as a reader of `rope_theta` and `rope_scaling` sees it."""
    inner = config.get("text_config")
    if isinstance(inner, Mapping):
        config = {**config, "text_config": without(dict(inner), {"rope_parameters"})}
    return without(config, {"rope_parameters"})
