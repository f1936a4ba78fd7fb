"""The documents stay true where a test can see it."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from docs import make_tree
from docs.figures import pages
from ropewalk.cli import command_line

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_every_module_says_what_it_is_for() -> None:
    silent = [file.name for file in make_tree.files() if not make_tree.first_sentence(file)]
    assert silent == []
    named = make_tree.tree()
    assert [file.name for file in make_tree.files() if file.stem not in named] == []


@pytest.mark.parametrize("page", sorted(pages()))
def test_links_and_pictures_lead_somewhere(page: str) -> None:
    path = ROOT / page
    for target in re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            assert (path.parent / target).exists(), target


def test_the_python_example_of_the_readme_runs_in_five_lines(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len([line for line in example.splitlines() if line]) <= 5
    namespace: dict[str, Any] = {}
    exec(example, namespace)
    assert "llama-3-8b: 8k to 128k by yarn" in capsys.readouterr().out
    parameters = namespace["planned"].rope_parameters
    assert (parameters["rope_type"], parameters["factor"]) == ("yarn", 16.0)


def test_the_readme_shows_what_plan_prints() -> None:
    call = re.search(r"^    \$ ropewalk (plan .+)$", README, re.MULTILINE)
    assert call is not None
    shown = README[call.end() :].split("The output ends with")[0].splitlines()
    result = CliRunner().invoke(command_line(["plan"]), shlex.split(call[1]))
    assert result.exit_code == 0, result.output
    printed = [line.strip() for line in result.stdout.splitlines()]
    for line in (line.strip() for line in shown):
        if line != "…":
            beginning, cut, _ = line.partition(" …")
            assert any(got == line or (cut and got.startswith(beginning)) for got in printed), line


def test_the_readme_calculates_what_it_says() -> None:
    """Llama 3 8B at 128k, by hand: weights, cache, one layer at work, and what a step trains."""
    length, layers, hidden, intermediate, key_heads, head = 131_072, 32, 4096, 14_336, 8, 128
    parameters = 8_030_261_248
    sizes = {
        "serve": ("cache", 2 * layers * key_heads * head * 2 * length),
        "evaluate": ("cache", 2 * layers * key_heads * head * 2 * length),
        "search": ("one layer at work", (4 * hidden + 3 * intermediate) * 2 * length),
        "train": ("gradients and optimizer", 3 * parameters * 4),
    }
    for row, (part, size) in sizes.items():
        told = rf"^\| {row}.*\b{part} {size / 2**30:.1f}\b"
        assert re.search(told, README, re.MULTILINE), row
    operations = 2 * ((parameters - 128_256 * hidden) * length + layers * hidden * length**2)
    forward = f"{operations / (0.4 * 989e12):.0f} s"
    assert re.search(rf"^\| evaluate.*\| {forward} \|", README, re.MULTILINE)
