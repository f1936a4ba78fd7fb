"""A command is made from what its verb declares, and from nothing else."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import typer
from typer.testing import CliRunner

from ropewalk.arguments import Length
from ropewalk.cli.declared import Call, command_of
from ropewalk.cli.help import VerbHelp
from ropewalk.data.documents import Corpus
from ropewalk.errors import RopewalkError
from ropewalk.options import Advanced, Argument, Option, Verb, preview_ends, previewed_by
from ropewalk.progress import Notice, Progress, log_notice, silent

Given = dict[str, Any]


def _previewed(given: Given) -> Given:
    return {"preview": True, **given}


@previewed_by(_previewed)
def verb(
    model: Annotated[str, Argument("A model.", "MODEL")],
    to: Annotated[Length | None, Option("The target.")] = None,
    *,
    longest: Annotated[Length, Option("The longest.")] = 4096,
    samples: Annotated[int, Option("Samples.", "N")] = 20,
    rate: Annotated[float | None, Advanced("A rate.", "RATE")] = None,
    layout: Annotated[Literal["full", "reset"], Option("A layout.")] = "full",
    corpus: Annotated[Corpus | Mapping[str, Corpus] | None, Option("Text.")] = None,
    shares: Annotated[Mapping[str, float] | None, Option("Shares.")] = None,
    steps: Annotated[int | Sequence[int] | None, Option("Steps.")] = None,
    tasks: Annotated[Sequence[str], Option("Tasks.")] = ("a", "b"),
    run: Annotated[str | Path | None, Option("Where to keep it.", "DIR")] = None,
    stock: Annotated[bool, Option("Only stock ones.")] = True,
    quick: Annotated[bool, Option("Quick.")] = False,
    python_only: object = None,
    progress: Progress = silent,
    notice: Notice = log_notice,
) -> Given:
    """Do it."""
    given = dict(locals())
    given = {k: v for k, v in given.items() if k not in ("progress", "notice", "python_only")}
    preview_ends(given)
    assert progress is not silent
    return given


USUAL = {
    "to": None, "longest": 4096, "samples": 20, "rate": None, "layout": "full", "corpus": None,
    "shares": None, "steps": None, "tasks": ("a", "b"), "run": None, "stock": True, "quick": False,
}  # fmt: skip


def called(*words: str) -> Given:
    found: Given = {}

    @command_of(verb)
    def command(
        call: Call[Given],
        *,
        dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show it.")] = False,
    ) -> None:
        """Do it in a shell."""
        found.update(call.preview() if dry_run else call())

    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(cls=VerbHelp)(command)
    done = CliRunner().invoke(app, words, env={"COLUMNS": "80"})
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return found or {"help": done.stdout}


def test_what_is_not_given_is_as_in_python() -> None:
    assert called("m") == {"model": "m", **USUAL}


@pytest.mark.parametrize(
    ("words", "key", "value"),
    [
        (["--to", "32k"], "to", "32k"),
        (["--longest", "8k"], "longest", "8k"),
        (["--rate", "1e-4"], "rate", 1e-4),
        (["--layout", "reset"], "layout", "reset"),
        (["--corpus", "books.jsonl"], "corpus", "books.jsonl"),
        (["--corpus", "a=1.txt", "--corpus", "b=2"], "corpus", {"a": "1.txt", "b": "2"}),
        (["--shares", "a=0.25", "--shares", "b=0.75"], "shares", {"a": 0.25, "b": 0.75}),
        (["--steps", "400"], "steps", [400]),
        (["--steps", "400,600"], "steps", [400, 600]),
        (["--steps", "400", "--steps", "600"], "steps", [400, 600]),
        (["--tasks", "needle, kv", "--tasks", "lines"], "tasks", ["needle", "kv", "lines"]),
        (["--run", "here"], "run", "here"),
        (["--no-stock"], "stock", False),
        (["--quick"], "quick", True),
    ],
)
def test_words_become_the_values_that_python_takes(
    words: list[str], key: str, value: object
) -> None:
    assert called("m", *words)[key] == value


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--steps", "4,many"], "steps = 'many': must be a whole number"),
        (["--shares", "a=half"], "shares = 'half': must be a number"),
        (["--shares", "0.5"], "must be NAME=VALUE"),
        (["--shares", "a=1", "--shares", "a=2"], "names a twice"),
        (["--corpus", "a=1", "--corpus", "2"], "needs a name of its own"),
    ],
)
def test_a_word_that_is_no_value_is_named(words: list[str], told: str) -> None:
    with pytest.raises(RopewalkError, match=told):
        called("m", *words)


def test_a_path_with_an_equals_sign_is_a_path(tmp_path: Path) -> None:
    path = tmp_path / "a=b.txt"
    path.write_text("text")
    assert called("m", "--corpus", str(path))["corpus"] == str(path)


def test_a_preview_gets_the_same_arguments() -> None:
    shown = called("m", "--to", "32k", "--dry-run")
    assert (shown["preview"], shown["model"], shown["to"], shown["samples"]) == (
        True,
        "m",
        "32k",
        20,
    )
    assert verb.preview("m", "64k")["to"] == "64k"


def test_help_has_units_defaults_and_headings() -> None:
    text = " ".join(called("--help-all")["help"].split())
    assert "Do it." in text
    for said in (
        "--to LENGTH The target.",
        "--longest LENGTH The longest. [default: 4k]",
        "--samples N Samples. [default: 20]",
        "--layout <full|reset> A layout. [default: full]",
        "--corpus NAME=FILE Text.",
        "--stock / --no-stock Only stock ones. [default: stock]",
        "--tasks A,B,… Tasks. [default: a,b]",
        "--dry-run Only show it.",
        "Advanced: --rate RATE A rate.",
    ):
        assert said in text
    assert "python-only" not in text
    assert "--progress" not in text


def test_the_traceback_of_a_wrong_argument_ends_in_the_call() -> None:
    plain: Verb[..., Given, Given] = verb
    with pytest.raises(TypeError, match="smaples") as caught:
        plain("m", smaples=3)
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert [frame.filename for frame in frames if "_pytest" not in frame.filename] == [__file__]
