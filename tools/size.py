"""Counts lines of code: neither blank, nor a comment, nor a docstring or another bare string.

    python -m tools.size        the table: each package of ropewalk, and the other folders

tests/test_size.py holds a budget for each.
"""

from __future__ import annotations

import io
import tokenize
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("ropewalk", "tests", "tools", "benchmarks", "studies", "docs", "examples")
_NO_CODE = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    *(tokenize.ENCODING, tokenize.ENDMARKER),
}


def code_lines(source: str) -> int:
    """The lines of code in a source text."""
    lines = source.splitlines()
    found: set[int] = set()
    kept = [
        token
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type not in (tokenize.COMMENT, tokenize.NL)
    ]
    for before, token, after in zip([None, *kept], kept, [*kept[1:], None], strict=False):
        begins = before is None or before.type in _NO_CODE
        ends = after is None or after.type in (tokenize.NEWLINE, tokenize.ENDMARKER)
        if token.type not in _NO_CODE and not (token.type == tokenize.STRING and begins and ends):
            found |= {n for n in range(token.start[0], token.end[0] + 1) if lines[n - 1].strip()}
    return len(found)


def sizes(*folders: str) -> dict[str, int]:
    """Lines of code by package of ropewalk and by folder, in order; modules of the top are one."""
    table: dict[str, int] = {}
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT).parts
            inner = parts[1] if len(parts) > 2 else "(modules)"
            key = f"ropewalk/{inner}" if folder == "ropewalk" else folder
            table[key] = table.get(key, 0) + code_lines(path.read_text(encoding="utf-8"))
    return table


def main() -> None:
    table = sizes(*FOLDERS)
    table["ropewalk"] = sum(count for key, count in table.items() if key.startswith("ropewalk/"))
    for key, count in table.items():
        print(f"{key:<28}{count:>8,}")


if __name__ == "__main__":
    main()
