"""What makes two runs the same computation: the model, what it follows, and the text.

All are known by their content. A model's folder may be named otherwise, or have moved.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from torch.distributed.tensor import DTensor

from ropewalk.data.corpora import Document, fingerprint
from ropewalk.evaluation.encoding import Encoder
from ropewalk.models.load import LoadedModel


def run_identity(loaded: LoadedModel, documents: Sequence[Document]) -> dict[str, object]:
    """The part of a run's configuration that all commands share; settings come as keys beside it.

    Under ranks, all that share the weights must call this, since reading them takes all of them.
    """
    encoder = Encoder(loaded.tokenizer)
    return {
        "config_sha256": config_fingerprint(loaded.model.config),
        "present_plan": loaded.present_plan.id,
        "weights_sha256": weights_fingerprint(loaded.model),
        "tokenizer_sha256": encoder.fingerprint,
        "corpus_sha256": fingerprint(documents),
        "bos": bool(encoder.bos),
        "dtype": loaded.dtype,
        "device": loaded.model.device.type,
    }


def config_fingerprint(config: Any) -> str:
    """A SHA-256 of a model's config; run.json has the versions, and the identity the dtype."""
    text = json.dumps(_without_origin(config.to_dict()), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _without_origin(value: object) -> object:
    """Less where the model was loaded from and how, which transformers writes into its config."""
    if not isinstance(value, dict):
        return value
    origin = ("_name_or_path", "dtype", "torch_dtype", "transformers_version")
    return {key: _without_origin(item) for key, item in value.items() if key not in origin}


def weights_fingerprint(model: Any) -> str:
    """A SHA-256 of 64 values spread over every parameter: any training step changes it."""
    digest = hashlib.sha256()
    for name, parameter in model.named_parameters():
        if isinstance(parameter, DTensor):  # shared with other ranks, which compute this too
            parameter = parameter.full_tensor()
        flat = parameter.detach().flatten()
        part = flat[:: max(1, len(flat) // 64)].float().cpu().numpy()
        digest.update(f"{name} {tuple(parameter.shape)}".encode())
        digest.update(part.tobytes())
    return digest.hexdigest()
