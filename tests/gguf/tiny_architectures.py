"""Tiny files of many architectures, of random weights, that the real llama.cpp loads.

    python -m tests.gguf.tiny_architectures [ARCHITECTURE …]    writes tiny_architectures.json,
                                                    and from it gguf/required_tensors.json

Which tensors an architecture has, and of which shapes, llama.cpp itself tells: it is given a file
without tensors, and names the first that it misses, or whose shape it expects otherwise, until it
loads the file.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from ropewalk.gguf.tensors import TABLE as REQUIRED
from tests.gguf.gguf_files import finished

TABLE = Path(__file__).with_name("tiny_architectures.json")
ORIGINAL = 32
"""The window of the files."""
LENGTH = 96
"""What they state."""
HEAD, WIDTH, LAYERS, FEED = 16, 64, 2, 96
KEYS = json.loads(Path(__file__).with_name("architecture_keys.json").read_text("utf-8"))
"""The settings of every file, of files with experts, and of single architectures."""
LOADING = """
import json, os, sys, xllamacpp
for line in sys.stdin:
    p = xllamacpp.CommonParams()
    p.model.path, p.n_ctx, p.n_parallel, p.n_gpu_layers = line.strip(), 64, 1, 0
    p.warmup, p.fit_params, p.verbosity = False, False, 1
    began = os.path.getsize(sys.argv[1])
    try:
        held = xllamacpp.Server(p)  # to let it go may take for ever
    except RuntimeError:
        told = ""
        while "failed to load" not in told:  # it writes while this goes on
            with open(sys.argv[1], errors="replace") as file:
                file.seek(began)
                told = file.read()
        print("\\n@" + json.dumps(told), flush=True)
    else:
        print("\\n@" + json.dumps(""), flush=True)
        os._exit(0)
"""
_MISSING = re.compile(r"tensor '([\w.]+)' not found|missing tensor '([\w.]+)'")
_KEY = re.compile(r"key not found in model: [\w-]+\.([\w.]+)")
_GIVEN = ("block_count", "attention.head_count", "expert_count", "expert_used_count")
"""Keys that a file has from the beginning, as those that it asks for depend on them."""
_SHAPE = re.compile(r"tensor '([\w.]+)' has wrong shape; expected([ \d,]+), got")


def keys_of(architecture: str) -> dict[str, Any]:
    """What the file says of a model, under the names that any architecture may ask for."""
    experts = KEYS["with experts"] if architecture in KEYS["experts"] else {}
    return {**KEYS["every"], **KEYS["of its own"].get(architecture, {}), **experts}


def write(
    path: Path, architecture: str, keys: dict[str, Any], tensors: dict[str, list[int]]
) -> Path:
    """A file with random weights of these shapes."""
    random = np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in keys.items():
        name = f"{architecture}.{key}"
        if isinstance(value, bool):
            writer.add_bool(name, value)
        elif isinstance(value, str):
            writer.add_string(name, value)
        elif isinstance(value, float):
            writer.add_float32(name, value)
        elif isinstance(value, list):
            writer.add_array(name, value)
        else:
            writer.add_uint32(name, value)
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256)), "a"]
    for name in ("alpha_n", "alpha_p", "beta", "eps") if architecture == "apertus" else ():
        writer.add_array(f"xielu.{name}", [1.0] * keys["block_count"])
    writer.add_tokenizer_model("llama")
    writer.add_token_list(pieces)
    writer.add_token_scores([0.0] * len(pieces))
    writer.add_token_types([2, 3, 3] + [6] * 256 + [1])
    for name, shape in tensors.items():
        values: NDArray[np.floating[Any]] = random.normal(0, 0.3, shape[::-1])
        if "norm" in name and name.endswith("weight"):
            values = 1 + values / 3
        if "ssm_a" in name:
            values = -np.abs(values)
        writer.add_tensor(name, values.astype(np.float32))
    return finished(writer, path)


def made(path: Path, architecture: str) -> Path:
    """A tiny file of an architecture that was found before."""
    found = json.loads(TABLE.read_text("utf-8"))[architecture]
    return write(path, architecture, found["keys"], found["tensors"])


def deep(path: Path, architecture: str, layers: int, **keys: Any) -> Path:
    """The same with more layers, llama.cpp's own pattern of windows, and other keys (`__`: a dot).

    It holds no keys of other architectures, which `keys_of` gives to all.
    """
    found = json.loads(TABLE.read_text("utf-8"))[architecture]
    given = {key.replace("__", "."): value for key, value in keys.items()}
    own = {**found["keys"], "block_count": layers, **given}
    for key in ("attention.sliding_window_pattern", "rope.scaling.original_context_length"):
        own.pop(key, None)
    others = ("ssm.", "shortconv.", "attention.q_lora", "attention.kv_", "attention.key_length_")
    own = {key: value for key, value in own.items() if not key.startswith(others)}
    tensors = {
        name.replace("blk.0.", f"blk.{i}."): shape
        for name, shape in found["tensors"].items()
        if not name.startswith("blk.") or name.startswith("blk.0.")
        for i in range(layers if name.startswith("blk.") else 1)
    }
    return write(path, architecture, own, tensors)


def known() -> tuple[str, ...]:
    return tuple(json.loads(TABLE.read_text("utf-8")))


class LoadingProcess:
    """A process that loads files with llama.cpp, one after another; a new one once it ended."""

    def __init__(self, room: Path) -> None:
        self._complaints = room / "complaints"
        self._llama: subprocess.Popen[str] | None = None

    def complaint(self, path: Path) -> str:
        """The complaint of llama.cpp about a file; empty if it loads it."""
        if self._llama is None:
            with self._complaints.open("w") as heard:
                self._llama = subprocess.Popen(
                    [sys.executable, "-c", LOADING, str(self._complaints)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=heard,
                    text=True,
                )
        llama = self._llama
        assert llama.stdin is not None and llama.stdout is not None  # noqa: PT018
        llama.stdin.write(f"{path}\n")
        llama.stdin.flush()
        answer = llama.stdout.readline()
        while answer and not answer.startswith("@"):  # it prints something itself
            answer = llama.stdout.readline()
        found = str(json.loads(answer[1:])) if answer else ""
        if not found:
            self.close()
        if not answer:  # it ends its process on some files
            said = self._complaints.read_text("utf-8", errors="replace").strip()
            found = f"it ended its process: {said[-600:]}"
        return found

    def close(self) -> None:
        if self._llama is not None:
            self._llama.communicate()
            self._llama = None


def discovered(architecture: str) -> dict[str, Any] | str:
    """The keys and tensors with which llama.cpp loads an architecture, and the keys that it asks
    for; or what it says instead."""
    every, tensors, asked = keys_of(architecture), dict[str, list[int]](), list[str]()
    keys = {key: every[key] for key in _GIVEN if key in every}
    with tempfile.TemporaryDirectory() as room:
        loading = LoadingProcess(Path(room))
        with closing(loading):
            for _ in range(200):
                path = write(Path(room) / "a.gguf", architecture, keys, tensors)
                complaint = loading.complaint(path)
                if not complaint:
                    return {"asked": sorted(asked), "keys": keys, "tensors": tensors}
                if (missing := _KEY.search(complaint)) and missing[1] in every:
                    asked.append(missing[1])
                    keys[missing[1]] = every[missing[1]]
                elif len(keys) < len(every):
                    keys = every
                elif not mended(complaint, tensors):
                    return complaint.strip()[:600]
            return "it never loads"


def mended(complaint: str, tensors: dict[str, list[int]]) -> bool:
    """Whether the next file has what llama.cpp missed in this one."""
    if shape := _SHAPE.search(complaint):
        found = [int(n) for n in shape[2].split(",")]
        while len(found) > 1 and found[-1] == 1:
            found.pop()
        tensors[shape[1]] = found
        return True
    missing = _MISSING.search(complaint)
    name = missing and (missing[1] or missing[2])
    if not name or name in tensors:
        return False
    # A block is like the first, most often.
    tensors[name] = list(tensors.get(re.sub(r"^blk\.\d+", "blk.0", name), [1]))
    return True


def required() -> dict[str, list[list[str]]]:
    """The tensors that each architecture asks for, of the model and of each block; and its keys."""
    found = {}
    for name, made in json.loads(TABLE.read_text("utf-8")).items():
        blocks: dict[str, list[str]] = {}
        whole: list[str] = []
        for tensor in made["tensors"]:
            block = re.fullmatch(r"blk\.(\d+)\.(.+)", tensor)
            if block is None:
                whole.append(tensor)
            else:
                blocks.setdefault(block[1], []).append(block[2])
        every = [own for own in blocks["0"] if all(own in names for names in blocks.values())]
        found[name] = [sorted(whole), sorted(every), made["asked"]]
    return found


def write_required() -> None:
    rows = (f"  {json.dumps(name)}: {json.dumps(own)}" for name, own in required().items())
    REQUIRED.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")


def main(wanted: Iterable[str]) -> None:
    found = json.loads(TABLE.read_text("utf-8")) if TABLE.exists() else {}
    for architecture in wanted:
        own = discovered(architecture)
        if isinstance(own, str):
            print(f"{architecture}: {own}", flush=True)
            continue
        print(f"{architecture}: {len(own['tensors'])} tensors", flush=True)
        found[architecture] = own
        TABLE.write_text(json.dumps(dict(sorted(found.items()))) + "\n", encoding="utf-8")
    write_required()


if __name__ == "__main__":
    main(sys.argv[1:] or KEYS["wanted"])
