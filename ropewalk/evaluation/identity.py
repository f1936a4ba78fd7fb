"""The identity of a run's computation: the model, its plan, and the text.

All are known by their content. A model's folder may be named otherwise, or have moved.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from ropewalk.data.corpora import Document, corpus_digest
from ropewalk.evaluation.encoding import Encoder
from ropewalk.models.load import LoadedModel

AT_ONCE = 16
"""Tensors that wait to be hashed."""


def run_identity(loaded: LoadedModel, documents: Sequence[Document]) -> dict[str, object]:
    """The part of a run's configuration that all commands share; settings come as further keys.

    Under ranks, all that share the weights must call this, since reading them takes all of them.
    """
    return {
        **identity_of(loaded, digest_of_weights(loaded.model)),
        "corpus_sha256": corpus_digest(documents),
    }


def identity_of(loaded: LoadedModel, weights: str) -> dict[str, object]:
    """A model as it computes here; `weights` is their digest."""
    encoder = Encoder(loaded.tokenizer)
    return {
        "config_sha256": digest_of_config(loaded.model.config),
        "present_plan": loaded.present_plan.id,
        "weights_sha256": weights,
        "tokenizer_sha256": encoder.sha256,
        "bos": bool(encoder.bos),
        "dtype": loaded.dtype,
        "device": loaded.model.device.type,
    }


def digest_of_config(config: Any) -> str:
    """A SHA-256 of a model's config; run.json has the versions, and the identity the dtype."""
    text = json.dumps(_without_origin(config.to_dict()), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _without_origin(value: object) -> object:
    """The config without the place and way of loading, which transformers writes into it."""
    if not isinstance(value, dict):
        return value
    origin = ("_name_or_path", "dtype", "torch_dtype", "transformers_version")
    return {key: _without_origin(item) for key, item in value.items() if key not in origin}


def digest_of_weights(model: Any) -> str:
    """A SHA-256 of all weights: one changed bit changes it.

    Several tensors are hashed at the same time, since hashing does not hold Python's lock: an
    8B model in bfloat16 (16 GB) takes 16 seconds on one core, 8 on two.
    """
    digest = hashlib.sha256()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        waiting: deque[Future[bytes]] = deque()
        for name, tensor in model.state_dict().items():
            if isinstance(tensor, DTensor):  # shared with other ranks, which compute this too
                tensor = tensor.full_tensor()
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
            waiting.append(pool.submit(_sha256, tensor))
            if len(waiting) > AT_ONCE:  # whole copies of what ranks share must not pile up
                digest.update(waiting.popleft().result())
        for each in waiting:
            digest.update(each.result())
    return digest.hexdigest()


def _sha256(tensor: Tensor) -> bytes:
    raw = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return hashlib.sha256(raw.numpy().data).digest()
