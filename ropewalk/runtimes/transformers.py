"""transformers: `verify` measures it, if it is installed (audit/stock_rotary.py).

By rules, it reads what this package's own reader of configs reads; transformers 4, and all that
reads its keys, only `rope_theta` and `rope_scaling`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from ropewalk.context_plan import SLIDING_ATTENTION, ContextPlan, PlanStep
from ropewalk.errors import RopewalkError, Unsupported
from ropewalk.models.config import Config, ConfigReader, text_config
from ropewalk.models.source import Source
from ropewalk.runtimes import Runtime, follows
from ropewalk.runtimes.configs import changes, stock_config
from ropewalk.runtimes.features import EXACT, LONGEST, Cell, Feature, expressible, two_lists
from ropewalk.runtimes.model_classes import GROWTH_IN_ROPE
from ropewalk.runtimes.reading import STOCK, Reading, by_rules, known, without
from ropewalk.runtimes.serving import Serving, reason_of, row

# PhimoeRotaryEmbedding asks for its frequencies anew in each forward, and gives no length.
_SHORT_LIST_ONLY = {"phimoe"}
# Their folders bring code of their own, which is never run here.
_NOT_STOCK = {"kimi_k2", "minicpm"}


def read(config: Config, name: str = STOCK) -> Reading:
    """Keys that it does not know have no effect."""

    def seen(reader: ConfigReader, rope: Config) -> tuple[PlanStep, ...]:
        if name == STOCK and reader.model_type in _NOT_STOCK:
            raise Unsupported(f"model type {reader.model_type!r} is not known to transformers")
        if name == STOCK and reader.one_base and rope["layer_type"] == SLIDING_ATTENTION:
            rope = {**rope, "rope_theta": reader.family.defaults["rope_theta"]}
        steps = reader.steps(known(rope))
        return steps[:1] if reader.model_type in _SHORT_LIST_ONLY else steps

    return by_rules(name, config, seen, "by the length at hand")


def read_4(config: Config) -> Reading:
    """Nothing of `rope_parameters` is read."""
    return read(without_todays_keys(config), "transformers-4")


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
    near: tuple[str, ...] = ()
    try:
        followed, near = expressible(plan, source.config, STOCK, approximate=True)
        written, refused = stock_config(source.config, followed), ""
    except RopewalkError as error:
        followed, written, refused = plan, source.config, reason_of(error, STOCK)
    for own, config in ((True, source.config), (False, written)):
        if own and plan != source.present_plan:
            continue
        if refused and not own:
            return Serving(STOCK, "impossible", refused)
        found = follows(STOCK, config, followed, folder=source.path, own=own)
        limits = "".join(f"; {limit.remedy}" for limit in found.beside)
        if found.unknown:
            return Serving(STOCK, "unknown", f"{found.unknown}{limits}")
        if own and not found.wrong:
            return row(STOCK, near, f"the model's own config, unchanged{limits}")
    changed = changes(source.config, written)
    path = ConfigReader(source.config).path if changed else ()
    where = " in ".join((*([".".join(path)] if path else ()), "config.json"))
    what = f"set these members of {where}"
    if gone := _contradicting(text_config(source.config), text_config(written)):
        what += f", and remove {' and '.join(gone)}"
    lines = (f'"{key}": {json.dumps(value)},' for key, value in changed.items())
    return row(STOCK, near, f"{what}{limits}", *lines)


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
    {STOCK: read, "transformers-4": read_4},
    place=0,
    cell=cell,
    written=stock_config,
    serve=serve,
    writer="ropewalk.exporting.transformers:export",
    by_model_type=True,
)
