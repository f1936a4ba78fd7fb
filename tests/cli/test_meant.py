"""Words of other tools and slips of the keyboard: done as they were meant, or named."""

from __future__ import annotations

from typing import Annotated

import pytest
import typer
from typer.main import get_command

from ropewalk.cli.shared import notify, say
from ropewalk.cli.words import options_meant, options_named, verb_meant
from ropewalk.errors import InputError, InvalidValue

OPTIONS = (
    *("--to", "--method", "--runtime", "--set", "--output", "-o", "--overwrite", "--json"),
    *("--learning-rate", "--steps", "--trained-length"),
)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("help", "--help"),
        ("help plan", "plan --help"),
        ("help data build", "data build --help"),
        ("-h", "--help"),
        ("version", "--version"),
        ("-V", "--version"),
        ("Plan bundled", "plan bundled"),
        ("plan Bundled", "plan Bundled"),
        ("compare-runs a b", "compare-runs a b"),
        ("", ""),
    ],
)
def test_a_call_is_what_was_meant(given: str, meant: str) -> None:
    assert verb_meant(given.split()) == meant.split()


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("m -h", "m --help"),
        ("m to 32k", "m --to 32k"),
        ("m -o to", "m -o to"),
        ("m --target 32k", "m --to 32k"),
        ("m --max-model-len=32k", "m --to=32k"),
        ("--model m --to 32k", "m --to 32k"),
        ("--model=m --to 32k", "m --to 32k"),
        ("m --method YaRN", "m --method yarn"),
        ("m --method=YaRN", "m --method=yarn"),
        ("m --methods YaRN", "m --method yarn"),
        ("m --methods=NTK-Mixed", "m --method=ntk_mixed"),
        ("m --runtime vLLM", "m --runtime vllm"),
        ("m --Runtime=vLLM", "m --runtime=vllm"),
        ("m --lr 1e-4", "m --learning-rate 1e-4"),
        ("m --max-steps 5", "m --steps 5"),
        ("m --trained_length 32k", "m --trained-length 32k"),
        ("m --force --out X.json", "m --overwrite --output X.json"),
        ("m --set beta=YaRN", "m --set beta=YaRN"),
        ("Folder/Model --output Plan.json", "Folder/Model --output Plan.json"),
        ("m --nonsense X", "m --nonsense X"),
        ("m --arms BF16", "m --arms BF16"),
    ],
)
def test_an_option_is_what_was_meant(given: str, meant: str) -> None:
    """An option of another verb (`--arms`) stays as it is, for the parser to refuse."""
    assert options_meant(given.split(), OPTIONS, model=True) == meant.split()


def test_a_parameter_of_a_method_is_named_as_such() -> None:
    with pytest.raises(InputError, match=r"--factor: is a parameter.*write --set factor=4"):
        options_meant(["m", "--factor=4"], OPTIONS, model=True)
    with pytest.raises(InputError, match=r"--beta-fast: is a parameter.*--set beta_fast=8"):
        options_meant(["m", "--beta-fast", "8"], OPTIONS, model=True)


def test_where_the_first_argument_is_no_model_the_option_is_not_dropped() -> None:
    assert options_meant(["--model", "m"], OPTIONS, model=False) == ["--model", "m"]


def test_all_that_is_said_names_options(capsys: pytest.CaptureFixture[str]) -> None:
    app = typer.Typer()

    @app.command()
    def command(dtype: str = "auto") -> None: ...

    with options_named(get_command(app).params):
        say("set `dtype` to float32, or see `ropewalk train` and `seed`")
        notify("set `dtype` to float32")
    told = "set --dtype to float32"
    said = (f"{told}, or see `ropewalk train` and `seed`\n", f"{told}\n")
    assert capsys.readouterr() == said


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        ("steps", "--steps"),
        ("steps[0]", "--steps[0]"),
        ("plan.schedules", "--plan.schedules"),
        ("model", "MODEL"),
        ("model/config.json: rope_theta", "model/config.json: rope_theta"),
        ("steps/config.json: rope_theta", "steps/config.json: rope_theta"),
        ("plan.json: schedules.base", "plan.json: schedules.base"),
        ("model: num_hidden_layers", "model: num_hidden_layers"),
    ],
)
def test_a_file_is_not_taken_for_the_option_that_its_name_begins_with(key: str, shown: str) -> None:
    app = typer.Typer()

    @app.command()
    def command(
        model: Annotated[str, typer.Argument(metavar="MODEL")], steps: int = 1, plan: str = ""
    ) -> None: ...

    with pytest.raises(InvalidValue) as raised, options_named(get_command(app).params):
        raise InvalidValue(key, 0, "must be positive", "give 1")
    assert str(raised.value) == f"{shown} = 0: must be positive; give 1"
