"""The start of a training run: a model known by its content."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from ropewalk.models.load import checked_weights
from ropewalk.models.source import Source

_ORIGIN = ("_name_or_path", "transformers_version")


def config_sha256(source: Source) -> str:
    own = {key: value for key, value in source.config.items() if key not in _ORIGIN}
    return hashlib.sha256(json.dumps(own, sort_keys=True, default=str).encode()).hexdigest()


def weights_sha256(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in checked_weights(folder):
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
