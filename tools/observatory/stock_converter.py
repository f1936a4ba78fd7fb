"""The export to GGUF beside llama.cpp's own converter, tensor by tensor, for a tiny model a family.

    python -m tools.observatory.stock_converter [ARCHIVE]

ARCHIVE is a source archive; without it, pip fetches that of the installed xllamacpp.

The converter is in no registry, but in the source that the package xllamacpp publishes. It is run
in a process of its own, without its vocabulary, for which it knows published tokenizers only. Shows
in what the two files differ, and ends with 1 if a tensor does.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
from gguf import GGUFReader

from ropewalk.exporting.llama_cpp import export
from ropewalk.gguf.families import family_names
from ropewalk.models.config import present_plan
from tests.gguf.gguf_cases import unproven
from tests.gguf.tiny_families import fields, tiny, weights
from tools.observatory.llama_cpp_architectures import fetched

CONVERTING = """
import sys
from pathlib import Path
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/gguf-py"]
import gguf, torch
from conversion import get_model_class
from conversion.base import ModelBase
source = Path(sys.argv[2])
kind = get_model_class(ModelBase.load_hparams(source, False)["architectures"][0])
kind.set_vocab = lambda self: None
with torch.inference_mode():
    ftype = gguf.LlamaFileType[sys.argv[4]]
    kind(dir_model=source, ftype=ftype, fname_out=Path(sys.argv[3])).write()
"""
TYPES = {"F32": "ALL_F32", "F16": "MOSTLY_F16", "Q8_0": "MOSTLY_Q8_0"}


def unpacked(archive: Path, folder: Path) -> Path:
    """Where llama.cpp's source lies, once what the converter needs is there."""
    with tarfile.open(archive) as tar:
        for member in tar:
            _, _, inside = member.name.partition("/thirdparty/llama.cpp/")
            if inside.startswith(("conversion/", "gguf-py/")):
                tar.extract(member, folder, filter="data")
    return next(folder.glob("*/thirdparty/llama.cpp"))


def differences(theirs: Path, ours: Path) -> Iterator[str]:
    """The tensors that are not the same numbers of the same type."""
    own, other = weights(ours), weights(theirs)
    kinds = [
        {t.name: t.tensor_type.name for t in GGUFReader(path).tensors} for path in (theirs, ours)
    ]
    for name in sorted({*own, *other}):
        if name not in own or name not in other:
            yield f"{name}: only {'ours' if name in own else 'theirs'}"
            continue
        # Rows of no token: the converter cuts them off, and here they stay as the model has them.
        rows = len(other[name]) if name == "token_embd.weight" else None
        if kinds[0][name] != kinds[1][name]:
            yield f"{name}: theirs {kinds[0][name]}, ours {kinds[1][name]}"
        elif not torch.equal(own[name][:rows], other[name]):
            yield f"{name}: other numbers"


def keys(theirs: Path, ours: Path) -> Iterator[str]:
    """What the metadata says otherwise, without vocabulary and what is our own."""
    own, other = fields(ours), fields(theirs)
    for key in sorted({*own, *other}):
        if key.startswith(("tokenizer.", "GGUF.", "ropewalk.")):
            continue
        if own.get(key) != other.get(key):
            yield f"{key}: theirs {other.get(key)}, ours {own.get(key)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("archive", nargs="?", type=Path)
    given = parser.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        room = Path(folder)
        source = unpacked(given.archive or fetched(room), room / "source")
        for kind in family_names():
            model = tiny(room / kind, kind)
            for dtype, ftype in TYPES.items():
                theirs, ours = room / f"{kind}-theirs.gguf", room / f"{kind}.gguf"
                command = [sys.executable, "-c", CONVERTING, *map(str, (source, model, theirs))]
                subprocess.run([*command, ftype], check=True, capture_output=True)
                unproven(export)(model, present_plan(model), ours, dtype=dtype, overwrite=True)
                found = list(differences(theirs, ours))
                wrong += len(found)
                print(f"{kind} {dtype}: {len(weights(ours))} tensors, {len(found)} differ")
                for line in found:
                    print(f"  {line}")
            for line in keys(theirs, ours):
                print(f"  {line}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
