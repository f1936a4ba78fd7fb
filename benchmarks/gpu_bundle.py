"""Packs what `make gpu` needs for a machine without a network, in pieces for small transfers.

    make real                                 the model of most parts, once
    python -m benchmarks.gpu_bundle FOLDER    pieces of at most 60 MiB, and join.py

On the machine with the card, which has torch, transformers and Python 3.12, and in one folder with
all pieces:

    python join.py --out gpu.json

joins and unpacks them, and runs the list (benchmarks/gpu.py). Packages that may be missing there go
along as wheels: gguf reads the model's file, accelerate trains, pytest runs the tests of engines.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from benchmarks.gpu import ROOT, TEXT, prepared_text
from studies.smollm2 import model

PIECE = 60 * 2**20
NAME = "ropewalk-gpu.tar"
SOURCES = (
    *("ropewalk", "benchmarks/*.py", "studies/*.py", "docs/*.py", "constraints.txt"),
    *("tests/__init__.py", "tests/examples.py", "tests/attention/*.py"),
)
WHEELS = (
    *("gguf", "accelerate", "psutil", "pytest", "pluggy", "iniconfig"),
    *("hypothesis", "sortedcontainers"),
)
PYTHON = "3.12"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--piece", type=int, default=PIECE, help="bytes of a piece at most")
    parser.add_argument("--toy", action="store_true", help="only what --device cpu needs")
    asked = parser.parse_args()
    files = [*sources(), *(() if asked.toy else large())]
    for piece in packed(files, asked.folder, asked.piece):
        print(f"{piece}: {piece.stat().st_size:,} bytes")


def sources() -> Iterator[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", *SOURCES], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return (ROOT / name for name in listed.stdout.split("\0") if name)


def large() -> Iterator[Path]:
    """The model's file, the text, and the wheels."""
    if not model.FILE.exists():
        raise SystemExit(f"{model.FILE} is not there; run `make real` first")
    yield model.FILE.resolve()
    yield from (Path(prepared_text(part)) for part in ("tuning", "reporting"))
    wheels = TEXT / "wheels"
    asked = ["--python-version", PYTHON, "--only-binary=:all:", "--dest", str(wheels), *WHEELS]
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    subprocess.run([*pip, *asked], check=True)
    yield from sorted(wheels.glob("*.whl"))


def packed(files: Iterable[Path], folder: Path, size: int) -> Iterator[Path]:
    """The pieces, with their digests and the script that joins them."""
    folder.mkdir(parents=True, exist_ok=True)
    whole, digests = folder / NAME, dict[str, str]()
    with tarfile.open(whole, "w") as archive:
        for file in files:
            archive.add(file, file.relative_to(ROOT).as_posix())
    with whole.open("rb") as archive:
        while block := archive.read(size):
            piece = folder / f"{NAME}.{len(digests):03}"
            piece.write_bytes(block)
            digests[piece.name] = hashlib.sha256(block).hexdigest()
            yield piece
    whole.unlink()
    (folder / "pieces.json").write_text(json.dumps(digests, indent=1) + "\n")
    yield folder / "pieces.json"
    yield Path(shutil.copy(Path(__file__).with_name("gpu_join.py"), folder / "join.py"))


if __name__ == "__main__":
    main()
