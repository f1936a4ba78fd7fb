"""The golden files stay complete, and `expected/` stays what its script writes."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.golden.make_expected import expected

GOLDEN = Path(__file__).parent
NAMES = sorted(path.stem for path in (GOLDEN / "configs").glob("*.json"))


def read(folder: str, name: str) -> Any:
    return json.loads((GOLDEN / folder / f"{name}.json").read_text(encoding="utf-8"))


def test_every_config_is_expected_and_sourced() -> None:
    sourced = (GOLDEN / "README.md").read_text(encoding="utf-8")
    assert sorted(expected()) == NAMES
    assert sorted(path.stem for path in (GOLDEN / "expected").glob("*.json")) == NAMES
    assert [name for name in NAMES if f"| `{name}` |" not in sourced] == []


def about(content: Any) -> Any:
    """The same content, its floats allowed the last bits in which platforms' pow and log differ."""
    if isinstance(content, dict):
        return {key: about(value) for key, value in content.items()}
    if isinstance(content, list):
        return [about(value) for value in content]
    return pytest.approx(content, rel=1e-14) if isinstance(content, float) else content


@pytest.mark.parametrize("name", NAMES)
def test_the_files_are_what_the_script_writes(name: str) -> None:
    assert read("expected", name) == about(expected()[name])
