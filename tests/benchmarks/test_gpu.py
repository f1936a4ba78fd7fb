"""The command that waits for a GPU, run in sizes of a toy: its code is not dead."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import gpu
from tests.test_light_installation import run


@pytest.mark.slow
def test_every_part_runs_and_is_kept(tmp_path: Path) -> None:
    out = tmp_path / "gpu.json"

    def done() -> str:
        ended = run("-m", "benchmarks.gpu", "--device", "cpu", "--out", out)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    names = [part.name for part in gpu.parts(gpu.SCALES["cpu"])]
    assert [line.partition(":")[0] for line in done().splitlines()] == names
    whole = json.loads(out.read_text())
    assert not [name for name, part in whole["parts"].items() if "failed" in part]
    agreement = whole["parts"][names[0]]
    own = {key: got for key, got in agreement.items() if key.startswith("per_document")}
    assert len(own) == 4 * 2
    assert all(got["agrees"] for got in own.values())
    assert agreement["varlen, full, bfloat16"]["cannot"].startswith("varlen has kernels for cuda")
    # What is missing is done again, and nothing else.
    del whole["parts"][names[1]]
    out.write_text(json.dumps(whole))
    assert done().startswith(f"{names[1]}: ")
    assert list(json.loads(out.read_text())["parts"]) == [names[0], *names[2:], names[1]]


def test_a_machine_without_a_gpu_is_told_so() -> None:
    ended = run("-m", "benchmarks.gpu", CUDA_VISIBLE_DEVICES="")
    assert ended.returncode == 2
    assert "torch finds no GPU here" in ended.stderr


def test_the_parts_of_a_gpu_fit_into_one_run() -> None:
    assert sum(part.minutes for part in gpu.parts(gpu.SCALES["cuda"])) <= gpu.LIMIT / 60
