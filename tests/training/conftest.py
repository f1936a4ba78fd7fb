"""Shared by the tests of training."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.training import tiny


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.make_store(tmp_path_factory.mktemp("store") / "store")
