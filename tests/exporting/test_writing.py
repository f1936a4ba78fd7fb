"""The source, whole or refused by name; the place, named only in the end; weights, streamed."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from ropewalk.errors import InputError, InvalidValue, RopewalkError, Unsupported
from ropewalk.exporting import staging
from ropewalk.exporting.manifest import MANIFEST, Manifest
from ropewalk.exporting.staging import check_export_place, staged
from ropewalk.exporting.writing import copy_companions, write_weights
from ropewalk.models.checkpoint import Checkpoint
from ropewalk.outputs import TEMPORARY
from tests.exporting.folders import saved


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(saved(tmp_path_factory.mktemp("source"), dtype=torch.bfloat16))


@pytest.fixture
def broken(source: Path, tmp_path: Path) -> Path:
    """A copy, to break."""
    return Path(shutil.copytree(source, tmp_path / "broken"))


def test_what_it_says_of_itself(source: Path) -> None:
    found = Checkpoint.open(str(source))
    assert found.dtype == torch.bfloat16
    assert len(found.files) > 1
    assert found.bytes() == sum(path.stat().st_size for path in found.files)
    numbers = sum(math.prod(shape) for _, _, shape in found.stored())
    assert found.bytes(torch.float32) == 4 * numbers


def test_a_missing_shard_is_named(broken: Path) -> None:
    shard = sorted(broken.glob("*.safetensors"))[1]
    shard.unlink()
    with pytest.raises(InputError, match=shard.name):
        Checkpoint.open(str(broken))


@pytest.mark.parametrize("inside", [None, "text_config"])
def test_quantised_weights_are_refused_by_name(broken: Path, inside: str | None) -> None:
    path = broken / "config.json"
    config = json.loads(path.read_text())
    quantised = {"quantization_config": {"quant_method": "gptq", "bits": 4}}
    path.write_text(json.dumps({**config, **({inside: quantised} if inside else quantised)}))
    with pytest.raises(Unsupported, match=r"quantised \(gptq\)"):
        Checkpoint.open(str(broken))


def test_quantised_tensors_are_refused_whatever_the_config_says(broken: Path) -> None:
    shard = sorted(broken.glob("*.safetensors"))[0]
    tensors = load_file(shard)
    name = next(iter(tensors))
    tensors[name] = tensors[name].to(torch.float8_e4m3fn)
    save_file(tensors, shard)
    with pytest.raises(Unsupported, match=f"{name} is stored as F8_E4M3"):
        Checkpoint.open(str(broken))


def test_a_disk_too_small_is_told_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=100 * 2**20))
    with (
        pytest.raises(InputError, match=r"needs up to 1\.03 GiB, and its disk has 0\.0977 GiB"),
        staged(tmp_path / "out", needs_bytes=2**30),
    ):
        raise AssertionError("entered")
    assert list(tmp_path.iterdir()) == []


def test_the_place_is_named_in_the_end_only(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    with staged(out, needs_bytes=0) as place:
        place.write_text("whole")
        assert not out.exists()
    assert out.read_text() == "whole"
    assert [path.name for path in out.parent.iterdir()] == ["out"]


def test_an_error_leaves_what_was_there(tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    out.write_text("before")
    with (
        pytest.raises(InputError, match=r"Is a directory.*; check the path"),
        staged(out, needs_bytes=0, overwrite=True) as place,
    ):
        place.parent.write_text("half")
    assert out.read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["out.gguf"]


def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    with (
        pytest.raises(RopewalkError, match=r"No space left.*; make room and"),
        staged(tmp_path / "out", needs_bytes=0),
    ):
        raise OSError(28, "No space left on device")
    assert list(tmp_path.iterdir()) == []


def test_only_exports_are_replaced_and_never_a_source(source: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "letter.txt").write_text("dear")
    for name in (None, "config.json", MANIFEST):  # nor does a stray config make it an export
        if name == MANIFEST:
            Manifest.of(home).write(home)
            (home / "notes.md").write_text("mine")
        elif name is not None:
            (home / name).write_text("{}")
        with (
            pytest.raises(InputError, match=r"holds \S+, which no export of ropewalk put there"),
            staged(home, needs_bytes=0, overwrite=True),
        ):
            raise AssertionError("entered")
    (home / "notes.md").unlink()
    with pytest.raises(InputError, match="`overwrite`"), staged(home, needs_bytes=0):
        pass
    for place in (source, source.parent, source / "inside" / "it"):
        with (
            pytest.raises(InvalidValue),
            staged(place, needs_bytes=0, overwrite=True, sources=(source,)),
        ):
            pass
    (home / f".ropewalk-1{TEMPORARY}").write_text("killed while it wrote thi")
    with staged(home, needs_bytes=0, overwrite=True) as place:
        place.mkdir()
    assert list(home.iterdir()) == []


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_link_is_not_replaced(tmp_path: Path, overwrite: bool) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "real")
    with pytest.raises(InvalidValue), staged(tmp_path / "out", needs_bytes=0, overwrite=overwrite):
        raise AssertionError("entered")
    assert (tmp_path / "out").is_symlink()


KILLED = """
import os, signal, sys
from ropewalk.exporting import staging
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[2] == "between":  # what was there is moved away, the new one is not there yet
    staging.os.rename = lambda a, b, real=os.rename: (real(a, b), die())
with staging.staged(sys.argv[1], needs_bytes=0, overwrite=True) as place:
    place.mkdir()
    (place / "config.json").write_text("new")
    if sys.argv[2] == "writing":
        die()
"""


@pytest.mark.parametrize("moment", ["writing", "between"])
def test_what_a_killed_export_left_is_removed_by_the_next(tmp_path: Path, moment: str) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "config.json").write_text("old")
    Manifest.of(out).write(out)
    died = subprocess.run([sys.executable, "-c", KILLED, str(out), moment], check=False)
    assert died.returncode == -signal.SIGKILL
    assert len([path for path in tmp_path.iterdir() if path.name != "out"]) == 1
    with pytest.raises(InputError, match="`overwrite`"), staged(out, needs_bytes=0):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (out / "config.json").read_text() == "old"


def test_an_export_that_is_alive_is_left_alone(tmp_path: Path) -> None:
    out = tmp_path / "out"

    def both() -> None:
        with staged(out, needs_bytes=0) as first:
            first.write_text("first")
            with staged(out, needs_bytes=0) as second:
                second.write_text("second")
            assert first.read_text() == "first"

    with pytest.raises(InputError, match="exists already"):
        both()
    assert out.read_text() == "second"  # who ends first has the name
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("as_folder", [False, True], ids=["a file", "a folder"])
@pytest.mark.parametrize("last", [False, True], ids=["while writing", "after the last check"])
def test_what_appears_meanwhile_is_not_replaced(
    as_folder: bool, last: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"

    def appear() -> None:
        if as_folder:
            (out / "notes").mkdir(parents=True, exist_ok=True)
        else:
            out.write_text("mine")

    def checked(*places: Path, sources: tuple[Path, ...] = ()) -> None:
        check_export_place(*places, sources=sources)
        appear()

    def write() -> None:
        with staged(out, needs_bytes=0) as place:
            if as_folder:
                place.mkdir()
                (place / "config.json").write_text("ours")
            else:
                place.write_text("ours")
            if last:
                monkeypatch.setattr("ropewalk.exporting.staging.check_export_place", checked)
            else:
                appear()

    with pytest.raises(InputError, match="holds notes" if as_folder else "exists already"):
        write()
    assert (out / "notes").is_dir() if as_folder else out.read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_folder_that_becomes_somebody_elses_is_not_replaced(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()

    def write() -> None:
        with staged(out, needs_bytes=0, overwrite=True) as place:
            place.mkdir()
            (out / "notes").write_text("mine")

    with pytest.raises(InputError, match="holds notes"):
        write()
    assert (out / "notes").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_file_system_without_hard_links_is_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    with staged(tmp_path / "out", needs_bytes=0) as place:
        place.write_text("whole")
    assert (tmp_path / "out").read_text() == "whole"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_link_under_the_name_of_a_temporary_folder_is_not_followed(tmp_path: Path) -> None:
    out, home = tmp_path / "out", tmp_path / "home"
    home.mkdir()
    for name in ("lock", "replaced"):
        (home / name).write_text("mine")
    (tmp_path / f"{staging._prefix(out)}x{TEMPORARY}").symlink_to(home)
    with staged(out, needs_bytes=0) as place:
        place.write_text("whole")
    assert out.read_text() == "whole"
    assert sorted(path.name for path in home.iterdir()) == ["lock", "replaced"]


def test_a_room_is_removed_at_whatever_moment_its_process_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object, **__: object) -> NoReturn:
        raise KeyboardInterrupt

    out = tmp_path / "out"
    (tmp_path / f"{staging._prefix(out)}x{TEMPORARY}").mkdir()  # before it had a lock

    def replace() -> None:
        with staged(out, needs_bytes=0) as place:
            place.mkdir()
            (place.parent / "replaced").mkdir()

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", killed)  # while it removed the old export
        with pytest.raises(KeyboardInterrupt):
            replace()
    [room] = tmp_path.glob(f".*{TEMPORARY}")
    assert {path.name for path in room.iterdir()} == {"lock", "replaced"}
    with staged(out, needs_bytes=0, overwrite=True) as place:
        place.mkdir()
    assert not list(tmp_path.glob(".*"))


def test_nothing_comes_along_from_outside_the_model(broken: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    (broken / "added_tokens.json").symlink_to(tmp_path / "secret.txt")
    (broken / "inner.txt").symlink_to(broken / "config.json")
    (broken / "folder.json").mkdir()
    (broken / "NOTICE.txt").symlink_to(tmp_path / "secret.txt")  # two patterns find it
    out = tmp_path / "out"
    out.mkdir()
    assert copy_companions(broken, out) == ("NOTICE.txt", "added_tokens.json", "folder.json")
    assert (out / "inner.txt").read_text() == (broken / "config.json").read_text()
    assert not any("secret" in path.read_text() for path in out.iterdir())


def test_a_name_that_a_manifest_cannot_list_is_left_out(broken: Path, tmp_path: Path) -> None:
    (broken / "n\nl.txt").write_text("more")
    (broken / "a\\b.txt").write_text("more")
    out = tmp_path / "out"
    out.mkdir()
    assert copy_companions(broken, out) == (r"a\b.txt", r"n\nl.txt")
    Manifest.of(out).write(out)
    assert Manifest.read(out) == Manifest.of(out)


def test_a_snapshot_of_the_hub_is_copied_whole(tmp_path: Path) -> None:
    snapshot = tmp_path / "models--own--tiny" / "snapshots" / "abc"
    blobs = snapshot.parent.parent / "blobs"
    for folder in (snapshot, blobs):
        folder.mkdir(parents=True)
    (blobs / "0123").write_text("{}")
    (snapshot / "tokenizer_config.json").symlink_to("../../blobs/0123")
    (snapshot / "params.json").write_text('{"rope_theta": 1e6}')  # Mistral's own config
    assert copy_companions(snapshot, tmp_path) == ()
    assert not (tmp_path / "params.json").exists()
    assert (tmp_path / "tokenizer_config.json").read_text() == "{}"


def test_weights_rewritten_are_those_of_safetensors(source: Path, tmp_path: Path) -> None:
    found = Checkpoint.open(str(source))
    write_weights(found, tmp_path, rewrite=lambda name, tensor: 2 * tensor.to(torch.float32))
    total = 0
    for path in found.files:
        before, after = load_file(path), load_file(tmp_path / path.name)
        assert list(before) == list(after)
        for name, tensor in before.items():
            assert after[name].dtype == torch.float32
            assert torch.equal(after[name], 2 * tensor.to(torch.float32))
            total += after[name].nbytes
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == total


@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(0, 5), max_size=3),
            st.sampled_from([torch.float64, torch.float32, torch.bfloat16, torch.int64]),
        ),
        max_size=6,
    ),
    st.sampled_from([torch.float64, torch.float16]),
)
def test_any_tensors_survive_rewriting(
    tmp_path_factory: pytest.TempPathFactory,
    shapes: list[tuple[list[int], torch.dtype]],
    dtype: torch.dtype,
) -> None:
    room = tmp_path_factory.mktemp("any")
    tensors = {
        f"{i}": torch.arange(torch.Size(shape).numel()).reshape(shape).to(own)
        for i, (shape, own) in enumerate(shapes)
    }
    save_file(tensors, room / "model.safetensors")
    (room / "new").mkdir()
    found = Checkpoint("any", room, {}, (room / "model.safetensors",))
    write_weights(found, room / "new", rewrite=lambda name, tensor: tensor.to(dtype))
    after = load_file(room / "new" / "model.safetensors")
    assert {name: tensor.tolist() for name, tensor in after.items()} == {
        name: tensor.tolist() for name, tensor in tensors.items()
    }
    assert {tensor.dtype for tensor in after.values()} <= {dtype}


def test_code_and_pickles_stay_behind(broken: Path, tmp_path: Path) -> None:
    for name in ("modeling_own.py", "training_args.bin", "LICENSE", "chat_template.jinja"):
        (broken / name).write_text("x")
    out = tmp_path / "out"
    out.mkdir()
    copy_companions(broken, out)
    assert {path.name for path in out.iterdir()} == {
        "LICENSE",
        "chat_template.jinja",
        "generation_config.json",
        "tokenizer_config.json",
    }
