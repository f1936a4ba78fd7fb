"""A tiny model of each family that the export to GGUF writes, and what a written file holds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGUFReader
from gguf.quants import dequantize

from ropewalk.context_plan import FULL_ATTENTION, SLIDING_ATTENTION
from tests.gguf.gguf_cases import tiny_folder

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 12e6,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
WINDOWS = [*[SLIDING_ATTENTION] * 5, FULL_ATTENTION, SLIDING_ATTENTION]
"""Every sixth layer without one, as llama.cpp takes it for Gemma 3 where the file says nothing."""
OTHER_WINDOWS = [SLIDING_ATTENTION, FULL_ATTENTION, SLIDING_ATTENTION]
GEMMA = {"query_pre_attn_scalar": 16, "head_dim": 16}
TINY: Mapping[str, Mapping[str, Any]] = {
    "apertus": {"rope_parameters": LLAMA3, "max_position_embeddings": 64},
    "gemma3_text": {**GEMMA, "num_hidden_layers": 7, "layer_types": WINDOWS},
    "mistral": {"sliding_window": None},
    "smollm3": {"num_hidden_layers": 4},
}


def tiny(path: Path, kind: str, **changes: Any) -> Path:
    return tiny_folder(path, kind, **{**TINY.get(kind, {}), **changes})


def fields(path: Path) -> dict[str, Any]:
    return {name: field.contents() for name, field in GGUFReader(path).fields.items()}


def weights(path: Path) -> dict[str, torch.Tensor]:
    """The file's tensors as the numbers that they stand for."""
    return {
        tensor.name: torch.from_numpy(np.array(dequantize(tensor.data, tensor.tensor_type)))
        for tensor in GGUFReader(path).tensors
    }
