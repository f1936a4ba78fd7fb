"""The table of traps of docs/verify.md, from the docstrings of the files that look for them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from docs.figures import ROOT

TRAP = re.compile(r"^- (`[a-z-]+`(?:, `[a-z-]+`)*): (.+(?:\n  .+)*)", re.MULTILINE)
FOLDERS = ("runtimes/traps", "runtimes/trials", "audit")


def blocks() -> dict[str, str]:
    rows = [f"| {names} | {meaning} |" for names, meaning in traps()]
    return {"docs/verify.md": "\n".join(["| name | meaning |", "|---|---|", *rows])}


def traps() -> Iterable[tuple[str, str]]:
    """The names of traps, each with its meaning."""
    for folder in FOLDERS:
        for path in sorted((ROOT / "ropewalk" / folder).rglob("*.py")):
            document = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
            for names, meaning in TRAP.findall(document):
                yield names, " ".join(meaning.split())
