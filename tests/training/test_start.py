"""The start of a training from a config: what cannot be built is refused in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig

from ropewalk.errors import InputError
from ropewalk.models.source import resolve
from ropewalk.training.start import write_start


def test_an_error_without_words_is_named_by_its_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*args: Any, **kwargs: Any) -> None:
        raise ValueError

    monkeypatch.setattr(AutoConfig, "for_model", refuses)
    source = resolve({"model_type": "llama"})
    with pytest.raises(InputError, match=r"transformers cannot build it: ValueError$"):
        write_start(source, source, tmp_path / "start", seed=0)
