"""Shared by all tests: one thread for each process, and how hypothesis searches."""

from __future__ import annotations

import os

# Before numpy or torch is imported, here and in the processes that tests start. The matrices of
# tests are small, and two workers whose threads wait for each other on two cores take up to ten
# times as long as two with one thread each.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# The processes that tests start keep the compiled code of ropewalk, as those of users do.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from ropewalk.outputs import write_atomically
from ropewalk.reports import figures
from tests.stock_process import StockProcess

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The same examples every time: a red build means a changed program, not a lucky draw. To search
# further than that: HYPOTHESIS_PROFILE=explore.
settings.register_profile("ci", derandomize=True, deadline=None, max_examples=50)
settings.register_profile(
    "explore",
    deadline=None,
    max_examples=500,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# Half a minute each and more: they begin first, so that no worker is alone with one at the end.
LONG = (
    "cli/test_extend.py",
    "exporting/test_llama_cpp.py",
    "searching/test_strategies.py",
    "searching/test_adaptive.py",
    "attention/test_engines.py",
    "pipeline/test_extend.py",
    "mutants/test_mutants.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.split("::")[0].endswith(LONG))


@pytest.fixture(autouse=True, scope="session")
def stock() -> Iterator[StockProcess]:
    """Exports of all tests are answered for in forks of one process (tests/stock_process.py)."""
    process = StockProcess()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(subprocess, "run", process.run)
        yield process
    process.close()


@pytest.fixture(autouse=True, scope="session")
def pictures() -> Iterator[None]:
    """Each run makes its figures, and the first of a name is drawn: later ones are copies of it.

    Drawing takes matplotlib a second for a run, and is its own work.
    """
    drawn: dict[str, dict[str, bytes]] = {}
    draw = figures.save_pictures

    def save_pictures(figure: Figure, stem: Path) -> None:
        if stem.name not in drawn:
            draw(figure, stem)
            drawn[stem.name] = {
                ending: stem.with_name(f"{stem.name}.{ending}").read_bytes()
                for ending in figures.PICTURES
            }
        stem.parent.mkdir(parents=True, exist_ok=True)
        for ending, content in drawn[stem.name].items():
            write_atomically(stem.with_name(f"{stem.name}.{ending}"), content)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(figures, "save_pictures", save_pictures)
        yield
