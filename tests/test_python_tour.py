"""The tour of docs/python.md runs, block by block, as a reader would paste it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "python.md"


def test_every_block_of_the_tour_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    text = PAGE.read_text(encoding="utf-8")
    for match in re.finditer(r"```python\n(.*?)```", text, re.DOTALL):
        line = text[: match.start()].count("\n") + 1
        exec(compile("\n" * line + match[1], str(PAGE), "exec"), namespace)
    said = capsys.readouterr().out
    assert "llama-3.1-8b (catalogue" in said
    assert "did you mean 'yarn'?" in said
    assert (tmp_path / "runs" / "extend" / "model" / "config.json").exists()
    assert (tmp_path / "factors.png").stat().st_size > 10_000
