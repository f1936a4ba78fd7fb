"""`--help` is grouped, whole at 80 columns, with examples; names of the user's are no markup."""

from __future__ import annotations

import inspect
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ropewalk import __version__
from ropewalk.cli import VERBS, call, command_line
from ropewalk.cli.help import RARE_VALUES
from ropewalk.cli.verbs import known
from ropewalk.evaluation.perplexity import DEFINITIONS
from ropewalk.number_formats.arms import ARMS
from tests.cli.calling import ropewalk
from tests.gguf.gguf_files import header_only


def helped(*arguments: str, columns: int = 80) -> str:
    done = CliRunner().invoke(command_line(), arguments, env={"COLUMNS": str(columns)})
    assert done.exit_code == 0, done.output
    assert done.stderr == ""
    return done.stdout


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_a_verb_is_whole_and_has_an_example(verb: str) -> None:
    text = helped(verb, "--help-all")
    assert max(map(len, text.splitlines())) <= 80
    assert "..." not in text.replace("[LENGTH…]...", "")
    found = known()[verb].load()
    first = (inspect.getdoc(found) or "").partition("\n\n")[0]
    assert words(f"{first} {found.shell.more}") in words(text)
    assert f"Example:\n  {found.shell.example}\n" in text
    assert "docs/ of the source distribution" in text
    # The example is a call that this command takes.
    options = {word for word in shlex.split(found.shell.example) if word.startswith("-")}
    assert found.shell.example.startswith(f"ropewalk {verb}")
    assert all(re.search(rf"(^|[\s,]){option}\b", text) for option in options)


def test_the_root_help_groups_all_verbs_and_cuts_none_off() -> None:
    text = helped("--help")
    assert max(map(len, text.splitlines())) <= 80
    assert "..." not in text.replace("COMMAND [ARGS]...", "")
    for name, verb in known().items():
        section = text.split(f"\n{verb.group}:\n")[1].split("\n\n")[0]
        assert (verb.load().shell.name, verb.load().shell.group) == (name, verb.group)
        first = (inspect.getdoc(verb.load()) or "").partition("\n\n")[0]
        assert f"{name} {words(first)}" in words(section)


def test_without_arguments_it_is_the_help_and_no_error() -> None:
    assert helped() == helped("--help")


def test_the_version() -> None:
    assert helped("--version") == f"ropewalk {__version__}\n"


@pytest.mark.parametrize(
    ("verb", "option"),
    [
        ("export", "--v4-keys"),
        ("search", "--ranks-per-copy"),
        ("evaluate", "--tasks perplexity-hf"),
        ("precision", "--arms bf16_tables"),
    ],
)
def test_rare_options_stand_under_their_own_heading(verb: str, option: str) -> None:
    usual, advanced = helped(verb, "--help-all").split("\nAdvanced:\n")
    assert f"\n  {option} " in f"\n{advanced}"
    assert f"\n  {option} " not in usual
    short = helped(verb, "--help")
    assert f"\n  {option} " not in short
    assert re.search(r"\n  --help-all +Show \d+ advanced options too", short)


def test_options_of_one_kind_stand_together() -> None:
    text = helped("evaluate", "--help")
    server = text.split("\nOf a server:\n")[1].split("\n\n")[0]
    assert re.findall(r"^  (--[\w-]+)", server, re.MULTILINE) == [
        *("--server", "--tokenizer", "--model-name", "--fingerprint", "--concurrency"),
        "--timeout",
    ]
    own = helped("train", "--help").split("\nOptions:\n")[1].split("\n\n")[0]
    assert len(re.findall(r"^  --", own, re.MULTILINE)) <= 13


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("ropewalk pl", "plan"),
        ("ropewalk train --le", "--learning-rate"),
        ("ropewalk train --recipe longrope-m", "longrope-mistral"),
    ],
)
def test_a_shell_completes_verbs_options_and_values(
    line: str, found: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_ROPEWALK_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split()) - 1))
    assert call([]) == 0
    assert capsys.readouterr().out.split() == [found]


def test_the_rare_values_are_values() -> None:
    tasks = {name.removeprefix("--tasks ") for name, _ in RARE_VALUES["evaluate"]}
    assert tasks == set(DEFINITIONS) - {"perplexity", "longppl"}, "which --help itself names"
    arms = {name.removeprefix("--arms ") for name, _ in RARE_VALUES["precision"]}
    assert arms == set(ARMS) - {"fp64", "fp32", "bf16", "fp16"}


def test_the_default_run_directory_is_named() -> None:
    assert "default: runs/extend-MODEL-LENGTH" in words(helped("extend", "--help"))


def test_a_name_of_the_users_is_no_markup(tmp_path: Path) -> None:
    path = header_only(tmp_path / "a[bold]b[nothing].gguf", keys={"context_length": 512})
    for arguments in (["inspect"], ["plan", "--to", "1k", "--method", "linear"]):
        verb, *rest = arguments
        assert "a[bold]b[nothing].gguf" in ropewalk(verb, path, *rest)
