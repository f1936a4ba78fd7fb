"""Files that are damaged, or lie: one line each, from every verb, in bounded time and memory."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import ropewalk as rw
from ropewalk.context_plan import ContextPlan
from ropewalk.errors import RopewalkError
from ropewalk.gguf.header import F32
from tests.gguf.gguf_cases import unproven
from tests.gguf.gguf_files import KEYS, NORM, header_only, raw_file, split_keys, text, uint32

HUGE = 2**62


def whole(folder: Path) -> Path:
    return raw_file(folder / "a.gguf", KEYS, [NORM])


def cut(folder: Path) -> Path:
    path = whole(folder)
    os.truncate(path, path.stat().st_size - 100)
    return path


def cut_in_the_header(folder: Path) -> Path:
    path = whole(folder)
    os.truncate(path, 100)
    return path


def with_counts(tensors: int, keys: int) -> Callable[[Path], Path]:
    def made(folder: Path) -> Path:
        path = whole(folder)
        data = bytearray(path.read_bytes())
        data[8:24] = struct.pack("<QQ", tensors, keys)
        path.write_bytes(data)
        return path

    return made


def with_value(value: bytes) -> Callable[[Path], Path]:
    return lambda folder: raw_file(folder / "a.gguf", {**KEYS, "odd": value}, [NORM])


def with_tensor(shape: tuple[int, ...], kind: int = F32) -> Callable[[Path], Path]:
    return lambda folder: raw_file(folder / "a.gguf", KEYS, [("odd", shape, kind, b"\0" * 64)])


def twice(folder: Path) -> Path:
    return raw_file(folder / "a.gguf", KEYS, [NORM, NORM])


def without_a_part(folder: Path) -> Path:
    path = folder / "a-00001-of-00003.gguf"
    return raw_file(path, KEYS | split_keys(0, 3, 3), [NORM])


def without_rotation(folder: Path) -> Path:
    return header_only(folder / "a.gguf", architecture="mamba")


def with_keys(**keys: object) -> Callable[[Path], Path]:
    def coded(value: object) -> bytes:
        if isinstance(value, bytes):
            return value
        return text(value) if isinstance(value, str) else struct.pack("<If", 6, value)

    stated = {f"llama.{name.replace('__', '.')}": coded(value) for name, value in keys.items()}
    return lambda folder: raw_file(folder / "a.gguf", KEYS | stated, [NORM])


def without_tensors(folder: Path) -> Path:
    return raw_file(folder / "a.gguf", KEYS, [])


def with_a_long_string(folder: Path) -> Path:
    """The string is a hole: it takes no room on the disk."""
    path = folder / "a.gguf"
    with path.open("wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, 0, 1))
        file.write(struct.pack("<Q", 3) + b"odd" + struct.pack("<IQ", 8, 3 * 2**30))
        file.truncate(file.tell() + 3 * 2**30)
    return path


def with_a_long_name(folder: Path) -> Path:
    return raw_file(folder / "a.gguf", {**KEYS, "k" * 2**17: uint32(1)}, [NORM])


def with_many_lists(folder: Path) -> Path:
    """Few bytes of a file that is a hole, and 2^23 empty strings in it."""
    path = folder / "a.gguf"
    count = 2**20
    with path.open("wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, 0, 8))
        for i in range(8):
            file.write(struct.pack("<Q", 1) + b"%d" % i + struct.pack("<IIQ", 9, 8, count))
            file.seek(8 * count, os.SEEK_CUR)
        file.truncate()
    return path


def big_endian(folder: Path) -> Path:
    path = folder / "a.gguf"
    path.write_bytes(b"GGUF" + struct.pack(">IQQ", 3, 0, 0))
    return path


NOT_A_NAME = struct.pack("<IQ", 8, 2) + b"\xff\xfe"
CASES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "cut": (cut, "ends within blk.0.attn_norm.weight"),
    "cut in the header": (cut_in_the_header, "is not a whole GGUF file"),
    "more tensors than there are": (with_counts(2, 5), "a name of 0 bytes"),
    "more tensors than a model has": (with_counts(HUGE, 5), "more entries than a model has"),
    "more keys than a model has": (with_counts(1, HUGE), "more entries than a model has"),
    "a string beyond the end": (with_value(struct.pack("<IQ", 8, HUGE)), "beyond the end"),
    "an array beyond the end": (
        with_value(struct.pack("<IIQ", 9, 4, 2**23) + b"\0" * 64),
        "beyond the end",
    ),
    "an array of more items than any model has": (
        with_value(struct.pack("<IIQ", 9, 8, 2**40) + bytes(1000)),
        "more entries than a model has",
    ),
    "an array of arrays": (
        with_value(struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 5000),
        "an array of arrays, which llama.cpp does not load",
    ),
    "a value of no type": (with_value(struct.pack("<IQ", 99, 0)), "a type that GGUF does not have"),
    "a tensor larger than the file": (with_tensor((HUGE, HUGE)), "ends within odd"),
    "a tensor of five dimensions": (with_tensor((1,) * 5), "more dimensions than GGML has"),
    "one name twice": (twice, "stands in it twice"),
    "no alignment": (
        lambda f: raw_file(f / "a.gguf", {**KEYS, "general.alignment": uint32(0)}, [NORM]),
        "an alignment that is no size",
    ),
    "a missing part": (without_a_part, "a-00002-of-00003.gguf and 1 more are missing"),
    "no rotation": (without_rotation, "mamba"),
    "no tensors": (without_tensors, "holds no tensors"),
    "a string of 3 GiB": (with_a_long_string, "brings its text to more than 64 MiB"),
    "a long name": (with_a_long_name, "a key with a name of 131,072 bytes, not 1 to 65,536"),
    "no name": (lambda f: raw_file(f / "a.gguf", {**KEYS, "": NOT_A_NAME}, [NORM]), "of 0 bytes"),
    "many lists": (with_many_lists, "more than 4,194,304 keys, tensors and strings"),
    "big-endian": (big_endian, "is a big-endian GGUF file"),
    "a name that is no text": (with_value(NOT_A_NAME), "the key 'odd' is not UTF-8"),
    "a base that is a text": (with_keys(rope__freq_base="abc"), "rope.freq_base = 'abc': must be"),
    "a factor that is no number": (
        with_keys(rope__scaling__factor=float("nan")),
        "rope.scaling.factor = nan: must be a finite number",
    ),
    "a size that is no whole number": (
        with_keys(rope__dimension_count=16.5),
        "rope.dimension_count = 16.5: must be a whole number",
    ),
    "a factor that speeds up": (
        with_keys(rope__scaling__factor=0.5),
        "rope.scaling.factor = 0.5: must be 0 or at least 1",
    ),
    "no attention": (
        with_keys(rope__scaling__attn_factor=0.0),
        "attn_factor = 0.0: must be above 0",
    ),
    "no rotation by number": (
        with_keys(rope__dimension_count=uint32(0)),
        "rope.dimension_count = 0: must be at least 1",
    ),
    "a head of another type": (
        with_keys(attention__key_length=struct.pack("<Iq", 11, 16)),
        "attention.key_length = 16: must be stored as uint32 to be loaded",
    ),
    "a list of factors": (
        with_keys(rope__scaling__factor=struct.pack("<IIQf", 9, 6, 1, 4.0)),
        "rope.scaling.factor = 'a list': must be a finite number",
    ),
    "a scaling of tomorrow": (
        with_keys(rope__scaling__type="spiral"),
        "rope.scaling.type = 'spiral': must be one of none, linear, yarn, longrope",
    ),
}


def inspected_and_exported(path: Path, plan: ContextPlan, out: Path) -> None:
    rw.inspect(path)
    rw.export(path, plan, out, "llama.cpp")


@pytest.mark.parametrize("case", CASES)
def test_a_bad_file_is_refused_in_one_line(case: str, tmp_path: Path) -> None:
    make, message = CASES[case]
    plan = rw.plan(whole(tmp_path), "1k", "linear").plan
    path, began = make(tmp_path), time.monotonic()
    with pytest.raises(RopewalkError) as caught:
        inspected_and_exported(path, plan, tmp_path / "out.gguf")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert time.monotonic() - began < 10
    assert not list(tmp_path.glob("out*"))


MEMORY = """
import resource, sys
from ropewalk.errors import InputError
from ropewalk.gguf.header import read_header
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    read_header(sys.argv[1])
except InputError:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_a_long_string_takes_no_memory(tmp_path: Path) -> None:
    path = with_a_long_string(tmp_path)
    done = subprocess.run([sys.executable, "-c", MEMORY, path], capture_output=True, text=True)
    assert int(done.stdout) < 50_000, done.stderr  # kibibytes, on Linux


def test_a_preview_of_a_file_without_tensors_is_refused_too(tmp_path: Path) -> None:
    plan = rw.plan(whole(tmp_path), "1k", "linear").plan
    with pytest.raises(RopewalkError, match="holds no tensors"):
        rw.export.preview(without_tensors(tmp_path), plan)


OTHER = {key.replace("llama.", "phi3."): value for key, value in KEYS.items()} | {
    "general.architecture": text("phi3")
}
"""Of an architecture whose tensors are not known here."""


def test_a_type_that_nobody_knows_is_copied(tmp_path: Path) -> None:
    path = raw_file(tmp_path / "a.gguf", OTHER, [NORM, ("odd", (3,), 4711, b"?" * 77)])
    plan = rw.plan(path, "1k", "linear").plan
    exported = unproven(rw.export)(path, plan, tmp_path / "b.gguf", "llama.cpp")
    assert exported.agreement is None
    assert any("written, and not run" in warning for warning in exported.warnings)
    assert b"?" * 77 in (tmp_path / "b.gguf").read_bytes()


def test_the_name_of_a_file_is_text(tmp_path: Path) -> None:
    """A key of the file decides nothing but what it says."""
    path = raw_file(tmp_path / "a.gguf", {**OTHER, "general.name": text("../../etc")}, [NORM])
    plan = rw.plan(path, "1k", "linear").plan
    unproven(rw.export)(path, plan, tmp_path / "b.gguf", "llama.cpp")
    assert sorted(own.name for own in tmp_path.iterdir()) == ["a.gguf", "b.gguf"]
