"""A GGUF file written anew: what changes changes, and every other byte is that of the source."""

from __future__ import annotations

import os
import resource
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.errors import InputError
from ropewalk.gguf import rewriting
from ropewalk.gguf.header import F32, FREQUENCIES, GGUFHeader, read_header
from ropewalk.gguf.parts import read_parts
from ropewalk.gguf.rewriting import Changes, join, number, rewrite_parts, spans
from tests.gguf.gguf_files import raw_file, split_keys, text, uint32

STRANGE = 4711
"""A type that GGML does not have."""
RANDOM = np.random.default_rng(0)
LONGER = Changes(
    keys={"llama.context_length": number("<I", 8192)},
    without=frozenset({"llama.rope.scaling.type"}),
    tensors={FREQUENCIES: np.linspace(1, 2, 4)},
    without_tensors=frozenset({FREQUENCIES}),
)
KEYS = {
    "llama.context_length": uint32(512),
    "llama.rope.scaling.type": text("linear"),
    "general.name": text("straße 🙂"),
    # What a vocabulary is: an array of strings.
    "tokenizer.ggml.tokens": struct.pack("<IIQ", 9, 8, 2)
    + b"".join(map(text, "ab"))
    .replace(struct.pack("<I", 8), b"", 1)
    .replace(struct.pack("<IQ", 8, 1), struct.pack("<Q", 1), 1),
}


def content(size: int) -> bytes:
    return RANDOM.bytes(size)


def tensor_bytes(header: GGUFHeader) -> dict[str, bytes]:
    data = header.path.read_bytes()
    sizes = spans(header)
    return {n: data[p.start : p.start + sizes[n]] for n, p in header.tensors.items()}


def entries(header: GGUFHeader) -> dict[str, bytes]:
    data = header.path.read_bytes()
    return {key: data[start:end] for key, (start, end) in header.spans.items()}


TENSORS = [
    ("token_embd.weight", (8, 3), F32, content(96)),
    (FREQUENCIES, (4,), F32, content(16)),
    ("blk.0.attn_q.weight", (32, 2), 8, content(68)),  # Q8_0: blocks of 34 bytes
    ("blk.0.odd.weight", (5, 5), STRANGE, content(77)),
    ("output_norm.weight", (8,), F32, content(32)),
]


@pytest.mark.parametrize("alignment", [8, 32, 256])
def test_only_what_is_named_changes(alignment: int, tmp_path: Path) -> None:
    source = raw_file(tmp_path / "a.gguf", KEYS, TENSORS, alignment=alignment)
    before = source.read_bytes()
    join(read_parts(source), tmp_path / "b.gguf", LONGER)
    old, new = read_header(source), read_header(tmp_path / "b.gguf")
    assert source.read_bytes() == before
    assert new.alignment == alignment
    assert new.values["llama.context_length"] == 8192
    assert "llama.rope.scaling.type" not in new.values
    changed = {"llama.context_length", "llama.rope.scaling.type"}
    kept = {key: own for key, own in entries(old).items() if key not in changed}
    assert kept == {key: own for key, own in entries(new).items() if key not in changed}
    np.testing.assert_allclose(new.floats(FREQUENCIES), np.linspace(1, 2, 4), rtol=1e-7)
    copied, originals = tensor_bytes(new), tensor_bytes(old)
    for name in set(originals) - {FREQUENCIES}:
        whole = originals[name]
        assert copied[name][: len(whole)] == whole
        assert new.tensors[name].shape == old.tensors[name].shape
        assert new.tensors[name].kind == old.tensors[name].kind
        assert (new.tensors[name].start - new.data) % alignment == 0


@given(
    sizes=st.lists(st.integers(1, 3000), min_size=1, max_size=8),
    alignment=st.sampled_from([1, 8, 32, 64]),
)
def test_tensors_of_any_size_and_unknown_type_survive(
    sizes: list[int], alignment: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("any")
    tensors = [(f"t{i}", (size,), STRANGE, content(size)) for i, size in enumerate(sizes)]
    source = raw_file(folder / "a.gguf", {}, tensors, alignment=alignment)
    join(read_parts(source), folder / "b.gguf", LONGER)
    copied = tensor_bytes(read_header(folder / "b.gguf"))
    for name, _, _, whole in tensors:
        assert isinstance(whole, bytes)
        assert copied[name][: len(whole)] == whole
        assert not any(copied[name][len(whole) :])  # padding


@pytest.mark.parametrize("inside", [True, False], ids=["in the system", "by reading"])
def test_holes_stay_holes(inside: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not inside:
        monkeypatch.delattr(os, "copy_file_range")
    # The middle of 256 MB holds some bytes, and the rest nothing.
    source = raw_file(tmp_path / "a.gguf", KEYS, [("a", (2**26,), F32, 2**28), *TENSORS])
    middle = b"somewhere in the middle"
    with source.open("r+b") as file:
        file.seek(2**27)
        file.write(middle)
    assert source.stat().st_blocks * 512 < 2**20
    assert rewriting.needs(read_parts(source)) < 3 * 2**20
    join(read_parts(source), tmp_path / "b.gguf", LONGER)
    out = tmp_path / "b.gguf"
    assert out.stat().st_size > 2**28
    assert out.stat().st_blocks * 512 < 2**20
    old, new = read_header(source), read_header(out)
    place = new.tensors["a"].start + 2**27 - old.tensors["a"].start
    with out.open("rb") as file:
        file.seek(place)
        assert file.read(len(middle)) == middle
    rest = dict(TENSORS_BY_NAME)
    assert _last(new, rest) == rest


TENSORS_BY_NAME = {n: c for n, _, _, c in TENSORS if n != FREQUENCIES and isinstance(c, bytes)}


def _last(header: GGUFHeader, wanted: dict[str, bytes]) -> dict[str, bytes]:
    found = {}
    with header.path.open("rb") as file:
        for name, own in wanted.items():
            file.seek(header.tensors[name].start)
            found[name] = file.read(len(own))
    return found


MEASURED = """
import re, sys, time
from pathlib import Path
from ropewalk.gguf.parts import read_parts
from ropewalk.gguf.rewriting import Changes, join, number
began = time.monotonic()
join(read_parts(sys.argv[1]), Path(sys.argv[2]), Changes({"llama.context_length": number("<I", 1)}))
assert "torch" not in sys.modules
# Not getrusage: that begins with what the process that forked this one held.
(kibibytes,) = re.findall(r"VmHWM:\\s*(\\d+) kB", Path("/proc/self/status").read_text())
print(kibibytes, time.monotonic() - began)
"""


def test_forty_gigabytes_of_holes_take_little_memory_and_time(tmp_path: Path) -> None:
    each = 10 * 2**30
    tensors = [(f"blk.{i}.ffn_up.weight", (each // 4,), F32, each) for i in range(4)]
    source = raw_file(tmp_path / "a.gguf", KEYS, [*tensors, *TENSORS])
    assert source.stat().st_size > 40 * 2**30
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(source), str(tmp_path / "b.gguf")],
        check=True,
        capture_output=True,
        text=True,
    )
    kibibytes, seconds = map(float, done.stdout.split())
    assert kibibytes * 1024 < 300e6
    assert seconds < 20
    assert (tmp_path / "b.gguf").stat().st_size > 40 * 2**30
    assert (tmp_path / "b.gguf").stat().st_blocks * 512 < 2**20


def test_a_hundred_megabytes_of_weights_take_no_more_memory(tmp_path: Path) -> None:
    source = raw_file(tmp_path / "a.gguf", KEYS, [("a", (2**25,), F32, content(2**27))])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    join(read_parts(source), tmp_path / "b.gguf", LONGER)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 40_000  # KiB
    assert _last(read_header(tmp_path / "b.gguf"), {"a": b"x" * 64}) == _last(
        read_header(source), {"a": b"x" * 64}
    )


def parts_of(folder: Path, *, total: int = 0) -> list[Path]:
    """The tensors in two files."""
    count = total or len(TENSORS)
    return [
        raw_file(
            folder / f"m-{i + 1:05}-of-00002.gguf",
            (KEYS if i == 0 else {}) | split_keys(i, 2, count),
            TENSORS[2 * i : 2 + 3 * i],
        )
        for i in range(2)
    ]


@pytest.mark.parametrize("given_part", [0, 1])
def test_a_split_model_becomes_one_file(given_part: int, tmp_path: Path) -> None:
    paths = parts_of(tmp_path)
    join(read_parts(paths[given_part]), tmp_path / "one.gguf", LONGER)
    new = read_header(tmp_path / "one.gguf")
    assert set(new.tensors) == {name for name, *_ in TENSORS}
    assert not any(key.startswith("split.") for key in new.values)
    assert _last(new, TENSORS_BY_NAME) == TENSORS_BY_NAME


@pytest.mark.parametrize("as_folder", [False, True])
def test_a_first_part_without_tensors_is_only_metadata(as_folder: bool, tmp_path: Path) -> None:
    """As llama-gguf-split --no-tensor-first-split makes them."""
    names = [tmp_path / f"a-0000{i + 1}-of-00002.gguf" for i in range(2)]
    for i, path in enumerate(names):
        keys = (KEYS if i == 0 else {}) | split_keys(i, 2, len(TENSORS))
        raw_file(path, keys, TENSORS if i else [])
    out = tmp_path / "out"
    if as_folder:
        out.mkdir()
        first, second = rewrite_parts(read_parts(names[0]), out, LONGER)
        assert set(read_header(first).tensors) == {FREQUENCIES}
        assert _last(read_header(second), TENSORS_BY_NAME) == TENSORS_BY_NAME
    else:
        join(read_parts(names[0]), out, LONGER)
        assert _last(read_header(out), TENSORS_BY_NAME) == TENSORS_BY_NAME


def test_a_split_model_stays_split(tmp_path: Path) -> None:
    paths = parts_of(tmp_path)
    (tmp_path / "out").mkdir()
    written = rewrite_parts(read_parts(paths[0]), tmp_path / "out", LONGER)
    assert [path.name for path in written] == [path.name for path in paths]
    new = read_parts(written[1])
    assert [set(part.tensors) for part in new] == [
        {FREQUENCIES, "token_embd.weight"},
        {name for name, *_ in TENSORS[2:]},
    ]
    assert new[0].values["llama.context_length"] == 8192
    assert {part.values["split.tensors.count"] for part in new} == {len(TENSORS)}
    for part, old in zip(new, read_parts(paths[0]), strict=True):
        own = {n: c for n, c in TENSORS_BY_NAME.items() if n in old.tensors}
        assert _last(part, own) == own
    added = Changes(tensors={"rope_factors_long.weight": np.ones(4)})
    (tmp_path / "more").mkdir()
    more = read_parts(rewrite_parts(read_parts(paths[0]), tmp_path / "more", added)[0])
    assert {part.values["split.tensors.count"] for part in more} == {len(TENSORS) + 1}


def test_a_source_that_ends_too_early_is_refused(tmp_path: Path) -> None:
    source = raw_file(tmp_path / "a.gguf", KEYS, TENSORS)
    os.truncate(source, source.stat().st_size - 8)
    with pytest.raises(InputError, match=r"a\.gguf: ends within output_norm\.weight"):
        join(read_parts(source), tmp_path / "b.gguf", LONGER)


def test_tensors_that_overlap_are_refused(tmp_path: Path) -> None:
    source = raw_file(tmp_path / "a.gguf", KEYS, TENSORS)
    data = source.read_bytes()
    header = read_header(source)
    second = struct.pack("<Q", header.tensors[FREQUENCIES].start - header.data)
    at = data.index(FREQUENCIES.encode()) + len(FREQUENCIES) + 4 + 8 + 4
    assert data[at : at + 8] == second
    source.write_bytes(data[:at] + struct.pack("<Q", 32) + data[at + 8 :])
    with pytest.raises(InputError, match="overlaps the next tensor"):
        join(read_parts(source), tmp_path / "b.gguf", LONGER)


def test_a_file_without_tensors_has_no_spans(tmp_path: Path) -> None:
    assert spans(read_header(raw_file(tmp_path / "a.gguf", {}, []))) == {}
