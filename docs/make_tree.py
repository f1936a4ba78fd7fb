"""Writes the tree of docs/architecture.md: packages by their docstrings, and all files by name.

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
FOLDERS = ("ropewalk", "tools", "examples", "benchmarks", "studies", "docs")
WIDTH = 120
BEGIN, END = "<!-- written by docs/make_tree.py -->\n", "<!-- until here -->\n"


def tree() -> str:
    """The modules directly in ropewalk, every package, and the names of its files."""
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
    if folder == ROOT / "ropewalk":
        yield from (_line(path.name, path, 1) for path in inside)
    elif inside:
        indent, names = "  " * (depth + 1), " ".join(path.stem for path in inside)
        yield textwrap.fill(names, WIDTH, initial_indent=indent, subsequent_indent=indent) + "\n"
    for inner in sorted(path for path in folder.iterdir() if path.is_dir()):
        if any(inner.rglob("*.py")):
            yield from _lines(inner, depth + 1)


def _line(name: str, source: Path, depth: int) -> str:
    """A name and its description, cut to the first clause if the line would be too long."""
    said = first_sentence(source) if source.exists() else ""
    start = f"{'  ' * depth + name:<28}"
    if len(start) + len(said) >= WIDTH:
        said = re.split(r"[:;,] ", said)[0]
    return f"{start} {said}".rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
