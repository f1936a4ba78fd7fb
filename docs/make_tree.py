"""Writes the file tree of docs/architecture.md: the first sentence of each module's docstring.

python docs/make_tree.py
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
FOLDERS = ("ropewalk", "examples", "benchmarks", "studies", "docs")
BEGIN, END = "<!-- written by docs/make_tree.py -->\n", "<!-- until here -->\n"


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


def _lines(folder: Path, depth: int) -> Iterator[str]:
    yield _line(f"{folder.name}/", folder / "__init__.py", depth)
    for path in sorted(folder.glob("*.py")):
        if path.name != "__init__.py":
            yield _line(path.name, path, depth + 1)
    for inner in sorted(path for path in folder.iterdir() if path.is_dir()):
        if any(inner.rglob("*.py")):
            yield from _lines(inner, depth + 1)


def _line(name: str, source: Path, depth: int) -> str:
    start = f"{'  ' * depth}{name}"
    said = _first_sentence(source) if source.exists() else ""
    return f"{start:<32} {said}".rstrip() + "\n"


def _first_sentence(source: Path) -> str:
    text = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or ""
    paragraph = " ".join(text.split("\n\n")[0].split())
    return re.split(r"(?<!Eq)(?<!Fig)(?<!al)\. ", paragraph)[0].rstrip(".")


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
