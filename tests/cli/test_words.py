"""A word is converted here as typer converts it, or typer does it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import typer
from typer.core import TyperCommand
from typer.main import get_command

from ropewalk.cli.help import VerbHelp
from ropewalk.cli.words import as_type

Given = dict[str, Any]


def received(words: list[str], cls: type[Any]) -> Given | str:
    """The arguments that a command of this class gets, or the complaint about its words."""
    found: Given = {}
    app = typer.Typer(add_completion=False, rich_markup_mode=None)

    @app.command(cls=cls)
    def command(
        place: Annotated[list[str] | None, typer.Argument()] = None,
        text: str = "usual",
        path: Path | None = None,
        count: int = 3,
        share: float | None = None,
        choice: Literal["one", "two"] | None = None,
        texts: list[str] | None = None,
        paths: list[Path] | None = None,
        least: Annotated[int, typer.Option(min=1)] = 2,
        there: Annotated[Path | None, typer.Option(exists=True)] = None,
        flag: Annotated[bool, typer.Option("--flag")] = False,
    ) -> None:
        found.update(locals())
        found.pop("found")

    parser = get_command(app)
    try:
        with parser.make_context("command", list(words)) as context:
            parser.invoke(context)
    except typer.BadParameter as error:
        return error.format_message()
    return found


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["a", "b", "--flag"],
        ["--text", "9", "--path", "no/where", "--count", "-12", "--share", "1e-3"],
        ["--path", __file__, "--choice", "two", "--texts", "x", "--texts", "y"],
        ["--paths", ".", "--paths", "-", "--share", "2"],
        ["--count", "1_000"],
        ["--count", " 7 "],
        ["--count", "2.0"],
        ["--count", "many"],
        ["--count", "1" * 5000],
        ["--share", "nan"],
        ["--share", "half"],
        ["--least", "1"],
        ["--least", "0"],
        ["--there", "."],
        ["--there", "no/where"],
        ["--choice", "three"],
        ["--path", "a\0b"],
        ["--text", "λ\udce9"],
    ],
)
def test_a_command_gets_what_typer_alone_would_give_it(words: list[str]) -> None:
    assert repr(received(words, VerbHelp)) == repr(received(words, TyperCommand))


@pytest.mark.parametrize(
    ("value", "annotation"),
    [("x", int), ("three", Literal["one"]), ("x", bool), (3.0, int), (b"x", str), ("x", dict)],
)
def test_what_takes_more_is_left_to_typer(value: object, annotation: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        as_type(value, annotation)


def test_a_name_in_capitals_is_the_same_name() -> None:
    """Which typer alone would refuse."""
    assert received(["--choice", "TWO"], VerbHelp) == received(["--choice", "two"], VerbHelp)
