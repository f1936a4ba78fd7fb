"""The list that waits for a GPU, run in sizes of a toy: its code is not dead."""

from __future__ import annotations

import json
import time
import zipfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from benchmarks import gpu, gpu_bundle
from tests.test_light_installation import run

TOY = gpu.SCALES["cpu"]


@pytest.mark.slow
def test_every_part_runs_from_packed_pieces(tmp_path: Path) -> None:
    """In a folder of its own, with nothing of this one on the path."""
    out, here = tmp_path / "gpu.json", tmp_path / "far"
    [*pieces, _, join] = gpu_bundle.packed(gpu_bundle.sources(), here, 4 * 2**20)
    assert len(pieces) > 1

    def done() -> list[str]:
        ended = run(join.name, "--device", "cpu", "--out", out, cwd=here, PYTHONPATH="")
        assert ended.returncode == 0, ended.stderr + ended.stdout
        return [line.partition(":")[0] for line in ended.stdout.splitlines()]

    names = [part.name for part in gpu.parts(TOY, tmp_path) if part.needs is None]
    assert done() == names
    parts = json.loads(out.read_text())["parts"]
    assert [part["ended"] for part in parts.values()] == ["done"] * len(names)
    agreement = parts["engines"]["found"]["full"]
    assert agreement["per_document, bfloat16"]["agrees"]
    assert agreement["varlen, bfloat16"]["cannot"].startswith("varlen has kernels for cuda")
    aligned = parts["chunks without a mask"]["found"]["lower_right, 7 of 50, window 16"]
    assert aligned["agrees"]
    # What is missing is done again, and nothing else.
    del parts["methods"]
    out.write_text(json.dumps({"parts": parts}))
    assert done() == ["methods"]


def test_a_damaged_piece_is_named_and_a_missing_package_comes_from_its_wheel(
    tmp_path: Path,
) -> None:
    wheel = tmp_path / "runs" / "gpu" / "wheels" / "absent_here-1-py3-none-any.whl"
    wheel.parent.mkdir(parents=True)
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("absent_here/__init__.py", "print('from the wheel')")
    program = tmp_path / "benchmarks" / "gpu.py"
    program.parent.mkdir()
    program.write_text("import absent_here, sys; print(sys.argv[1:])")
    package = program.with_name("__init__.py")
    package.touch()
    far = tmp_path / "far"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu_bundle, "ROOT", tmp_path)
        [*pieces, _, join] = gpu_bundle.packed([wheel, package, program], far, 4096)
    assert all(piece.stat().st_size <= 4096 for piece in pieces)
    kept = pieces[1].read_bytes()
    pieces[1].write_bytes(kept[:-1])
    ended = run(join.name, cwd=far)
    assert ended.returncode == 1
    assert f"{pieces[1].name} is damaged" in ended.stderr
    pieces[1].write_bytes(kept)
    ended = run(join.name, "--out", "x.json", cwd=far)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == f"from the wheel\n{['--out', str(far / 'x.json')]}\n"


def _listed(*items: gpu.Item, seconds: int = 60) -> gpu.Part:
    def each(found: Mapping[str, Any]) -> Iterator[gpu.Item]:
        yield from items

    return gpu.Part("one", seconds, "", "", "", each)


def _run(parts: list[gpu.Part], out: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(gpu, "parts", lambda scale, place: parts)
    gpu.run(TOY, out)
    found: dict[str, Any] = json.loads(out.read_text())["parts"]["one"]
    return found


def test_a_part_that_ends_late_goes_on_with_the_item_that_was_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def find(name: str, seconds: float = 0.0) -> str:
        asked.append(name)
        time.sleep(seconds)
        return name

    first, slow = ("first", partial(find, "first")), ("second", partial(find, "second", 30.0))
    monkeypatch.setattr(gpu, "LEAST", 0.2)
    monkeypatch.setattr(gpu, "LIMIT", 1.0)
    began = time.monotonic()
    cut = _run([_listed(first, slow)], tmp_path / "gpu.json", monkeypatch)
    assert time.monotonic() - began < 20
    assert (cut["ended"], list(cut["found"])) == ("late", ["first"])
    whole = _run(
        [_listed(first, ("second", partial(find, "second")))], tmp_path / "gpu.json", monkeypatch
    )
    assert (whole["ended"], list(whole["found"])) == ("done", ["first", "second"])
    assert asked == ["first", "second", "second"]
    assert whole["machine"]["transformers"]


def test_a_failure_is_kept_and_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "gpu.json"
    with pytest.raises(SystemExit, match="failed: one"):
        _run([_listed(("a", lambda: 1 / 0))], out, monkeypatch)
    assert "ZeroDivisionError" in json.loads(out.read_text())["parts"]["one"]["ended"]
    assert _run([_listed(("a", lambda: 1))], out, monkeypatch)["found"] == {"a": 1}


def test_another_machine_answers_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "gpu.json"
    _run([_listed(("a", lambda: 1))], out, monkeypatch)
    changed = json.loads(out.read_text())
    changed["parts"]["one"]["machine"]["cpu"] = "another"
    out.write_text(json.dumps(changed))
    assert _run([_listed(("a", lambda: 2))], out, monkeypatch)["found"] == {"a": 2}


def test_a_machine_without_a_gpu_is_told_so() -> None:
    ended = run("-m", "benchmarks.gpu", CUDA_VISIBLE_DEVICES="")
    assert ended.returncode == 2
    assert "torch finds no GPU here" in ended.stderr


def test_the_first_five_parts_fit_into_one_run() -> None:
    parts = gpu.parts(gpu.SCALES["cuda"], Path())
    assert sum(part.seconds for part in parts[:5]) <= gpu.LIMIT
    assert all(part.question and part.rule for part in parts)
    assert all((gpu.ROOT / part.page).is_file() for part in parts)
