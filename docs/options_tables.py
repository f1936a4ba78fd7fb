"""The tables of docs/options.md: every option of every command, from its help."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import get_args

from typer.core import TyperGroup, TyperOption
from typer.main import get_command

from ropewalk.cli import command_line
from ropewalk.cli.help import OF_MOST_VERBS, RARE_VALUES


def blocks() -> dict[str, str]:
    group = get_command(command_line())
    assert isinstance(group, TyperGroup)
    options = {
        verb: [each for each in command.params if isinstance(each, TyperOption)]
        for verb, command in group.commands.items()
    }
    return {"docs/options.md": "\n\n".join([*_by_verb(options), _of_most(options)])}


def _by_verb(options: Mapping[str, Iterable[TyperOption]]) -> Iterable[str]:
    for verb, each in options.items():
        rows = [_row(one) for one in each if one.name not in OF_MOST_VERBS]
        rows += [f"| `{name}` | {_cell(text)} |" for name, text in RARE_VALUES.get(verb, ())]
        if rows:
            yield "\n".join([f"## {verb}", "| option | |", "|---|---|", *rows])


def _of_most(options: Mapping[str, Iterable[TyperOption]]) -> str:
    """The options of most verbs, each with its first help."""
    rows = {
        one.name: _row(one)
        for each in reversed(list(options.values()))
        for one in each
        if one.name in OF_MOST_VERBS
    }
    return "\n".join(["## Options of most commands", "| option | |", "|---|---|", *rows.values()])


def _row(option: TyperOption) -> str:
    names = ", ".join([*option.opts, *option.secondary_opts])
    choices = "|".join(
        each for each in get_args(option.type_descriptor.annotation) if isinstance(each, str)
    )
    return f"| `{_cell(f'{names} {option.metavar or choices}')}` | {_cell(option.help or '')} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
