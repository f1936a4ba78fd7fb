"""The whole journey on the bundled model, and on disk afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ropewalk import cli
from ropewalk.context_plan import ContextPlan
from ropewalk.data.corpora import Document
from ropewalk.errors import InputError
from ropewalk.journey import SEARCH_SHARE, STAGES, parted

SMALL = ("--to", "1k", "--evaluations", "5", "--samples", "2", "--lengths", "512")


def _extend(*arguments: object) -> Any:
    result = CliRunner().invoke(cli.command_line(["extend"]), ["extend", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A journey that was killed in its evaluation and started again."""
    run = tmp_path_factory.mktemp("extended") / "run"
    command = [sys.executable, "-m", "ropewalk", "extend", *SMALL, "--run", str(run)]
    killed = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    records = run / "records.jsonl"
    while not (records.exists() and records.stat().st_size > 2000):
        assert killed.poll() is None, "it ended before it could be killed"
        time.sleep(0.05)
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert (run / "search.json").exists()
    assert not (run / "evaluate.json").exists()
    return run, _extend(*SMALL, "--run", run).stdout


def test_the_last_three_lines_say_what_where_and_how(done: tuple[Path, str]) -> None:
    run, said = done
    achieved, where, how = said.strip().splitlines()[-3:]
    evaluated = json.loads((run / "evaluate.json").read_text())
    assert achieved.startswith("at 1k: before, retrieval ")
    assert f"after, by {evaluated['chosen']}, retrieval " in achieved
    assert str(run / "model") in where
    assert str(run / "model.gguf") in where
    assert how == f"load it: AutoModelForCausalLM.from_pretrained('{run / 'model'}')"


def test_every_stage_leaves_what_it_found(done: tuple[Path, str]) -> None:
    run, said = done
    for stage in STAGES:
        assert (run / f"{stage.name}.json").exists()
        assert f"{stage.name}  " in said
    plan = ContextPlan.read(run / "plan.json")
    assert plan.target_length == 1024
    exported = json.loads((run / "export.json").read_text())
    assert [each["target"] for each in exported["written"]] == ["transformers", "llama.cpp"]
    assert all(each["parity"]["passed"] for each in exported["written"])
    assert (run / "figures" / "by-length.png").exists()


def test_a_journey_that_is_done_is_only_told_again(done: tuple[Path, str]) -> None:
    run, _ = done
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*.json")}
    again = json.loads(_extend(*SMALL, "--run", run, "--json").stdout)
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*.json")} == before
    assert list(again) == [
        *("model", "target_length", "method", "before", "after", "at_target"),
        *("short", "exported", "verified"),
    ]
    assert again["after"] == again["at_target"][again["method"]]


def test_another_setting_on_the_same_directory_is_refused(done: tuple[Path, str]) -> None:
    with pytest.raises(InputError, match="samples was 2, now 3"):
        _extend(*SMALL[:4], "--samples", 3, "--lengths", 512, "--run", done[0])


def test_the_exported_model_is_the_chosen_one(done: tuple[Path, str]) -> None:
    run, _ = done
    standing = json.loads((run / "evaluate.json").read_text())
    chosen = standing["at_target"][standing["chosen"]]
    for method, values in standing["at_target"].items():
        if method != "none":
            assert chosen["retrieval"] >= values["retrieval"]


def test_a_dry_run_shows_stages_and_cost_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = _extend("--dry-run", *SMALL).stdout
    for stage in STAGES:
        assert stage.name in shown
    assert "tokens a second" in shown
    assert list(tmp_path.iterdir()) == []
    rows = json.loads(_extend("--dry-run", *SMALL, "--json").stdout)["stages"]
    assert [row["stage"] for row in rows] == [stage.name for stage in STAGES]
    by_name = {row["stage"]: row["tokens"] for row in rows}
    # Six methods, four tasks, two samples, at 512 and 1,024 tokens.
    assert by_name["evaluate"] == 6 * 4 * 2 * (512 + 1024)


def test_a_target_that_is_served_already_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must be above 512, the length that the model serves"):
        _extend("--to", 512, "--run", tmp_path / "run")


def test_search_and_evaluation_share_no_text() -> None:
    texts = [Document(f"{i}", f"{i}\n" * (100 + i)) for i in range(7)]
    first, second = parted(texts)
    assert "".join(d.text for d in (*first, *second)) == "".join(d.text for d in texts)
    share = sum(len(d.text) for d in first) / sum(len(d.text) for d in texts)
    assert share == pytest.approx(SEARCH_SHARE, abs=0.01)
    # A text that is cut is cut between lines.
    assert first[-1].text.endswith("\n")
    whole = Document("one line", "x" * 1000)
    assert [len(d.text) for half in parted([whole]) for d in half] == [550, 450]
