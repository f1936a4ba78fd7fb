"""Twenty results, computed twice by processes with different hash seeds: the same bytes.

    python -m tools.reliability.determinism FOLDER      makes all of them in a folder

Both processes work in folders of the same relative paths, since results name their files.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tools.reliability.row import FOLDER, Case, Row

ROOT = FOLDER.parents[1]
GIVEN = ("--corpus", "corpus.txt")
PLANNED = ("--plan", "plan.json")
TASKS = ("--tasks", "kv", "--lengths", "128", "--samples", "3")
MADE: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "bound": (("bound", "128k", "--json"), ()),
    "methods": (("methods", "--json"), ()),
    "inspect": (("inspect", "model", "--json"), ()),
    "plan, one method": (("plan", "model", "--to", "256", "--method", "yarn", "-o", "plan.json"),
                         ("plan.json",)),
    "plan, all methods": (("plan", "model", "--to", "256", "--json"), ()),
    "cost": (("cost", "model", "--to", "256", "--json"), ()),
    "verify": (("verify", "model", "--no-run", "--json"), ()),
    "export, previewed": (("export", "model", *PLANNED, "--dry-run", "--json"), ()),
    "data build": (("data", "build", "model", *GIVEN, "-o", "store"),
                   ("store/manifest.json", "store/tokens-00000.bin", "store/shards.jsonl")),
    "data describe": (("data", "describe", "store", "--length", "64", "--json"), ()),
    "evaluate": (("evaluate", "model", *TASKS, *GIVEN, "--run", "evaluated", "--json"),
                 ("evaluated/results.json",)),
    "evaluate, records": ((), ("evaluated/records.jsonl", "evaluated/run.json")),
    "evaluate, planned": (("evaluate", "model", *PLANNED, *TASKS, *GIVEN, "--run", "again"),
                          ("again/results.json", "again/records.jsonl")),
    "report of an evaluation": (("report", "evaluated", "-o", "page.html"), ("page.html",)),
    "compare": (("compare", "evaluated", "evaluated", "--json"), ()),
    "search": (("search", "model", "--to", "256", "--budget", "4", *GIVEN, "--run", "searched"),
               ("searched/results.json", "searched/plan.json")),
    "search, history": ((), ("searched/search.jsonl", "searched/search-measured.jsonl")),
    "fingerprint": (("fingerprint", "model", *PLANNED, *GIVEN, "-o", "fingerprint.json"),
                    ("fingerprint.json",)),
    "export": (("export", "model", *PLANNED, "--runtime", "transformers", "-o", "exported"),
               ("exported/config.json", "exported/model.safetensors")),
    "card": ((), ("exported/README.md", "exported/rescale-factors.svg")),
}  # fmt: skip
"""By name, the words of a command, and the files whose bytes are compared as well as its output."""


def make() -> None:
    """Everything, in the working directory."""
    from ropewalk.__main__ import run
    from ropewalk.reports import figures
    from tests.evaluation import tiny

    figures.PICTURES = ()  # which carry the versions of their libraries
    tiny.folder_of(tiny.model(), Path("model"))
    text = "\n".join(document.text for document in tiny.documents(4))
    Path("corpus.txt").write_text(text, encoding="utf-8")
    for number, (words, _) in enumerate(MADE.values()):
        with Path(f"{number}.out").open("w") as out, contextlib.redirect_stdout(out):
            status = run(words) if words else 0
        Path(f"{number}.status").write_text(str(status))


def _compared(rooms: list[Path], number: int, files: tuple[str, ...]) -> str | None:
    for name in (f"{number}.status", f"{number}.out", *files):
        if not all((room / name).exists() for room in rooms):
            return f"{name} was not made"
        one, other = ((room / name).read_bytes() for room in rooms)
        if name.endswith(".out"):  # which may say how long a command took
            one, other = (re.sub(rb"\b[\d.]+ s$", b"", text, flags=re.M) for text in (one, other))
        if name.endswith(".status") and one not in (b"0", b"3"):
            return f"ended with {one.decode()}"
        if one != other:
            at = next((i for i, pair in enumerate(zip(one, other, strict=False))
                       if pair[0] != pair[1]), -1)  # fmt: skip
            return f"{name} differs at byte {at}: {one[at - 40 : at + 40]!r}"
    return None


def cases(room: Path, seed: int) -> Iterator[Case]:
    rooms = [room / "one" / "work", room / "two" / "work"]
    for hash_seed, own in enumerate(rooms):
        own.mkdir(parents=True)
        env = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": str(ROOT)}
        with (own.parent / "told").open("w") as told:
            command = [sys.executable, "-m", "tools.reliability.determinism", "."]
            subprocess.run(command, cwd=own, env=env, stderr=told, check=True)
    for number, (name, (_, files)) in enumerate(MADE.items()):
        yield Case(name, partial(_compared, rooms, number, files))


ROWS = (
    Row(
        "determinism",
        "twenty results of verbs, made by two processes with different hash seeds",
        "identical bytes of files and of output, up to the seconds that a command says it took",
        20,
        cases,
    ),
)

if __name__ == "__main__":
    os.chdir(sys.argv[1])
    make()
