"""gpt-oss: experts with biases, sinks of attention, and windows in every other layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ropewalk.context_plan import SLIDING_ATTENTION
from ropewalk.errors import Unsupported
from ropewalk.gguf.families import GGUFFamily, Keys, TensorPart, Weights, expert_keys, window_keys

if TYPE_CHECKING:
    from torch import Tensor

_ACTIVATION = {"swiglu_alpha": 1.702, "swiglu_limit": 7.0}
"""Constants of llama.cpp's graph."""


def _turned(weight: Tensor) -> Tensor:
    """With a row for each output, as other weights have it."""
    return weight.transpose(-1, -2)


def _gates(experts: Tensor) -> Tensor:
    return experts[..., 0::2]


def _ups(experts: Tensor) -> Tensor:
    return experts[..., 1::2]


def _repacked(blocks: Tensor, scales: Tensor) -> Tensor:
    """MXFP4 in GGML's order: the scale first, then bytes that hold a value of each half of the
    block, where the checkpoint has two neighbours."""
    import torch

    codes = torch.stack((blocks & 0xF, blocks >> 4), -1).flatten(-2)
    first, second = codes.chunk(2, -1)
    return torch.cat((scales[..., None], first | second << 4), -1).flatten(-2)


def _packed(name: str, source: str, rows: slice = slice(None)) -> TensorPart:
    return TensorPart(
        f"{name}.weight",
        lambda blocks, scales: _repacked(blocks[:, rows], scales[:, rows]),
        beside=source.replace("_blocks", "_scales"),
        packed="MXFP4",
    )


def _parts(source: str) -> tuple[TensorPart, ...]:
    before, _, last = source.rpartition(".")
    match last:
        case "gate_up_proj_blocks":
            return (
                _packed(f"{before}.gate_proj", source, slice(0, None, 2)),
                _packed(f"{before}.up_proj", source, slice(1, None, 2)),
            )
        case "down_proj_blocks":
            return (_packed(f"{before}.down_proj", source),)
        case "gate_up_proj_scales" | "down_proj_scales":
            return ()  # taken with the blocks
        case "gate_up_proj":
            return (
                TensorPart(f"{before}.gate_proj.weight", lambda weight: _turned(_gates(weight))),
                TensorPart(f"{before}.up_proj.weight", lambda weight: _turned(_ups(weight))),
            )
        case "gate_up_proj_bias":
            return (
                TensorPart(f"{before}.gate_proj.bias", _gates),
                TensorPart(f"{before}.up_proj.bias", _ups),
            )
        case "down_proj":
            return (TensorPart(f"{before}.down_proj.weight", _turned),)
        case "down_proj_bias":
            return (TensorPart(f"{before}.down_proj.bias"),)
        case "sinks":
            return (TensorPart(f"{source}.weight"),)
    return (TensorPart(source),)


def _keys(config: Any, weights: Weights) -> Keys:
    return {
        **expert_keys(config, weights),
        "{arch}.expert_feed_forward_length": config.intermediate_size,
        **window_keys(config, every=2),
    }


def _check(config: Any) -> None:
    if SLIDING_ATTENTION not in (config.layer_types or [SLIDING_ATTENTION]):
        raise Unsupported(
            "layer_types: llama.cpp's gpt-oss needs a sliding window in at least one layer"
        )
    for name, usual in _ACTIVATION.items():
        stated = getattr(config, name, None)
        if stated not in (None, usual):
            raise Unsupported(f"{name} = {stated}: llama.cpp computes gpt-oss with {usual}")


FAMILY = GGUFFamily(("gpt-oss",), windows=True, parts=_parts, keys=_keys, check=_check)
