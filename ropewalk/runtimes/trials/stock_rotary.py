"""Stock transformers' reading of a config: its own rotary module, built and measured.

The model is built on the meta device, where it takes no memory, from the config alone: no weight,
no code of the folder. Its rotary modules are then built again for real and asked for cos and sin.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from transformers import (
    CONFIG_MAPPING,
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_MAPPING,
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
)

from ropewalk.errors import InvalidValue, RopewalkError, Unsupported, first_line
from ropewalk.models.anatomy import INVERSE_FREQUENCIES
from ropewalk.models.config import Config, for_stock_class, present_plan
from ropewalk.models.load import quiet
from ropewalk.rotation.reading import rotations_of
from ropewalk.runtimes.reading import (
    MEASURED,
    NOT_MEASURED,
    STOCK,
    Effective,
    RotaryReading,
    check_counts,
)
from ropewalk.schedule import MAX_DIM, FloatArray


def measure(config: Config, layer_types: Sequence[str], lengths: Sequence[int]) -> RotaryReading:
    """Ask the rotary modules that transformers builds from a config, at each of these lengths."""
    try:
        with quiet():
            rotaries = _rotaries(config)
            layers = {
                layer_type: tuple(
                    _effective(config, layer_type, length, *_cos_sin(rotaries, layer_type, length))
                    for length in sorted(set(lengths))
                )
                for layer_type in layer_types
            }
    except Unsupported as error:
        return RotaryReading(STOCK, MEASURED, unread=str(error))
    except InvalidValue:
        raise
    except ImportError as error:  # a package that the model's class needs, and nothing wrong in it
        return RotaryReading(STOCK, NOT_MEASURED, unread=first_line(error).rstrip(": "))
    except Exception as error:  # whatever its config and rotary classes raise
        return RotaryReading(STOCK, MEASURED, refused=first_line(error))
    changes = any(
        not _same(one, other) for each in layers.values() for one in each[:1] for other in each[1:]
    )
    return RotaryReading(STOCK, MEASURED, layers, "by the length at hand" if changes else "never")


def _same(one: Effective, other: Effective) -> bool:
    return one.attention_scaling == other.attention_scaling and np.array_equal(
        one.inverse_frequencies, other.inverse_frequencies
    )


def stock_config(config: Config) -> Any:
    """The config as transformers' own class for its model type reads it."""
    kind = config.get("model_type")
    if kind not in CONFIG_MAPPING:
        needs = "needs custom code, which ropewalk never runs" if config.get("auto_map") else ""
        raise Unsupported(
            f"model type {kind!r} {needs or 'is not known to the installed transformers'}"
        )
    check_counts(config)
    stated = {key: value for key, value in config.items() if key not in ("model_type", "auto_map")}
    return AutoConfig.for_model(kind, **for_stock_class(stated))  # a copy: it writes into settings


def refusal(config: Config) -> str | None:
    """The reason for which transformers' class refuses a config; None if it takes it, or is not
    known here."""
    try:
        with quiet():
            stock_config(config)
    except (RopewalkError, ImportError):
        return None
    except Exception as error:  # whatever the class raises
        return first_line(error)
    return None


def model_of(config: Config) -> Any:
    """Its model on the meta device; of one of several parts, the one that reads text."""
    stock = stock_config(config)
    inner = stock.get_text_config()  # the language model alone: towers turn patches, not positions
    stock = inner if type(inner) in MODEL_MAPPING else stock
    auto = AutoModelForCausalLM if type(stock) in MODEL_FOR_CAUSAL_LM_MAPPING else AutoModel
    with torch.device("meta"):
        # Experts' kernels take this format alone.
        return auto.from_config(stock, dtype=torch.bfloat16, trust_remote_code=False).eval()


def _rotaries(config: Config) -> list[Any]:
    rotaries: list[Any] = []
    for module in model_of(config).modules():
        buffers = module.named_buffers(recurse=False)
        if sizes := [each.numel() for n, each in buffers if INVERSE_FREQUENCIES.fullmatch(n)]:
            if max(sizes) > MAX_DIM:  # built for real, it would fill memory
                raise ValueError(f"its heads would turn as more than {MAX_DIM} pairs")
            try:
                rotaries.append(type(module)(module.config))
            except (AttributeError, TypeError):
                continue
    if not rotaries:
        raise Unsupported(
            f"models of type {config.get('model_type')!r} rotate inside their attention code; "
            "there is no rotary module to measure"
        )
    return rotaries


def _cos_sin(rotaries: list[Any], layer_type: str, length: int) -> FloatArray:
    """cos and sin by pair at position 1, in a sequence of this length."""
    for reading in chain.from_iterable(map(rotations_of, rotaries)):
        if reading.layer_type in ("", layer_type):
            return reading.cos_sin((1,), length)[:, 0]
    raise Unsupported(f"no rotary module of this model serves layers of type {layer_type}")


def _effective(
    config: Config, layer_type: str, length: int, cos: FloatArray, sin: FloatArray
) -> Effective:
    """The angle that a pair turns in one position, and its factor.

    That of all logits is set where attention is computed, by the config.
    """
    try:
        plan = present_plan(config)
        softmax = plan.schedule(min(length, plan.target_length), layer_type).softmax_scaling
    except RopewalkError:  # such a config states none
        softmax = 1.0
    return Effective(length, np.arctan2(sin, cos), float(np.median(np.hypot(cos, sin))), softmax)
