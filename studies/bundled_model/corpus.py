"""The text: which modules of the standard library train the model, and which are kept from it.

Training and held-out text are disjoint by module. Code is also copied between modules, so the
split is proved on the text itself: no run of five lines that carry words stands in both.
"""

from __future__ import annotations

import hashlib
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

HELD_OUT_MODULES = (
    "_pydecimal",
    "argparse",
    "datetime",
    "difflib",
    "doctest",
    "heapq",
    "inspect",
    "ipaddress",
    "mailbox",
    "statistics",
    "tarfile",
    "textwrap",
    "zipfile",
)

# Packages whose text is prose and code. Left out: tables (encodings, pydoc_data, html), tests,
# demos and applications, and everything that is generated for one machine (_sysconfigdata).
TRAINING_PACKAGES = (
    "asyncio",
    "collections",
    "concurrent",
    "ctypes",
    "curses",
    "dbm",
    "email",
    "http",
    "importlib",
    "json",
    "logging",
    "multiprocessing",
    "re",
    "sqlite3",
    "tkinter",
    "tomllib",
    "unittest",
    "urllib",
    "wsgiref",
    "xml",
    "xmlrpc",
    "zoneinfo",
)

LINES_PER_SHINGLE = 5
# A shingle is kept in the record when its hash is divisible by this: a record of every one of them
# would weigh more than the model.
SHINGLE_SAMPLING = 64


@dataclass(frozen=True)
class Corpus:
    """Texts by module path, in a fixed order."""

    training: dict[str, str]
    held_out: dict[str, str]
    dropped: tuple[str, ...]  # training modules that share a shingle with the held-out text


def read_corpus() -> Corpus:
    """The standard library of the running Python, split."""
    root = Path(sysconfig.get_path("stdlib"))
    held_out = {f"{name}.py": _text(_module(root, name)) for name in HELD_OUT_MODULES}
    kept_apart = shingles(held_out.values())
    training: dict[str, str] = {}
    dropped: list[str] = []
    for path in _training_files(root):
        name, text = path.relative_to(root).as_posix(), _text(path)
        if kept_apart.isdisjoint(shingles([text])):
            training[name] = text
        else:
            dropped.append(name)
    return Corpus(training, held_out, tuple(dropped))


def _module(root: Path, name: str) -> Path:
    """The file of a module, some of which later Pythons have made packages."""
    path = root / f"{name}.py"
    return path if path.exists() else root / name / "__init__.py"


def shingles(texts: Iterable[str]) -> set[str]:
    """Hashes of every run of five consecutive lines that carry at least one letter."""
    found: set[str] = set()
    for text in texts:
        lines = [line.strip() for line in text.splitlines() if any(map(str.isalpha, line))]
        for start in range(len(lines) - LINES_PER_SHINGLE + 1):
            joined = "\n".join(lines[start : start + LINES_PER_SHINGLE])
            found.add(hashlib.sha256(joined.encode()).hexdigest()[:12])
    return found


def sampled(hashes: Iterable[str]) -> list[str]:
    """The shingles that the record carries: chosen by value, so both sides choose the same ones."""
    return sorted(each for each in hashes if int(each, 16) % SHINGLE_SAMPLING == 0)


def sha256(texts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for text in texts:
        digest.update(text.encode())
    return digest.hexdigest()


def _training_files(root: Path) -> list[Path]:
    top_level = [
        path
        for path in root.glob("*.py")
        if path.stem not in HELD_OUT_MODULES and not path.stem.startswith("_sysconfigdata")
    ]
    packaged = [
        path
        for package in TRAINING_PACKAGES
        for path in (root / package).rglob("*.py")
        if not {"test", "tests"} & set(path.parts)
    ]
    return sorted(top_level + packaged)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def licence_text() -> str:
    """The licence of the text, as this Python ships it."""
    return _text(Path(sysconfig.get_path("stdlib")) / "LICENSE.txt")
