"""One extension of a tiny model, from a folder on disk to exported files."""

from __future__ import annotations

from pathlib import Path

import pytest

import ropewalk as rw
from ropewalk.pipeline.extend import Extended
from tests.evaluation import tiny

TARGET = 2 * tiny.WINDOW


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.saved(tmp_path_factory.mktemp("models") / "tiny")


def extended(folder: Path, run: Path, **more: object) -> Extended:
    arguments = {"corpus": tiny.documents(8), "budget": 6, "search": True, **more}
    return rw.extend(str(folder), TARGET, run=run, **arguments)  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("extended") / "run"


@pytest.fixture(scope="session")
def done(folder: Path, run: Path) -> Extended:
    return extended(folder, run)
