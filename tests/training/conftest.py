"""Shared by the tests of training."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.training import tiny


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.make_store(tmp_path_factory.mktemp("store") / "store")


@pytest.fixture(autouse=True, scope="package")
def little_garbage() -> Iterator[None]:
    """Every training collects garbage, and there is much here that is none."""
    gc.freeze()
    yield
    gc.unfreeze()
