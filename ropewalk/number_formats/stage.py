"""A stage: a model whose rotary attention is computed by an arm, with everything open to see.

Every attention layer is handed cos = 1 and sin = 0, so what its attention function receives are the
queries and keys before rotation, whatever the family. There the stage rotates them itself, casts
them, and computes causal attention in blocks of rows, so no L × L matrix ever stands in memory.
That this is the model's own computation is not believed but measured: where the stage and the
stock forward disagree in float32, the model is refused. The model given is never changed: other
formats run on copies, and what is routed is put back.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

from ropewalk.context_plan import ContextPlan
from ropewalk.errors import Unsupported
from ropewalk.models.anatomy import Anatomy, RotaryModule, anatomy_of, by_pair
from ropewalk.models.logits import check_finite
from ropewalk.models.modes import in_mode
from ropewalk.models.probe import ModelProbe
from ropewalk.number_formats.arms import (
    Arm,
    Format,
    cast,
    check_device,
    dtype_of,
    matmul_format,
    rotate_pairs,
    tables,
    wide,
)
from ropewalk.schedule import RotarySchedule

# The name under which this stands in transformers' table of attention functions.
ROUTE = "ropewalk-precision"
# Numbers of one block of attention weights: few enough to stay in a processor's cache, or enough to
# fill a GPU. Fewer rows than these would read all keys too often.
BLOCK = {"cpu": 2**18, "cuda": 2**26, "mps": 2**24}
LEAST_ROWS = 32
_FORMATS: dict[torch.dtype, Format] = {
    dtype_of(each): each for each in get_args(Format) if each != "tf32"
}


class Layout(NamedTuple):
    """The order of a head's rotary pairs: in halves or as neighbours, from a first number on."""

    pairing: Literal["halves", "neighbours"]
    start: int
    pairs: int

    def split(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The first and the second number of every pair."""
        part = x[..., self.start : self.start + 2 * self.pairs]
        if self.pairing == "halves":
            return part[..., : self.pairs], part[..., self.pairs :]
        return part[..., ::2], part[..., 1::2]

    def rotated(self, x_HLD: Tensor, cos_LP: Tensor, sin_LP: Tensor, format: Format) -> Tensor:
        """Heads with their pairs turned; what does not rotate passes through unrounded."""
        first, second = rotate_pairs(*self.split(x_HLD), cos_LP, sin_LP, format)
        result = x_HLD.to(torch.promote_types(x_HLD.dtype, first.dtype), copy=True)
        for place, value in zip(self.split(result), (first, second), strict=True):
            place.copy_(value)
        return result


@dataclass(frozen=True, eq=False)
class AttentionCall:
    """The values that one attention layer computed in one forward of one sequence."""

    layer: int
    query: Tensor
    """[heads, positions, head size], not rotated; so is key, repeated to as many heads."""
    key: Tensor
    rotated_query: Tensor
    """Rotated and cast by the arm, held in the dtype that products accumulate in."""
    rotated_key: Tensor
    scaling: float
    mask: Tensor | None
    """[positions, positions] to add to the logits, if causality alone does not define it."""
    layer_type: str
    layout: Layout

    def logits(self, start: int, end: int) -> Tensor:
        """The logits of some rows against all keys up to the last of them, not yet masked."""
        query, key = self.rotated_query[:, start:end], self.rotated_key[:, :end]
        return (query @ key.transpose(-1, -2)).mul_(self.scaling)

    def weights(self, logits_HRK: Tensor, start: int, end: int) -> Tensor:
        """The attention weights of those rows; the logits are overwritten."""
        if self.mask is not None:
            logits_HRK += self.mask[start:end, :end]
        rows = torch.arange(start, end, device=logits_HRK.device)[:, None]
        future = torch.arange(start, end, device=logits_HRK.device)[None] > rows
        logits_HRK[..., start:].masked_fill_(future, -torch.inf)
        return logits_HRK.softmax(-1)

    def rows(self, edges: Sequence[int] = ()) -> list[tuple[int, int]]:
        """The rows in blocks; no block crosses an edge."""
        heads, length = self.query.shape[:2]
        size = max(LEAST_ROWS, BLOCK[self.query.device.type] // (heads * length))
        ends = sorted({*(edge for edge in edges if edge < length), length})
        return [
            (start, min(start + size, end))
            for begin, end in pairwise((0, *ends))
            for start in range(begin, end, size)
        ]


# Hears the rows of a layer: the first, the one after the last, their logits of the first column,
# and their weights.
RowListener = Callable[[int, int, Tensor, Tensor], None]
# Hears every layer, and may return what then hears its rows.
Listener = Callable[[AttentionCall], "RowListener | None"]
# Computes the attention of a layer: its index, query, key, value, mask and scaling.
Attend = Callable[[int, Tensor, Tensor, Tensor, "Tensor | None", float], Tensor]


class OpenModel:
    """A stock model, opened."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.anatomy = anatomy_of(model)
        self.plan: ContextPlan = self.anatomy.present
        self.given_format = _FORMATS[self.model.dtype]
        self._open: dict[Format, tuple[Any, Anatomy]] = {self.given_format: (model, self.anatomy)}
        if not self.anatomy.layers:
            raise Unsupported(
                f"{_name(model)}: none of its layers hands queries and keys to transformers' "
                "attention interface, so attention logits cannot be seen"
            )
        check_finite(model)  # of NaN, every comparison is a consequence
        self.layouts = self._layouts()
        self._verify()

    @property
    def device(self) -> torch.device:
        device: torch.device = self.model.device
        return device

    def schedule(self, layer_type: str) -> RotarySchedule:
        schedule = self.plan.longest(layer_type)
        if schedule.kept_initial_positions:
            raise Unsupported(
                f"{_name(self.model)} keeps initial positions unscaled, so its attention is not "
                "meant to be relative; measure the model without that plan"
            )
        return schedule

    def frequencies(self, layer_type: str) -> Tensor:
        values = self.schedule(layer_type).inverse_frequencies
        return torch.tensor(values, dtype=torch.float64, device=self.device)

    def tables(self, arm: Arm, layer_type: str, positions_L: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin [positions, pairs] as an arm has them."""
        if arm.own_tables:
            return own_tables(self.anatomy, layer_type, positions_L, dtype_of(arm.model))
        scaling = self.schedule(layer_type).attention_scaling
        return tables(arm, self.frequencies(layer_type), positions_L, scaling)

    @torch.no_grad()
    def run(
        self,
        tokens: Tensor,
        shift: int,
        arm: Arm,
        *,
        listener: Listener | None = None,
        edges: Sequence[int] = (),
        keep: int = 1,
    ) -> Tensor:
        """One sequence at positions from `shift` on; the logits of its last `keep` tokens."""
        check_device([arm], self.device)
        model, anatomy = self._in(arm.model)
        positions = torch.arange(shift, shift + len(tokens), device=self.device)
        by_type = {
            layer_type: self.tables(arm, layer_type, positions)
            for layer_type in {layer.layer_type for layer in anatomy.layers}
        }

        def attend(
            index: int, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float
        ) -> Tensor:
            layer_type = anatomy.layers[index].layer_type
            heads = query.shape[0]
            key, value = (x.repeat_interleave(heads // len(x), dim=0) for x in (key, value))
            layout = self.layouts[index]
            table = by_type[layer_type]
            call = AttentionCall(
                index,
                query,
                key,
                prepared(query, layout, table, arm),
                prepared(key, layout, table, arm),
                scale,
                mask,
                layer_type,
                layout,
            )
            hear_rows = listener(call) if listener is not None else None
            value = cast(value, arm.product).to(wide(arm.product))
            output = torch.empty_like(value)
            for start, end in call.rows(edges):
                logits = call.logits(start, end)
                first_column = logits[..., 0].clone()
                weights = call.weights(logits, start, end)
                if hear_rows is not None:
                    hear_rows(start, end, first_column, weights)
                # FlashAttention casts the weights too.
                narrow = cast(weights, arm.product).to(value.dtype)
                output[:, start:end] = narrow @ value[:, :end]
            return output.to(dtype_of(arm.product)).to(query.dtype)

        with matmul_format(arm), in_mode(model, training=False), _routed(model, anatomy, attend):
            logits: Tensor = model(
                input_ids=tokens.to(self.device)[None],
                # Said explicitly: some families take shifted positions for packed documents.
                attention_mask=torch.ones(1, len(tokens), dtype=torch.long, device=self.device),
                position_ids=positions[None],
                use_cache=False,
                logits_to_keep=keep,
            ).logits[0]
        return logits

    def _in(self, format: Format) -> tuple[Any, Anatomy]:
        """The model in a format: itself, or a copy that is made once."""
        key: Format = "float32" if format == "tf32" else format
        if key not in self._open:
            model = copy.deepcopy(self.model).to(dtype_of(key))
            if key == "float64" and model.config.get_text_config()._experts_implementation:
                model.set_experts_implementation("eager")  # grouped products know no float64
            self._open[key] = model, anatomy_of(model)
        return self._open[key]

    def _layouts(self) -> tuple[Layout, ...]:
        # Each layer is run again without rotation: the difference shows which pairs it turns.
        model, anatomy = self._in("float32")
        probe = ModelProbe(model, anatomy)
        [heard] = probe.forward(range(8))
        layouts = []
        for layer in anatomy.layers:
            if layer not in heard:
                raise Unsupported(
                    f"{_name(model)}: {type(layer.module).__name__} computes its attention without "
                    "transformers' attention interface, so attention logits cannot be seen"
                )
            call = heard[layer]
            if "position_embeddings" not in call.kwargs:
                raise Unsupported(
                    f"{_name(model)}: {type(layer.module).__name__} does not take cos and sin as "
                    "keyword arguments, so its rotation cannot be measured by itself"
                )
            cos, sin = call.cos_sin
            plain = probe.replay(layer, call, torch.ones_like(cos), torch.zeros_like(sin))
            arrangement = _rotary_of(anatomy, layer.layer_type).arrangement
            table = tuple(by_pair(x[0], arrangement) for x in (cos, sin))
            layout = _fit(plain.query, call.query, table[0], table[1])
            if layout is None:
                raise Unsupported(
                    f"{_name(model)}: {type(layer.module).__name__} does more than rotate between "
                    "its projections and its attention, so the effect of a shift cannot be "
                    "measured by itself"
                )
            layouts.append(layout)
        return tuple(layouts)

    def _verify(self) -> None:
        """Check that the stage computes the same as the model."""
        model, anatomy = self._in("float32")
        vocabulary = model.config.get_text_config().vocab_size
        tokens = (torch.arange(40) * 7919 % vocabulary).to(self.device)
        positions = torch.arange(3, 43, device=self.device)
        with torch.no_grad(), in_mode(model, training=False), matmul_format(Arm("fp32")):
            stock: Tensor = model(
                input_ids=tokens[None],
                attention_mask=torch.ones_like(tokens)[None],
                position_ids=positions[None],
                use_cache=False,
            ).logits[0]
        opened = OpenModel.__new__(OpenModel)
        opened.__dict__ = {**self.__dict__, "anatomy": anatomy}  # its own tables, in float32
        ours = opened.run(tokens, 3, replace(Arm("own"), own_tables=True), keep=len(tokens))
        if not torch.allclose(stock, ours, rtol=0, atol=1e-3 * float(stock.abs().max())):
            raise Unsupported(
                f"{_name(model)} changes its attention logits in a way that ropewalk does not "
                "know (a cap, a sink, a bias), so its attention cannot be compared"
            )


def prepared(x_HLD: Tensor, layout: Layout, table: tuple[Tensor, Tensor], arm: Arm) -> Tensor:
    """Queries or keys as they enter the product: rotated, cast, and held wide."""
    rotated = layout.rotated(
        x_HLD.to(torch.promote_types(x_HLD.dtype, torch.float32)), *table, arm.rotation
    )
    return cast(rotated, arm.product).to(wide(arm.product))


@torch.no_grad()
def own_tables(
    anatomy: Anatomy, layer_type: str, positions_L: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """cos and sin [positions, pairs] as a model's rotary module gives them to a dtype."""
    rotary = _rotary_of(anatomy, layer_type)
    arguments = {"layer_type": layer_type} if rotary.prefixes[layer_type] else {}
    hidden = torch.zeros(1, dtype=dtype, device=positions_L.device)
    cos, sin = rotary.module(hidden, position_ids=positions_L[None], **arguments)
    return by_pair(cos[0], rotary.arrangement), by_pair(sin[0], rotary.arrangement)


def _rotary_of(anatomy: Anatomy, layer_type: str) -> RotaryModule:
    return next(rotary for rotary in anatomy.rotaries if layer_type in rotary.prefixes)


def _fit(plain: Tensor, rotated: Tensor, cos_LP: Tensor, sin_LP: Tensor) -> Layout | None:
    """The layout under which rotating the one gives the other."""
    pairs = cos_LP.shape[-1]
    pairings: tuple[Literal["halves", "neighbours"], ...] = ("halves", "neighbours")
    for start in sorted({0, plain.shape[-1] - 2 * pairs}):
        for pairing in pairings:
            layout = Layout(pairing, start, pairs)
            ours = layout.rotated(plain, cos_LP, sin_LP, "float32")
            if torch.allclose(ours, rotated, rtol=0, atol=1e-4 * float(rotated.abs().max())):
                return layout
    return None


@contextmanager
def _routed(model: Any, anatomy: Anatomy, attend: Attend) -> Iterator[None]:
    """Every rotating layer computes its attention by `attend`, from unrotated queries and keys."""

    def without_rotation(
        _module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        cos, sin = kwargs["position_embeddings"]
        return args, {
            **kwargs,
            "position_embeddings": (torch.ones_like(cos), torch.zeros_like(sin)),
        }

    with ExitStack() as stack:
        for index, layer in enumerate(anatomy.layers):
            module: Any = layer.module
            before = module.config
            if before is not layer.config:
                raise Unsupported(
                    f"{_name(model)} has a plan installed that scales its logits; measure the "
                    "model without it"
                )
            hook = module.register_forward_pre_hook(without_rotation, with_kwargs=True)
            stack.callback(hook.remove)
            # transformers chooses the attention by a module's config, so each gets a changed copy.
            routed = copy.copy(before)
            routed._attn_implementation = ROUTE
            stack.callback(setattr, module, "config", before)
            stack.callback(module.__dict__.pop, "_ropewalk_precision")
            module._ropewalk_precision = (index, attend)
            module.config = routed
        yield


def _attend(
    module: nn.Module,
    query_BHLD: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **_kwargs: Any,
) -> tuple[Tensor, None]:
    """Attend in a routed layer, for transformers, which expects [batch, positions, heads, size]."""
    index, attend = module.__dict__["_ropewalk_precision"]
    if attention_mask is None and sliding_window is not None and key.shape[-2] > sliding_window:
        raise Unsupported(
            f"{type(module).__name__} leaves its sliding window to its attention implementation; "
            "load the model with attn_implementation='sdpa'"
        )
    mask = None if attention_mask is None else _additive(attention_mask[0, 0])
    scale = query_BHLD.shape[-1] ** -0.5 if scaling is None else scaling
    output = attend(index, query_BHLD[0], key[0], value[0], mask, scale)
    return output.transpose(0, 1)[None], None


def _additive(mask: Tensor) -> Tensor:
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros(mask.shape, device=mask.device).masked_fill_(~mask, -torch.inf)


def _name(model: Any) -> str:
    return f"{type(model).__name__} (model type {model.config.model_type!r})"


AttentionInterface.register(ROUTE, _attend)
