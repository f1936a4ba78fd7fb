"""Layers that mix tokens outside attention, where no layout reaches: found, and kept apart.

Linear attention, convolutions and state-space layers carry one document of a window into the next,
whatever the mask says. They are found by what they do: two windows that differ in their first
document only must give each part of each layer the same output for the second, as long as what goes
in is the same there. Those that fail run document by document, and must pass then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from transformers import Cache

from ropewalk.attention import interface
from ropewalk.attention.layout import AttentionLayout
from ropewalk.errors import Unsupported
from ropewalk.models.modes import in_mode
from ropewalk.models.sharding import layers_of

_FIRST, _SECOND = 6, 5
_MANY = 4
"""Names shown of what may be dozens."""


@torch.no_grad()
def keep_apart(model: Any) -> list[str]:
    """Make packed documents invisible to each other in all layers, or refuse the model.

    Returns the parts that run document by document. Without a layout they compute as ever.
    """
    interface.register()
    if model.config._attn_implementation != interface.NAME:
        model.set_attn_implementation(interface.NAME)
    wrapped: set[str] = set()
    # What a part is given tells nothing while an earlier one leaks, so kinds may be found in turn.
    while leaky := _leaking(model):
        if not (more := [name for name in leaky if name not in wrapped]):
            raise Unsupported(
                f"{type(model).__name__} mixes tokens outside attention, where packed documents "
                f"would see each other: {shortened(leaky)}; these parts ignore the layout, or keep "
                "state from earlier documents; train the model outside ropewalk, on windows of one "
                "document each"
            )
        for name in more:
            part = model.get_submodule(name)
            with _whole(model.get_submodule(name.rpartition(".")[0])):
                part.forward = ByDocument(part.forward, boundaries=_knows_boundaries(part))
        wrapped |= set(more)
    interface.check_apart(model)
    return apart(model)


@contextmanager
def _whole(layer: nn.Module) -> Iterator[None]:
    """A layer that is cut over ranks, put together for a while."""
    if not isinstance(layer, FSDPModule):
        yield
        return
    layer.unshard()
    try:
        yield
    finally:
        layer.reshard()


def apart(model: nn.Module) -> list[str]:
    """The parts that `keep_apart` made run document by document."""
    named = model.named_modules()
    return [name for name, part in named if isinstance(vars(part).get("forward"), ByDocument)]


def shortened(names: Sequence[str]) -> str:
    return ", ".join(names[:_MANY]) + (", …" if len(names) > _MANY else "")


class ByDocument:
    """The forward of a part of a layer, with a state of its own for each document of a layout.

    Each begins with the anchor, as the anchor is seen by all, and none with another document. With
    `boundaries`, the part keeps sequences apart that lie one behind another, as kernels do.
    """

    def __init__(self, forward: Callable[..., Tensor], *, boundaries: bool = False) -> None:
        self._forward = forward
        self._boundaries = boundaries

    def __call__(self, *args: Any, layout: Any = None, **kwargs: Any) -> Tensor:
        if layout is None:
            return self._forward(*args, **kwargs)
        hidden = next(value for value in (*args, *kwargs.values()) if isinstance(value, Tensor))
        many, length = hidden.shape[:2]
        rows = [layout] * many if isinstance(layout, AttentionLayout) else list(layout)
        if any(row.length > length for row in rows):
            raise Unsupported(
                f"the layout has {max(row.length for row in rows)} tokens, and {length} are on "
                "this rank: a model that mixes tokens outside attention cannot share a window "
                "among ranks; train it without sequence parallelism"
            )
        # A window is read whole and once: a cache would carry one document into the next.
        args = tuple(None if isinstance(value, Cache) else value for value in args)
        kwargs = {key: None if isinstance(value, Cache) else value for key, value in kwargs.items()}
        divided = [_divided(row, hidden.device) for row in rows]
        if all(cut.whole and row.length == length for cut, row in zip(divided, rows, strict=True)):
            return self._forward(*args, **kwargs)
        # Documents are read apart, and their outputs put back where they stood in the window.
        made = []
        for number, window in enumerate(divided):

            def of(index: Tensor, number: int = number, **more: Tensor) -> Tensor:
                def taken(value: Any) -> Any:
                    if not isinstance(value, Tensor) or value.ndim < 2 or value.shape[1] != length:
                        return value
                    return value[min(number, value.shape[0] - 1), index][None]

                named = {key: taken(value) for key, value in kwargs.items()}
                return self._forward(*map(taken, args), **named, **more)[0]

            parts = of_all(of, window) if self._boundaries else one_by_one(of, window)
            row = parts.new_zeros(length, *parts.shape[1:])
            made.append(row.index_copy(0, window.order, parts))
        return torch.stack(made)


class _Divided(NamedTuple):
    """A window as a row of sequences: the anchor, then each document behind it."""

    order: Tensor
    """Places, the anchor first, then document after document."""
    pieces: list[Tensor]
    """The tokens of each document, the anchor before it."""
    anchor: int

    @property
    def whole(self) -> bool:
        return len(self.pieces) == 1


@lru_cache(maxsize=64)
def _divided(layout: AttentionLayout, device: torch.device) -> _Divided:
    order = torch.tensor(layout.order, device=device)
    anchor, rest = order[: layout.anchor_length], order[layout.anchor_length :]
    documents = torch.split(rest, layout.document_lengths.tolist())
    pieces = [torch.cat([anchor, document]) for document in documents]
    return _Divided(order, pieces or [anchor], len(anchor))


def one_by_one(of: Callable[..., Tensor], window: _Divided) -> Tensor:
    first, *others = window.pieces
    return torch.cat([of(first), *(of(piece)[window.anchor :] for piece in others)])


def of_all(of: Callable[..., Tensor], window: _Divided) -> Tensor:
    """At once, by what flash-linear-attention and causal-conv1d take for packed sequences."""
    lengths = torch.tensor([len(piece) for piece in window.pieces])
    ends = lengths.cumsum(0)
    device = window.order.device
    made = of(
        torch.cat(window.pieces),
        cu_seq_lens_q=torch.cat([ends.new_zeros(1), ends]).to(device, torch.int32),
        seq_idx=torch.arange(len(lengths)).repeat_interleave(lengths).int()[None].to(device),
    )
    first, *others = torch.split(made, lengths.tolist())
    return torch.cat([first, *(piece[window.anchor :] for piece in others)])


def _knows_boundaries(part: nn.Module) -> bool:
    """True if a part keeps packed sequences apart by itself, seen on random rows as in training.

    Where the kernels are missing some classes raise, and some take the arguments and ignore them.
    """
    width = next(weight.shape[-1] for weight in part.parameters() if weight.ndim == 2)
    weight = next(part.parameters())
    layout = AttentionLayout.anchor([_FIRST, _SECOND])
    random = torch.Generator().manual_seed(0)
    rows = torch.randn(1, layout.length, width, generator=random).to(weight.device, weight.dtype)
    try:
        with in_mode(part, training=True):
            apart = ByDocument(part.forward)(rows, layout=layout)
            at_once = ByDocument(part.forward, boundaries=True)(rows, layout=layout)
    except Exception:  # whatever a kernel, or its absence, says to it
        return False
    rounding = max(1e-4, 16 * torch.finfo(weight.dtype).eps)
    return bool((apart - at_once).abs().max() <= rounding * apart.abs().max())


def _leaking(model: Any) -> list[str]:
    """The names of all parts of a kind of which one was seen to leak."""
    names = {part: name for name, part in model.named_modules()}
    parts = [part for layer in layers_of(model) for part in layer.children()]
    layout = AttentionLayout.anchor([_FIRST, _SECOND])
    device = next(model.parameters()).device
    positions = torch.tensor(layout.positions, device=device)[None]
    vocabulary = int(model.get_input_embeddings().weight.shape[0])
    tokens = torch.arange(layout.length, device=device)[None] % vocabulary
    others = tokens.clone()
    others[:, 1 : 1 + _FIRST] = (others[:, 1 : 1 + _FIRST] + layout.length) % vocabulary
    with in_mode(model, training=False):
        before, after = (_heard(model, parts, ids, positions, layout) for ids in (tokens, others))
    kinds = {type(part) for part in before if _leaks(before[part], after[part])}
    return [names[part] for part in parts if type(part) in kinds]


def _heard(
    model: Any, parts: list[nn.Module], ids: Tensor, positions: Tensor, layout: AttentionLayout
) -> dict[nn.Module, tuple[Tensor, Tensor]]:
    """The input and output of each part, if both are rows of tokens."""
    heard: dict[nn.Module, tuple[Tensor, Tensor]] = {}

    def listen(part: nn.Module, args: Any, kwargs: dict[str, Any], result: Any) -> None:
        hidden = next((each for each in (*args, *kwargs.values()) if _is_rows(each, ids)), None)
        result = result[0] if isinstance(result, tuple) else result
        if hidden is not None and _is_rows(result, ids):
            heard.setdefault(part, (hidden, result))

    hooks = [part.register_forward_hook(listen, with_kwargs=True) for part in parts]
    try:
        model(input_ids=ids, position_ids=positions, layout=layout, use_cache=False)
    finally:
        for hook in hooks:
            hook.remove()
    return heard


def _is_rows(value: object, ids: Tensor) -> bool:
    return isinstance(value, Tensor) and value.ndim == 3 and value.shape[:2] == ids.shape


def _leaks(before: tuple[Tensor, Tensor], after: tuple[Tensor, Tensor]) -> bool:
    """Rounding aside: where experts share a matrix product, that depends on all their tokens."""
    second = slice(1 + _FIRST, None)
    inputs, made = ((b - a).float().abs() for b, a in zip(before, after, strict=True))
    rounding = max(1e-3, 16 * torch.finfo(before[1].dtype).eps)
    same = inputs[:, second].max() <= 0.1 * rounding * inputs.max()
    return bool(same and made[:, second].max() > rounding * made.max() > 0)
