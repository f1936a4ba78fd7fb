"""Every tiny family and every method through the gate; then the command's options, one by one."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from ropewalk.context_plan import ContextPlan, PlanStep
from ropewalk.errors import GateFailed, InputError, InvalidValue, UnknownName, Unsupported
from ropewalk.exporting import folder, fresh_process, gate
from ropewalk.exporting.folder import prepare
from ropewalk.models.config import load_config, present_plan
from ropewalk.planning.extension import extend_plan
from ropewalk.runtimes.transformers import Transformers
from ropewalk.scaling import names
from tests.exporting.folders import TARGET, proven, saved
from tests.models.tiny import FAMILIES, STRUCTURES, WINDOW

STOCK = Transformers()

FACTORS = np.random.default_rng(0).uniform(1, 6, 128)
PARAMETERS: Mapping[str, dict[str, Any]] = {
    "base_change": {"base": 5e5},
    "two_band": {"base": 5e5, "split": 2},
}


def plan_for(source: str, methods: str, parameters: Any = None, **more: Any) -> ContextPlan:
    """A plan for a saved model; LongRoPE's factors are random ones."""
    present = present_plan(source)
    if methods == "resonance":
        methods = "yarn+resonance"
    if methods == "longrope":
        pairs = present.longest(next(iter(present.schedules))).geometry.pairs
        parameters = {"factors": FACTORS[:pairs].tolist(), "attention_factor": 1.1}
    layers = tuple(present.schedules)
    return extend_plan(present, TARGET, methods, parameters, layer_types=layers, **more)


def two_lists(source: str) -> ContextPlan:
    """Short factors up to the window, long ones beyond."""
    plan = plan_for(source, "longrope")
    (long,) = plan.steps()
    short = replace(long.schedule, rescale_factors=long.schedule.rescale_factors**0.5)
    return replace(plan, schedules={"full_attention": (PlanStep(WINDOW, short), long)})


ALL_CASES = [
    *[(family, method) for family in FAMILIES for method in ("linear", "longrope")],
    *[("llama", method) for method in names() if method not in ("linear", "longrope")],
    *[(family, "yarn") for family in ("qwen2", "phi3", "gpt_neox", "gemma3_text", "deepseek_v3")],
    ("llama", "two lists"),
]
ALSO = ("phi3", "phimoe")
"""Which longrope is written for in a way of their own, so they are fast cases too."""
FAST_CASES = [case for case in ALL_CASES if case[0] in {*STRUCTURES, *ALSO}]
SLOW_CASES = [case for case in ALL_CASES if case not in FAST_CASES]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Any]:
    return _written(FAST_CASES, tmp_path_factory)


@pytest.fixture(scope="module")
def others_written(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Any]:
    return _written(SLOW_CASES, tmp_path_factory)


def _written(
    cases: Sequence[tuple[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[str, str], Any]:
    """Every case, written and answered by one fresh process."""
    sources: dict[str, str] = {}
    jobs: dict[tuple[str, str], Any] = {}
    for family, method in cases:
        if family not in sources:
            sources[family] = saved(tmp_path_factory.mktemp(family), family)
        source = sources[family]
        plan = (
            two_lists(source)
            if method == "two lists"
            else plan_for(source, method, PARAMETERS.get(method))
        )
        job = prepare(STOCK, source, plan, approximate=True)
        place = tmp_path_factory.mktemp("out") / "model"
        folder.write(job, place)
        jobs[family, method] = job, place, folder.sequences_for(job)
    answered = gate.ask_stock([(p, [*q.to_compare, *q.to_measure]) for _, p, q in jobs.values()])
    answers = [each.answers for each in answered]
    return {case: (*own, given) for (case, own), given in zip(jobs.items(), answers, strict=True)}


@pytest.mark.parametrize(("family", "method"), FAST_CASES)
def test_stock_transformers_computes_what_the_plan_says(
    written: dict[tuple[str, str], Any], family: str, method: str
) -> None:
    _computes(method, *written[family, method])


@pytest.mark.slow
@pytest.mark.parametrize(("family", "method"), SLOW_CASES)
def test_and_of_all_other_families(
    others_written: dict[tuple[str, str], Any], family: str, method: str
) -> None:
    _computes(method, *others_written[family, method])


def _computes(method: str, job: folder.Job, place: Path, asked: Any, answers: Any) -> None:
    agreement, loss = folder.prove(job, asked, answers)
    assert agreement.passed, agreement
    assert (loss is None) == (method != "dynamic_ntk")
    if loss is not None:
        assert loss.nats > 1e-6
    config = load_config(place)
    limit = json.loads((place / "tokenizer_config.json").read_text())["model_max_length"]
    assert limit == TARGET
    if method not in ("linear", "dynamic_ntk", "two lists"):
        assert config["max_position_embeddings"] == TARGET
        again = present_plan(config).longest(next(iter(job.asked.schedules)))
        wanted = job.asked.longest(next(iter(job.asked.schedules)))
        np.testing.assert_allclose(again.inverse_frequencies, wanted.inverse_frequencies)


def test_the_gate_sees_another_plan(written: dict[tuple[str, str], Any]) -> None:
    """Answers of one plan, held against others: by frequencies, and by the logits alone."""
    job, _, asked, answers = written["llama", "longrope"]
    other = written["llama", "ntk"][0]
    with pytest.raises(GateFailed):
        folder.prove(replace(job, followed=other.followed), asked, answers)
    (step,) = job.followed.steps()
    louder = replace(step, schedule=replace(step.schedule, attention_scaling=1.101))
    plan = replace(job.followed, schedules={"full_attention": (louder,)})
    agreement, _ = folder.prove(replace(job, followed=plan), asked, answers)
    assert not agreement.passed
    first, *rest = answers
    unreal = replace(first, logits=first.logits / 0 * 0)
    agreement, _ = folder.prove(job, asked, [unreal, *rest])
    assert not agreement.passed


def test_both_places_and_explicit_head_size(written: dict[tuple[str, str], Any]) -> None:
    config = load_config(written["mixtral", "longrope"][1])
    assert config["original_max_position_embeddings"] == WINDOW
    assert config["rope_parameters"]["original_max_position_embeddings"] == WINDOW
    assert config["head_dim"] == 16
    assert isinstance(config["rope_parameters"]["factor"], float)
    assert "short_mscale" not in config["rope_parameters"]
    assert "short_mscale" in load_config(written["phimoe", "longrope"][1])["rope_parameters"]


GROWING = {
    "rope_type": "yarn",
    "rope_theta": 1e4,
    "factor": 2.0,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "original_max_position_embeddings": WINDOW // 2,
    "llama_4_scaling_beta": 0.3,
}


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize(
    ("method", "changes"), [("ntk", {}), ("yarn", {"rope_parameters": GROWING})]
)
def test_queries_grow_in_an_export_as_the_model_was_trained(
    method: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    source = saved(tmp_path / "source", "ministral3", **changes)
    plan = plan_for(source, method, from_original=True)
    job = prepare(STOCK, source, plan, approximate=False)
    folder.write(job, tmp_path / "out")
    assert load_config(tmp_path / "out")["rope_parameters"]["llama_4_scaling_beta"] == 0.3
    asked = folder.sequences_for(job)
    [given] = gate.ask_stock([(tmp_path / "out", [*asked.to_compare, *asked.to_measure])])
    agreement, _ = folder.prove(job, asked, given.answers)
    assert agreement.passed, agreement
    (step,) = plan.steps()
    still = PlanStep(step.up_to_length, replace(step.schedule, log_n=None))
    other = replace(job, followed=replace(plan, schedules={"full_attention": (still,)}))
    agreement, _ = folder.prove(other, asked, given.answers)
    assert not agreement.passed


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> str:
    """In bfloat16, shards and tied embeddings."""
    source = saved(
        tmp_path_factory.mktemp("source"),
        dtype=torch.bfloat16,
        tie_word_embeddings=True,
        intermediate_size=128,
    )
    assert len(list(Path(source).glob("*.safetensors"))) > 2
    return source


def test_an_export_is_whole_and_named_only_when_proven(llama: str, tmp_path: Path) -> None:
    plan = plan_for(llama, "yarn+resonance")
    out = tmp_path / "out"
    made = STOCK.write(llama, plan, out)
    assert proven(made).passed
    assert made.path == out
    assert ContextPlan.read(out / "plan.json") == plan
    for path in Path(llama).glob("*.safetensors"):
        assert (out / path.name).read_bytes() == path.read_bytes()
    assert (out / "generation_config.json").is_file()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    with pytest.raises(InputError, match="`overwrite`"):
        STOCK.write(llama, plan, out)


@pytest.mark.usefixtures("in_process")
def test_v4_keys_and_another_type_at_once(llama: str, tmp_path: Path) -> None:
    plan = plan_for(llama, "yarn")
    made = STOCK.write(llama, plan, tmp_path / "out", dtype="float32", v4_keys=True)
    assert proven(made).passed
    config = load_config(tmp_path / "out")
    assert config["rope_scaling"]["rope_type"] == "yarn"
    assert config["rope_theta"] == 10000.0
    assert "rope_parameters" not in config
    assert config["dtype"] == "float32"
    weights = {
        name: tensor
        for path in (tmp_path / "out").glob("*.safetensors")
        for name, tensor in load_file(path).items()
    }
    assert {tensor.dtype for tensor in weights.values()} == {torch.float32}
    assert "lm_head.weight" not in weights


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("family", ["gpt_neox", "phi3", "stablelm", "deepseek_v3"])
def test_v4_keys_are_what_each_family_reads(family: str, tmp_path: Path) -> None:
    source = saved(tmp_path / "source", family)
    plan = plan_for(source, "longrope")
    made = STOCK.write(source, plan, tmp_path / "out", v4_keys=True)
    assert proven(made).passed


@pytest.mark.usefixtures("in_process")
def test_v4_keys_of_several_layer_types_are_refused(tmp_path: Path) -> None:
    source = saved(tmp_path / "source", "gemma3_text")
    with pytest.raises(Unsupported, match="v4 keys"):
        STOCK.write(source, plan_for(source, "linear"), tmp_path / "out", v4_keys=True)


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("kind", ["sliding_attention", "full_attention"])
def test_a_layer_type_that_no_layer_has_is_left_alone(kind: str, tmp_path: Path) -> None:
    source = saved(tmp_path / "source", "gemma3_text", layer_types=[kind] * 3)
    plan = plan_for(source, "ntk")
    assert set(plan.schedules) == {kind}
    assert proven(STOCK.write(source, plan, tmp_path / "out")).passed
    before, after = (load_config(tmp_path / name)["rope_parameters"] for name in ("source", "out"))
    [other] = before.keys() - {kind}
    assert before[other] == after[other]
    assert before[kind] != after[kind]


@pytest.mark.usefixtures("in_process")
def test_what_cannot_be_said_is_refused_or_approximated_by_name(llama: str, tmp_path: Path) -> None:
    plan = plan_for(llama, "ntk", log_n="beyond")
    with pytest.raises(Unsupported, match=r"log-n.*`approximate`"):
        STOCK.write(llama, plan, tmp_path / "out")
    made = STOCK.write(llama, plan, tmp_path / "out", approximate=True)
    assert any("nats per token" in warning for warning in made.warnings)


@pytest.mark.usefixtures("in_process")
def test_a_folder_that_stock_transformers_refuses_is_named(
    llama: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, "", "Traceback\nValueError: no such type\n")

    monkeypatch.setattr(fresh_process, "run_script", refusing)
    with pytest.raises(GateFailed, match="cannot run the export: ValueError: no such type"):
        STOCK.write(llama, plan_for(llama, "yarn"), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_bad_input_is_named_before_anything_is_written(llama: str, tmp_path: Path) -> None:
    plan = plan_for(llama, "yarn")
    out = tmp_path / "out"
    with pytest.raises(UnknownName, match="float8"):
        STOCK.write(llama, plan, out, dtype="float8")
    other = saved(tmp_path / "other", rope_theta=5e5)
    with pytest.raises(InvalidValue, match="base 500000"):
        STOCK.write(other, plan, out)
    assert not out.exists()
