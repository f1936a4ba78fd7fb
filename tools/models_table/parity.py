"""Exports, turned by each runtime's own classes and compared with the schedule in float64.

vLLM's and SGLang's were recorded from their wheels (tools/observatory/serving_rotary.py). Those of
the transformers that is installed are computed here, on the same configs and methods, and on the
published configs at four times their length. An export is right if no cos or sin is off by more
than float32 angles may be.
"""

from __future__ import annotations

import importlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from transformers import AutoConfig

from ropewalk.context_plan import ContextPlan
from ropewalk.errors import RopewalkError
from ropewalk.models.config import Config, present_plan
from ropewalk.planning.extension import extend_plan
from ropewalk.runtimes import targets
from ropewalk.runtimes.reading import STOCK
from ropewalk.schedule import FloatArray
from tools.observatory import serving_rotary
from tools.observatory.serving_rotary import CONFIGS, METHODS, SIZES, TARGET, excess

if TYPE_CHECKING:
    from ropewalk.runtimes.runtime import FolderTarget

SERVING = Path(serving_rotary.__file__).with_suffix(".json")
WIDE = ("linear", "ntk", "yarn", "llama3")
"""The methods that the published configs are extended by."""
KINDS = ("right", "refused", "wrong", "not compared")


def stock_cos_sin(config: Config, count: int) -> FloatArray:
    """[2, positions, pairs] from transformers' rotary class for a config."""
    given = AutoConfig.for_model(**config.get("text_config", config))
    name = f"transformers.models.{given.model_type}.modeling_{given.model_type}"
    module = importlib.import_module(name)
    [kind] = [own for own in vars(module) if own.endswith("RotaryEmbedding")]
    both = getattr(module, kind)(given)(torch.zeros(1), torch.arange(TARGET)[None])
    cos, sin = (each[0].double().numpy() for each in both)
    # Most have each value twice: in both halves, or next to itself.
    doubled = cos.shape[1] > count and not np.array_equal(cos[:, :count], cos[:, count:])
    pairs = slice(0, None, 2) if doubled else slice(0, count)
    return np.stack([cos[:, pairs], sin[:, pairs]])


def outcome(config: Config, plan: ContextPlan, layer: str) -> str:
    """What comes of an export for transformers: one of KINDS."""
    schedule = plan.longest(layer)
    stock = cast("FolderTarget", targets()[STOCK])
    try:
        stock.expressible(plan, config, approximate=False)
        written = stock.written_config(config, plan)
    except RopewalkError:
        return "refused"
    try:
        found = stock_cos_sin(written, schedule.geometry.rotary_dim // 2)
        return "right" if excess(found, schedule, range(TARGET)) <= 1 else "wrong"
    except (ImportError, TypeError, ValueError):
        return "not compared"  # its class is called in another way, or is not of transformers


def _same() -> Iterator[str]:
    """The configs and methods of the engines' checks."""
    for family, own in CONFIGS.items():
        config = {**SIZES, **own}
        present = present_plan(config, family)
        for method, parameters in METHODS.items():
            plan = extend_plan(present, TARGET, method.split()[0], dict(parameters))
            yield outcome(config, plan, plan.main_layer)


def _published(configs: Iterable[Config]) -> Iterator[str]:
    for config in configs:
        try:
            present = present_plan(config)
        except RopewalkError:
            continue
        for method in WIDE:
            try:
                plan = extend_plan(present, 4 * present.target_length, method, {})
            except RopewalkError:
                yield "refused"
            else:
                yield outcome(config, plan, plan.main_layer)


def parity(configs: Iterable[Config]) -> dict[str, str]:
    """The counts by runtime."""
    counts = {STOCK: Counter(_same())}
    for runtime, recorded in json.loads(SERVING.read_text(encoding="utf-8")).items():
        counts[runtime] = Counter(map(_recorded, recorded["checks"]))
    told = {runtime: _counted(own) for runtime, own in counts.items()}
    told[STOCK] += (
        f"; by {len(WIDE)} methods on these configs: {_counted(Counter(_published(configs)))}"
    )
    return told


def _recorded(row: Mapping[str, float]) -> str:
    if "refused" in row:
        return "refused"
    return "right" if max(row["prefill"], row["decoding"]) <= 1 else "wrong"


def _counted(own: Counter[str]) -> str:
    return ", ".join(f"{own[kind]} {kind}" for kind in KINDS if own[kind] or kind != KINDS[-1])
