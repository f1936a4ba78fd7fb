"""The files that mutants are made of: small models, exports, runs, a fingerprint and a store."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import ropewalk as rw
from ropewalk.__main__ import run
from ropewalk.exporting.manifest import Manifest
from ropewalk.reports import figures

GOLDEN = Path(__file__).parents[2] / "tests" / "golden" / "configs"
CONFIGS = ("llama-3.1-8b", "gemma-3-4b", "phi-3-mini-128k", "deepseek-v3", "gpt-oss-20b")
BY_RULES = ("--runtime", "vllm", "--runtime", "sglang", "--no-run")
SPOILED = {
    "cut weights": "model.safetensors",
    "weights that are no numbers": "model.safetensors",
    "another tokenizer": "tokenizer.json",
}
"""Models that `verify` finds wrong, and the file in which they are."""


def words(verb: str, *arguments: str) -> Callable[[Path], list[str]]:
    """The words of a command for a folder; arguments that name something in it become paths."""

    def of(folder: Path) -> list[str]:
        return [verb, *(_placed(each, folder) for each in arguments)]

    return of


def _placed(word: str, folder: Path) -> str:
    in_it = word == "" or "." in word
    return str(folder / word) if in_it and not word.startswith("-") else word


def build(folder: Path) -> list[str]:
    """A small store, anew."""
    store = folder.parent / "built"
    shutil.rmtree(store, ignore_errors=True)
    return ["data", "build", str(folder), "--corpus", str(folder / "corpus.txt"), "-o", str(store)]


def fingerprint(folder: Path) -> Callable[[], object]:
    def read() -> object:
        from ropewalk.evaluation.served.fingerprint import Fingerprint

        return Fingerprint.read(folder / "fingerprint.json").summary()

    return read


_before: dict[Path, bytes] = {}


def remember(path: Path) -> None:
    """All files of the folder, until `restore`."""
    _before.clear()
    _before.update((each, each.read_bytes()) for each in path.parent.iterdir() if each.is_file())


def restore(folder: Path) -> None:
    """Write back what was changed, and remove what was added."""
    for path in list(folder.iterdir()):
        if path.is_dir():
            shutil.rmtree(path)
        elif path not in _before:
            path.unlink()
        elif path.read_bytes() != _before[path]:
            path.write_bytes(_before[path])
    for path in _before.keys() - set(folder.iterdir()):
        path.write_bytes(_before[path])


def make_light(room: Path) -> None:
    """Configs and plans, for which nothing is computed."""
    for name in (*CONFIGS, "planned"):
        (room / name).mkdir()
        source = GOLDEN / f"{'llama-3.1-8b' if name == 'planned' else name}.json"
        shutil.copyfile(source, room / name / "config.json")
    plan = rw.plan(room / "planned" / "config.json", "512k", "yarn").plan
    (room / "planned" / "plan.json").write_text(plan.dumps())


def make_heavy(room: Path) -> None:
    """A model in several states, and what verbs make of it."""
    from tests.evaluation import tiny

    figures.PICTURES = ()  # type: ignore[assignment]  # which take longer than all the rest
    plain = tiny.folder_of(tiny.model(), room / "plain")
    text = "\n".join(document.text for document in tiny.documents(4))
    corpus = room / "corpus.txt"
    corpus.write_text(text)
    (plain / "corpus.txt").write_text(text[:2_000])
    _models(room, plain)
    plan = rw.plan(plain, "256", "yarn").plan
    (room / "plan.json").write_text(plan.dumps())
    made, given = str(plain), ["--corpus", str(corpus)]
    planned = ["--plan", str(room / "plan.json")]
    tasks = ["--tasks", "passkey,kv", "--lengths", "64,128", "--samples", "3"]
    for call in (
        ["evaluate", made, *tasks, *given, "--run", str(room / "evaluated")],
        ["search", made, "--to", "256", "--budget", "4", *given, "--run", str(room / "searched")],
        ["export", made, *planned, "--runtime", "transformers", "-o", str(room / "exported")],
        ["data", "build", made, *given, "-o", str(room / "stored")],
        ["fingerprint", made, *planned, *given, "-o", str(room / "fingerprint.json")],
    ):
        _done(call)
    (room / "prints").mkdir()
    shutil.move(room / "fingerprint.json", room / "prints")
    (room / "gguf").mkdir()
    rw.export("bundled", rw.plan("bundled", "2k", "yarn").plan, room / "gguf" / "model.gguf",
              "llama.cpp")  # fmt: skip


def _models(room: Path, plain: Path) -> None:
    """The same model whole, with its checksums, and spoiled."""
    whole = shutil.copytree(plain, room / "whole")
    (whole / "corpus.txt").unlink()
    Manifest.of(whole).write(whole)
    for state, file in SPOILED.items():
        own = shutil.copytree(whole, room / state)
        raw = (own / file).read_bytes()
        if state == "cut weights":
            raw = raw[:-100]
        elif file == "model.safetensors":
            raw = raw[:-4_000] + b"\xff" * 4_000
        else:
            value = json.loads(raw)
            value["model"]["vocab"] |= {f"x{i}": 257 + i for i in range(2_000)}
            raw = json.dumps(value).encode()
        (own / file).write_bytes(raw)


def _done(call: list[str]) -> None:
    told = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(told):
        status = run(call)
    if status:
        raise RuntimeError(f"{' '.join(call)}: {told.getvalue()}")
