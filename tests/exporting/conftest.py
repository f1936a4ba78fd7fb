"""Tiny models are fastest on one thread; and a fresh process is slow to start."""

from __future__ import annotations

import pytest
import torch

from ropewalk.exporting import fresh_process
from tests.exporting.folders import answered_here


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gate's program without its process, for tests of what stands around it."""
    monkeypatch.setattr(fresh_process, "run_script", answered_here)
