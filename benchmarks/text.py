"""Text that no model here was trained on: the source of the packages that constraints.txt pins.

    python -m benchmarks.text        prints the packages, sizes and fingerprints of both parts

It is cut by package into a part for tuning, which no reported figure uses, and a part for
reporting. The proof that all of it is apart is the one of the bundled model's own text: no run of
five lines that carry letters stands in two files, nor in a file and the text of training. A file
that shares one with a file before it is left out. The pinned versions make the text the same
everywhere; its fingerprint goes into every result.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

from ropewalk.data.corpora import Document, corpus_digest
from studies.bundled_model.corpus import read_corpus, shingles

CONSTRAINTS = Path(__file__).parents[1] / "constraints.txt"
TUNING = (
    *("fonttools", "fsspec", "hypothesis", "jinja2", "llvmlite", "matplotlib", "numba"),
    *("pillow", "pydantic", "pytest", "rich", "sympy"),
)
REPORTING = (
    *("click", "gguf", "huggingface_hub", "mpmath", "networkx", "numpy", "pygments"),
    *("tokenizers", "torch", "tqdm", "transformers", "typer"),
)
Part = Literal["tuning", "reporting"]
PACKAGES: dict[Part, tuple[str, ...]] = {"reporting": REPORTING, "tuning": TUNING}
OF_A_PACKAGE = 250_000  # characters at most, so that no package is most of a part
OF_A_FILE = range(6_000, 60_000)  # characters: long enough for a document, and not a table
TESTS = {"test", "tests", "testing"}


class Text(NamedTuple):
    """Both parts, in a fixed order."""

    tuning: tuple[Document, ...]
    reporting: tuple[Document, ...]

    @property
    def fingerprints(self) -> dict[str, str]:
        return {part: corpus_digest(getattr(self, part)) for part in PACKAGES}


@cache
def read_text() -> Text:
    """The documents of both parts; one document a file."""
    corpus = read_corpus()
    known = shingles([*corpus.training.values(), *corpus.held_out.values()])
    found: dict[Part, tuple[Document, ...]] = {}
    for part, packages in PACKAGES.items():
        documents: list[Document] = []
        for package in packages:
            taken = 0
            for document in _files(package):
                own = shingles([document.text])
                if taken + len(document.text) > OF_A_PACKAGE or not own.isdisjoint(known):
                    continue
                known |= own
                taken += len(document.text)
                documents.append(document)
        found[part] = tuple(documents)
    return Text(**found)


def _files(package: str) -> list[Document]:
    """The source files of an installed package that fit, in an order that no name decides."""
    pinned = _pinned()[package]
    installed = importlib.metadata.version(package).partition("+")[0]  # torch 2.13.0+cpu
    if installed != pinned:
        raise SystemExit(
            f"{package} {installed} is installed, and constraints.txt pins {pinned}; run `make`"
        )
    found = []
    for file in importlib.metadata.files(package) or ():
        if file.suffix != ".py" or TESTS & set(file.parts) or ".." in file.parts:
            continue
        text = Path(str(file.locate())).read_text(encoding="utf-8")
        if len(text) in OF_A_FILE:
            found.append(Document(file.as_posix(), text))
    return sorted(found, key=lambda d: hashlib.sha256(d.name.encode()).hexdigest())


@cache
def _pinned() -> dict[str, str]:
    lines = [line for line in CONSTRAINTS.read_text().splitlines() if "==" in line]
    return {name.lower(): version for name, version in (line.split("==") for line in lines)}


def main() -> None:
    text = read_text()
    for part in PACKAGES:
        documents = getattr(text, part)
        size = sum(len(document.text) for document in documents)
        print(f"{part}: {len(documents)} files, {size:,} characters, {text.fingerprints[part]}")
        for package in PACKAGES[part]:
            own = {d.name for d in _files(package)} & {d.name for d in documents}
            size = sum(len(d.text) for d in documents if d.name in own)
            print(f"    {package} {_pinned()[package]}: {len(own)} files, {size:,} characters")


if __name__ == "__main__":
    main()
