"""The same architecture with random weights, to see what training adds to an effect."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from ropewalk.errors import UnknownName
from studies.precision.findings import GIVEN

WEIGHTS = (GIVEN, "kaiming", "initial")


def with_weights(model: Any, weights: str, seed: int = 0) -> Any:
    """The model itself for `given`; for the others a new one, random by the seed.

    `initial` is what the model's own class begins training with. `kaiming` is what PyTorch gives
    its layers (`kaiming_uniform_` for linear ones), as in the BFloat16 article.
    """
    if weights not in WEIGHTS:
        raise UnknownName("weights", weights, WEIGHTS)
    if weights == GIVEN:
        return model
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        fresh = type(model)(copy.deepcopy(model.config))
        if weights == "kaiming":
            for module in fresh.modules():
                if isinstance(module, nn.Linear | nn.Embedding):
                    module.reset_parameters()
    return fresh.to(device=model.device, dtype=model.dtype).eval()
