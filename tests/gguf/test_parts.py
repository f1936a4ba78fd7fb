"""The parts of a split model: found by their names, and refused where they are not of one model."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import ropewalk as rw
from ropewalk.errors import InputError
from ropewalk.gguf.header import F32, FREQUENCIES
from ropewalk.gguf.parts import read_model, read_parts
from tests.gguf.gguf_files import KEYS, NORM, header_only, raw_file, split_keys, text, uint32

LAST = ("blk.1.attn_norm.weight", (64,), F32, b"\1" * 256)


def two(folder: Path, **second: object) -> list[Path]:
    folder.mkdir(exist_ok=True)
    own: dict[str, object] = {"keys": {}, "tensors": [LAST], "total": 2, "number": 1} | second
    keys = split_keys(int(str(own["number"])), 2, int(str(own["total"])))
    return [
        raw_file(folder / "m-00001-of-00002.gguf", KEYS | split_keys(0, 2, 2), [NORM]),
        raw_file(
            folder / "m-00002-of-00002.gguf",
            keys | own["keys"],  # type: ignore[operator]
            own["tensors"],  # type: ignore[arg-type]
        ),
    ]


def test_a_file_alone_is_its_own_part(tmp_path: Path) -> None:
    path = header_only(tmp_path / "a.gguf")
    (header,) = read_parts(path)
    assert read_model(path).values == header.values


def test_all_parts_are_found_from_any(tmp_path: Path) -> None:
    for path in two(tmp_path / "m"):
        model = read_model(path)
        assert set(model.tensors) == {NORM[0], LAST[0]}
        assert {place.path for place in model.tensors.values()} == set(two(tmp_path / "m"))
        assert rw.inspect(path).plan.target_length == 512


def test_factors_are_read_in_the_part_that_holds_them(tmp_path: Path) -> None:
    factors = np.linspace(1, 4, 8, dtype="<f4")
    tensors = [(FREQUENCIES, (8,), F32, factors.tobytes())]
    path, _ = two(tmp_path / "m", tensors=tensors)
    np.testing.assert_array_equal(read_model(path).floats(FREQUENCIES), factors)
    assert rw.inspect(path).schedule.rescale_factors[-1] == 4


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    first, second = two(tmp_path / "m")
    second.unlink()
    with pytest.raises(InputError, match=r"one of 2 parts, and m-00002-of-00002\.gguf is missing"):
        rw.inspect(first)


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"total": 3}, "split.tensors.count = 3"),
        ({"number": 0}, "states split.no = 0"),
        ({"tensors": [NORM]}, "'blk.0.attn_norm.weight' is in a part before it too"),
        ({"tensors": [(LAST[0], (32,), F32, b"\0" * 128)]}, "is 32 wide, not 64"),
        ({"keys": {"general.architecture": text("qwen2")}}, "its architecture is qwen2"),
        ({"keys": {"general.alignment": uint32(64)}}, "its alignment is 64"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_parts_of_two_models_are_refused(
    second: dict[str, object], message: str, tmp_path: Path
) -> None:
    first, _ = two(tmp_path / "m", **second)
    with pytest.raises(InputError, match="belongs to another model") as caught:
        rw.inspect(first)
    assert message in str(caught.value)


def test_fewer_tensors_than_stated_are_refused(tmp_path: Path) -> None:
    first, _ = two(tmp_path / "m", tensors=[])
    with pytest.raises(InputError, match="its parts hold 1 tensors, and 2 are stated"):
        rw.inspect(first)


def test_a_part_under_another_name_is_refused(tmp_path: Path) -> None:
    first, _ = two(tmp_path / "m")
    shutil.copyfile(first, tmp_path / "renamed.gguf")
    with pytest.raises(InputError, match=r"its name does not say so; name the parts NAME-00001-of"):
        rw.inspect(tmp_path / "renamed.gguf")
