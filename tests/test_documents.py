"""The documents stay true where a test can see it."""

import re
import textwrap
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


def test_the_python_example_of_the_readme_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = README.split("From Python:\n\n")[1].split("\n\nand with a model in memory")[0]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "path" / "to" / "model").mkdir(parents=True)
    config = ROOT / "tests" / "golden" / "configs" / "llama-2-7b.json"
    (tmp_path / "path" / "to" / "model" / "config.json").write_bytes(config.read_bytes())
    namespace: dict[str, object] = {}
    exec(textwrap.dedent(example), namespace)
    assert namespace["config"]["rope_parameters"]["rope_type"] == "yarn"  # type: ignore[index]
