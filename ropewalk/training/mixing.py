"""Finding layers that mix tokens outside attention, where no layout reaches them.

Linear attention, convolutions and state-space layers carry one document of a window into the next,
whatever the mask says. They are found by what they do: two windows that differ in their first
document only must give each part of each layer the same output for the second, as long as what goes
in is the same there.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ropewalk.attention import interface
from ropewalk.attention.layout import AttentionLayout
from ropewalk.errors import Unsupported
from ropewalk.models.sharding import layers_of

_FIRST, _SECOND = 6, 5
_MANY = 4
"""Names shown of what may be dozens."""


@torch.no_grad()
def check_mixing(model: Any) -> None:
    """Refuse a model whose documents would see each other in a packed window."""
    interface.register()
    if model.config._attn_implementation != interface.NAME:
        model.set_attn_implementation(interface.NAME)
    found = _leaking(model)
    if found:
        shown = ", ".join(found[:_MANY]) + (", …" if len(found) > _MANY else "")
        raise Unsupported(
            f"{type(model).__name__} mixes tokens outside attention, where packed documents would "
            f"see each other: {shown}; train it outside ropewalk, on windows of one document "
            "each, or choose another model"
        )
    interface.check_apart(model)


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
    training = model.training
    model.eval()
    try:
        before, after = (_heard(model, parts, ids, positions, layout) for ids in (tokens, others))
    finally:
        model.train(training)
    kinds = {type(part) for part in before if _leaks(before[part], after[part])}
    return [names[part] for part in parts if type(part) in kinds]


def _heard(
    model: Any, parts: list[nn.Module], ids: Tensor, positions: Tensor, layout: AttentionLayout
) -> dict[nn.Module, tuple[Tensor, Tensor]]:
    """What went into each part, and what came out, where both are rows of tokens."""
    heard: dict[nn.Module, tuple[Tensor, Tensor]] = {}

    def listen(part: nn.Module, args: Any, kwargs: dict[str, Any], result: Any) -> None:
        given = next((each for each in (*args, *kwargs.values()) if _is_rows(each, ids)), None)
        result = result[0] if isinstance(result, tuple) else result
        if given is not None and _is_rows(result, ids):
            heard.setdefault(part, (given, result))

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
    given, made = ((b - a).float().abs() for b, a in zip(before, after, strict=True))
    rounding = max(1e-3, 16 * torch.finfo(before[1].dtype).eps)
    same = given[:, second].max() <= 0.1 * rounding * given.max()
    return bool(same and made[:, second].max() > rounding * made.max() > 0)
