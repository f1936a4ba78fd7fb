"""What makes two runs the same computation: the model, what it follows, and the text."""

from __future__ import annotations

import hashlib
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
        "model": loaded.name,
        "present_plan": loaded.present_plan.id,
        "weights_sha256": weights_fingerprint(loaded.model),
        "tokenizer_sha256": encoder.fingerprint,
        "corpus_sha256": fingerprint(documents),
        "bos": bool(encoder.bos),
        "dtype": loaded.dtype,
        "device": loaded.model.device.type,
    }


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
