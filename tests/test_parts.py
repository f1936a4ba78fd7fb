"""No test is outside the parts of the slow suite, or in two of them."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.parts import FILES, FOLDERS, TESTS, files_of_tests, is_in, main, parts

ROOT = TESTS.parent


def test_every_file_is_in_one_part_and_a_long_one_in_as_many_as_stated() -> None:
    counted = Counter(file for files in parts().values() for file in files)
    on_disk = {path.relative_to(TESTS).as_posix() for path in TESTS.rglob("test_*.py")}
    assert set(counted) == {file for file in on_disk if Path(file).parts[0] != "browser"}
    assert {file: count for file, count in counted.items() if count > 1} == FILES
    assert set(FILES) <= on_disk
    assert all((TESTS / folder).is_dir() for folder in FOLDERS if folder != "top")


def test_every_test_is_in_one_part() -> None:
    names = [f"test_x[family {i}]" for i in range(100)]
    for file in files_of_tests():
        for name in names[:: 1 if file in FILES else 50]:
            there = [part for part in parts_of(file) if is_in(part, f"tests/{file}::{name}")]
            assert len(there) == 1, (file, name)


def parts_of(file: str) -> list[str]:
    return [part for part, files in ALL.items() if file in files]


ALL = parts()


def test_a_part_is_named_by_make_and_an_unknown_one_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown = subprocess.run(
        ["make", "--dry-run", "test-slow", "PART=theory"], cwd=ROOT, capture_output=True, text=True
    )
    assert "--part theory $files" in shown.stdout
    assert main(["theory"]) == 0
    assert "tests/theory/" in capsys.readouterr().out
    assert main(["theroy"]) == 2
    assert "parts are " in capsys.readouterr().err
