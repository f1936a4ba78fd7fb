"""`extend` on a tiny model: what it writes is opened, and what it keeps is not believed blindly."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

import ropewalk as rw
from ropewalk.context_plan import ContextPlan, PlanStep
from ropewalk.data.corpora import Document
from ropewalk.errors import InputError
from ropewalk.evaluation.conditions import Condition
from ropewalk.evaluation.identity import digest_of_weights
from ropewalk.evaluation.in_process import InProcess
from ropewalk.evaluation.runner import Evaluation
from ropewalk.models.load import load
from ropewalk.pipeline.extend import Extended, run_stages
from ropewalk.pipeline.results import AtTarget
from ropewalk.pipeline.settings import SEARCH_SHARE, parted, settings_for
from ropewalk.pipeline.stage import Stage, Work
from ropewalk.pipeline.stages import stages
from ropewalk.pipeline.stages.evaluate import Evaluate, conditions_of
from ropewalk.pipeline.stages.export import Export
from ropewalk.pipeline.stages.search import Search
from ropewalk.planning.extension import extend as schedule_by
from ropewalk.planning.hand_designed import HAND_DESIGNED
from ropewalk.progress import Progress, silent
from ropewalk.run_directory import RunDirectory, read_journal
from ropewalk.schedule import RotarySchedule
from ropewalk.searching.model.results import SEARCHED
from ropewalk.values import Result
from tests.api.conformance import check_result
from tests.evaluation import tiny
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


def evaluation_of(done: Extended) -> Evaluate:
    [stage] = [stage for stage in stages(done.settings) if isinstance(stage, Evaluate)]
    return stage


def test_the_page_can_be_sent_to_others_and_draws_what_long_context_costs(
    done: Extended, run: Path
) -> None:
    page = (run / "report.html").read_text()
    assert str(run.parent) not in page
    assert f"Run directory: {run.name}<" in page
    assert "perplexity: gain in loss (nats per token)</h3>" in page
    assert f"{run.name}/model&#x27;" in page
    assert "read back from disk and follows the plan." in page


def test_the_page_of_an_unfinished_run_names_the_stages_that_are_missing(
    done: Extended, run: Path, tmp_path: Path
) -> None:
    cut = Path(shutil.copytree(run, tmp_path / "run"))
    for name in ("short", "verify"):
        (cut / f"{name}.json").unlink()
    assert rw.report(cut, out=tmp_path / "page.html").missing == ("short", "verify")
    kept = json.loads((run / "run.json").read_text())["configuration"]["stages"]
    assert kept == [stage.name for stage in stages(done.settings)]


def test_the_result_is_a_value_that_tells_what_was_achieved(done: Extended, run: Path) -> None:
    check_result(done)
    value = done.to_json()
    evaluated = done.result(Evaluate)
    assert value["method"] == evaluated.chosen
    assert value["after"] == evaluated.after._asdict()
    [leg] = done.result(Search).legs
    assert set(evaluated.at_target) == {"none", done.method, *leg.remaining}
    assert leg.best_hand_designed in leg.remaining
    assert f"after, by {done.method}, retrieval" in done.summary()
    assert str(run / "model") in done.summary()
    # Paired comparisons are kept with the results: at the target, every pair of methods.
    kept = json.loads((run / "evaluate.json").read_text())["result"]
    pairs = {
        (c["first"]["method"], c["second"]["method"])
        for c in kept["comparisons"]
        if c["task"] == "needle"
    }
    assert len(pairs) == len(evaluated.at_target) * (len(evaluated.at_target) - 1) / 2
    assert (run / "extend.png").exists()


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
    "chosen",
    ["yarn", *(pytest.param(m, marks=pytest.mark.slow) for m in ("linear", "ntk", "ntk_mixed"))],
)
def test_each_method_is_exported_as_itself(
    done: Extended, folder: Path, tmp_path: Path, chosen: str
) -> None:
    [leg] = done.result(Search).legs
    leg = replace(leg, chosen=chosen, remaining=tuple(leg.baselines), best=leg.baselines[chosen])
    found = done.result(Search)
    step = PlanStep(TARGET, leg.baselines[chosen].schedule)
    plan = found.plan.with_steps(found.plan.main_layer, (step,))
    searched = replace(found, plan=plan, legs=(leg,))
    reached = AtTarget(1.0, None, None, 10.0, None, None)
    evaluated = replace(
        done.result(Evaluate),
        chosen=chosen,
        at_target={**done.result(Evaluate).at_target, chosen: reached},
    )
    with RunDirectory(tmp_path / "run", "extend", {}) as directory:
        work = work_of(done, folder, directory, search=searched, evaluate=evaluated)
        Export().run(work, silent)
    expected = schedule_by(load(str(folder)).present_plan.longest(), TARGET, chosen)
    assert_follows(tmp_path / "run" / "model", expected)
    assert ContextPlan.read(tmp_path / "run" / "plan.json").longest() == expected


def test_a_run_that_is_done_is_only_told_again(done: Extended, folder: Path, run: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*.json")}
    told: list[str] = []
    again = extended(folder, run, done=lambda stage, result: told.append(stage.name))
    assert again == done
    assert told == [stage.name for stage in stages(done.settings)]
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
    # The untrained model of this test works nowhere, and training is offered with what it takes.
    offered = [line for line in told if line.startswith("training may help")]
    assert len(offered) == 2
    assert re.search(r"`train_steps` auto about [\d.]+ (s|minutes|hours) more", offered[0])


def edited(*keys: str, to: object) -> Callable[[Path], None]:
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
        ("evaluate", edited("result", "results", to=3), r"result\.results = 3: must be a list"),
        ("inspect", edited("result", "scale", to=3.0), "does not follow from the rest"),
        ("search", edited("result", "plan", "model", to=None), r"plan\.model = None"),
        ("verdict", edited("result", "verdict", to="works"), "does not follow from the rest"),
        ("evaluate", edited("result", "at_target", to={}), r"at_target"),
        ("export", edited("result", "written", to={}), r"result\.written = {}: must be a list"),
        ("export", edited("result", "written", to=[]), r"result\.written = .*: must not be empty"),
        ("compare", edited("stage", to="search"), "is the result of stage 'search' of another run"),
        ("compare", edited("run", to="0" * 16), "of another run"),
    ],
)
def test_a_damaged_or_foreign_stage_file_is_named_with_the_remedy(
    done: Extended, folder: Path, run: Path, tmp_path: Path, name: str, damage: Any, complaint: str
) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    damage(copy / f"{name}.json")
    with pytest.raises(InputError, match=complaint) as refused:
        extended(folder, copy)
    assert str(refused.value).endswith(f"remove {name}.json to have the stage done again")
    (copy / f"{name}.json").unlink()
    if name in ("inspect", "compare"):  # quick: the others are done again in the command's test
        assert extended(folder, copy).results[name] == done.results[name]


@pytest.mark.parametrize("name", ["compare", "search", "evaluate", "verdict", "export"])
def test_an_edited_digit_of_a_stage_reaches_no_page(
    done: Extended, folder: Path, copied: Path, name: str
) -> None:
    file = copied / f"{name}.json"
    text = file.read_text()
    place = re.search(r"[0-8](?=[0-9]*\n)|(?<=\d)[0-8](?=[.%])", text[100:])
    assert place is not None
    file.write_text(f"{text[: 100 + place.start()]}9{text[100 + place.end() :]}")
    told = f"{name}.json: (was edited since it was written|.*does not follow from the rest)"
    for act in (lambda: rw.report(copied), lambda: extended(folder, copied)):
        with pytest.raises(InputError, match=told):
            act()


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
    before = {
        path: path.stat().st_mtime_ns for path in copied.rglob("*") if path.suffix != ".jsonl"
    }
    with pytest.raises(InputError, match=complaint) as refused:
        extended(folder, copied)
    whole = copied / Path(name).parts[0]
    assert f"remove {whole} to have it exported again" in str(refused.value)
    before.pop(copied / "lock")
    assert {path: path.stat().st_mtime_ns for path in before} == before


def flip(file: Path, place: int) -> None:
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)


def test_a_moved_run_of_a_moved_model_is_the_same_run(
    done: Extended, folder: Path, copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same weights under another name, and the run as seen from another folder."""
    moved = Path(shutil.copytree(folder, copied.parent / "renamed"))
    monkeypatch.chdir(copied.parent)
    for name in ("renamed", "./renamed/", str(moved)):
        again = extended(Path(name), Path("run"))
        assert again.result(Evaluate) == done.result(Evaluate)
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
        ({"corpus": SHORT}, r"a search needs at least 3.*documents \(`corpus`\), or a shorter"),
        ({"corpus": THEN_SHORT}, "no document of the corpus holds .* 256 needs"),
        ({"budget": 0}, "budget = 0: must be a whole number of evaluations or tokens, or a time"),
        ({"samples": 0}, "samples = 0: must lie between 1"),
        ({"lengths": [1]}, "lengths = 1: must be at least 2"),
        ({"lengths": ["8k"]}, r"lengths = 8192: .*extend further \(`to`\)"),
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


def test_the_least_budget_ends_in_a_hand_designed_method(folder: Path, tmp_path: Path) -> None:
    loaded, texts = load(str(folder)), parted(tiny.documents(8))
    settings = settings_for(loaded.present_plan, TARGET, evaluations=1, samples=1, lengths=[TARGET])
    with RunDirectory(tmp_path / "run", "extend", {}) as directory:
        work = Work(str(folder), loaded, TARGET, *texts, directory, print)
        found = run_stages(work, settings, stages(settings)[:4])
    # What it scores is YaRN as published, which is one of them.
    assert len(found.result(Search).legs[0].history) == 1
    assert found.method in HAND_DESIGNED


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
        work.loaded.tokenizer.save_pretrained(path)
        return Trained(str(path))

    def model_after(self, result: Trained) -> str:
        return result.folder


def test_a_stage_that_changes_the_weights_fits_in(
    done: Extended, folder: Path, tmp_path: Path
) -> None:
    loaded, texts = load(str(folder)), tiny.documents(8)
    settings = settings_for(loaded.present_plan, TARGET, evaluations=5, samples=1, lengths=[128])
    to_search, to_report = parted(texts)
    _, _, search, *rest, _ = stages(settings)
    with RunDirectory(tmp_path / "run", "extend", {}) as directory:
        before = {search.name: done.result(Search)}
        work = Work(str(folder), loaded, TARGET, to_search, to_report, directory, print, before)
        found = run_stages(work, settings, (Nudge(), *rest))
    assert list(found.results)[:3] == ["search", "nudge", "evaluate"]
    exported = load_file(tmp_path / "run" / "model" / "model.safetensors")
    for name, weight in load_file(folder / "model.safetensors").items():
        torch.testing.assert_close(exported[name], weight * 1.01)
    nudged = digest_of_weights(load(str(tmp_path / "run" / "nudged")).model)
    records = read_journal(tmp_path / "run" / "records.jsonl")
    assert {record["weights"] for record in records} == {nudged[:16]}


def test_the_searched_plan_is_evaluated_as_itself(
    done: Extended, folder: Path, tmp_path: Path
) -> None:
    found = done.result(Search)
    layer = found.plan.main_layer
    schedule = replace(found.plan.longest(), attention_scaling=1.25)
    plan = found.plan.with_steps(layer, (PlanStep(TARGET, schedule),))
    legs = (replace(found.legs[0], chosen=SEARCHED), *found.legs[1:])
    with RunDirectory(tmp_path / "run", "extend", {}) as directory:
        work = work_of(done, folder, directory, search=replace(found, plan=plan, legs=legs))
        *others, searched = conditions_of(work)
    assert (searched.method, searched.plan_id, searched.plan) == (SEARCHED, plan.id, plan)
    assert plan.id not in {condition.plan_id for condition in others}


def test_a_run_is_measured_on_the_text_that_its_search_did_not_see(
    done: Extended, folder: Path, run: Path
) -> None:
    def windows(documents: Sequence[Document]) -> set[str]:
        settings = replace(evaluation_of(done).settings, tasks=("perplexity",))
        loaded = load(str(folder))
        as_it_is = Condition("none", loaded.present_plan.id, None)
        answerer = InProcess(loaded, [as_it_is])
        return {r.sample for r in Evaluation(answerer, documents, settings).run()}

    to_search, to_report = parted(tiny.documents(8))
    measured = {
        str(record["sample"])
        for record in read_journal(run / "records.jsonl")
        if record["task"] == "perplexity"
    }
    assert measured == windows(to_report)
    assert not measured & windows(to_search)


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
