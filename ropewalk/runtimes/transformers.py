"""transformers: measured, if it is installed (audit/stock_rotary.py), and never by rules.

The rules here are those of transformers 4, and of all that reads its keys: `rope_theta` and
`rope_scaling`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from ropewalk.context_plan import ContextPlan
from ropewalk.errors import RopewalkError
from ropewalk.models.config import Config, ConfigReader, text_config
from ropewalk.models.source import Source
from ropewalk.runtimes import Runtime
from ropewalk.runtimes.configs import changes, stock_config
from ropewalk.runtimes.features import EXACT, LONGEST, Cell, Feature, expressible, two_lists
from ropewalk.runtimes.model_classes import GROWTH_IN_ROPE
from ropewalk.runtimes.reading import Reading, by_rules, known, without
from ropewalk.runtimes.serving import Serving, reason_of, row

# PhimoeRotaryEmbedding asks for its frequencies anew in each forward, and gives no length.
_SHORT_LIST_ONLY = {"phimoe"}


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


def cell(feature: Feature) -> Cell:
    """Its stock code's support of a feature."""
    if feature.kind == "attention":
        return Cell("exact", "attention_factor")
    if feature.kind == "softmax":
        return Cell("exact", "mscale_all_dim")
    if feature.kind == "growth":
        return Cell("exact", GROWTH_IN_ROPE)
    if feature.kind == "switching":
        if not all(len(own) == 1 or two_lists(own) for own in feature.plan.schedules.values()):
            return Cell("approximated", LONGEST)
        if ConfigReader(feature.config).model_type in _SHORT_LIST_ONLY:
            return Cell("refused", "its code for this model type takes the short list for all")
        return Cell("exact", "two lists, by the longest current position")
    if feature.rope_type == "dynamic":
        return Cell("approximated", "cached keys keep their former rotation")
    if feature.name == "factors by pair":
        return Cell("equivalent", "longrope with equal lists")
    return EXACT


def serve(plan: ContextPlan, source: Source) -> Serving:
    """The members of config.json that make it follow the plan."""
    try:
        followed, near = expressible(plan, source.config, "transformers", approximate=True)
        written = stock_config(source.config, followed)
        changed = changes(source.config, written)
    except RopewalkError as error:
        return Serving("transformers", "impossible", reason_of(error, "transformers"))
    if plan == source.present_plan:
        return row("transformers", near, "the model's own config, unchanged")
    path = ConfigReader(source.config).path if changed else ()
    where = " in ".join((*([".".join(path)] if path else ()), "config.json"))
    what = f"set these members of {where}"
    if gone := _contradicting(text_config(source.config), text_config(written)):
        what += f", and remove {' and '.join(gone)}"
    lines = (f'"{key}": {json.dumps(value)},' for key, value in changed.items())
    return row("transformers", near, what, *lines)


def _contradicting(former: Config, written: Config) -> list[str]:
    """The keys that are not written any more and would state something else."""
    ropes = ConfigReader(written).layer_settings().values()
    bases = [rope.get("rope_theta") for rope in ropes]
    return [
        key
        for key, value in former.items()
        if key not in written and value is not None and value not in bases
    ]


RUNTIME = Runtime(
    "transformers",
    {"transformers-4": read},
    place=0,
    cell=cell,
    serve=serve,
    writer="ropewalk.exporting.transformers:export",
    by_model_type=True,
)
