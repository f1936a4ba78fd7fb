"""The scalings of queries and logits outside cos and sin: log-n and a softmax scaling.

They are put where all models of transformers pass: between an attention layer and the function that
computes its attention, after query norms and rotation, whatever the head layout. An attention layer
finds that function by the name in its config, so a layer that needs scaling gets a copy of its
config with our name; ours scales the query and calls the one that the stock config names at that
moment, so masks, caches and `set_attn_implementation` work as before.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from ropewalk.errors import Unsupported
from ropewalk.models.anatomy import ROUTE, AttentionLayer
from ropewalk.schedule import LogN

# Called with the layer and the query, key and scaling that its attention is computed from.
Listener = Callable[[nn.Module, Tensor, Tensor, float], None]


@dataclass(frozen=True)
class LogitScaling:
    """The factors of one layer's logits."""

    constant: float = 1.0
    log_n: LogN | None = None
    stock_log_n: LogN | None = None
    """The factor that the model's own attention applies to its queries before ours."""

    @property
    def changes_nothing(self) -> bool:
        return self.constant == 1 and self.log_n == self.stock_log_n


@dataclass(frozen=True)
class _Route:
    """The way of one attention layer's queries."""

    stock_config: Any
    scaling: LogitScaling
    listener: Listener | None = None


def scale_logits(layer: AttentionLayer, scaling: LogitScaling) -> None:
    """Multiply a layer's logits from now on; a scaling of one leaves the layer as it was born."""
    module: Any = layer.module
    if scaling.changes_nothing:
        module.config = layer.config
        module.__dict__.pop("_ropewalk_route", None)
    else:
        module._ropewalk_route = _Route(layer.config, scaling)
        module.config = layer.routed_config


@contextmanager
def listening(
    layers: tuple[AttentionLayer, ...], listener: Listener, *, unscaled: bool = False
) -> Iterator[None]:
    """Hear what reaches the attention function of every layer; `unscaled`, without our scaling."""
    before = [(layer.module.config, _route_of(layer.module)) for layer in layers]
    for layer in layers:
        module: Any = layer.module
        # Who installed a plan may know the layer by another anatomy, with configs of its own.
        routed = module.config._attn_implementation == ROUTE
        route = (_route_of(module) if routed else None) or _Route(layer.config, LogitScaling())
        scaling = LogitScaling() if unscaled else route.scaling
        module._ropewalk_route = replace(route, scaling=scaling, listener=listener)
        module.config = layer.routed_config
    try:
        yield
    finally:
        for layer, (config, former) in zip(layers, before, strict=True):
            module = layer.module
            module.config = config
            if former is None:
                del module._ropewalk_route
            else:
                module._ropewalk_route = former


def _route_of(module: nn.Module) -> _Route | None:
    route: _Route | None = module.__dict__.get("_ropewalk_route")
    return route


def _attend(
    module: nn.Module,
    query_BHLD: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    **kwargs: Any,
) -> Any:
    """Scale the logits of a routed layer, then compute its attention by its stock config."""
    route = _route_of(module)
    assert route is not None, "a layer is routed here only with its route set"
    if scaling is None:
        scaling = query_BHLD.shape[-1] ** -0.5
    scaling *= route.scaling.constant
    if route.scaling.log_n != route.scaling.stock_log_n:
        positions_BL = kwargs.get("position_ids")
        if positions_BL is None:
            raise Unsupported(
                f"log-n: {type(module).__name__} does not provide the positions of its queries; "
                "plan without log-n for this model"
            )
        factor_BL = _log_n(route.scaling.log_n, positions_BL)
        factor_BL = factor_BL / _log_n(route.scaling.stock_log_n, positions_BL)
        query_BHLD = (query_BHLD * factor_BL[:, None, :, None]).to(query_BHLD.dtype)
    if route.listener is not None:
        route.listener(module, query_BHLD, key, scaling)
    attend = ALL_ATTENTION_FUNCTIONS.get_interface(
        route.stock_config._attn_implementation, _eager_attention(module)
    )
    return attend(module, query_BHLD, key, value, attention_mask, scaling=scaling, **kwargs)


def _log_n(log_n: LogN | None, positions: Tensor) -> Tensor:
    if log_n is None:
        return torch.ones_like(positions, dtype=torch.float32)
    if log_n.growth is not None:
        return 1 + log_n.growth * torch.log1p((positions // log_n.length).to(torch.float32))
    factor = torch.log1p(positions.to(torch.float32)) / math.log(log_n.length)
    return factor.clamp(min=1.0) if log_n.form == "beyond" else factor


def _eager_attention(module: nn.Module) -> Callable[..., Any] | None:
    """The function that a layer itself would fall back on: its modelling file's own."""
    for kind in type(module).__mro__:
        function = getattr(sys.modules[kind.__module__], "eager_attention_forward", None)
        if function is not None:
            return function  # type: ignore[no-any-return]
    return None


AttentionInterface.register(ROUTE, _attend)
