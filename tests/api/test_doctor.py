"""`rw.doctor` and `ropewalk doctor`: nothing that is missing or broken ends them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import pytest

import ropewalk as rw
from ropewalk.extras import EXTRAS
from tests.api.conformance import check_result

BROKEN = {
    "safetensors": "print('[\"told'); print('[\"safetensors\", 1]')",
    "numba": "raise ImportError('numba needs numpy 1.26')",
    "torch": "raise OSError('libcudart.so: cannot open')\n",
    "pyarrow": "import os; os._exit(9)",
}


def ran(
    folder: Path, packages: Mapping[str, str], *arguments: str
) -> subprocess.CompletedProcess[str]:
    """A command where these packages alone are installed, next to what the core needs."""
    for name, text in packages.items():
        (folder / f"{name}.py").write_text(text)
        told = folder / f"{name}-1.2.dist-info"
        told.mkdir()
        (told / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    return subprocess.run(
        [sys.executable, "-m", "ropewalk", *arguments],
        env={"PYTHONPATH": f"{folder}:{Path(rw.__file__).parents[1]}", "PATH": ""},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def found() -> rw.Diagnosis:
    return rw.doctor()


def test_a_whole_installation(found: rw.Diagnosis) -> None:
    check_result(found)
    assert not found.broken
    versions = {each.name: each.version for each in found.packages}
    assert {*versions} >= {*EXTRAS}
    assert versions["torch"] == metadata.version("torch")
    assert found.device != "unknown, without torch"


def test_a_broken_package_is_named_with_its_error(tmp_path: Path) -> None:
    done = ran(tmp_path, BROKEN, "doctor", "--json")
    assert (done.returncode, done.stderr) == (1, "")
    told = {each["name"]: each for each in json.loads(done.stdout)["packages"]}
    assert told["safetensors"]["fault"] == "", "it prints, and is whole"
    assert told["numba"]["fault"] == "ImportError: numba needs numpy 1.26"
    assert told["torch"]["fault"] == "OSError: libcudart.so: cannot open"
    assert told["pyarrow"]["fault"] == "its import ended the process with status 9"
    assert {each["version"] for name, each in told.items() if name in BROKEN} == {"1.2"}


@pytest.mark.parametrize(
    ("package", "arguments"), [("numba", ["bound", "32k"]), ("torch", ["evaluate", "bundled"])]
)
def test_a_broken_package_is_no_fault_of_ours(
    package: str, arguments: list[str], tmp_path: Path
) -> None:
    empty = dict.fromkeys((*BROKEN, "xllamacpp", "transformers", "datasets", "accelerate"), "")
    done = ran(tmp_path, {**empty, package: BROKEN[package]}, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{package} is installed, but cannot be imported" in done.stderr
