"""Shared by all tests: one thread for each process, and how hypothesis searches."""

from __future__ import annotations

import gc
import os
import signal

# Before numpy or torch is imported, here and in the processes that tests start. The matrices of
# tests are small, and two workers whose threads wait for each other on two cores take up to ten
# times as long as two with one thread each.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# The processes that tests start keep the compiled code of ropewalk, as those of users do.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A shell starts what it runs in the background with SIGINT ignored, and so would be the processes
# that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

from ropewalk import registered
from ropewalk.exporting import fresh_process
from ropewalk.outputs import write_atomically
from ropewalk.reports import figures
from tests.examples import FULL
from tests.forks import Forks
from tests.parts import is_in
from tests.stock_process import StockProcess

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The same examples every time: a red build means a changed program, not a lucky draw. The slow
# suite takes more (HYPOTHESIS_PROFILE=full); to search further: HYPOTHESIS_PROFILE=explore.
settings.register_profile("fast", derandomize=True, deadline=None, max_examples=16)
settings.register_profile("full", settings.get_profile("fast"), max_examples=FULL)
settings.register_profile(
    "explore",
    deadline=None,
    max_examples=500,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))

# The longest ones: they begin first, so that no worker is alone with one at the end.
LONG = ("api/test_train.py", "cli/test_extend.py", "exporting/test_llama_cpp.py")


# What is imported and collected is no garbage, and every training would look through it anew.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", help="run this part of the slow suite alone (tests/parts.py)")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if part := config.getoption("part"):
        items[:] = [item for item in items if is_in(part, item.nodeid)]
    items.sort(key=lambda item: not item.nodeid.split("::")[0].endswith(LONG))


# Files whose tests share what takes seconds to make, a run or a fingerprint, go to one worker.
TOGETHER = {
    "tests/pipeline/": "a run",
    "tests/evaluation/served/": "a fingerprint",
    "tests/cli/test_fingerprint.py": "a fingerprint",
    "tests/api/test_evaluate_server.py": "a fingerprint",
}


class Together(LoadFileScheduling):  # type: ignore[misc]
    """Scheduling by file, but for these."""

    def _split_scope(self, nodeid: str) -> str:
        shared = (what for where, what in TOGETHER.items() if nodeid.startswith(where))
        return next(shared, super()._split_scope(nodeid))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    return Together(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.fixture(autouse=True, scope="session")
def stock() -> Iterator[StockProcess]:
    """Exports of all tests are answered for in forks of one process (tests/stock_process.py)."""
    process = StockProcess()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(fresh_process, "run_script", process.run_script)
        yield process
    process.close()


@pytest.fixture
def fresh(stock: StockProcess) -> Forks:
    """Starts programs that import torch and transformers, for tests of what a process does."""
    return stock.forks


@pytest.fixture(autouse=True, scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Runs keep the same few pictures: each is drawn once for its name, and then copied."""
    room = tmp_path_factory.getbasetemp()
    drawn = (room.parent if "PYTEST_XDIST_WORKER" in os.environ else room) / "pictures"
    drawn.mkdir(exist_ok=True)
    draw = figures.save

    def save(figure: Figure, path: str | Path) -> None:
        path = Path(path)
        kept = drawn / path.name
        if kept.exists() and path.parent.name == "figures":
            path.write_bytes(kept.read_bytes())
        else:
            draw(figure, path)
            write_atomically(kept, path.read_bytes())

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(figures, "save", save)
        yield


@pytest.fixture(autouse=True)
def _nothing_stays_registered() -> Iterator[None]:
    """Methods, tasks and objectives of one test's files are no other test's."""
    kept = {kind: dict(own) for kind, own in registered._ALL.items()}
    yield
    for kind, own in kept.items():
        registered._ALL[kind].clear()
        registered._ALL[kind].update(own)
