"""Checks the files of a release, and does the main job with the wheel in an empty environment.

    make dist

The wheel holds the tracked files of `ropewalk/` and nothing else; the source distribution holds
what is tracked. The wheel is installed with its declared dependencies and the extras of the main
job, at the versions of constraints.txt, far from the sources: plan, extend, export and verify must
end well there. What was installed is written as a bill of materials (CycloneDX) and as a list of
licences, from the metadata of the packages.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST_BYTES = {"wheel": 5_000_000, "source distribution": 40_000_000}
EXTRAS = "models,gguf"
MATERIALS, LICENCES = ROOT / "build" / "materials.cdx.json", ROOT / "build" / "licences.md"
UNKNOWN = "not stated"
MAIN_JOB = (
    "plan bundled --to 2k --method yarn -o plan.json",
    "extend bundled --to 1k --run run --budget 6",
    "verify run/model",
    "verify run/model.gguf",
    "export bundled --plan plan.json --runtime vllm -o served",
    "export bundled --plan plan.json --runtime transformers -o shadow --shadow",
    "verify shadow",
)


def tracked(root: Path) -> set[str]:
    """The files of the project by their paths, as its version control has them."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=root, capture_output=True, check=True, text=True
    )
    return set(filter(None, listed.stdout.split("\0")))


def problems(wheel: Path, source: Path, files: set[str]) -> Iterator[str]:
    """The differences of both files from what a release should hold."""
    name = "-".join(wheel.name.split("-")[:2])
    with zipfile.ZipFile(wheel) as opened:
        found = {own for own in opened.namelist() if not own.startswith(f"{name}.dist-info/")}
    yield from _differ("wheel", found, {own for own in files if own.startswith("ropewalk/")})
    with tarfile.open(source) as archive:
        found = {own.name.removeprefix(f"{name}/") for own in archive if own.isfile()}
    yield from _differ("source distribution", found - {"PKG-INFO"}, files)
    for path, kind in ((wheel, "wheel"), (source, "source distribution")):
        if path.stat().st_size > MOST_BYTES[kind]:
            yield f"{path.name} has {path.stat().st_size:,} bytes, over {MOST_BYTES[kind]:,}"


def _differ(kind: str, found: set[str], wanted: set[str]) -> Iterator[str]:
    yield from (f"the {kind} holds {name}, which it should not" for name in sorted(found - wanted))
    yield from (f"the {kind} lacks {name}" for name in sorted(wanted - found))


def licence_of(package: metadata.Distribution) -> str:
    """A package's licence, as its metadata state it: an expression, a classifier or a name."""
    classified = [
        each.rpartition(" :: ")[2]
        for each in package.metadata.get_all("Classifier") or ()
        if each.startswith("License :: ") and not each.endswith("OSI Approved")
    ]
    named = "\n".join(package.metadata.get_all("License") or ()).strip().partition("\n")[0]
    expression = package.metadata.get_all("License-Expression") or ()
    return next(iter(expression), ", ".join(classified) or named[:80] or UNKNOWN)


def materials(packages: Iterable[metadata.Distribution]) -> dict[str, object]:
    """The bill of materials of an environment, as CycloneDX 1.6."""
    components = [
        {
            "type": "library",
            "name": package.metadata["Name"],
            "version": package.version,
            "purl": f"pkg:pypi/{package.metadata['Name'].lower()}@{package.version}",
            "licenses": [{"license": {"name": licence_of(package)}}],
        }
        for package in sorted(packages, key=lambda each: each.metadata["Name"].lower())
    ]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "components": components,
    }


def write_materials() -> None:
    """Describe the environment of this process."""
    found = materials(metadata.distributions())
    MATERIALS.parent.mkdir(exist_ok=True)
    MATERIALS.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    rows = [
        f"| {own['name']} | {own['version']} | {own['licenses'][0]['license']['name']} |"
        for own in found["components"]  # type: ignore[attr-defined]
    ]
    heads = ["| package | version | licence |", "|---|---|---|"]
    LICENCES.write_text("\n".join([*heads, *rows, ""]), encoding="utf-8")


def try_wheel(wheel: Path) -> None:
    """Install it in an empty environment, do the main job there, and describe what it needed."""
    with tempfile.TemporaryDirectory(prefix="ropewalk-dist-") as room:
        venv.create(Path(room) / "venv", with_pip=True)
        python = Path(room) / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"

        def run(*words: str) -> None:
            print("$", *words, flush=True)
            subprocess.run([python, "-P", *words], cwd=room, check=True)

        constraints = str(ROOT / "constraints.txt")
        run("-m", "pip", "install", "-q", "-c", constraints, f"{wheel}[{EXTRAS}]")
        for line in MAIN_JOB:
            run("-m", "ropewalk", *line.split())
        subprocess.run([python, __file__, "materials"], check=True)


def main() -> None:
    if sys.argv[1:] == ["materials"]:
        write_materials()
        return
    folder = Path(sys.argv[1]).resolve()
    (wheel,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    if found := [*problems(wheel, source, tracked(ROOT))]:
        sys.exit("\n".join(found))
    try_wheel(wheel)
    print(f"{wheel.name} does the main job; {MATERIALS} and {LICENCES} say what it was tried with")


if __name__ == "__main__":
    main()
