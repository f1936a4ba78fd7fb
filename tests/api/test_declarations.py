"""What the verbs declare: every parameter, with choices that exist, for editors and commands."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any, get_args

import pytest

import ropewalk as rw
from ropewalk import cli
from ropewalk.cli.declared import _declared, _Form
from ropewalk.options import declared
from ropewalk.training import recipes

PUBLIC = sorted(
    name
    for name in rw.__all__
    if inspect.isfunction(found := getattr(rw, name))
    and found.__module__.startswith("ropewalk.api")
)
COMMANDS = {name for name in PUBLIC if name not in ("evaluate_checkpoints", "register")}
IN_PYTHON_ALONE = {"progress", "notice", "done"}
UNDECLARED = {("search", "documents"), ("check_server", "fingerprint")}
"""Parameters that only Python has."""


def test_every_parameter_of_a_command_is_declared() -> None:
    undeclared = set()
    for name in COMMANDS:
        verb = getattr(rw, name)
        told = {parameter.name for parameter, *_ in declared(verb)}
        left = inspect.signature(verb).parameters.keys() - told - IN_PYTHON_ALONE
        undeclared |= {(name, each) for each in left}
    assert undeclared == UNDECLARED


@pytest.mark.parametrize("name", PUBLIC)
def test_a_verb_is_a_signature_and_a_few_lines(name: str) -> None:
    verb = getattr(rw, name)
    source = dedent(inspect.getsource(verb))
    [function] = ast.parse(source).body
    assert isinstance(function, ast.FunctionDef)
    first = function.body[1]  # after the docstring
    body = source.splitlines()[first.lineno - 1 :]
    lines = sum(bool(line.split("#")[0].strip()) for line in body)  # reasons are free
    assert lines <= 30, f"{name} has {lines} lines"


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_lists_take_both_forms(name: str) -> None:
    forms: dict[str, _Form] = {}
    list(_declared(getattr(rw, name), forms, required=True))
    for key, form in forms.items():
        if form.unit == "A,B,…":
            numbers = form.read(["4, 5", "6"], key)
            assert numbers == form.read(["4", "5", "6"], key) == form.read(["4,5,6"], key)
            assert len(numbers) == 3  # type: ignore[arg-type]


def test_commands_declare_only_what_a_shell_alone_has() -> None:
    """An option of `cli/` stands in no verb."""
    for source in Path(cli.__path__[0]).glob("*.py"):
        own = set(
            re.findall(
                r"^    (\w+): (?:Annotated|JsonOption|OverwriteOption)", source.read_text(), re.M
            )
        )
        assert own <= {
            *("as_json", "dry_run", "output", "plot", "overwrite", "details", "checkpoints"),
            "former_runtime",
        }, source


@pytest.mark.parametrize(("verb", "option", "known"), [(rw.train, "recipe", recipes.NAMES)])
def test_choices_for_editors_are_those_that_exist(
    verb: Callable[..., Any], option: str, known: tuple[str, ...]
) -> None:
    [annotation] = [each for parameter, each, _ in declared(verb) if parameter.name == option]
    choices = [
        choice
        for member in (annotation, *get_args(annotation))
        for choice in get_args(member)
        if isinstance(choice, str)
    ]
    assert set(choices) == set(known)


@pytest.mark.parametrize("name", [*PUBLIC, "load"])
def test_the_traceback_of_a_wrong_argument_ends_in_the_users_call(name: str) -> None:
    with pytest.raises(TypeError) as caught:
        getattr(rw, name)(no_such_argument=3)
    *_, last = traceback.extract_tb(caught.value.__traceback__)
    assert last.filename == __file__, last


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_help_tells_types_and_then_words(name: str) -> None:
    """No `Annotated` in the signature, and every option in a section of its own."""
    verb = getattr(rw, name)
    for each in filter(None, (verb, getattr(verb, "preview", None))):
        assert "Option(" not in str(inspect.signature(each))
        own, _, args = (inspect.getdoc(each) or "").partition("\n\nArgs:\n")
        assert not re.search("--[a-z]", own + args), "names of a shell"
        told = re.findall(r"^    (\w+): \S", args, re.M)
        parameters = [key for key in inspect.signature(each).parameters if key in told]
        assert told == parameters, "in their order"
        options = {parameter.name for parameter, *_ in declared(verb)}
        assert options <= {*told}
        assert ("progress" in parameters) == ("progress" in inspect.signature(verb).parameters)
    assert len(str(inspect.signature(rw.plan))) < 1100
    assert "settings" in inspect.signature(rw.evaluate_checkpoints).parameters


@pytest.mark.slow
def test_a_type_checker_finds_wrong_arguments(tmp_path: Path) -> None:
    """With no other `ignore` than those for what it must find, and with none of them."""
    script = Path(__file__).with_name("typed_calls.py")
    bare = tmp_path / "bare_calls.py"
    text = script.read_text(encoding="utf-8")
    wrong = re.compile(r"  # type: ignore\[([\w-]+)\]")
    bare.write_text(wrong.sub("", text), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", str(script), str(bare)],
        capture_output=True, text=True, check=False, cwd=Path(rw.__file__).parents[1],
    )  # fmt: skip
    found = re.findall(r"^(\S+):(\d+): error: .*\[([\w-]+)\]$", done.stdout, re.M)
    expected = [
        (str(bare), str(number), mark[1])
        for number, line in enumerate(text.splitlines(), start=1)
        if (mark := wrong.search(line))
    ]
    assert sorted(found) == sorted(expected), done.stdout + done.stderr
