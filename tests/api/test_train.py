"""Training as a function: what a run leaves, and that a killed one ends as an uninterrupted one."""

from __future__ import annotations

import gc
import hashlib
import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, PreTrainedModel

import ropewalk as rw
from ropewalk.context_plan import ContextPlan
from ropewalk.costs import refusals
from ropewalk.errors import InputError, InvalidValue, RopewalkError, Unsupported
from ropewalk.evaluation import forward_time
from ropewalk.models.config import BUNDLED_FOLDER
from ropewalk.models.source import resolve
from ropewalk.models.stock_config import stock_config
from ropewalk.progress import Status
from ropewalk.run_directory import read_journal
from ropewalk.scaling import linear
from ropewalk.schedule import RotarySchedule
from ropewalk.training.preview import TrainPreview
from ropewalk.training.results import Trained
from tests.api.conformance import check_result
from tests.evaluation import tiny
from tests.mutants.damage import flip
from tests.training.hybrids import built

# Of torch, for a checkpoint of one process.
pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

TEXTS = [document.text for document in tiny.documents(8)]
TARGET, STEPS = 2 * tiny.WINDOW, 12


def trained(model: Path, run: Path, **more: Any) -> Trained:
    given: dict[str, Any] = {
        "corpus": TEXTS,
        "to": TARGET,
        "method": "linear",
        "steps": STEPS,
        "batch": 2,
        "learning_rate": 1e-2,
        "save_every": 5,
        **more,
    }
    return rw.train(str(model), run=run, **given)


@pytest.fixture(scope="module")
def done(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return trained(model, tmp_path_factory.mktemp("trained") / "run")


def test_a_run_ends_in_a_proven_model_with_its_plan(done: Trained, model: Path) -> None:
    check_result(done)
    run = Path(done.run)
    [stage] = done.stages
    assert [step.step for step in stage.steps] == list(range(1, STEPS + 1))
    assert stage.steps[-1].tokens == STEPS * 2 * TARGET
    assert stage.steps[-1].loss < stage.steps[0].loss - 1
    assert done.exported.agreement is not None
    assert done.exported.agreement.passed
    assert ContextPlan.read(run / "model" / "plan.json") == done.plan
    written = resolve(str(run / "model")).present_plan
    assert written.rotates_like(done.plan)
    before, after = (load_file(each / "model.safetensors") for each in (model, run / "model"))
    assert set(before) == set(after)
    assert any(not torch.equal(before[name], after[name]) for name in before)
    assert (run / "figures" / "training.png").exists()
    lines = read_journal(run / "training.jsonl")
    assert [line["loss"] for line in lines] == [step.loss for step in stage.steps]


def test_the_page_of_a_training_that_has_moved_names_it_as_it_is_now(
    done: Trained, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(done.run, tmp_path / "moved"))
    (run / "report.html").unlink()
    found = rw.report(run)
    content = found.path.read_text()
    assert "folder = &#x27;moved/model&#x27;" in content
    assert "Run directory: moved<" in content
    for place in (tmp_path, Path(done.run).parent):
        assert str(place) not in content


def test_the_page_of_a_training_shows_no_settings_that_it_did_not_write(
    done: Trained, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(done.run, tmp_path / "run"))
    config = run / "model" / "config.json"
    config.write_text(config.read_text().replace('"factor": 2.0', '"factor": 1.0'))
    content = rw.report(run).path.read_text()
    assert "config.json: is not as it was written" in content
    assert "nothing to paste" not in content
    assert "vllm serve" not in content


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda lines: lines + lines, f"line {STEPS + 1} does not follow the line before it"),
        (
            lambda lines: [*lines[:2], lines[3], lines[2], *lines[4:]],
            "line 3 does not follow the line before it",
        ),
        (lambda lines: [*lines[:4], *lines[5:]], "line 5 does not follow the line before it"),
    ],
    ids=["doubled", "swapped", "without one"],
)
def test_each_step_stands_once_and_in_order(
    done: Trained, model: Path, tmp_path: Path, change: Any, told: str
) -> None:
    run = Path(shutil.copytree(done.run, tmp_path / "run"))
    journal = run / "training.jsonl"
    journal.write_bytes(b"".join(change(journal.read_bytes().splitlines(keepends=True))))
    with pytest.raises(InputError, match=told):
        trained(model, run)
    (run / "results.json").unlink()
    with pytest.raises(InputError, match=told):
        rw.report(run)


@pytest.mark.parametrize(
    "name", ["results.json", "export.json", "plan.json", "evaluate/step-2/plan.json"]
)
def test_an_edited_digit_of_a_training_is_refused(
    done: Trained, model: Path, tmp_path: Path, name: str
) -> None:
    run = Path(shutil.copytree(done.run, tmp_path / "run"))
    text = (run / name).read_text()
    place = re.search(r"(?<=\.)[0-8]", text)
    assert place is not None
    (run / name).write_text(f"{text[: place.start()]}9{text[place.end() :]}")
    refusal = f"{name}: (has been edited since|is not as) it was written"
    with pytest.raises(InputError, match=refusal):
        rw.report(run) if name == "results.json" else trained(model, run)


def test_the_last_checkpoints_are_there_to_be_evaluated(done: Trained) -> None:
    """Every tenth step up to the end, with the plan in their config; the last is the model."""
    assert done.kept == ("step-2", "step-12")
    place = Path(done.run) / "evaluate"
    last, exported = (
        load_file(folder / "model.safetensors")
        for folder in (place / "step-12", Path(done.run) / "model")
    )
    assert all(torch.equal(last[name], exported[name]) for name in exported)
    found = rw.evaluate_checkpoints(
        place, last=2, tasks=["perplexity"], lengths=[TARGET], samples=2,
        corpus=tiny.documents(9)[8:],
    )  # fmt: skip
    assert found.checkpoints == done.kept
    losses = [own.results[0].value for own in found.evaluated]
    assert losses[1] < losses[0]


def in_a_fork(act: Callable[[], object]) -> int:
    """How a process ends that does this, as the shell tells it."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        status = 99
        try:
            act()
            status = 0
        except SystemExit as left:
            status = left.code if isinstance(left.code, int) else 98
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def at_step(number: int, act: Callable[[], object]) -> Callable[[Status], None]:
    """A progress that does something once a step is through."""

    def progress(status: Status) -> None:
        if status.stage.startswith("training") and status.done >= number / STEPS:
            act()

    return progress


def files(run: Path) -> dict[str, bytes]:
    """All that must not depend on kills: the journal, the models, the plan."""
    folders = [run / "model", *sorted((run / "evaluate").iterdir())]
    paths = [run / "training.jsonl", run / "plan.json"]
    paths += [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(run).as_posix(): path.read_bytes() for path in paths}


def killed(model: Path, run: Path, at: int = 8, **more: Any) -> Path:
    """A run that was killed at a step."""
    dies = at_step(at, lambda: os.kill(os.getpid(), signal.SIGKILL))
    assert in_a_fork(lambda: trained(model, run, progress=dies, **more)) == -signal.SIGKILL
    return run


AT_STEPS = [pytest.param(n, marks=[pytest.mark.slow] * (n != 8)) for n in range(1, STEPS + 1)]


def test_trainings_of_two_threads_take_turns(done: Trained, model: Path, tmp_path: Path) -> None:
    with ThreadPoolExecutor() as both:
        ends = both.map(lambda name: trained(model, tmp_path / name), ("one", "other"))
    assert [each.stages for each in ends] == [done.stages] * 2


@pytest.mark.parametrize("number", AT_STEPS)
def test_a_killed_run_ends_as_if_it_never_had_been(
    done: Trained, model: Path, tmp_path: Path, number: int
) -> None:
    run = killed(model, tmp_path / "run", number)
    assert len(read_journal(run / "training.jsonl")) == number
    assert not (run / "model").exists()
    again = trained(model, run)
    assert files(run) == files(Path(done.run))
    assert again.stages == done.stages


def test_a_run_does_not_go_on_under_other_special_tokens(model: Path, tmp_path: Path) -> None:
    own = Path(shutil.copytree(model, tmp_path / "model"))
    run = killed(own, tmp_path / "run")
    settings = json.loads((own / "tokenizer_config.json").read_text())
    settings["eos_token"] = settings["bos_token"]
    (own / "tokenizer_config.json").write_text(json.dumps(settings))
    with pytest.raises(InputError, match="special_tokens"):
        trained(own, run)


def test_a_checkpoint_of_a_run_with_other_settings_is_refused(model: Path, tmp_path: Path) -> None:
    run, other = killed(model, tmp_path / "run"), killed(model, tmp_path / "other", learning_rate=1)
    shutil.copytree(other / "checkpoint-5", run / "checkpoint-5", dirs_exist_ok=True)
    with pytest.raises(InputError, match=r"step 5 was trained with another data \(settings\)"):
        trained(model, run)


def test_a_run_does_not_go_on_with_its_domains_swapped(model: Path, tmp_path: Path) -> None:
    tokens, run = tmp_path / "tokens", tmp_path / "run"
    more: dict[str, Any] = {"corpus": tokens, "shares": {"one": 0.9, "other": 0.1}}
    rw.build_data(model, {"one": TEXTS[:4], "other": TEXTS[4:]}, tokens)
    killed(model, run, **more)
    shutil.rmtree(tokens)
    rw.build_data(model, {"other": TEXTS[:4], "one": TEXTS[4:]}, tokens)
    with pytest.raises(InputError, match="tokens_sha256"):
        trained(model, run, **more)


def test_terminated_it_saves_says_so_and_goes_on(
    done: Trained, model: Path, tmp_path: Path
) -> None:
    run, said = tmp_path / "run", tmp_path / "said"
    stop = at_step(7, lambda: os.kill(os.getpid(), signal.SIGTERM))
    told: list[str] = []

    def act() -> None:
        try:
            trained(model, run, progress=stop, notice=told.append)
        finally:
            said.write_text("\n".join(told))

    assert in_a_fork(act) == 128 + signal.SIGTERM
    assert "terminated; saved in" in said.read_text()
    assert (run / "checkpoint-8").is_dir()  # the signal comes after step 7, and step 8 is saved
    trained(model, run)
    assert files(run) == files(Path(done.run))


def test_a_finished_run_is_only_told_again(done: Trained, model: Path) -> None:
    run = Path(done.run)
    kept = [run / "training.jsonl", *(run / "model").iterdir(), *(run / "tokens").glob("*.bin")]
    before = {path: path.stat().st_mtime_ns for path in kept}
    assert trained(model, run) == done
    assert {path: path.stat().st_mtime_ns for path in kept} == before
    with pytest.raises(InputError, match=r"learning_rate was 0\.01, now 0\.02"):
        trained(model, run, learning_rate=2e-2)
    with pytest.raises(InputError, match="the texts have changed"):
        trained(model, run, corpus=TEXTS[:-1])


@pytest.mark.parametrize(
    ("name", "deleted"),
    [
        ("model.safetensors", False),
        ("config.json", False),
        ("tokenizer.json", False),
        ("model.safetensors", True),
    ],
)
def test_a_finished_run_whose_model_was_changed_is_not_told_again(
    name: str, deleted: bool, done: Trained, model: Path, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(done.run, tmp_path / "run"))
    file = run / "model" / name
    content = file.read_bytes()
    file.unlink()
    if not deleted:
        file.write_bytes(content[:-10] + bytes([content[-10] ^ 1]) + content[-9:])
    with pytest.raises(InputError, match=rf"{name}: is not as it was written; remove "):
        trained(model, run)
    shutil.rmtree(run / "model")
    assert files(Path(trained(model, run).run)) == files(Path(done.run))


def test_stages_compose_their_plans_and_start_from_the_former_model(
    model: Path, tmp_path: Path
) -> None:
    found = trained(model, tmp_path / "run", to=None, stages=[256, 512], steps=[4, 3])
    assert [(stage.length, len(stage.steps)) for stage in found.stages] == [(256, 4), (512, 3)]
    plain = RotarySchedule.plain(found.plan.longest().geometry)
    np.testing.assert_allclose(
        found.plan.longest().rescale_factors, linear.schedule(plain, 512).rescale_factors
    )
    first = resolve(str(tmp_path / "run" / "stage-1" / "model")).present_plan
    assert first.target_length == 256
    assert not list((tmp_path / "run" / "stage-1").glob("checkpoint-*"))
    assert first.longest().rescale_factors == pytest.approx(2.0)
    # The weights that the second stage began with are those that the first ended with.
    lines = read_journal(tmp_path / "run" / "training.jsonl")
    assert [line["stage"] for line in lines] == [1, 1, 1, 1, 2, 2, 2]
    assert found.stages[1].loss_first.value < found.stages[0].steps[0].loss


def test_a_trained_model_does_not_outlive_its_stage(model: Path, tmp_path: Path) -> None:
    """Nothing collects garbage here, as nothing does when a device is full."""
    former = _living_models()
    trained(model, tmp_path / "run", steps=1)
    assert _living_models() <= former


def _living_models() -> int:
    return sum(isinstance(each, PreTrainedModel) for each in gc.get_objects())


def test_mixed_windows_follow_the_schedule_of_their_length(model: Path, tmp_path: Path) -> None:
    found = trained(model, tmp_path / "run", mixed_windows=True, steps=4)
    short, long = found.plan.steps()
    assert (short.up_to_length, long.up_to_length) == (tiny.WINDOW, TARGET)
    assert (short.schedule.rescale_factors == 1).all()
    assert long.schedule.rescale_factors == pytest.approx(2.0)
    read = [step.tokens for step in found.stages[0].steps]
    assert read == [2 * TARGET * step for step in range(1, 5)]
    # The first step is of long windows in both; the second is of short documents, which differ.
    alone = trained(model, tmp_path / "alone", steps=4)
    one, other = (own.stages[0].steps for own in (found, alone))
    assert one[0].loss == pytest.approx(other[0].loss, abs=1e-6)
    assert one[1].loss != pytest.approx(other[1].loss, abs=1e-6)
    assert resolve(str(tmp_path / "run" / "model")).present_plan.rotates_like(found.plan)


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated")
def test_an_adapter_is_merged_into_the_export_as_peft_merges_it(
    model: Path, tmp_path: Path
) -> None:
    from peft import PeftModel

    found = trained(model, tmp_path / "run", lora=4, steps=4)
    assert found.adapter is not None
    base = AutoModelForCausalLM.from_pretrained(model)
    merged = PeftModel.from_pretrained(base, found.adapter).merge_and_unload().state_dict()
    exported = load_file(tmp_path / "run" / "model" / "model.safetensors")
    plain = load_file(model / "model.safetensors")
    for name, weight in exported.items():
        torch.testing.assert_close(weight, merged[name], rtol=1e-6, atol=1e-7)
    changed = {name for name in plain if not torch.equal(plain[name], exported[name])}
    assert changed == {name for name in plain if "_proj" in name}
    kept = load_file(tmp_path / "run" / "evaluate" / "step-4" / "model.safetensors")
    assert all(torch.equal(kept[name], exported[name]) for name in exported)


@pytest.mark.slow
def test_a_schedule_is_searched_between_stages(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forward_time, "LONG", 0.0)
    said: list[str] = []
    found = trained(
        model, tmp_path / "run", to=None, stages=[256, 512], steps=2, search_between=True,
        search_corpus=[document.text for document in tiny.documents(8)], budget=5,
        notice=said.append,
    )  # fmt: skip
    assert sum(text.startswith("this search takes up to ") for text in said) == 1
    assert found.stages[0].method == "linear"
    assert (tmp_path / "run" / "stage-1" / "model" / "config.json").exists()
    assert found.plan.provenance["strategy"] == "adaptive"
    assert list((tmp_path / "run").glob("search-2-*"))


@pytest.mark.parametrize(
    ("recipe", "target", "steps"),
    [
        ("longrope-llama", 256, {128: 400, 256: 600}),
        ("longrope-llama", 128, {128: 400}),
        ("longrope-mistral", 256, {128: 400, 256: 400}),
    ],
)
def test_longropes_recipes_train_for_256k_from_the_model_for_128k(
    recipe: str, target: int, steps: dict[int, int], model: Path, tmp_path: Path
) -> None:
    """Sections 3.3 and 4.1, Appendix A.2."""
    given: dict[str, Any] = {"to": 1024 * target, "steps": None, "method": None}
    found = previewed(model, tmp_path, recipe=recipe, **given)
    assert {stage.length // 1024: stage.steps for stage in found.stages} == steps


@pytest.mark.slow
def test_longrope_searches_both_lengths_as_published_on_the_original_model(
    model: Path, tmp_path: Path
) -> None:
    given: dict[str, Any] = {"batch": 2, "steps": 2, "budget": 4, "layout": "anchor"}
    found = trained(
        model, tmp_path / "run", to=None, stages=[256, 512], method=None, recipe="longrope-llama",
        search_corpus=[document.text for document in tiny.documents(8)], **given,
    )  # fmt: skip
    assert found.plan.provenance["as_published"] == "yes"
    assert [stage.method for stage in found.stages] == ["search", "search"]
    # Seeds of linear interpolation from the original model: 4, not 2 over the first stage's.
    lines = read_journal(next((tmp_path / "run").glob("search-2-search.jsonl")))
    linear = lines[0]["candidate"]["factors"]  # type: ignore[index]
    assert set(linear) == {4.0}


def test_domain_tags_begin_the_documents_that_are_trained_on(model: Path, tmp_path: Path) -> None:
    texts = [document.text for document in tiny.documents(8)]
    corpus = {"code": texts[:4], "prose": texts[4:]}
    given: dict[str, Any] = {"corpus": corpus, "domain_tags": True, "layout": "reset"}
    trained(model, tmp_path / "run", steps=1, batch=1, **given)
    kept = json.loads((tmp_path / "run" / "checkpoint-1" / "trainer_state.json").read_text())
    [record] = [
        own["attributes"]
        for own in kept["stateful_callbacks"].values()
        if "data" in own["attributes"]
    ]
    tokenizer = tiny.tokenizer()
    tags = {name: tokenizer.encode(name, add_special_tokens=False) for name in corpus}
    assert record["data"]["settings"]["tags"] == tags
    with pytest.raises(InputError, match="needs several domains, and there is one"):
        previewed(model, tmp_path / "other", domain_tags=True)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"to": 64}, "to = 64: the model serves 128 already"),
        ({"to": None}, r"give the length to train for \(`to`\), `stages`, or a `plan`"),
        ({"stages": [256, 512]}, "stages = '256, 512': the last must be the target, 256"),
        ({"steps": [1, 2]}, "steps = '1, 2': there is 1 stage"),
        ({"steps": None}, r"give the number of steps \(`steps`\), or a recipe"),
        ({"steps": 0}, "steps = 0: must lie between 1 .*1,000 is a usual number"),
        ({"window": 512}, "window"),
        ({"layout": "zigzag"}, "zigzag"),
        ({"batch": 3, "windows_at_once": 2}, "batch = 3: must be a multiple of 2"),
        ({"sequence_parallel": 2}, "1 ranks cannot be divided into 1 × 2"),
        ({"learning_rate": -1.0}, "learning_rate = -1.0: must be above 0"),
        ({"recipe": "ancor"}, r"unknown recipe 'ancor' \(did you mean 'anchor'\?\)"),
        ({"corpus": None}, "give text to train on"),
        ({"dtype": "float16"}, "unknown dtype 'float16'"),
        ({"mixed_windows": True, "layout": "reset"}, "does not number in one sequence"),
        ({"search_between": True}, "`search_between` is for several stages"),
        ({"method": "yarm"}, r"unknown method 'yarm' \(did you mean 'yarn'\?\)"),
        ({"method": "serch"}, "did you mean 'search'"),
        (
            {"to": 128},
            "method = 'linear': the model serves 128 already, so there is nothing to plan",
        ),
        ({"method": "yarn", "mixed_windows": True}, "written as short and long factors"),
        ({"method": "dynamic_ntk"}, "stock transformers cannot follow this plan exactly"),
        ({"corpus": "no-such-file.txt"}, "there is no such file or folder"),
        ({"shares": {"books": 0.5}}, "the corpus has no text of this domain; choose from text"),
        ({"shares": {"text": 2}}, "must be 1, since the corpus has no other domain"),
        ({"corpus": "no-such-file.txt", "steps": None}, "there is no such file or folder"),
        ({"corpus": "/dev/zero"}, "is not a regular file"),
        ({"report_to": ["nonsense"]}, "unknown report_to 'nonsense'"),
        ({"report_to": ["clearml"]}, "report_to = 'clearml': is not installed here"),
        ({"weight_decay": 1e9}, "weight_decay = 1000000000.0: .* each weight past zero"),
        ({"device": "xpu"}, "device = 'xpu': is not a device of this machine"),
        ({"seed": 2**32}, "seed = 4294967296: must be at most 4294967295"),
        ({"warmup": STEPS}, "the rate would not reach its value within the 12 steps"),
        ({"to": None, "stages": [512, 512]}, "stages = '512, 512': lengths must increase"),
        ({"window": 2}, "window = 2: must be at least 4"),
        ({"lora": 4096}, "lora = 4096: is more than the model's width, "),
        ({"budget": 5}, "`budget` limits a search, and no stage of this run"),
        (
            {"corpus": ["short"] * 9},
            r"0 of 9 documents are longer than 128, which the model serves",
        ),
        ({"corpus": []}, "the corpus contains no tokens"),
    ],
)
def test_bad_input_is_refused_before_anything_is_trained(
    model: Path, tmp_path: Path, given: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(RopewalkError, match=complaint):
        trained(model, tmp_path / "run", **given)
    assert not list(tmp_path.glob("run/checkpoint-*"))
    assert not (tmp_path / "run" / "model").exists()
    if given.get("corpus", TEXTS) == TEXTS or isinstance(given["corpus"], str):
        assert not (tmp_path / "run").exists()  # and nothing was tokenised
        with pytest.raises(RopewalkError, match=complaint):
            previewed(model, tmp_path / "run", **given)


def previewed(model: Path, run: Path, **more: Any) -> TrainPreview:
    given = {"corpus": TEXTS, "to": TARGET, "method": "linear", "steps": STEPS, "batch": 2, **more}
    return rw.train.preview(str(model), run=run, **given)


@pytest.fixture(scope="module")
def half(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same model, stored in bfloat16."""
    folder = tmp_path_factory.mktemp("half") / "model"
    shutil.copytree(model, folder)
    weights = load_file(folder / "model.safetensors")
    weights = {name: weight.bfloat16() for name, weight in weights.items()}
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "dtype": "bfloat16"}))
    return folder


@pytest.mark.parametrize(
    ("dtype", "written"), [("auto", torch.bfloat16), ("float32", torch.float32)]
)
def test_the_rounding_of_trained_weights_is_told_or_left_out(
    half: Path, tmp_path: Path, dtype: str, written: torch.dtype
) -> None:
    told: list[str] = []
    run = tmp_path / "run"
    found = trained(half, run, dtype=dtype, steps=2, notice=told.append)
    rounds = dtype == "auto"
    assert any("trained in float32 and are written in bfloat16" in text for text in told) == rounds
    assert any("written in bfloat16" in text for text in found.exported.warnings) == rounds
    assert ("written in bfloat16" in (run / "report.html").read_text()) == rounds
    weights = load_file(run / "model" / "model.safetensors")
    assert {weight.dtype for weight in weights.values()} == {written}
    loaded = AutoModelForCausalLM.from_pretrained(run / "model")
    assert loaded.dtype == written
    assert found.exported.agreement is not None
    assert found.exported.agreement.passed


def test_a_store_that_was_overwritten_is_not_trained_on(model: Path, tmp_path: Path) -> None:
    tokens, run = tmp_path / "tokens", tmp_path / "run"
    rw.build_data(model, TEXTS, tokens)
    trained(model, run, corpus=tokens, steps=2)
    shard = tokens / "tokens-00000.bin"
    content = shard.read_bytes()
    shard.write_bytes(content[4:] + content[:4])
    for place in (run, tmp_path / "other"):
        with pytest.raises(InputError, match="its checksum is not the one in the manifest"):
            trained(model, place, corpus=tokens, steps=2)


def test_tokens_that_the_model_does_not_know_are_refused(model: Path, tmp_path: Path) -> None:
    """In a store whose checksums hold: only the ids are not of this model."""
    tokens = tmp_path / "tokens"
    rw.build_data(model, TEXTS, tokens)
    shard, manifest = tokens / "tokens-00000.bin", tokens / "manifest.json"
    before = hashlib.sha256(shard.read_bytes()).hexdigest()
    shard.write_bytes(b"\xff\xff\x00\x00" + shard.read_bytes()[4:])
    after = hashlib.sha256(shard.read_bytes()).hexdigest()
    manifest.write_text(manifest.read_text().replace(before, after))
    with pytest.raises(InputError, match="holds the token 65535, and the model's vocabulary has"):
        trained(model, tmp_path / "run", corpus=tokens)


def test_a_run_does_not_stand_in_its_texts(model: Path, tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "one.txt").write_text(TEXTS[0])
    for act in (trained, previewed):
        with pytest.raises(InvalidValue):
            act(model, tmp_path / "texts" / "run", corpus=tmp_path / "texts")


def test_each_plan_is_made_for_the_model_that_the_one_before_leaves(
    model: Path, tmp_path: Path
) -> None:
    def plan(of: Any, to: int) -> ContextPlan:
        return rw.plan(of, to, "ntk", notice=lambda text: None).plan

    config = json.loads((model / "config.json").read_text())
    first, alone = plan(config, 256), plan(config, 512)
    given = {"to": None, "method": None, "stages": [256, 512], "steps": 1}
    with pytest.raises(InvalidValue, match="create the plan from this model's config"):
        previewed(model, tmp_path / "run", plan=[first, alone], **given)
    second = plan(stock_config(config, first), 512)
    with pytest.raises(InvalidValue):
        previewed(model, tmp_path / "run", plan=[second, first], **given)
    with pytest.raises(InvalidValue, match="is shorter than the 512"):
        previewed(model, tmp_path / "run", plan=first, window=128, **given)
    found = trained(model, tmp_path / "run", plan=[first, second], **given)
    assert found.plan.rotates_like(second)
    # One plan for all: the second stage begins with a model that follows it.
    assert trained(model, tmp_path / "one", plan=alone, **given).plan.target_length == 512


def test_a_recipe_says_where_its_method_does_nothing(model: Path, tmp_path: Path) -> None:
    told: list[str] = []
    previewed(model, tmp_path / "run", to=128, method=None, recipe="anchor", notice=told.append)
    assert any("uses its own frequencies, not base_change" in text for text in told), told


@pytest.mark.parametrize("given", [{"WORLD_SIZE": "2"}, {"WORLD_SIZE": "two", "RANK": "0"}])
def test_an_environment_that_torchrun_did_not_make_is_refused(
    given: dict[str, str], model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, text in given.items():
        monkeypatch.setenv(key, text)
    with pytest.raises(InputError, match="start several processes with `torchrun"):
        previewed(model, tmp_path / "run")


def test_a_damaged_checkpoint_or_journal_is_no_end(
    done: Trained, model: Path, tmp_path: Path
) -> None:
    """The run resumes from the checkpoint before; a journal without lines is refused at once."""
    run = killed(model, tmp_path / "run", 12)
    [before, last] = sorted(run.glob("checkpoint-*"), key=lambda path: len(path.name))
    flip(next(last.glob("shard-*")), -1)
    lines = (run / "training.jsonl").read_bytes()
    (run / "training.jsonl").unlink()
    with pytest.raises(InputError, match="step 1 of stage 1 was trained, but its line is missing"):
        trained(model, run)
    (run / "training.jsonl").write_bytes(lines)
    told: list[str] = []
    trained(model, run, notice=told.append)
    assert any(
        text.startswith(f"resuming from {before.name}, since ") and "is damaged" in text
        for text in told
    ), told
    assert files(run) == files(Path(done.run))


def test_a_run_killed_in_its_export_goes_on(done: Trained, model: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"

    def dies(status: Status) -> None:
        if status.stage == "export":
            (run / ".ropewalk-0123456789ab-x.ropewalk-part").mkdir()
            (run / ".checkpoint-12.ropewalk-part").mkdir()
            os.kill(os.getpid(), signal.SIGKILL)

    assert in_a_fork(lambda: trained(model, run, progress=dies)) == -signal.SIGKILL
    trained(model, run)
    assert files(run) == files(Path(done.run))
    assert not (run / "trained").exists()
    (run / "trained").mkdir()  # as a kill after the proof leaves it
    trained(model, run)
    assert not (run / "trained").exists()


def test_a_plan_that_cannot_serve_or_be_exported_is_refused(model: Path, tmp_path: Path) -> None:
    plan = rw.plan(str(model), 256, "linear").plan
    with pytest.raises(InvalidValue, match="is shorter than the 512"):
        trained(model, tmp_path / "run", plan=plan, method=None, to=512)
    with pytest.raises(InputError, match="give a plan or a method, not both"):
        trained(model, tmp_path / "run", plan=plan)
    kept = rw.plan(str(model), 256, "linear", kept_initial_positions=4).plan
    with pytest.raises(RopewalkError, match="initial positions"):
        trained(model, tmp_path / "run", plan=kept, method=None)


def test_tokens_of_another_tokenizer_are_refused(model: Path, tmp_path: Path) -> None:
    rw.build_data("bundled", TEXTS, tmp_path / "tokens")
    with pytest.raises(InputError, match="its tokens come from a tokenizer other than the model's"):
        trained(model, tmp_path / "run", corpus=tmp_path / "tokens")


def test_text_that_is_read_again_is_told(model: Path, tmp_path: Path) -> None:
    told: list[str] = []
    trained(model, tmp_path / "run", corpus=[TEXTS[0][:600]], steps=4, notice=told.append, batch=1)
    assert any("read each" in text and "times" in text for text in told), told


def test_room_is_asked_for_what_is_not_written_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ropewalk.outputs import check_room
    from ropewalk.training.stage import written_bytes

    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=100))
    (tmp_path / "stage-1" / "model").mkdir(parents=True)
    (tmp_path / "stage-1" / "model" / "model.safetensors").write_bytes(bytes(60))
    check_room(tmp_path, 160 - written_bytes(tmp_path), "training")
    with pytest.raises(InputError, match="free some space"):
        check_room(tmp_path, 161 - written_bytes(tmp_path), "training")


def test_a_step_that_the_memory_has_no_room_for_is_refused_with_what_would_fit(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a run directory; as a stage of extend too."""
    run = tmp_path / "run"
    told = rw.train.preview(str(model), corpus=TEXTS, to=TARGET, steps=2, run=run)
    assert told.peak_bytes
    assert "GiB a rank, on this machine." in told.summary()
    monkeypatch.setattr(refusals, "main_memory", lambda: 2**20)
    with pytest.raises(InvalidValue, match=f"window = {TARGET}: a step takes .*GiB; give shorter"):
        rw.train(str(model), corpus=TEXTS, to=TARGET, steps=2, run=run)
    monkeypatch.setattr(refusals, "main_memory", lambda: 12 * 2**30)
    with pytest.raises(InvalidValue, match=r"a step takes at least .*; --recompute would fit"):
        rw.train(str(model), corpus=TEXTS, to="4M", method="linear", steps=2, run=run)
    monkeypatch.setattr(refusals, "main_memory", lambda: 2**20)
    with pytest.raises(InvalidValue):
        rw.extend(str(model), TARGET, train_steps=2, corpus=TEXTS, run=run)
    assert not run.exists()


def test_a_disk_without_room_is_found_before_a_run_has_anything(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the plan either: with the same tokens, another run may begin there."""
    rw.build_data(model, TEXTS, tmp_path / "tokens")
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=100))
    with pytest.raises(InputError, match="training needs up to"):
        trained(model, tmp_path / "runs" / "run", corpus=tmp_path / "tokens")
    assert not (tmp_path / "runs").exists()


def test_mixed_windows_refuse_ranks_that_share_a_window() -> None:
    from ropewalk.training.execution import Execution, check_stage
    from ropewalk.training.settings import TrainingSettings, stages_of

    plan = rw.plan("bundled", 2048, "linear").plan
    settings = TrainingSettings(stages_of([2048], [1], None), mixed_windows=True)
    folder, [stage] = resolve("bundled").folder, settings.stages
    with pytest.raises(Unsupported, match="`sequence_parallel`"):
        check_stage(folder, plan, stage, settings, Execution(sequence=2))


def test_a_soft_cap_on_scores_is_refused_before_anything_is_trained() -> None:
    from ropewalk.training.execution import Execution, check_step
    from ropewalk.training.settings import TrainingSettings, stages_of

    settings = TrainingSettings(stages_of([2048], [1], None))
    config = {"model_type": "gemma2", "attn_logit_softcapping": 50.0}
    with pytest.raises(Unsupported, match="`attn_logit_softcapping`"):
        check_step(config, settings.stages[0], settings, Execution("cpu"))


def test_recipes_say_what_their_papers_say() -> None:
    from ropewalk.training import recipes

    anchor = recipes.named("anchor")
    assert [anchor.base(1024 * k) for k in (16, 32, 64, 128, 256)] == [1e6, 1e6, 5e6, 1e7, 5e7]
    assert "4.3" in anchor.source, "Table 1 has no base for 32k and 256k"
    assert anchor.base(2048) is None
    assert (anchor.steps, anchor.batch, anchor.learning_rate) == ((2000,), 8, 2e-5)
    llama = recipes.named("longrope-llama")
    assert (llama.steps, llama.batch, llama.layout, llama.decay) == (
        (400, 600), 32, "bookends", "linear",
    )  # fmt: skip
    mistral = recipes.named("longrope-mistral")
    assert (mistral.window, mistral.learning_rate, mistral.batch) == (16_384, 1e-6, 64)
    assert recipes.named("base-bound").weight_decay == 0
    for name in recipes.NAMES:
        assert recipes.named(name).name == name
        assert recipes.named(name).source


def test_a_preview_counts_what_would_be_read(model: Path, tmp_path: Path) -> None:
    rw.build_data(str(model), TEXTS, tmp_path / "tokens")
    found = check_result(
        rw.train.preview(str(model), corpus=tmp_path / "tokens", to=256, steps=10, batch=2)
    )
    [stage] = found.stages
    assert stage.tokens == 10 * 2 * 256
    assert stage.epochs is not None
    assert stage.epochs == pytest.approx(stage.tokens / sum(map(len, TEXTS)), rel=0.1)


def test_the_example_of_the_documentation_can_be_run() -> None:
    page = Path(__file__).parents[2] / "docs" / "training.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    [example] = [own for own in blocks if "rw.train(" in own]
    names: dict[str, Any] = {}
    exec(example.replace("rw.train(", "rw.train.preview("), names)
    assert [stage.steps for stage in names["trained"].stages] == [60]


@pytest.mark.slow
@pytest.mark.parametrize("family", ["falcon_h1", "qwen3_next", "lfm2"])
def test_a_hybrid_is_trained_from_a_folder_to_an_export(family: str, tmp_path: Path) -> None:
    sizes = {"vocab_size": 1024, "max_position_embeddings": 128, "hidden_size": 64, "head_dim": 16}
    model = tmp_path / "model"
    built(family, **sizes).save_pretrained(model)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(BUNDLED_FOLDER / name, model / name)
    found = rw.train(
        model, corpus="held-out", to=256, method="linear", steps=2, batch=2, learning_rate=1e-3,
        layout="anchor", run=tmp_path / "run",
    )  # fmt: skip
    assert found.exported is not None
    assert len(found.stages[0].steps) == 2
    AutoModelForCausalLM.from_pretrained(tmp_path / "run" / "model")
