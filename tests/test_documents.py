"""The documents stay true where a test can see it."""

import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

from docs import make_tree

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_tree_in_the_architecture_page_is_that_of_the_code() -> None:
    page = make_tree.PAGE.read_text(encoding="utf-8")
    assert make_tree.written(page) == page, "run: python docs/make_tree.py"


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        line.strip()
        for line in make_tree.tree().splitlines()
        if line.strip().endswith(".py") and " " not in line.strip()
    ]
    assert silent == []


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
    example = README.split("`figure()`.\n\n")[1].split("\n\nand with a model in memory")[0]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "path" / "to" / "model").mkdir(parents=True)
    config = ROOT / "tests" / "golden" / "configs" / "llama-2-7b.json"
    (tmp_path / "path" / "to" / "model" / "config.json").write_bytes(config.read_bytes())
    namespace: dict[str, Any] = {}
    exec(textwrap.dedent(example), namespace)
    assert namespace["planned"].rope_parameters["rope_type"] == "yarn"
    assert namespace["planned"].rope_parameters["beta_fast"] == 16.0
