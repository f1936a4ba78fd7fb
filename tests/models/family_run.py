"""Every tiny family under every kind of plan, against an independent computation.

The reference is a stock model in which two things are replaced: its rotary module returns cos and
sin straight from the schedule in float64, and its attention multiplies each query by its row's
log-n. It shares no code with what it checks. Run this file to write the table of the docs:

    python -m tests.models.family_run docs/families.md
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from ropewalk.context_plan import ContextPlan
from ropewalk.errors import Unsupported
from ropewalk.models.anatomy import anatomy_of
from ropewalk.models.config import present_plan
from ropewalk.models.install import applied
from ropewalk.models.renamed import cache_name
from ropewalk.models.rotary import PlannedRotary
from ropewalk.planning.extension import extend_plan
from ropewalk.schedule import RotarySchedule
from tests.models.tiny import FAMILIES, RECENT, WINDOW, model_of, tiny_config, tokens

TARGET = 4 * WINDOW
COMPLEX = ("deepseek_v2", "llama4_text")
"""Families whose rotary modules return complex numbers."""
SEQUENCE = 40
CLOSE = 1e-4
"""The largest difference of logits, in parts of their standard deviation."""


def _plan(present: ContextPlan, methods: str, parameters: Any = None, **more: Any) -> ContextPlan:
    more.setdefault("layer_types", tuple(present.schedules))
    return extend_plan(present, TARGET, methods, parameters, **more)


def _random(present: ContextPlan, **more: Any) -> ContextPlan:
    pairs = present.longest(present.extended_layer).geometry.pairs
    factors = np.exp(np.random.default_rng(0).uniform(0, np.log(8), pairs)).tolist()
    # One list serves all layer types, unless their heads differ (Gemma 4).
    alike = [n for n in present.schedules if present.longest(n).geometry.pairs == pairs]
    return _plan(present, "longrope", {"factors": factors}, layer_types=tuple(alike), **more)


PLANS: Mapping[str, Callable[[ContextPlan], ContextPlan]] = {
    "linear": lambda present: _plan(present, "linear"),
    "YaRN": lambda present: _plan(present, "yarn"),
    "NTK-mixed": lambda present: _plan(present, "ntk_mixed"),
    "random λ": _random,
    "n̂ = 8": lambda present: _random(present, kept_initial_positions=8),
    "log-n": lambda present: _plan(present, "ntk", log_n="everywhere"),
}
FACTORS = ("linear", "YaRN", "NTK-mixed", "random λ")
"""The plans that share a column of the page."""


@cache
def _model(family: str, attention: str | None = None) -> Any:
    return model_of(tiny_config(family, attn_implementation=attention))


@dataclass(frozen=True)
class Outcome:
    """Differences of logits from the reference, in parts of their standard deviation."""

    at_once: float
    through_cache: float
    effect: float
    """How far the plan moves the logits of the untouched model: what a plan ignored would show."""
    our_rotary: bool

    @property
    def works(self) -> bool:
        return max(self.at_once, self.through_cache) < CLOSE < 0.01 * self.effect


@torch.no_grad()
def outcome(family: str, plan_name: str) -> Outcome | None:
    """One cell of the table; None where the plan is refused by name."""
    model = _model(family)
    plan = PLANS[plan_name](present_plan(model.config))
    ids = tokens(SEQUENCE)
    untouched = model(ids).logits
    try:
        with applied(model, plan):
            at_once = model(ids).logits
    except Unsupported:
        return None
    with applied(model, plan, check=False):
        cached = decoded(model, ids)
        ours = any(isinstance(module, PlannedRotary) for module in model.modules())
    right = reference_logits(family, plan, ids)
    spread = right.std()

    def difference(logits: Tensor) -> float:
        return float((logits - right).abs().max() / spread)

    return Outcome(difference(at_once), difference(cached), difference(untouched), ours)


@torch.no_grad()
def decoded(model: Any, ids: Tensor, prompt: int = WINDOW - 2) -> Tensor:
    """Logits of a sequence that comes through the cache: a prompt, six tokens, and the rest."""
    past, logits, named = None, [], cache_name(model)
    singles = range(prompt, min(prompt + 6, ids.shape[1]))
    for start, end in pairwise((0, *singles, singles.stop, ids.shape[1])):
        output = model(ids[:, start:end], use_cache=True, **{named: past})
        past = getattr(output, named)
        logits.append(output.logits)
    return torch.cat(logits, dim=1)


@torch.no_grad()
def reference_logits(family: str, plan: ContextPlan, ids: Tensor) -> Tensor:
    """Logits of the sequence at positions 0, 1, …, computed independently of ropewalk.models."""
    model = _model(family, "eager")
    with _reference(model, plan):
        logits: Tensor = model(ids, use_cache=False).logits
    return logits


@contextmanager
def _reference(model: Any, plan: ContextPlan) -> Iterator[None]:
    family = model.config.model_type
    (rotary,) = (m for m in model.modules() if type(m).__name__.endswith("RotaryEmbedding"))
    modelling = sys.modules[type(model).__module__]
    stock_attention = modelling.eager_attention_forward
    present = present_plan(model.config)
    stock_scaling = present.longest(present.main_layer).query_scaling

    def schedule_of(layer_type: str | None) -> RotarySchedule:
        if layer_type is None or layer_type not in plan.schedules:
            layer_type = next(iter(plan.schedules))
        return plan.schedule(TARGET, layer_type)

    def cos_sin(x: Tensor, position_ids: Tensor, layer_type: str | None = None) -> Any:
        result = []
        if position_ids.ndim == 3:  # three axes, equal in text
            position_ids = position_ids[0]
        for value in schedule_of(layer_type).cos_sin(position_ids.numpy()):
            if family == "cohere":
                value = np.repeat(value, 2, axis=-1)
            elif family not in ("gpt_oss", *COMPLEX):
                value = np.concatenate((value, value), axis=-1)
            result.append(torch.from_numpy(value).to(x.dtype))
        return torch.complex(*result) if family in COMPLEX else tuple(result)

    def attention(
        module: Any, query: Tensor, key: Tensor, value: Tensor, *a: Any, **kw: Any
    ) -> Any:
        if getattr(module, "use_rope", True):
            types = getattr(module.config, "layer_types", None)
            schedule = schedule_of(types[module.layer_idx] if types else None)
            row_scaling = schedule.query_scaling(np.arange(query.shape[2]))
            row_scaling = row_scaling / stock_scaling(np.arange(query.shape[2]))
            query = query * torch.tensor(row_scaling[:, None], dtype=query.dtype)
        return stock_attention(module, query, key, value, *a, **kw)

    with (
        mock.patch.object(rotary, "forward", cos_sin),
        mock.patch.object(modelling, "eager_attention_forward", attention),
    ):
        yield


def table() -> str:
    """The page of the docs."""
    apart = [name for name in PLANS if name not in FACTORS]
    header = f"| family | rotates | layers | factors | {' | '.join(apart)} |"
    lines = [*_PAGE.splitlines(), header, "|---" * (4 + len(apart)) + "|"]
    return "\n".join((*lines, *map(row, (*FAMILIES, *RECENT)))) + "\n"


def row(family: str) -> str:
    """One line of the table, from a run."""
    cells = []
    for names in (FACTORS, *((name,) for name in PLANS if name not in FACTORS)):
        told = {
            "–" if own is None else ("✓" if own.works else "✗") + "†" * own.our_rotary
            for own in (outcome(family, name) for name in names)
        }
        cells.append(" ".join(sorted(told)))
    return f"| {family} | {_described(family)} | {' | '.join(cells)} |"


_PAGE = f"""\
# Model families

A plan can be installed in the model families below. Each was tested with a tiny random model,
extended from a window of {WINDOW} to {TARGET}. *Rotates* gives the rotating dimensions of a head,
and how they are paired; *layers* gives the kinds of layers, and how many rotate if not all do.

- *Factors*: linear, YaRN, NTK-mixed and random λ, with one mark if they agree.
- ✓: the check after installation passed, and the logits of {SEQUENCE} tokens, at once and through
  the cache, agree with an independent float64 computation to {CLOSE:g} of their standard deviation.
  The unmodified model differs by at least a hundred times as much.
- †: ropewalk replaced the model's rotary module, which cannot express the plan.
- –: installing refuses the plan by name.

`python -m tests.models.family_run docs/families.md` writes this page.

"""


def _described(family: str) -> str:
    model = _model(family)
    anatomy = anatomy_of(model)
    geometry = next(iter(anatomy.present.schedules.values()))[0].schedule.geometry
    rotates = f"{geometry.rotary_dim}/{geometry.head_dim} {geometry.pair_layout}"
    rotating, count = len(anatomy.layers), int(model.config.num_hidden_layers)
    layers = ", ".join(anatomy.present.schedules).replace("_attention", "")
    return f"{rotates} | {layers}" + (f", {rotating}/{count}" * (rotating < count))


if __name__ == "__main__":
    torch.set_num_threads(1)
    Path(sys.argv[1]).write_text(table(), encoding="utf-8")
