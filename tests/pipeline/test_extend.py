"""`extend` on a tiny model: what it writes is opened, and what it keeps is not believed blindly."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM
from typer.main import get_command

import ropewalk as rw
from ropewalk.api.report import Reported
from ropewalk.cli import command_line
from ropewalk.context_plan import ContextPlan, PlanStep
from ropewalk.data.corpora import Document
from ropewalk.errors import InputError
from ropewalk.evaluation.planted import text_of
from ropewalk.models.load import load
from ropewalk.pipeline.extend import Extended, run_stages
from ropewalk.pipeline.results import TRAINED, DocumentRead, Judged, final, sealed
from ropewalk.pipeline.settings import SEARCH_SHARE, parted, settings_for
from ropewalk.pipeline.stage import Stage, Work
from ropewalk.pipeline.stages import stages
from ropewalk.pipeline.stages.export import Export
from ropewalk.pipeline.stages.judge import JudgeChosen, JudgeFirst
from ropewalk.pipeline.stages.search import Search
from ropewalk.planning.extension import HAND_DESIGNED
from ropewalk.planning.extension import extend as schedule_by
from ropewalk.progress import Progress, Status, silent, unheard
from ropewalk.reports.commands.extend import _to_do
from ropewalk.reports.parts.schedules import pasted
from ropewalk.run_directory import RunDirectory
from ropewalk.run_on_disk import RunOnDisk
from ropewalk.schedule import RotarySchedule
from ropewalk.values import Result
from tests.api.conformance import check_result
from tests.evaluation import tiny
from tests.evaluation.test_chat import WITH_BOS, chat, tokenizer
from tests.mutants.damage import flip
from tests.pipeline.conftest import TARGET, extended


def turned(folder: Path) -> tuple[np.ndarray[Any, Any], float]:
    """What stock transformers turns by: read from its own rotary module."""
    rotary = AutoModelForCausalLM.from_pretrained(folder).model.rotary_emb
    return rotary.inv_freq.double().numpy(), float(rotary.attention_scaling)


def assert_follows(folder: Path, schedule: RotarySchedule) -> None:
    frequencies, scaling = turned(folder)
    np.testing.assert_allclose(frequencies, schedule.inverse_frequencies, rtol=1e-6)
    assert scaling == pytest.approx(schedule.attention_scaling, rel=1e-6)


def work_of(done: Extended, folder: Path, directory: RunDirectory, **results: Result) -> Work:
    texts = tiny.documents(8)
    return Work(
        str(folder), load(str(folder)), TARGET, texts, texts, directory, print,
        {**done.results, **results},
    )  # fmt: skip


def test_the_page_can_be_sent_to_others_and_draws_what_long_context_costs(
    done: Extended, run: Path
) -> None:
    page = (run / "report.html").read_text()
    assert str(run.parent) not in page
    assert f"Run directory: {run.name}<" in page
    assert f'<p class="word">{done.judged.verdict}</p>' in page
    box = page.split('<div class="verdict"')[1].split("<nav")[0]
    for length in (tiny.WINDOW, TARGET):
        assert f">{length}</td>" in box, "before and after, at both lengths"
    assert page.count("AutoModelForCausalLM.from_pretrained") == 1, "a line to paste stands once"
    assert "not tested here" not in page
    assert f"within {tiny.WINDOW}" in page
    assert f"folder = &#x27;{run.name}/model&#x27;" in page
    assert "read back from disk and holds the schedule that was judged." in page


def test_the_lines_of_the_page_load_the_export_and_continue_a_text(
    done: Extended, capsys: pytest.CaptureFixture[str]
) -> None:
    exec(pasted(done.result(Export).written[0]), {})
    assert "Your text" in capsys.readouterr().out


def test_the_page_of_an_unfinished_run_names_the_stages_that_are_missing(
    done: Extended, run: Path, tmp_path: Path
) -> None:
    cut = Path(shutil.copytree(run, tmp_path / "run"))
    for name in ("first", "search", "verify"):
        (cut / f"{name}.json").unlink()
    assert rw.report(cut, out=tmp_path / "page.html").missing == ("first", "search", "verify")
    kept = json.loads((run / "run.json").read_text())["configuration"]["stages"]
    assert kept == [stage.name for stage in stages(done.settings)]


def test_a_removed_verdict_is_on_no_page_and_what_follows_from_it_is_made_again(
    done: Extended, folder: Path, copied: Path
) -> None:
    run, first = RunOnDisk.read(copied), copied / "first.json"
    for gone in (copied / "verdict.json", first):
        kept = gone.read_bytes()
        gone.unlink()
        assert rw.report(copied).verdict.startswith("Not judged yet"), gone.name
        gone.write_bytes(kept)
    assert rw.report(copied).verdict.startswith(done.judged.verdict)
    # As if the first verdict had been another one, on another machine.
    with RunDirectory(copied, "extend", run.configuration) as directory:
        other = judged_as(done.result(JudgeFirst), (1.0, 0.9))
        assert not directory.keep("first.json", sealed("first", run.configuration, other))
    first.unlink()
    before = len(run.lines("events.jsonl"))
    assert extended(folder, copied).results["first"] == done.results["first"]
    redone = [each.get("name") for each in run.lines("events.jsonl")[before:] if "name" in each]
    assert redone == [name for name in done.results if name != "inspect"]


def test_the_page_of_a_run_that_judges_has_the_present_interval(
    done: Extended, folder: Path, run: Path, tmp_path: Path
) -> None:
    pages: list[Reported] = []
    shares: list[float] = []

    def watch(status: Status) -> None:
        if status.stage == "first":
            shares.append(status.done)
        if status.stage == "first" and status.detail:
            pages.append(rw.report(tmp_path / "run", out=tmp_path / f"{len(pages)}.html"))

    extended(folder, tmp_path / "run", progress=watch)
    assert shares == sorted(shares)
    assert 0.8 < shares[-1] <= 1
    told = []
    for page in pages:
        content = page.path.read_text(encoding="utf-8")
        found = re.search(r"yarn is judged now, by (\d) documents?: .*: undecided\.", content)
        assert found is not None
        told.append(int(found[1]))
        assert "first" in page.missing
    assert set(told) == {1, 2, 3, 4, 5}
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == sorted(
        p.name for p in run.iterdir()
    )


def test_the_result_is_a_value_that_tells_what_was_achieved(done: Extended, run: Path) -> None:
    check_result(done)
    value = done.to_json()
    judged = done.judged
    first = done.result(JudgeFirst)
    assert value["verdict"] == judged.verdict
    assert {each.method for each in first.readings} == {"none", "yarn"}
    assert {each.length for each in judged.readings} == {tiny.WINDOW, TARGET}
    for line in done.lines:
        assert line in done.summary()
    assert str(run / "model") in done.summary()
    # Both models are asked the same question, and one answer is in the document.
    assert first.example is not None
    assert first.example.answer.isdecimal()
    said = f"{first.example.question}{first.example.answer}"
    assert first.example.lines.split("\n")[1] == said, "as it stands in its document"
    said = f"answers {first.example.before!r}, the extended one {first.example.after!r}"
    assert said in done.lines[0]


def test_what_was_exported_follows_the_chosen_plan(done: Extended, run: Path) -> None:
    plan = ContextPlan.read(run / "plan.json")
    assert_follows(run / "model", plan.longest())
    if done.method in HAND_DESIGNED:
        plain = load(str(run / "model")).present_plan.longest().geometry
        again = schedule_by(RotarySchedule.plain(plain), TARGET, done.method)
        assert plan.longest().inverse_frequencies == pytest.approx(again.inverse_frequencies)
    else:
        assert plan.longest() == done.result(Search).plan.longest()


@pytest.mark.parametrize(
    "method",
    ["yarn", *(pytest.param(m, marks=pytest.mark.slow) for m in ("linear", "ntk", "ntk_mixed"))],
)
def test_each_method_is_exported_as_itself(
    done: Extended, folder: Path, tmp_path: Path, method: str
) -> None:
    expected = schedule_by(load(str(folder)).present_plan.longest(), TARGET, method)
    first = done.result(JudgeFirst)
    plan = first.plan.with_steps(first.plan.main_layer, (PlanStep(TARGET, expected),))
    readings = tuple(
        replace(each, method=method) if each.method == "yarn" else each for each in first.readings
    )
    judged = replace(first, chosen=method, plan=plan, readings=readings)
    with RunDirectory(tmp_path / "run", "extend", {}) as directory:
        work = work_of(done, folder, directory, verdict=judged)
        Export().run(work, silent)
    assert_follows(tmp_path / "run" / "model", expected)
    assert ContextPlan.read(tmp_path / "run" / "plan.json").longest() == expected


def test_a_run_that_is_done_is_only_told_again(done: Extended, folder: Path, run: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*.json")}
    told: list[str] = []
    again = extended(folder, run, done=lambda stage, result: told.append(stage.name))
    assert again == done
    assert told == list(done.results)
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*.json")} == before


def test_what_a_run_used_is_said_over_all_its_interruptions(folder: Path, tmp_path: Path) -> None:
    """Two parts of a run read what one reads, and no more than was planned."""
    told: list[str] = []

    def stop(stage: Stage[Any], result: Result) -> None:
        if stage.name == "search":
            raise KeyboardInterrupt

    for place, done in ((tmp_path / "whole", lambda *_: None), (tmp_path / "parts", stop)):
        try:
            extended(folder, place, done=done, notice=told.append)
        except KeyboardInterrupt:
            extended(folder, place, notice=told.append)
    said = [
        re.fullmatch(r"used: ([0-9,]+) tokens read, .*; at most ([0-9,]+) .*", each)
        for each in told
    ]
    whole, parts = ([int(n.replace(",", "")) for n in each.groups()] for each in said if each)
    assert whole == parts
    assert 0 < whole[0] <= whole[1]


def edited(*keys: str | int, to: object) -> Callable[[Path], None]:
    def edit(file: Path) -> None:
        value = json.loads(file.read_text())
        place = value
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = to
        file.write_text(json.dumps(value))

    return edit


@pytest.mark.parametrize(
    ("name", "damage", "complaint"),
    [
        ("inspect", lambda file: file.write_text("{}"), r"inspect\.json: stage = None: is missing"),
        ("search", lambda file: file.write_text(file.read_text()[:-200]), "is not JSON"),
        ("first", edited("result", "readings", 0, "retrieved", to=-1), "has been edited since"),
        ("first", edited("result", "verdict", to="works"), "has been edited since"),
        ("inspect", edited("stage", to="search"), "is the result of stage 'search' of another run"),
        ("inspect", edited("run", to="0" * 16), "of another run"),
    ],
)
def test_a_damaged_or_foreign_stage_file_is_named_with_the_remedy(
    done: Extended, folder: Path, run: Path, tmp_path: Path, name: str, damage: Any, complaint: str
) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "run"))
    damage(copy / f"{name}.json")
    with pytest.raises(InputError, match=complaint) as refused:
        extended(folder, copy)
    assert f"remove {name}.json to have " in str(refused.value)
    with pytest.raises(InputError, match=complaint):
        rw.report(copy)
    (copy / f"{name}.json").unlink()
    if name == "inspect":  # quick: the others are done again in the command's test
        assert extended(folder, copy).results[name] == done.results[name]


@pytest.mark.parametrize("name", ["inspect", "search", "first", "export"])
def test_an_edited_digit_of_a_stage_reaches_no_page(
    done: Extended, folder: Path, copied: Path, name: str
) -> None:
    file = copied / f"{name}.json"
    text = file.read_text()
    place = re.search(r"[0-8](?=[0-9]*\n)|(?<=\d)[0-8](?=[.%])", text[100:])
    assert place is not None
    file.write_text(f"{text[: 100 + place.start()]}9{text[100 + place.end() :]}")
    told = f"{name}.json: (has been edited since it was written|.*does not follow from the rest)"
    unnamed = r"does not follow from the rest|events.jsonl does not name it"
    for rule in (told, unnamed):
        for act in (lambda: rw.report(copied), lambda: extended(folder, copied)):
            with pytest.raises(InputError, match=rule):
                act()
        (copied / "events.jsonl").unlink()


@pytest.fixture
def copied(done: Extended, run: Path, tmp_path: Path) -> Path:
    """A finished run that may be damaged."""
    return Path(shutil.copytree(run, tmp_path / "run"))


@pytest.mark.slow
def test_what_was_deleted_of_an_export_is_exported_again(
    done: Extended, folder: Path, copied: Path
) -> None:
    gone, told = copied / "model", list[str]()
    shutil.rmtree(gone)
    again = extended(folder, copied, notice=told.append)
    assert f"exporting again what was deleted: {gone}" in told
    assert_follows(copied / "model", ContextPlan.read(copied / "plan.json").longest())
    assert str(copied / "model") in again.summary()
    assert again.method == done.method
    assert (copied / "verify.json").stat().st_mtime >= (copied / "export.json").stat().st_mtime


@pytest.mark.parametrize(
    ("name", "damage", "complaint"),
    [
        ("model/config.json", lambda file: file.unlink(), "config.json: is missing"),
        ("model/config.json", edited("rope_parameters", to={}), "has changed since it was"),
        # One bit, and not a byte longer.
        ("model/model.safetensors", lambda file: flip(file, -1), "has changed since it was"),
        ("plan.json", edited("provenance", to={}), "has changed since it was exported"),
    ],
)
def test_a_damaged_export_is_not_claimed_nor_overwritten(
    folder: Path, copied: Path, name: str, damage: Any, complaint: str
) -> None:
    damage(copied / name)
    kept = [path for path in copied.rglob("*") if path.suffix != ".jsonl"]
    before = {path: path.stat().st_mtime_ns for path in kept}
    with pytest.raises(InputError, match=complaint) as refused:
        extended(folder, copied)
    whole = copied / Path(name).parts[0]
    assert f"remove {whole} to have it exported again" in str(refused.value)
    before.pop(copied / "lock")
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_a_moved_run_of_a_moved_model_is_the_same_run(
    done: Extended, folder: Path, copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same weights under another name, and the run as seen from another folder."""
    moved = Path(shutil.copytree(folder, copied.parent / "renamed"))
    monkeypatch.chdir(copied.parent)
    for name in ("renamed", "./renamed/", str(moved)):
        again = extended(Path(name), Path("run"))
        assert again.judged == done.judged
        assert again.result(Export).written[0].path == Path("run/model")
        assert again.load == "AutoModelForCausalLM.from_pretrained('run/model')"
    config = json.loads((moved / "config.json").read_text())
    (moved / "config.json").write_text(json.dumps({**config, "rms_norm_eps": 1e-3}))
    with pytest.raises(InputError, match=r"configuration\.config_sha256 was"):
        extended(moved, Path("run"))


SHORT = [Document("short", "a few words\n" * 40)]
THEN_SHORT = [
    Document("long", "a long one\n" * 200),
    *(Document(f"{i}", f"{i} x\n" * 40) for i in range(20)),
]


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"corpus": SHORT}, r"verdict holds \d disjoint .*documents \(`corpus`\), or a shorter"),
        ({"corpus": THEN_SHORT}, r"holds 1 disjoint documents of .* at least 5 .*\(`corpus`\)"),
        ({"budget": 0}, "budget = 0: must be a whole number of evaluations or tokens, or a time"),
        ({"budget": 4}, "budget = 4: is too small for any decision: 5 documents are the least"),
        ({"budget": "2ktok"}, "budget = '2ktok'"),
        ({"corpus": ""}, "corpus = '': must not be empty"),
        ({"dtype": "int4"}, "unknown dtype 'int4'"),
    ],
)
def test_a_run_that_is_refused_leaves_nothing(
    folder: Path, tmp_path: Path, given: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(InputError, match=complaint):
        extended(folder, tmp_path / "runs" / "run", **given)
    assert not (tmp_path / "runs").exists()


def test_a_model_in_memory_is_refused_with_the_way_out(folder: Path, tmp_path: Path) -> None:
    loaded = load(str(folder))
    for model in (loaded, loaded.model):
        with pytest.raises(InputError, match=r"needs a model's folder.*save_pretrained, and pass"):
            rw.extend(model, TARGET, run=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@dataclass(frozen=True, eq=False)
class Trained(Result):
    folder: str

    def summary(self) -> str:
        return f"trained weights are in {self.folder}"


@dataclass(frozen=True)
class Nudge(Stage[Trained]):
    """Stands for training: it leaves a checkpoint with other weights."""

    name = "nudge"
    does = "moves every weight a little"
    result_type = Trained

    def run(self, work: Work, progress: Progress) -> Trained:
        model = AutoModelForCausalLM.from_pretrained(work.source)
        with torch.no_grad():
            for weight in model.parameters():
                weight.mul_(1.01)
        path = work.directory.path / "nudged"
        model.save_pretrained(path)
        work.reader.encoder.tokenizer.save_pretrained(path)
        return Trained(str(path))

    def model_after(self, result: Trained) -> str:
        return result.folder


def test_a_stage_that_changes_the_weights_fits_in(
    done: Extended, folder: Path, tmp_path: Path
) -> None:
    loaded, texts = load(str(folder)), tiny.documents(8)
    settings = settings_for(loaded.present_plan, TARGET)
    *_, export, _ = stages(settings)
    known = {"first": done.result(JudgeFirst)}
    with RunDirectory(tmp_path / "run", "extend", {}) as directory:
        work = Work(str(folder), loaded, TARGET, *parted(texts), directory, print, known)
        found = run_stages(work, settings, (Nudge(), export))
    assert list(found.results) == ["first", "nudge", "export"]
    exported = load_file(tmp_path / "run" / "model" / "model.safetensors")
    for name, weight in load_file(folder / "model.safetensors").items():
        torch.testing.assert_close(exported[name], weight * 1.01)


def test_a_few_documents_of_lengths_in_between_are_read_by_both_models_and_resumed(
    folder: Path, tmp_path: Path
) -> None:
    loaded, texts, far = load(str(folder)), tiny.documents(24), 4 * tiny.WINDOW
    lines = []
    with RunDirectory(tmp_path / "run", "extend", {}) as directory:
        work = Work(str(folder), loaded, far, texts, texts, directory, print, {})
        for _ in range(2):
            judged = JudgeFirst(far, 6).run(work, silent)
            lines.append((tmp_path / "run" / "first.jsonl").read_text())
    assert judged is not None
    assert lines[0] == lines[1], "every forward was kept"
    assert judged.lengths == [tiny.WINDOW, 2 * tiny.WINDOW, far]
    between = [each for each in judged.readings if each.length == 2 * tiny.WINDOW]
    assert [each.method for each in between] == ["yarn"] * 5 + ["none"] * 5
    read = sum(each.times for each in JudgeFirst(far, 6).needs(tiny.WINDOW).forwards)
    assert len(judged.readings) <= read
    for each in judged.readings:
        assert len(each.found) == round(each.retrieved * each.facts)
        assert len(each.found + each.missed) == each.facts
    chart, _ = judged.charts()
    assert chart.places == judged.lengths


@pytest.mark.parametrize("times", [2, 3, 4, 5, 8, 32, 256])
def test_what_is_read_in_between_is_less_than_a_tenth_of_the_tokens(times: int) -> None:
    window, stage = 4096, JudgeFirst(4096 * times, 64)
    ends = (window, stage.target_length)
    forwards = stage.needs(window).forwards
    between = sum(length * count for length, count in forwards if length not in ends)
    assert between < 0.1 * stage.needs(window).tokens
    assert bool(between) == (times > 2)


def judged_as(judged: Judged, rates: tuple[float, float], extra: float = 0.0) -> Judged:
    """Documents of which the unmodified model and the schedule retrieve so much, at this price."""
    own = [
        DocumentRead(method, length, f"text {i}@0", 3.0 + paid, 1.0, rate, 8)
        for method, length, rate, paid in (
            ("none", judged.window, rates[0], 0.0),
            (judged.chosen, judged.window, rates[0], extra),
            (judged.chosen, judged.length, rates[1], 0.0),
        )
        for i in range(32)
    ]
    return replace(judged, readings=tuple(own))


@pytest.mark.parametrize(
    ("rates", "paid", "search", "expected"),
    [
        ((1.0, 1.0), 0.0, 0, False),
        ((1.0, 0.25), 0.0, 0, True),
        ((1.0, 1.0), 0.05, 0, True),  # more text than the limit
        ((1.0, 1.0), 0.0, 5, True),
        ((0.25, 0.0), 0.0, 0, False),  # cannot be judged, so nor can what is chosen instead
    ],
)
def test_methods_race_if_the_first_schedule_fails_or_costs_too_much(
    done: Extended, folder: Path, rates: tuple[float, float], paid: float, search: int,
    expected: bool,
) -> None:  # fmt: skip
    first = judged_as(done.result(JudgeFirst), rates, paid)
    work = SimpleNamespace(result=lambda stage: first, results={"first": first})
    assert Search(TARGET, search).needed(work) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize("rates", [(1.0, 0.25), (1.0, 0.9), (0.25, 0.0)])
def test_the_command_that_a_page_ends_with_is_one_that_is_taken(
    done: Extended, run: Path, rates: tuple[float, float]
) -> None:
    told = judged_as(done.result(JudgeFirst), rates)
    command = _to_do(told, RunOnDisk.read(run), None, over=False).text
    _, verb, *words = shlex.split(command)
    group = get_command(command_line([verb]))
    taken = group if not hasattr(group, "commands") else group.commands[verb]
    taken.make_context(verb, words)  # an option that is not taken ends here


def test_a_cheaper_schedule_takes_no_place_of_one_that_works(done: Extended) -> None:
    first = done.result(JudgeFirst)
    works, fails = judged_as(first, (1.0, 1.0)), judged_as(first, (1.0, 0.25))
    unsure = judged_as(first, (1.0, 0.9))
    assert [each.verdict for each in (works, fails, unsure)] == [
        *("works", "does not work", "undecided"),
    ]
    for others, expected in (
        ([fails], works),
        ([unsure], works),
        ([works], works),
    ):
        assert final({"first": works, **{str(i): e for i, e in enumerate(others)}}) is expected
    assert final({"first": fails, "verdict": unsure}) is unsure
    assert final({"first": unsure, "verdict": fails}) is unsure
    worse = judged_as(first, (1.0, 0.875))
    assert worse.verdict == "undecided"
    assert final({"first": unsure, "verdict": worse}) is unsure
    trained = replace(fails, chosen=TRAINED)
    assert final({"first": works, "trained": trained}) is trained


def test_a_race_alone_compares_the_methods_and_its_winner_is_judged(
    done: Extended, folder: Path, tmp_path: Path
) -> None:
    loaded, texts = load(str(folder)), parted(tiny.documents(8))
    settings = settings_for(loaded.present_plan, TARGET, documents=6)
    fails = judged_as(done.result(JudgeFirst), (1.0, 0.25))
    _, _, race, judge, *_ = stages(settings)
    with RunDirectory(tmp_path / "run", "extend", {}) as directory:
        work = Work(str(folder), loaded, TARGET, *texts, directory, print, {"first": fails})
        found = run_stages(work, settings, (race, judge))
    [leg] = found.result(Search).legs
    assert leg.history == ()
    assert leg.chosen in HAND_DESIGNED
    assert (
        f"{leg.chosen} is the best of the hand-designed methods" in found.result(Search).summary()
    )
    assert "too few" not in found.result(Search).summary(), "nothing is held out"
    assert {*leg.best.scores} == {"selection"}  # the verdict reports, on documents of its own
    if leg.chosen != "yarn":
        assert found.result(JudgeChosen).chosen == leg.chosen


def test_no_document_both_decides_and_is_judged_by(done: Extended, run: Path) -> None:
    [leg] = done.result(Search).legs
    searched = {source for own in leg.sources.values() for source in own}
    to_search, to_report = parted(tiny.documents(8))
    assert {text_of(source) for source in searched} <= {each.name for each in to_search}
    judged = {
        text_of(each.source)
        for own in done.results.values()
        if isinstance(own, Judged)
        for each in own.readings
    }
    assert judged <= {each.name for each in to_report}


def test_a_run_that_was_killed_while_it_was_judged_ends_with_the_same_bytes(
    done: Extended, folder: Path, run: Path, tmp_path: Path
) -> None:
    lines = (run / "first.jsonl").read_bytes().splitlines(keepends=True)
    for left in (0, 3, len(lines) - 1):
        cut = Path(shutil.copytree(run, tmp_path / f"cut{left}"))
        (cut / "first.jsonl").write_bytes(b"".join(lines[:left]) + lines[left][:20])
        for name in ("first", "verify"):
            (cut / f"{name}.json").unlink()
        with pytest.warns(match="torn|cut|incomplete"):
            again = extended(folder, cut)
        assert (cut / "first.jsonl").read_bytes() == (run / "first.jsonl").read_bytes()
        assert (cut / "first.json").read_bytes() == (run / "first.json").read_bytes()
        assert again.judged == done.judged


def test_the_questions_of_a_verdict_go_through_the_template(tmp_path: Path) -> None:
    folder = tiny.saved(tmp_path / "chats", max_position_embeddings=640, vocab_size=259)
    tokenizer(WITH_BOS, ends=None).save_pretrained(folder)
    texts, run = tiny.documents(8, lines=800), tmp_path / "run"
    given: dict[str, Any] = {"corpus": texts, "budget": 6, "run": run}
    asked = rw.extend(str(folder), 1280, chat="on", **given)
    kept = json.loads((run / "run.json").read_text())["configuration"]
    assert kept["chat"]["after"].endswith("assistant:\n\n")
    example = asked.result(JudgeFirst).example
    assert example is not None
    assert example.question.startswith("# key")
    with pytest.raises(InputError, match=r"configuration\.chat was"):
        rw.extend(str(folder), 1280, **given)


def test_the_documents_of_a_race_go_through_the_template(tmp_path: Path) -> None:
    folder = tiny.saved(tmp_path / "chats", max_position_embeddings=640, vocab_size=259)
    spoken = tokenizer(WITH_BOS)
    spoken.save_pretrained(folder)
    template, read = chat(WITH_BOS), list[str]()
    start = load(str(folder)), 1280, tiny.documents(1, lines=140), ()
    work = Work(str(folder), *start, chat=template, held=None, notice=unheard)
    work.loaded.model.get_input_embeddings().register_forward_pre_hook(
        lambda _, given: read.append(spoken.decode(given[0][0]))
    )
    Search(1280, evaluations=0).run(work, silent)
    documents = [text for text in read if "# key" in text]
    assert len({len(text) for text in documents}) == 2  # at the target, and within the window
    for text in documents:
        assert text.count(template.after) == 1
        assert "# key" in text[text.index(template.after) :]


def test_search_and_evaluation_share_no_text() -> None:
    texts = [Document(f"{i}", f"{i}\n" * (100 + i)) for i in range(7)]
    first, second = parted(texts)
    assert "".join(d.text for d in (*first, *second)) == "".join(d.text for d in texts)
    share = sum(len(d.text) for d in first) / sum(len(d.text) for d in texts)
    assert share == pytest.approx(SEARCH_SHARE, abs=0.01)
    # A text that is cut is cut between lines.
    assert first[-1].text.endswith("\n")
    whole = Document("one line", "x" * 1000)
    assert [len(d.text) for half in parted([whole]) for d in half] == [300, 700]


def test_a_disk_without_room_for_the_export_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=30 * 2**20))
    with pytest.raises(InputError, match=r"the run needs up to .* GiB free; free some space"):
        rw.extend("bundled", run=tmp_path / "run")
    assert not (tmp_path / "run").exists()
