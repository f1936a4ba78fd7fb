"""Joins the pieces of benchmarks/gpu_bundle.py that lie in its folder, and runs the list from them.

    python join.py --out gpu.json      arguments are those of benchmarks/gpu.py

It needs nothing but Python, and no network. A wheel is unpacked only if its package is missing.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE / "ropewalk-gpu"
SITE = ROOT / "site"


def main() -> int:
    if not ROOT.exists():
        join()
    arguments = list(sys.argv[1:])
    for place, word in enumerate(arguments[:-1]):
        if word == "--out":  # the list runs in another folder
            arguments[place + 1] = str(Path(arguments[place + 1]).resolve())
    path = os.pathsep.join([str(ROOT), str(SITE), *filter(None, [os.environ.get("PYTHONPATH")])])
    offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "PYTHONPATH": path}
    command = [sys.executable, "-m", "benchmarks.gpu", *arguments]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **offline}, check=False).returncode


def join() -> None:
    part, digests = ROOT.with_suffix(".part"), json.loads((HERE / "pieces.json").read_text())
    whole = HERE / "whole.tar"
    with whole.open("wb") as out:
        for name, digest in digests.items():
            piece = HERE / name
            block = piece.read_bytes() if piece.exists() else b""
            if hashlib.sha256(block).hexdigest() != digest:
                raise SystemExit(f"{piece} is {'damaged' if block else 'missing'}; copy it again")
            out.write(block)
    with tarfile.open(whole) as archive:
        archive.extractall(part, filter="data")
    whole.unlink()
    for wheel in sorted(part.glob("runs/gpu/wheels/*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            named = {name.partition("/")[0].removesuffix(".py") for name in archive.namelist()}
            named = {name for name in named if name.isidentifier()}
            if not all(map(importlib.util.find_spec, named)):
                archive.extractall(part / SITE.name)
    part.rename(ROOT)


if __name__ == "__main__":
    sys.exit(main())
