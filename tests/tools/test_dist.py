"""The checks of a release: each stray or missing file is named, and licences are those stated."""

from __future__ import annotations

import json
import re
import tarfile
import tomllib
import zipfile
from importlib import metadata
from io import BytesIO
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from tools import dist

ROOT = Path(__file__).parents[2]


def built(folder: Path, wheel: dict[str, bytes], source: dict[str, bytes]) -> tuple[Path, Path]:
    paths = folder / "ropewalk-0.1.0-py3-none-any.whl", folder / "ropewalk-0.1.0.tar.gz"
    with zipfile.ZipFile(paths[0], "w") as opened:
        for name, content in {"ropewalk-0.1.0.dist-info/METADATA": b"", **wheel}.items():
            opened.writestr(name, content)
    with tarfile.open(paths[1], "w:gz") as archive:
        for name, content in {"PKG-INFO": b"", **source}.items():
            entry = tarfile.TarInfo(f"ropewalk-0.1.0/{name}")
            entry.size = len(content)
            archive.addfile(entry, BytesIO(content))
    return paths


def test_the_files_of_a_release_are_those_that_are_tracked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"ropewalk/a.py", "tests/b.py", "README.md"}
    whole = built(tmp_path, {"ropewalk/a.py": b""}, dict.fromkeys(files, b""))
    assert [*dist.problems(*whole, files)] == []
    monkeypatch.setitem(dist.MOST_BYTES, "wheel", 10)
    strays = built(tmp_path, {"tests/b.py": b"", "ropewalk/key.pem": b""}, {"README.md": b""})
    found = [*dist.problems(*strays, files)]
    assert found[:3] == [
        "the wheel holds ropewalk/key.pem, which it should not",
        "the wheel holds tests/b.py, which it should not",
        "the wheel lacks ropewalk/a.py",
    ]
    assert any("source distribution lacks ropewalk/a.py" in each for each in found)
    assert re.search(r"whl has \d+ bytes, over 10", found[-1])


def test_everything_tracked_is_found() -> None:
    files = dist.tracked(ROOT)
    assert {"ropewalk/__init__.py", "Makefile", "tests/test_size.py"} <= files
    assert "ropewalk/data/held_out/LICENSE-PYTHON" in files


def test_materials_state_each_licence() -> None:
    found = json.loads(json.dumps(dist.materials(metadata.distributions())))
    assert (found["bomFormat"], found["specVersion"]) == ("CycloneDX", "1.6")
    parts = {own["name"].lower(): own for own in found["components"]}
    numpy = parts["numpy"]
    assert numpy["purl"] == f"pkg:pypi/numpy@{metadata.version('numpy')}"
    assert "BSD" in numpy["licenses"][0]["license"]["name"]
    assert "Apache" in parts["transformers"]["licenses"][0]["license"]["name"]
    assert all(own["licenses"][0]["license"]["name"] for own in parts.values())


def test_the_ends_that_are_tried_are_those_of_the_ranges() -> None:
    [line] = re.findall(r"^ENDS := (.+)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    ranges = {
        each.name: each for each in map(Requirement, project["optional-dependencies"]["models"])
    }
    pairs = [pair.split("/") for pair in line.split()]
    page = (ROOT / "docs" / "stability.md").read_text(encoding="utf-8")
    for name, tried in zip(("torch", "transformers"), zip(*pairs, strict=True), strict=True):
        lowest, highest = sorted({*map(Version, tried)})
        bounds = {own.operator: Version(own.version) for own in ranges[name].specifier}
        assert bounds[">="].release[:2] == lowest.release[:2]
        major, minor = highest.release[:2]
        assert bounds["<"] == Version(f"{major}.{minor + 1}")
        for each in (lowest, highest):
            assert f"{each.major}.{each.minor}" in page
