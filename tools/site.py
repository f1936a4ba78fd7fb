"""Lays out the pages for `mkdocs build --strict`: `make site`.

    python -m tools.site        writes build/site-pages

Pages link to each other, to pictures and to code by paths that work in a clone and on a code host.
So all pages, and the files that they link to, are copied with the folders that they have here, and
no link has to be rewritten.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[1]
OUT = ROOT / "build" / "site-pages"
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def linked() -> set[Path]:
    """The pages, and all files that can be reached from them, as paths from the root."""
    found = set[Path]()
    left = [path.relative_to(ROOT) for path in (ROOT / "README.md", *ROOT.glob("docs/*.md"))]
    while left:
        page = left.pop()
        if page in found or not (ROOT / page).is_file():
            continue
        found.add(page)
        if page.suffix == ".md":
            targets = LINK.findall((ROOT / page).read_text(encoding="utf-8"))
            for target in targets:
                left.append((ROOT / page.parent / target).resolve().relative_to(ROOT))
    return found


def main() -> None:
    shutil.rmtree(OUT, ignore_errors=True)
    for path in sorted(linked()):
        target = OUT / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, target)


if __name__ == "__main__":
    main()
