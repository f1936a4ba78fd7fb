"""Lays out the pages for `mkdocs build --strict`: `make site`.

    python -m tools.site        writes build/site-pages

Pages link to each other, to pictures and to code by paths that work in a clone and on a code host.
So all pages, and the files that they link to, are copied with the folders that they have here. Only
a notebook becomes a page with another ending: its text, its code, and the results that are kept in
it. The plug-ins that would do this bring Jupyter, some fifty packages, and run nothing here either.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
OUT = ROOT / "build" / "site-pages"
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
NOTEBOOK, PAGE = ".ipynb", ".md"


def linked() -> set[Path]:
    """The pages, and all files that can be reached from them, as paths from the root."""
    found = set[Path]()
    left = [path.relative_to(ROOT) for path in (ROOT / "README.md", *ROOT.glob("docs/*.md"))]
    while left:
        page = left.pop()
        if page in found or not (ROOT / page).is_file():
            continue
        found.add(page)
        if page.suffix in (PAGE, NOTEBOOK):
            for target in LINK.findall(text_of(ROOT / page)):
                left.append((ROOT / page.parent / target).resolve().relative_to(ROOT))
    return found


def text_of(path: Path) -> str:
    """A page, or a notebook as one."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == NOTEBOOK:
        return "\n\n".join(part for cell in json.loads(text)["cells"] for part in _parts(cell))
    return text


def _parts(cell: dict[str, Any]) -> Iterator[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"```python\n{source}\n```"
    for shown in map(_shown, cell["outputs"]):
        yield f'<div class="output">{shown}</div>'


def _shown(output: dict[str, Any]) -> str:
    """An output as HTML, in the richest form that a page takes."""
    data = output.get("data", {"text/plain": output.get("text", "")})
    if "text/html" in data:
        return "".join(data["text/html"])
    if "image/png" in data:
        return f'<img alt="" src="data:image/png;base64,{"".join(data["image/png"]).strip()}">'
    return f"<pre>{escape(''.join(data['text/plain']))}</pre>"


def main() -> None:
    shutil.rmtree(OUT, ignore_errors=True)
    for path in sorted(linked()):
        target = OUT / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix in (PAGE, NOTEBOOK):
            text = LINK.sub(lambda link: link[0].replace(NOTEBOOK, PAGE), text_of(ROOT / path))
            target.with_suffix(PAGE).write_text(text, encoding="utf-8")
        else:
            shutil.copyfile(ROOT / path, target)
    shutil.copyfile(ROOT / "docs" / "site.css", OUT / "site.css")


if __name__ == "__main__":
    main()
