"""Each file in `reports/commands/` is the page of one command, and nothing else is there."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

import ropewalk as rw
from ropewalk import run_on_disk
from ropewalk.reports import commands
from ropewalk.untrusted import read_json
from tests.evaluation import tiny


@pytest.mark.parametrize("path", sorted(Path(commands.__file__).parent.glob("[!_]*.py")))
def test_a_file_is_the_page_of_a_verb(path: Path) -> None:
    assert path.stem in rw.__all__
    assert path.stem in commands.commands()
    assert callable(import_module(f"{commands.__name__}.{path.stem}").page)


def test_the_results_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    text = tiny.documents()
    rw.evaluate(tiny.loaded(), lengths=[128], tasks=["kv"], samples=2, corpus=text, run=run)
    reads: list[str] = []

    def counting(file: Path, *, max_bytes: int) -> object:
        reads.append(file.name)
        return read_json(file, max_bytes=max_bytes)

    monkeypatch.setattr(run_on_disk, "read_json", counting)
    assert "kv" in rw.report(run).path.read_text()
    assert reads == ["results.json"]
