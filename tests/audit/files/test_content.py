"""A changed byte that no header shows is found by the manifest, or by the digest of a GGUF file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest

from ropewalk.audit.examination import audit
from ropewalk.audit.result import Audit
from ropewalk.errors import InvalidValue
from ropewalk.exporting import llama_cpp
from ropewalk.exporting.manifest import MANIFEST, FileDigest, Manifest
from ropewalk.gguf import provenance
from ropewalk.gguf.header import read_header
from ropewalk.gguf.sizes import BLOCKS
from ropewalk.models.config import BUNDLED_FOLDER, present_plan
from ropewalk.planning.extension import extend_plan
from ropewalk.progress import Status
from tests.audit.files.folders import SINGLE, bundled, edit, judged
from tests.gguf.gguf_cases import unproven
from tests.gguf.gguf_files import rewritten
from tests.mutants.damage import flip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = bundled(tmp_path / "model")
    Manifest.of(path).write(path)
    return path


def test_a_folder_as_it_was_written_is_well(folder: Path) -> None:
    told: list[Status] = []
    found = audit(folder, runtimes=["vllm"], run=False, progress=told.append)
    assert found.verdict == "OK"
    assert found.checks[2].what == f"4 files match {MANIFEST}"
    shares = [status.done for status in told if status.detail == "comparing bytes"]
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(0.3)


def _replaced(folder: Path, make: Callable[[Path], object]) -> None:
    (folder / "tokenizer_config.json").unlink()
    make(folder / "tokenizer_config.json")


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a weight": (
        lambda folder: flip(folder / SINGLE, 1_000_000),
        f"{SINGLE} is not as in {MANIFEST}",
    ),
    "a file that is not there": (
        lambda folder: (folder / "tokenizer_config.json").unlink(),
        f"tokenizer_config.json is missing, and listed in {MANIFEST}",
    ),
    "a manifest of other files": (
        lambda folder: edit(
            folder / MANIFEST, lambda value: value["files"]["config.json"].update(size=1)
        ),
        f"config.json is not as in {MANIFEST}",
    ),
    "a manifest cut": (
        lambda folder: (folder / MANIFEST).write_bytes((folder / MANIFEST).read_bytes()[:99]),
        "is not JSON",
    ),
    "a manifest that leads out": (
        lambda folder: edit(
            folder / MANIFEST,
            lambda value: value["files"].update({"../x": value["files"]["config.json"]}),
        ),
        "must name a file of the same folder",
    ),
    "a manifest of no file": (
        lambda folder: edit(folder / MANIFEST, lambda value: value.update(files={})),
        f"config.json, model.safetensors are not listed in {MANIFEST}",
    ),
    "a manifest without the config": (
        lambda folder: edit(
            folder / MANIFEST, lambda value: value["files"].pop("config.json") and None
        ),
        f"config.json is not listed in {MANIFEST}",
    ),
    "a manifest without the weights": (
        lambda folder: edit(folder / MANIFEST, lambda value: value["files"].pop(SINGLE) and None),
        f"{SINGLE} is not listed in {MANIFEST}",
    ),
    "a pipe": (
        lambda folder: _replaced(folder, os.mkfifo),
        "tokenizer_config.json is a pipe, not a file",
    ),
    "a link to a device": (
        lambda folder: _replaced(folder, lambda path: path.symlink_to("/dev/null")),
        "tokenizer_config.json is a link to a device, not a file",
    ),
    "a manifest of no digest": (
        lambda folder: edit(
            folder / MANIFEST, lambda value: value["files"]["config.json"].update(sha256="zz")
        ),
        "must be 64 hexadecimal digits",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_changed_is_wrong(folder: Path, name: str) -> None:
    change, complaint = CHANGES[name]
    change(folder)
    found = judged(folder)
    assert found.verdict == "wrong"
    finding = found.wrong[-1]  # a pipe is no tokenizer either
    assert finding.trap == "bytes-changed"
    assert complaint in finding.what
    assert "; " not in finding.what  # one remedy, that of the finding


def test_what_is_added_is_a_note(folder: Path) -> None:
    (folder / "README.md").write_text("mine", encoding="utf-8")
    (folder / "more.gguf").write_text("of no runtime that reads folders", encoding="utf-8")
    found = judged(folder)
    assert found.verdict == "OK"
    (finding,) = found.warnings
    assert (finding.trap, finding.wrong) == ("not-in-manifest", False)
    assert finding.what == f"README.md, more.gguf are not in {MANIFEST}"


def test_a_folder_without_a_manifest_is_judged_by_its_headers(folder: Path) -> None:
    (folder / MANIFEST).unlink()
    flip(folder / SINGLE, 1_000_000)
    found = judged(folder)
    assert found.verdict == "OK"
    assert str(found.checks[2]) == "bytes: not compared: no manifest"


def test_a_manifest_is_a_value(folder: Path) -> None:
    manifest = Manifest.read(folder)
    assert Manifest.from_json(json.loads(json.dumps(manifest.to_json()))) == manifest
    assert manifest == Manifest.of(folder)
    with pytest.raises(InvalidValue, match="must be at least 0"):
        FileDigest(-1, "0" * 64)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sealed") / "model.gguf"
    plan = extend_plan(present_plan(BUNDLED_FOLDER), 1024, "ntk_mixed")
    unproven(llama_cpp.export)(BUNDLED_FOLDER, plan, path, dtype="Q8_0")
    return path


def by_rules(path: Path) -> Audit:
    return audit(path, run=False)


def test_an_exported_file_is_well(file: Path) -> None:
    found = by_rules(file)
    assert found.verdict == "OK"
    assert found.notes == ("compared with the plan in its metadata",)
    assert [str(check) for check in found.checks] == [
        "weights: 30 tensors, all within the file",
        "tokenizer: 1,024 tokens, as many as the embedding has rows",
        "bytes: as ropewalk.sha256 in the file says",
    ]


def _copy(file: Path, tmp_path: Path, change: Callable[[bytes], bytes]) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(change(file.read_bytes()))
    return path


def test_every_byte_of_a_file_counts(file: Path, tmp_path: Path) -> None:
    size = file.stat().st_size
    header = read_header(file)
    places = [size // 2, size - 1, header.places[provenance.SHA256][0] + 5]
    for at in places:
        path = _copy(file, tmp_path, lambda content: content)
        flip(path, at)
        found = by_rules(path)
        assert found.verdict == "wrong"
        assert [finding.trap for finding in found.wrong] == ["bytes-changed"]


@pytest.mark.parametrize("share", [0.3, 0.7, 0.999])
def test_a_file_cut_off_is_wrong(file: Path, tmp_path: Path, share: float) -> None:
    path = _copy(file, tmp_path, lambda content: content[: int(len(content) * share)])
    found = by_rules(path)
    assert found.verdict == "wrong"
    assert found.wrong[0].trap == "weights-damaged"
    assert "would end at" in found.wrong[0].what


def test_a_file_that_a_tool_wrote_anew_is_not_compared(file: Path, tmp_path: Path) -> None:
    """As llama-quantize does, which copies keys that it does not know."""
    path = _copy(file, tmp_path, lambda content: content)
    rewritten(file, path, {"rope.more": 1.0})
    found = by_rules(path)
    assert found.verdict == "OK"
    assert "written anew" in found.checks[2].what


@pytest.mark.parametrize("more", [b"\0\0", bytes(1000)])
def test_bytes_behind_a_file_are_wrong(file: Path, tmp_path: Path, more: bytes) -> None:
    found = by_rules(_copy(file, tmp_path, lambda content: content + more))
    assert found.verdict == "wrong"
    (finding,) = found.wrong
    assert finding.trap == "bytes-changed"
    assert finding.what.startswith(f"{len(more):,} bytes follow the")


def test_a_file_whose_keys_and_tensors_differ_is_wrong(file: Path, tmp_path: Path) -> None:
    header = read_header(file)
    traps = {
        "llama.block_count": "weights-damaged",
        "llama.embedding_length": "weights-damaged",
        "tokenizer.ggml.eos_token_id": "tokenizer-broken",
    }
    for key, trap in traps.items():
        path = _copy(file, tmp_path, lambda content: content)
        with path.open("r+b") as handle:
            handle.seek(header.places[key][0])
            handle.write((5000).to_bytes(4, "little"))
        assert trap in {finding.trap for finding in by_rules(path).wrong}


def test_the_sizes_of_types_are_ggmls() -> None:
    assert {int(kind): tuple(size) for kind, size in gguf.GGML_QUANT_SIZES.items()} == BLOCKS


def test_tensors_that_do_not_follow_each_other_are_wrong(file: Path, tmp_path: Path) -> None:
    header = read_header(file)
    second = list(header.tensors)[1]
    place = np.uint64(header.tensors[second].start - header.data).tobytes()
    content = file.read_bytes()
    at = content.index(place, content.index(second.encode()))
    path = _copy(file, tmp_path, lambda old: old[:at] + np.uint64(0).tobytes() + old[at + 8 :])
    (finding, *_) = by_rules(path).wrong
    assert finding.trap == "weights-damaged"
    assert f"{second} begins at byte" in finding.what
