"""Writes the file tree of docs/architecture.md: a few words for each file, from its docstring.

python docs/make_tree.py
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
FOLDERS = ("ropewalk", "examples", "benchmarks", "studies", "docs")
NAMED = (
    *("ropewalk/api", "ropewalk/cli", "ropewalk/scaling", "ropewalk/evaluation/tasks"),
    *("ropewalk/audit/files", "ropewalk/audit/traps", "ropewalk/gguf/families"),
    *("ropewalk/pipeline/stages", "ropewalk/reports"),
    *("ropewalk/training/recipes", "benchmarks", "studies", "docs"),
)
"""Folders whose files are listed by name alone: the name says it, or a page shows the result."""
BEGIN, END = "<!-- written by docs/make_tree.py -->\n", "<!-- until here -->\n"
NAME, FEW = 3, 8
"""Words of a clause that only names its subject, and of two clauses that fit a line."""


def tree() -> str:
    """The tree as text: packages first where they stand, a file a line."""
    return "".join(line for folder in FOLDERS for line in _lines(ROOT / folder, 0))


def blocks() -> dict[str, str]:
    return {"docs/architecture.md": f"```\n{tree()}```"}


def written(page: str) -> str:
    """The page with the present tree in it."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}```\n{tree()}```\n{END}{after}"


def files() -> list[Path]:
    """Every file that the tree names."""
    found = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    return [path for path in sorted(found) if path.name != "__init__.py"]


def first_sentence(source: Path) -> str:
    text = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or ""
    paragraph = " ".join(text.split("\n\n")[0].split())
    return re.split(r"(?<!Eq)(?<!Fig)(?<!al)\. ", paragraph)[0].rstrip(".")


def _lines(folder: Path, depth: int) -> Iterator[str]:
    yield _line(f"{folder.name}/", folder / "__init__.py", depth)
    inside = [path for path in sorted(folder.glob("*.py")) if path.name != "__init__.py"]
    if folder.relative_to(ROOT).as_posix().startswith(NAMED):
        indent = "  " * (depth + 1)
        names = " ".join(path.stem for path in inside)
        if names:
            yield textwrap.fill(names, 106, initial_indent=indent, subsequent_indent=indent) + "\n"
    else:
        yield from (_line(path.name, path, depth + 1) for path in inside)
    for inner in sorted(path for path in folder.iterdir() if path.is_dir()):
        if any(inner.rglob("*.py")):
            yield from _lines(inner, depth + 1)


def _line(name: str, source: Path, depth: int) -> str:
    start = f"{'  ' * depth}{name}"
    said = _beginning(first_sentence(source)) if source.exists() else ""
    return f"{start:<32} {said}".rstrip() + "\n"


def _beginning(sentence: str) -> str:
    """The first clause, and the next one if both are short or the first is a mere name."""
    first, *rest = re.split(r"(?=[:;,] )", re.sub(r" \([^)]*\)", "", sentence))
    words = len(first.split())
    if rest and (words <= NAME or words + len(rest[0].split()) <= FEW):
        first += rest[0]
    short = re.sub(r"^(The|An?) ", "", first)
    return short[:1].upper() + short[1:] if short != first else first


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
