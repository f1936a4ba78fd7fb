"""The variances of real queries and keys, pair by pair, which the weighted Theorem 1 asks for.

The theorem takes the components of a query as equally variable. Those of a trained model are not:
some pairs carry most of what attention sees. Queries and keys are heard where they enter attention,
by calling every attention layer a second time with a rotation by nothing (cos 1, sin 0), so that
norms, biases and head layouts are the model's own.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ropewalk.errors import InputError, Unsupported
from ropewalk.models.anatomy import AttentionLayer, anatomy_of
from ropewalk.models.queries import listening
from ropewalk.schedule import FloatArray, RotaryGeometry


@dataclass(frozen=True, eq=False)
class PairVariances:
    """σ² of both components of each pair together, over tokens; pairs that rotate come first."""

    tokens: int
    layer_types: tuple[str, ...]
    """The types of the layers that rotate, in their order."""
    query: tuple[FloatArray, ...]
    """[heads, pairs] for each of these layers."""
    key: tuple[FloatArray, ...]

    def query_weights(self, layer_type: str) -> FloatArray:
        """Means over the heads of all layers of a type."""
        return self._mean(self.query, layer_type)

    def key_weights(self, layer_type: str) -> FloatArray:
        return self._mean(self.key, layer_type)

    def _mean(self, layers: tuple[FloatArray, ...], layer_type: str) -> FloatArray:
        own = [x for x, kind in zip(layers, self.layer_types, strict=True) if kind == layer_type]
        return np.asarray(np.concatenate(own).mean(axis=0))


@torch.inference_mode()
def measure_variances(model: nn.Module, sequences: Iterable[NDArray[np.int64]]) -> PairVariances:
    """Run the model over sequences of tokens, and take the variances of what attention compares."""
    anatomy = anatomy_of(model)
    config: Any = model.config
    if getattr(config.get_text_config(), "qk_rope_head_dim", None):
        raise Unsupported(
            f"{anatomy.present.model}: multi-head latent attention splits a head into parts, and "
            "ropewalk does not know yet which of its dimensions pair up"
        )
    # Queries and keys as attention compares them: after projections and norms, before the rotation.
    moments = {layer.module: (_Moments(), _Moments()) for layer in anatomy.layers}
    device = next(model.parameters()).device
    with ExitStack() as stack:
        for layer in anatomy.layers:
            hook = layer.module.register_forward_hook(_Replay(layer, moments), with_kwargs=True)
            stack.callback(hook.remove)
        for sequence in sequences:
            model(input_ids=torch.from_numpy(sequence)[None].to(device), use_cache=False)
    if not all(query.count for query, _ in moments.values()):
        raise InputError("there is no text to measure variances on; give a longer text")
    # Means of squares of the dimensions that turn together.
    geometries = (anatomy.present.longest(layer.layer_type).geometry for layer in anatomy.layers)
    by_pair = [
        [_by_pair(own.variance(), geometry) for own in both]
        for both, geometry in zip(moments.values(), geometries, strict=True)
    ]
    return PairVariances(
        tokens=next(iter(moments.values()))[0].count,
        layer_types=tuple(layer.layer_type for layer in anatomy.layers),
        query=tuple(query for query, _ in by_pair),
        key=tuple(key for _, key in by_pair),
    )


@dataclass
class _Moments:
    """Sums over tokens, in float64: those of large keys would cancel in less."""

    count: int = 0
    total: FloatArray = field(default_factory=lambda: np.zeros(()))
    squares: FloatArray = field(default_factory=lambda: np.zeros(()))

    def add(self, states_BHLD: Tensor) -> None:
        values = states_BHLD.float().cpu().double().transpose(0, 1).flatten(1, 2)
        self.count += values.shape[1]
        self.total = self.total + values.sum(1).numpy()
        self.squares = self.squares + values.square().sum(1).numpy()

    def variance(self) -> FloatArray:
        """[heads, head size]"""
        mean = self.total / self.count
        return np.maximum(self.squares / self.count - mean**2, 0.0)


class _Replay:
    """Calls an attention layer again, right after it was called, without rotation."""

    def __init__(
        self, layer: AttentionLayer, moments: dict[nn.Module, tuple[_Moments, _Moments]]
    ) -> None:
        self._layer = layer
        self._query, self._key = moments[layer.module]
        self._again = False

    def __call__(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: object
    ) -> None:
        if self._again:
            return
        cos, sin = kwargs["position_embeddings"]
        still = (torch.ones_like(cos), torch.zeros_like(sin))
        self._again = True
        try:
            with listening((self._layer,), self._hear, unscaled=True):
                module(*args, **{**kwargs, "position_embeddings": still})
        finally:
            self._again = False

    def _hear(self, module: nn.Module, query: Tensor, key: Tensor, scaling: float) -> None:
        self._query.add(query)
        self._key.add(key)


def _by_pair(variances_HD: FloatArray, geometry: RotaryGeometry) -> FloatArray:
    """Both components of each pair together; dimensions that do not rotate pair up as they come."""
    turning = variances_HD[:, : geometry.rotary_dim]
    resting = variances_HD[:, geometry.rotary_dim :]
    if geometry.pair_layout == "half":
        pairs = turning[:, : geometry.pairs] + turning[:, geometry.pairs :]
    else:
        pairs = turning[:, ::2] + turning[:, 1::2]
    return np.concatenate([pairs, resting[:, ::2] + resting[:, 1::2]], axis=1)
