"""A model on disk, small enough to be asked by a command in every test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.evaluation import tiny


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.saved(tmp_path_factory.mktemp("models") / "tiny")
