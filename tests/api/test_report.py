"""`rw.report` and `ropewalk report`, on runs of a model that is built here."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import ropewalk as rw
from ropewalk.api.report import keep_report
from ropewalk.errors import InputError
from ropewalk.evaluation.effective_length import Standing
from ropewalk.interval import Interval
from ropewalk.progress import Status
from ropewalk.records import EXACT_MATCH
from ropewalk.reports.commands.evaluate import _reach
from ropewalk.run_directory import Journal, RunDirectory, read_journal
from ropewalk.values import decode
from tests.api.conformance import check_command, check_result
from tests.evaluation import tiny
from tests.evaluation.scored import resealed
from tests.reports.page.test_html import Read

SETTINGS: dict[str, Any] = {
    "methods": ["none", "linear"],
    "to": 256,
    "lengths": [128, 256],
    "tasks": ["perplexity", "kv"],
    "samples": 6,
    "corpus": tiny.documents(),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "a"
    rw.evaluate(tiny.loaded(), run=folder, **SETTINGS)
    return folder


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "b"
    model = replace(tiny.loaded(), model=tiny.model(initializer_range=0.2))
    rw.evaluate(model, run=folder, **SETTINGS)
    return folder


@pytest.fixture
def copied(run: Path, tmp_path: Path) -> Path:
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / "report.html").unlink()
    return tmp_path / "run"


def texts(page: Path) -> str:
    return " ".join(text for own in Read(page.read_bytes()).texts.values() for text in own)


def test_an_evaluation_leaves_its_page_with_every_value(run: Path) -> None:
    shown = texts(run / "report.html")
    results = json.loads((run / "results.json").read_text())
    for result in results["results"]:
        if result["metric"] == "exact_match":
            value, ends = str(decode(Interval, result["estimate"], "estimate")).split(" ", 1)
            assert value in shown
            assert ends in shown
    for heading in ("Each task by context length", "Methods compared", "Schedules"):
        assert heading in shown
    assert "Where answers are found" not in shown, "six samples make one row, as in the chart"
    for word in ("linear", "original length", "95% intervals", "torch"):
        assert word in shown


def test_the_box_gives_the_verdict_on_the_method_that_reaches_farthest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = {**SETTINGS, "tasks": ["lines", "kv"], "samples": 3}
    found = rw.evaluate(tiny.loaded(), run="a", **asked)
    one = found.effective_lengths[0]
    assert one.standings[-1].verdict == "undecided"
    # A method that may work comes before one that passes longer, and fails.
    low, high = Interval(0.1, 0.05, 0.2, "difference"), Interval(-0.2, -0.3, -0.1, "difference")
    open_ = replace(low, low=-0.1)
    ranks = [
        _reach(3, replace(one, standings=tuple(map(Standing, (1, 2, 3), margins))))
        for margins in ((low, low, high), (low, open_, open_), (low, low, low))
    ]
    assert ranks == sorted(ranks)
    read = Read(Path("a/report.html").read_bytes())
    assert ("div", {"class": "verdict", "data-word": "undecided"}) in read.elements
    assert "ropewalk evaluate --config a/run.json --samples 12 --run a-more" in read.texts["span"]


def test_methods_that_reach_equally_far_are_told_apart_by_their_scores(tmp_path: Path) -> None:
    run = tmp_path / "run"
    asked: dict[str, Any] = {"tasks": ["needle", "kv"], "lengths": [512, 1024], "samples": 4}
    found = rw.evaluate("bundled", methods=["none", "yarn"], to=2048, run=run, **asked)
    first, second = found.effective_lengths
    assert first.passed == second.passed
    assert "yarn" in rw.report(run).path.read_text()


def test_the_result_and_the_command(copied: Path, tmp_path: Path) -> None:
    found = check_result(rw.report(copied))
    assert found.path == copied / "report.html"
    assert found.missing == ()
    assert found.bytes == found.path.stat().st_size
    out = tmp_path / "page.html"
    check_command(rw.report(copied, out=out), "report", copied, "-o", out)
    assert rw.report(copied).bytes == found.bytes, "ours may be replaced"


def test_two_evaluations_stand_side_by_side(
    run: Path, other: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(run, tmp_path / "a")
    shutil.copytree(other, tmp_path / "b")
    monkeypatch.chdir(tmp_path)
    found = rw.report("a", "b", out="both.html")
    compared = rw.compare_runs("a", "b")
    assert found.verdict == compared.summary()
    assert compared.significant
    for told in compared.significant[:3]:
        assert str(told.comparison.difference).partition("(")[2] in found.verdict
    shown = texts(found.path)
    for result in (*compared.first_results, *compared.second_results):
        if result.metric == EXACT_MATCH.name:
            assert result.estimate.number() in shown
    with pytest.raises(InputError, match="needs a file to be written to"):
        rw.report(run, other)


def test_an_unfinished_run_shows_what_there_is(copied: Path) -> None:
    (copied / "results.json").unlink()
    found = rw.report(copied)
    assert found.missing == ("results.json",)
    assert "Unfinished" in found.verdict
    assert "Still missing: results.json" in texts(found.path)
    assert "kv" in texts(found.path)


@pytest.mark.slow
def test_a_precision_run_and_a_search_have_pages(tmp_path: Path) -> None:
    rw.precision(
        *(tiny.loaded(),),
        quick=True,
        length=64,
        sequences=2,
        arms=["fp32", "bf16"],
        shifts=[16, 0],
        corpus=tiny.documents(),
        run=tmp_path / "precision",
    )
    assert "bf16" in texts(rw.report(tmp_path / "precision").path)
    rw.search(tiny.loaded(), 256, corpus=tiny.documents(), budget=3, run=tmp_path / "search")
    shown = texts(rw.report(tmp_path / "search").path)
    assert "Rescale factors by method" in shown
    assert "Held-out documents, at" in shown
    assert "At the original length, on the beginnings of the same documents" in shown


def refused(*runs: Path, out: Path | None = None, overwrite: bool = False) -> str:
    with pytest.raises(InputError) as caught:
        rw.report(*runs, out=out, overwrite=overwrite)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_bad_input_is_named(copied: Path, run: Path, tmp_path: Path) -> None:
    assert "is not a folder" in refused(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    assert "is not a run directory" in refused(tmp_path / "empty")
    with RunDirectory(tmp_path / "fresh", "evaluate", {"tasks": ["kv"]}):
        pass
    assert "has no results yet" in refused(tmp_path / "fresh")
    with RunDirectory(tmp_path / "strange", "bench", {}):
        pass
    assert "is a run of bench, which has no report" in refused(tmp_path / "strange")
    plan = tmp_path / "plan.json"
    plan.write_text(rw.plan("llama-2-7b", "8k", "linear").plan.dumps())
    kept = plan.read_bytes()
    assert "is not a report" in refused(copied, out=plan)
    assert plan.read_bytes() == kept
    for own in (copied / "run.json", copied / "records.jsonl"):
        kept = own.read_bytes()
        assert "belongs to the run" in refused(copied, out=own, overwrite=True)
        assert own.read_bytes() == kept
    (copied / "report.html").write_text("mine")
    assert "ropewalk did not write it" in refused(copied)
    (copied / "report.html").unlink()
    results = copied / "results.json"
    text = results.read_text()
    told = json.loads(text)
    told["results"][0]["estimate"]["value"] += 1
    results.write_text(json.dumps(told))
    resealed(copied, "results.json")
    assert "results.json does not follow from records.jsonl" in refused(copied)
    results.write_text(text[: len(text) // 2])
    assert str(results) in refused(copied)
    assert not (copied / "report.html").exists()


def test_results_of_another_model_are_refused(run: Path, other: Path, tmp_path: Path) -> None:
    weights, journal = "holds scores of the weights", "line 1 does not follow the line before it"
    for name, told in (("results.json", weights), ("records.jsonl", journal)):
        mixed = tmp_path / name
        shutil.copytree(run, mixed)
        shutil.copy(other / name, mixed / name)
        resealed(mixed, "results.json")
        assert f"{mixed / name}: {told}" in refused(mixed)
        assert told in refused(run, mixed, out=tmp_path / "both.html")


def test_a_record_stands_once(run: Path, copied: Path) -> None:
    """Copied, or scored by another run; the page and the command refuse both alike."""
    (copied / "results.json").unlink()
    records = copied / "records.jsonl"
    lines = records.read_bytes().splitlines(keepends=True)
    number = len(lines)
    records_of_it = read_journal(records)
    own = records_of_it[2]

    def of_lines(*more: dict[str, object]) -> None:
        records.unlink()
        journal = Journal(records)
        journal.append(more)
        journal.close()

    for told in (
        f"line {number + 1} does not follow the line before it, so lines were removed, repeated",
        f"line {number + 1} scores sample {own['sample']} by {own['metric']} under "
        f"{own['method']}, as line 3 does, and would count twice; remove one of them",
    ):
        if "follow" in told:
            records.write_bytes(b"".join(lines) + lines[2] * 20)
        else:
            of_lines(*records_of_it, {**own, "score": 0.25})
        assert told in refused(copied)
        with pytest.raises(InputError, match=re.escape(told)):
            rw.evaluate(tiny.loaded(), run=copied, **SETTINGS)
    of_lines({**own, "sample": "of another run"}, *records_of_it)
    said = r"line 1 scores sample of another run at .*, which is not part of this run"
    with pytest.raises(InputError, match=said):
        rw.evaluate(tiny.loaded(), run=copied, **SETTINGS)
    records.write_bytes(b"".join(lines))
    rw.evaluate(tiny.loaded(), run=copied, **SETTINGS)
    assert (copied / "results.json").read_bytes() == (run / "results.json").read_bytes()


def test_a_forged_chain_of_records_replaces_no_result(copied: Path) -> None:
    before = (copied / "results.json").read_bytes()
    records = read_journal(copied / "records.jsonl")
    records[0]["score"] = 1 - float(str(records[0]["score"]))
    (copied / "records.jsonl").unlink()
    journal = Journal(copied / "records.jsonl")
    journal.append(records)
    journal.close()
    with pytest.raises(InputError, match="does not match the records"):
        rw.evaluate(tiny.loaded(), run=copied, **SETTINGS)
    assert (copied / "results.json").read_bytes() == before
    resealed(copied, "results.json")  # which counts no records: nobody knows what was edited
    with pytest.warns(UserWarning, match="was edited or damaged; it is made again"):
        rw.evaluate(tiny.loaded(), run=copied, **SETTINGS)


def test_a_result_that_no_event_names_is_not_believed(copied: Path) -> None:
    (copied / "events.jsonl").unlink()
    assert "events.jsonl does not name it" in refused(copied)
    (copied / "results.json").unlink()
    rw.evaluate(tiny.loaded(), run=copied, **SETTINGS)
    rw.report(copied)


def test_a_result_counts_the_records_that_it_was_made_of(copied: Path) -> None:
    records = copied / "records.jsonl"
    lines = records.read_bytes().splitlines(keepends=True)
    records.write_bytes(b"".join(lines[:-3]))
    told = f"has {len(lines) - 3} lines of the {len(lines)} that results.json was made from"
    assert told in refused(copied)
    (copied / "results.json").unlink()
    rw.evaluate(tiny.loaded(), run=copied, **SETTINGS)
    assert records.read_bytes() == b"".join(lines)
    rw.report(copied)


def test_a_result_belongs_to_the_records_that_it_was_made_of(copied: Path) -> None:
    """A journal of as many good lines, as another run would have it, is not taken for its own."""
    records, results = copied / "records.jsonl", copied / "results.json"
    first, *others = read_journal(records)
    records.unlink()
    Journal(records).append([{**first, "score": float(str(first["score"])) / 2 + 0.1}, *others])
    told = "has other lines than those that results.json was made from"
    assert told in refused(copied)
    kept = results.read_bytes()
    results.unlink()
    records.unlink()
    rw.evaluate(tiny.loaded(), run=copied, **SETTINGS)
    assert results.read_bytes() == kept
    rw.report(copied)


@pytest.mark.parametrize("digits", ["results", "comparisons", "depth_grids"])
def test_an_edited_digit_does_not_reach_the_page(copied: Path, digits: str) -> None:
    """Nowhere in a result, derived from the records or not."""
    results = copied / "results.json"
    told = json.loads(results.read_text())
    place = next(_numbers(told[digits]))
    place[0][place[1]] += 1
    results.write_text(json.dumps(told, indent=2) + "\n")
    assert f"{results}: has been edited since it was written" in refused(copied)
    results.unlink()
    rw.evaluate(tiny.loaded(), run=copied, **SETTINGS)
    rw.report(copied)


def _numbers(value: Any) -> Iterator[tuple[Any, Any]]:
    """The places of all numbers in a value of JSON."""
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    for key, own in inside:
        if isinstance(own, dict | list):
            yield from _numbers(own)
        elif type(own) in (int, float):
            yield value, key


def test_a_pipe_among_the_files_is_not_waited_for(copied: Path) -> None:
    (copied / "records.jsonl").unlink()
    os.mkfifo(copied / "records.jsonl")
    assert "is not a file" in refused(copied)


def test_a_fault_of_the_page_does_not_end_the_run(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (copied / "results.json").write_text("{}")
    said: list[str] = []
    keep_report(copied, said.append)
    assert len(said) == 1
    assert said[0].startswith("no report: ")
    monkeypatch.setattr(importlib.import_module("ropewalk.api.report"), "report", lambda _: 1 / 0)
    keep_report(copied, said.append)
    assert said[1].endswith("unexpected ZeroDivisionError: division by zero; please report it")


def test_the_command_needs_no_torch_and_tells_itself(copied: Path, tmp_path: Path) -> None:
    """The line is kept among the events, which hold what differs between equal runs."""
    program = (
        "import sys\n"
        "sys.modules.update({'torch': None, 'transformers': None, 'matplotlib': None})\n"
        "sys.argv[0] = 'bin/ropewalk'\n"
        "from pathlib import Path\n"
        "from ropewalk.run_directory import RunDirectory, read_journal\n"
        f"with RunDirectory({str(tmp_path / 'other')!r}, 'evaluate', {{}}): pass\n"
        f"print(read_journal({str(tmp_path / 'other/events.jsonl')!r})[0]['line'])\n"
        "from ropewalk.__main__ import main\n"
        "main()\n"
    )
    arguments = [sys.executable, "-c", program, "report", str(copied)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"ropewalk report {copied}\nWrote {copied}")


def test_a_folder_of_runs_becomes_an_index_with_the_verdict_of_each(
    run: Path, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    shutil.copytree(run, runs / "deep" / "one")
    (runs / "broken").mkdir()
    (runs / "broken" / "run.json").write_text("{")
    found = check_result(rw.report(runs))
    assert found.path == runs / "index.html"
    page = Read(found.path.read_bytes())
    told = texts(found.path)
    assert rw.report(run, out=tmp_path / "own.html").verdict in told
    assert "broken/run.json: " in told, "why a run has no verdict"
    assert b'href="deep/one/report.html"' in found.path.read_bytes()
    assert not page.open
    with pytest.raises(InputError, match="is not a run directory and holds none"):
        rw.report(tmp_path / "runs" / "deep" / "one" / "figures")


def test_a_run_that_was_stopped_and_went_on_has_the_same_page(run: Path, tmp_path: Path) -> None:
    """Even if it went on a day later: times are in the events alone."""

    def stop(status: Status) -> None:
        if (again / "records.jsonl").exists() and (again / "records.jsonl").stat().st_size:
            raise KeyboardInterrupt

    again = tmp_path / "a"
    with pytest.raises(KeyboardInterrupt):
        rw.evaluate(tiny.loaded(), run=again, progress=stop, **SETTINGS)
    assert not (again / "results.json").exists()
    events = read_journal(again / "events.jsonl")
    (again / "events.jsonl").unlink()
    journal = Journal(again / "events.jsonl")
    day = timedelta(days=1)
    journal.append(
        {**event, "time": (datetime.fromisoformat(str(event["time"])) - day).isoformat()}
        for event in events
    )
    journal.close()
    rw.evaluate(tiny.loaded(), run=again, **SETTINGS)
    assert (again / "report.html").read_bytes() == (run / "report.html").read_bytes()


def test_an_event_whose_time_is_none(copied: Path, tmp_path: Path) -> None:
    journal = Journal(copied / "events.jsonl")
    journal.append([{"time": "yesterday", "event": "stopped"}, {"time": None, "event": "started"}])
    journal.append([{"time": "2026-01-01T00:00:00", "event": "finished"}])
    journal.close()
    rw.report(copied)
    assert re.search(r"\d\d \w+ 20\d\d", texts(rw.report(tmp_path).path))
