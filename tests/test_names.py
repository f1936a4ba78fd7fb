"""A class name means one thing in the package, and a function can be read at once."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import ropewalk

PACKAGE = Path(ropewalk.__file__).parent
MOST_LINES = 60
"""Lines of a function's body, without its docstring."""
STILL_LONGER = {
    "planning/comparison.py": {"ranking_of"},
}
"""This table only shrinks."""


def nodes() -> Iterator[tuple[str, ast.AST]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            yield path.relative_to(PACKAGE).as_posix(), node


def test_a_class_name_is_used_once() -> None:
    files = defaultdict(list)
    for file, node in nodes():
        if isinstance(node, ast.ClassDef):
            files[node.name].append(file)
    assert {name: own for name, own in files.items() if len(own) > 1} == {}


def test_functions_are_short() -> None:
    longer = defaultdict(set)
    for file, node in nodes():
        if isinstance(node, ast.FunctionDef):
            first = node.body[ast.get_docstring(node) is not None :] or node.body
            if (node.end_lineno or 0) - first[0].lineno + 1 > MOST_LINES:
                longer[file].add(node.name)
    new = {file: own - STILL_LONGER.get(file, set()) for file, own in longer.items()}
    assert {file: own for file, own in new.items() if own} == {}
