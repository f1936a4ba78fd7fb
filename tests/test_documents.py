"""The documents stay true where a test can see it."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def tree() -> set[str]:
    """The paths that the README's tree names."""
    block = README.split("## The tree")[1].split("```")[1]
    folders: list[str] = []
    paths = set()
    for line in filter(None, block.splitlines()):
        name = line.split()[0]
        depth = (len(line) - len(line.lstrip())) // 2
        folders[depth:] = [name]
        paths.add("".join(folders[: depth + 1]))
    return paths


def test_the_tree_names_every_module_and_nothing_else() -> None:
    named = {path for path in tree() if path.endswith(".py")}
    present = {
        path.relative_to(ROOT).as_posix()
        for folder in ("ropewalk", "benchmarks", "docs")
        for path in (ROOT / folder).rglob("*.py")
        if path.name != "__init__.py"
    }
    assert named == present


@pytest.mark.parametrize(
    "document", ["README.md", *sorted(p.name for p in (ROOT / "docs").glob("*.md"))]
)
def test_links_and_pictures_lead_somewhere(document: str) -> None:
    path = ROOT / document if document == "README.md" else ROOT / "docs" / document
    targets = re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8"))
    for target in targets:
        if not target.startswith("http"):
            assert (path.parent / target).exists(), target
