"""A model rounded as servers round: weights to 8 or 4 bits in blocks, bfloat16, a quantised cache.

Rounded layer by layer as they run, so that no second copy of the weights exists. The layers are
those of `torch.nn.Linear` and `Embedding`; fused experts stay as they are. Of a layer that ranks
divide, each rounds its part: the same numbers, where parts hold whole blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from ropewalk.errors import Unsupported
from ropewalk.models.modes import attending

Rounding = Callable[[Tensor], Tensor]

BLOCK = 32
CACHE = "ropewalk_rounded_cache"


def eight_bits(values: Tensor) -> Tensor:
    """Rounded as GGUF's Q8_0: 32 numbers share a scale, each has 8 bits.

    llama.cpp rounds what it multiplies with such weights in the same way.
    """
    return _in_blocks(values, lambda x: _scaled(x, x.abs().amax(-1, keepdim=True) / 127))


def four_bits(values: Tensor) -> Tensor:
    """Rounded as GGUF's Q4_0: the number that is largest in size becomes −8 of 16 steps."""
    return _in_blocks(values, lambda x: _from_largest(x, 8))


def five_bits(values: Tensor) -> Tensor:
    """Rounded as GGUF's Q5_0: the number that is largest in size becomes −16 of 32 steps."""
    return _in_blocks(values, lambda x: _from_largest(x, 16))


def float8(values: Tensor) -> Tensor:
    """Rounded to float8 e4m3 without a scale, as a cache in FP8 is by default."""
    return values.clamp(-448, 448).to(torch.float8_e4m3fn).to(values.dtype)


def bfloat16(values: Tensor) -> Tensor:
    return values.to(torch.bfloat16).to(values.dtype)


def _from_largest(values: Tensor, half: int) -> Tensor:
    largest = values.gather(-1, values.abs().argmax(-1, keepdim=True))
    scale = largest / -half
    steps = torch.where(scale == 0, 0, values / scale + half + 0.5).floor()
    return (steps.clamp(0, 2 * half - 1) - half) * scale


def _scaled(values: Tensor, scale: Tensor) -> Tensor:
    return torch.where(scale == 0, 0, (values / scale).round()) * scale


def _in_blocks(values: Tensor, rounded: Rounding) -> Tensor:
    whole = values.shape[-1] // BLOCK * BLOCK
    if not whole:
        return rounded(values.float()).to(values.dtype)
    blocks = values[..., :whole].float().reshape(*values.shape[:-1], -1, BLOCK)
    done = rounded(blocks).flatten(-2).to(values.dtype)
    return torch.cat([done, values[..., whole:]], dim=-1)


@contextmanager
def rounded_weights(
    model: nn.Module,
    weights: Rounding,
    inputs: Rounding | None = None,
    outputs: Rounding | None = None,
) -> Iterator[None]:
    """Round all layers' weights, inputs and outputs, within a `with` block."""
    kept: dict[nn.Module, Tensor] = {}
    padded: dict[Any, int | None] = {}

    def before(module: Any, args: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        if isinstance(module, nn.Embedding) and not isinstance(module.weight.data, DTensor):
            # Of a large vocabulary, a text looks up a few rows, and each is rounded by itself.
            rows, numbers = torch.unique(args[0], return_inverse=True)
            kept[module] = _set(module, weights(_part(module)[rows]))
            padded[module], module.padding_idx = module.padding_idx, None  # a row that may lack
            return (numbers, *args[1:])
        kept[module] = _set(module, weights(_part(module)))
        if inputs is None or isinstance(module, nn.Embedding):
            return None
        return (inputs(args[0]), *args[1:])

    def after(module: Any, _: object, output: Tensor) -> Tensor:
        _set(module, kept.pop(module))
        if module in padded:
            module.padding_idx = padded.pop(module)
        return output if outputs is None else outputs(output)

    handles = []
    for module in _layers(model):
        handles += [module.register_forward_pre_hook(before), module.register_forward_hook(after)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        for module, weight in kept.items():  # a forward failed between the two
            _set(module, weight)
        for module, index in padded.items():
            module.padding_idx = index


def check_blocks(model: nn.Module, ranks: int) -> None:
    """Refuse ranks that would divide a block of numbers that share a scale."""
    for module in _layers(model):
        whole = module.weight.shape[-1]
        # By sizes that all ranks know: one that went on alone would wait for the others.
        if _part(module).shape[-1] != whole and whole % (BLOCK * ranks):
            raise Unsupported(
                f"the {whole} inputs of a layer cannot be divided among {ranks} ranks in whole "
                f"blocks of {BLOCK} numbers, which are rounded together; use fewer ranks per copy "
                "(`ranks_per_copy`)"
            )


def _layers(model: nn.Module) -> list[Any]:
    return [each for each in model.modules() if isinstance(each, nn.Linear | nn.Embedding)]


def _part(module: Any) -> Tensor:
    """The weights of a layer, or this rank's part of them."""
    weight = module.weight.data
    part: Tensor = weight.to_local() if isinstance(weight, DTensor) else weight
    return part


def _set(module: Any, part: Tensor) -> Tensor:
    """Give a layer, or this rank's part of it, other weights; those it had are returned."""
    before = _part(module)
    if isinstance(module.weight.data, DTensor):  # setting `data` has no effect on these
        before = before.clone()
        _part(module).copy_(part)
    else:  # weights may still be pages of their file, which writing would copy
        module.weight.data = part
    return before


@contextmanager
def rounded_cache(model: Any, rounding: Rounding) -> Iterator[None]:
    """Round keys and values as a cache would, within a `with` block."""
    before = _rounding[:]
    _rounding[:] = [rounding]
    try:
        with attending(model.config.get_text_config(), CACHE):
            yield
    finally:
        _rounding[:] = before


_rounding: list[Rounding] = []


def _attend(
    module: nn.Module,
    query_BHLD: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **kwargs: Any,
) -> tuple[Tensor, Any]:
    (rounding,) = _rounding
    attended, weights = sdpa_attention_forward(
        module, query_BHLD, rounding(key), rounding(value), attention_mask, **kwargs
    )
    return attended, weights


AttentionInterface.register(CACHE, _attend)
AttentionMaskInterface.register(CACHE, sdpa_mask)
