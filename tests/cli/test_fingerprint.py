"""`ropewalk fingerprint`: makes a file, compares a server with it, and says by its exit status."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmarks.llama_server import serving
from ropewalk.__main__ import run
from ropewalk.cli import command_line
from ropewalk.errors import InputError, InvalidValue
from ropewalk.evaluation.served.fingerprint import Fingerprint
from tests.cli.calling import result_of
from tests.evaluation.served import made
from tests.evaluation.served.bad_server import completed, listed, misbehaving, said
from tests.gguf.gguf_files import header_only


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fingerprint") / "fingerprint.json"
    path.write_text(made.fingerprint().dumps(), "utf-8")
    return path


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = made.gguf(tmp_path_factory.mktemp("gguf") / "planned.gguf")
    with serving(path, n_ctx=made.TARGET) as address:
        yield address


def called(*arguments: object) -> Any:
    words = ["fingerprint", *map(str, arguments)]
    return CliRunner().invoke(command_line(["fingerprint"]), words)


def test_a_file_is_made_of_a_model(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "own.json"
    done = called(model, "-o", path, "--json", "--corpus", "python")
    assert done.exit_code == 0, done.output
    own = Fingerprint.read(path)
    assert own == Fingerprint.from_json(json.loads(done.stdout))
    assert own.method == "plain"
    assert "wrote" in done.stderr


def test_what_is_no_fingerprint_is_not_called_one(tmp_path: Path) -> None:
    path = header_only(tmp_path / "a.gguf")
    for words in (["-o", tmp_path / "b.json"], ["--server", "http://127.0.0.1:1"]):
        with pytest.raises(
            InputError, match=r"a\.gguf: is a GGUF file; give the folder of safetens"
        ):
            result_of("fingerprint", path, *words)
    plan = tmp_path / "plan.json"
    plan.write_text(made.plan().dumps(), "utf-8")
    with pytest.raises(InvalidValue, match=r"format = 'ropewalk-plan-1'.*ropewalk-fingerprint"):
        result_of("fingerprint", plan, "-o", tmp_path / "b.json")


def test_a_server_that_answers_so(url: str, file: Path) -> None:
    done = called(file, "--server", url)
    assert done.exit_code == 0, done.output
    assert "answers like bundled under yarn in 21 probes up to 1,023 tokens" in done.stdout
    assert "context" in done.stdout


def test_a_server_is_asked_before_the_model_is_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The folder has no weights, so that running it would fail otherwise."""
    config = Path(__file__).parents[1] / "golden" / "configs" / "llama-2-7b.json"
    (tmp_path / "config.json").write_bytes(config.read_bytes())
    with misbehaving(lambda asked, _: said(completed(asked)), lambda: listed("a", "b")) as two:
        assert run(["fingerprint", str(tmp_path), "--server", two.url]) == 2
    assert "serves 2 models; name one (--model-name)" in capsys.readouterr().err


def test_a_server_that_does_not(file: Path, tmp_path: Path) -> None:
    with serving(made.gguf(tmp_path / "m.gguf", made.plain()), n_ctx=made.TARGET) as other:
        done = called(file, "--server", f"{other}/v1", "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)["causes"][0]["name"] == "no scaling"


def test_a_server_that_cannot_be_judged(file: Path) -> None:
    counted = {probe.text: probe.length for probe in made.fingerprint().probes}

    def complete(asked: dict[str, Any], number: int) -> Any:
        count = counted.get(asked["prompt"]) if isinstance(asked["prompt"], str) else None
        usage = {"prompt_tokens": count or len(asked["prompt"])}
        return said(completed(asked, usage=usage))

    with misbehaving(complete) as silent:
        done = called(file, "--server", silent.url)
    assert done.exit_code == 3
    assert "gives no log-probabilities" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["bundled"], "give -o FILE to keep the fingerprint, or --server URL"),
        (["bundled", "-o", "-"], "is not printed"),
        (["FILE", "--server", "http://127.0.0.1:9", "--plan", "p.json"], "which holds its plan"),
        (["FILE", "--server", "http://127.0.0.1:9", "--length", "1k"], "which holds its plan"),
        (["FILE", "--server", "nowhere"], "--server = 'nowhere': must begin with http"),
        (["FILE", "--server", "http://127.0.0.1:9", "--timeout", "0"], "--timeout = 0"),
    ],
)
def test_refusals(
    arguments: list[str], told: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(file) if word == "FILE" else word for word in arguments]
    assert run(["fingerprint", *words]) == 2
    assert told in capsys.readouterr().err
