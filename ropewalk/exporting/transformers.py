"""Export to transformers: a folder with a stock config, and nothing else to install.

A native rope type where one says exactly the plan, any other factors as `longrope` with equal
lists. Keys that other runtimes read and transformers only warns about are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ropewalk.context_plan import ContextPlan
from ropewalk.errors import Unsupported
from ropewalk.exporting.folder import export_folder, prepare
from ropewalk.exporting.parity import Exported
from ropewalk.models.config import Config, ConfigReader, text_config
from ropewalk.models.stock_config import with_plan
from ropewalk.progress import Progress, silent


def export(
    source: str,
    plan: ContextPlan,
    out: str | Path,
    *,
    dtype: str = "auto",
    overwrite: bool = False,
    fold: bool = False,
    approximate: bool = False,
    v4_keys: bool = False,
    progress: Progress = silent,
) -> Exported:
    """Write a folder that stock transformers loads, proven in a fresh process.

    `fold` multiplies the query weights by the attention scaling, `approximate` allows an
    approximation of what the runtime cannot express exactly, and `v4_keys` writes the config as
    transformers 4 did (5 reads it too).
    """
    job = prepare(
        source,
        plan,
        "transformers",
        partial(stock_config, v4_keys=v4_keys),
        dtype=dtype,
        fold=fold,
        approximate=approximate,
    )
    load = f"AutoModelForCausalLM.from_pretrained({str(out)!r})"
    return export_folder(
        "transformers", job, out, overwrite=overwrite, load=load, progress=progress
    )


def stock_config(config: Config, plan: ContextPlan, *, v4_keys: bool = False) -> Config:
    """The config that makes stock transformers follow the plan."""
    written = complete_config(config, plan)
    inner = text_config(written)
    reader = ConfigReader(config)
    if reader.model_type != "phimoe":  # the one family whose own code reads these
        for setting in rope_settings(inner).values():
            setting.pop("short_mscale", None)
            setting.pop("long_mscale", None)
    if v4_keys:
        _to_v4_keys(inner, reader.model_type)
    return written


def complete_config(config: Config, plan: ContextPlan) -> Config:
    """The plan's config with all that some family or runtime looks for in a second place."""
    written = with_plan(config, plan)
    written.pop("auto_map", None)  # the type is a stock one: no code of a folder is needed
    inner = text_config(written)
    reader = ConfigReader(config)
    single = rope_settings(inner).get("")
    if single is not None and "original_max_position_embeddings" in single:
        original = single["original_max_position_embeddings"]
        inner["original_max_position_embeddings"] = original
    if inner.get("head_dim") is None and not reader.get("qk_rope_head_dim"):
        # Some code takes this attribute for granted, some divides, and not always evenly.
        inner["head_dim"] = next(iter(plan.schedules.values()))[-1].schedule.geometry.head_dim
    return written


def rope_settings(inner: Config) -> dict[str, dict[str, Any]]:
    """The setting of every layer type, to be changed in place; a single one serves all (``)."""
    rope = inner["rope_parameters"]
    nested = {name: value for name, value in rope.items() if isinstance(value, dict)}
    return nested or {"": rope}


# What transformers 4 called them elsewhere: rope_theta, partial_rotary_factor.
_V4_NAMES = {"gpt_neox": ("rotary_emb_base", "rotary_pct")}


def _to_v4_keys(inner: Config, model_type: str) -> None:
    """`rope_theta` and `rope_scaling`, as transformers 4 and what grew around it read them."""
    rope = inner.pop("rope_parameters")
    if any(isinstance(value, Mapping) for value in rope.values()):
        raise Unsupported(
            "v4 keys: this model has a setting for every layer type, which transformers 4 kept "
            "under names of each family's own; write the keys of version 5"
        )
    base, share = _V4_NAMES.get(model_type, ("rope_theta", "partial_rotary_factor"))
    scaling = dict(rope)
    inner[base] = scaling.pop("rope_theta")
    if "partial_rotary_factor" in scaling:
        inner[share] = scaling.pop("partial_rotary_factor")
    inner["rope_scaling"] = None if scaling == {"rope_type": "default"} else scaling
