"""The documents stay true where a test can see it."""

import ast
import inspect
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner

import ropewalk as rw
from docs import make_tree
from docs.figures import BLOCK, pages
from ropewalk import scaling
from ropewalk.cli import command_line

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
GENERATED_OR_FOR_DEVELOPERS = ("architecture", "families", "log")


def test_every_module_says_what_it_is_for() -> None:
    silent = [file.name for file in make_tree.files() if not make_tree.first_sentence(file)]
    assert silent == []
    named = make_tree.tree()
    assert [file.name for file in make_tree.files() if file.stem not in named] == []


@pytest.mark.parametrize("page", sorted(pages()))
def test_links_and_pictures_lead_somewhere(page: str) -> None:
    path = ROOT / page
    for target, anchor in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", path.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            linked = path.parent / target if target else path
            assert linked.exists(), target
            assert not anchor or anchor in anchors(linked), f"{target}#{anchor}"


def anchors(page: Path) -> set[str]:
    """Those of its headings, as GitHub makes them, and those that it names."""
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    slugs = {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in headings}
    return slugs | set(re.findall(r'<a name="(.+?)"', text))


def test_the_site_shows_every_page_of_the_documentation_once() -> None:
    shown = re.findall(
        r"^ +- .*?(\S+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE
    )
    assert len(shown) == len(set(shown))
    assert {page for page in pages() if page.startswith("docs/")} <= set(shown)
    notebooks = [page for page in shown if page.startswith("docs/notebooks/")]
    there = {path.stem for path in ROOT.glob("docs/notebooks/*.ipynb")}
    assert {Path(page).stem for page in notebooks} == there
    assert all((ROOT / page).exists() for page in shown if page not in notebooks)


def calls(text: str) -> list[str]:
    """The calls of ropewalk in a page, each with its arguments."""
    found = []
    for match in re.finditer(r"\brw(\.\w+)+\(", text):
        depth, end = 1, match.end()
        while depth and end < len(text):
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        found.append(text[match.start() : end])
    return found


@pytest.mark.parametrize("page", sorted(pages()))
def test_python_calls_have_the_arguments_that_pages_give_them(page: str) -> None:
    for call in calls((ROOT / page).read_text(encoding="utf-8")):
        try:
            parsed = ast.parse(call.replace("…", "..."), mode="eval").body
        except SyntaxError:  # such as (…, samples=5), which stands for what is left out
            parsed = ast.parse(call.replace("…, ", "").replace("…", ""), mode="eval").body
        assert isinstance(parsed, ast.Call)
        function = eval(ast.unparse(parsed.func), {"rw": rw})
        given = [each.arg for each in parsed.keywords if each.arg]
        taken = inspect.signature(function).parameters
        if all(each.kind != each.VAR_KEYWORD for each in taken.values()):
            assert set(given) <= set(taken), call


@pytest.fixture(scope="module")
def options() -> dict[str, set[str]]:
    """The options of each verb."""
    command = get_command(command_line())
    assert isinstance(command, TyperGroup)
    return {
        verb: {name for each in own.params for name in (*each.opts, *each.secondary_opts)}
        for verb, own in command.commands.items()
    }


@pytest.mark.parametrize("page", sorted(pages()))
def test_commands_have_the_options_that_pages_give_them(
    page: str, options: dict[str, set[str]]
) -> None:
    text = (ROOT / page).read_text(encoding="utf-8").replace("\\\n", " ")
    for verb, rest in re.findall(r"\bropewalk (data [a-z]+|[a-z-]+)((?: [^`\n|#]*)?)", text):
        if verb in options:
            given = set(re.findall(r"(?<= )--[a-z][a-z0-9-]*", rest.split("&&")[0]))
            assert given <= options[verb] | {"--help"}, f"ropewalk {verb}{rest}"


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


def test_the_readme_can_be_read_in_a_few_minutes() -> None:
    assert len(README.split()) <= 900


def test_the_documentation_can_be_read_in_an_afternoon() -> None:
    """Words of text and tables that people write, without code and the pages for developers."""
    written = {
        page: re.sub(r"(?ms)```.*?```|^ {4}[^\n]*", "", BLOCK.sub("", text))
        for page, text in pages().items()
        if page.startswith("docs/") and Path(page).stem not in GENERATED_OR_FOR_DEVELOPERS
    }
    words = {page: len(re.findall(r"\S*\w\S*", text)) for page, text in written.items()}
    assert sum(words.values()) <= 16_500, sorted(words.items(), key=lambda each: -each[1])


def test_the_readme_shows_what_happens_to_a_lost_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lines as they are written, from a clone; what it shows of the output, line by line."""
    section = README.split("**A setting for long context")[1].split("\n## ")[0]
    blocks = re.findall(r"(?:^    .*\n)+", section, re.MULTILINE)
    commands, shown = ([line.strip() for line in block.splitlines()] for block in blocks)
    install, example, verify = (shlex.split(line, comments=True) for line in commands)
    assert install == ["pip", "install", "."]
    monkeypatch.chdir(tmp_path)
    subprocess.run([sys.executable, ROOT / example[1]], check=True)
    result = CliRunner().invoke(command_line(["verify"]), verify[1:])
    assert result.exit_code == 1, result.output
    assert set(shown) - {"…", *map(str.strip, result.stdout.splitlines())} == set()
    kept = CliRunner().invoke(
        command_line(["verify"]), ["kept" if word == "lost" else word for word in verify[1:]]
    )
    assert "vllm: OK" in kept.stdout
    assert "wrong" not in kept.stdout


def test_a_first_method_is_the_one_file_that_contributing_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    [text] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "slow_half.py").write_text(text)
    monkeypatch.setattr(scaling, "__path__", [*scaling.__path__, str(tmp_path)])
    [call] = re.findall(r"^    ropewalk (plan .+)$", page, re.MULTILINE)
    result = CliRunner().invoke(command_line(["plan"]), shlex.split(call))
    assert "bundled: 512 to 2k by slow_half" in result.stdout
    monkeypatch.delattr(scaling, "slow_half")
    monkeypatch.delitem(sys.modules, "ropewalk.scaling.slow_half")


def test_the_repository_runs_what_the_makefile_has_and_asks_for_the_doctor() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    workflows = {
        path.stem: path.read_text(encoding="utf-8")
        for path in (ROOT / ".github" / "workflows").iterdir()
    }
    for text in workflows.values():
        for target in re.findall(r"run: make (\S+)", text):
            assert f"\n{target}:" in makefile
    assert "run: .ci/run" in workflows["checks"]
    for form in ("fault", "runtime"):
        text = (ROOT / ".github" / "ISSUE_TEMPLATE" / f"{form}.yml").read_text(encoding="utf-8")
        assert "ropewalk doctor" in text
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {rw.__version__}\n" in cited


def test_the_documents_calculate_what_they_say() -> None:
    """Llama 3 8B at 128k, by hand: weights, cache, one layer at work, and what a step trains."""
    page = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
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
        assert re.search(told, page, re.MULTILINE), row
    operations = 2 * ((parameters - 128_256 * hidden) * length + layers * hidden * length**2)
    forward = f"{operations / (0.4 * 989e12):.0f} s"
    assert re.search(rf"^\| evaluate.*\| {forward} \|", page, re.MULTILINE)
