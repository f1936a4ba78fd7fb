from __future__ import annotations

import json
from pathlib import Path

import pytest

import ropewalk as rw
from ropewalk.api.common import as_plan
from ropewalk.errors import InputError, InvalidValue
from ropewalk.models.config import load_config
from ropewalk.planning.comparison import ranking_of
from ropewalk.runtimes import targets
from ropewalk.runtimes.features import loadable_by
from ropewalk.theory.decay import decay
from tests.api.conformance import check_command, check_result, compared, run_command
from tests.gguf.gguf_files import header_only

CONFIGS = Path(__file__).parents[1] / "golden" / "configs"
LLAMA2 = CONFIGS / "llama-2-7b.json"


def test_candidates_are_ranked_and_carry_their_plans() -> None:
    found = check_result(compared(LLAMA2, "16k"))
    names = [candidate.method for candidate in found.candidates]
    assert {"linear", "yarn", "ntk", "base_change", "llama3"} <= {*names}
    assert {*found.refused} == {"longrope", "resonance"}
    ranks = [candidate.rank for candidate in found.candidates if candidate.rank is not None]
    assert ranks == [*range(1, len(ranks) + 1)]
    assert found.best is found.candidates[0]
    assert as_plan(found) == as_plan(found.best) == found.best.plan
    assert found.best.violations == decay(found.plan.longest(), 16384).violations
    assert found.candidates[names.index("yarn")].plan == rw.plan(LLAMA2, "16k", "yarn").plan
    config = load_config(LLAMA2)
    for candidate in found.candidates:
        assert candidate.runtimes == loadable_by(candidate.plan, config)
    assert found.best.runtimes == (*targets(),)
    assert f"{names[0]} ranks first for use without training" in found.summary()


def test_the_json_tells_the_best_by_its_name() -> None:
    found = compared(LLAMA2, "16k")
    value = json.loads(json.dumps(found.to_json()))
    best = value["candidates"][0]
    assert value["best"] == best["method"] == found.best.method
    assert best["plan_id"] == found.best.plan.id
    assert best["plan"] == found.best.plan.to_json()
    assert best["method"] == "yarn"
    [based] = [each for each in value["candidates"] if each["method"] == "base_change"]
    assert based["parameters"] == {"base": 1.33e6}
    assert based["measured"][0]["steps"] == 0
    assert based["refuted"] is (
        2 * based["measured"][0]["refuted"] > based["measured"][0]["models"]
    )
    assert best["reason"] == found.best.reason
    assert best["out_of_distribution_share"] == 0
    assert value["geometry"]["serves"] == 4096
    value["candidates"][0]["reason"] = "it is nicer"
    with pytest.raises(InvalidValue, match=r"candidates\[0\].*does not follow"):
        type(found).from_json(value)


def test_the_command_prints_what_the_function_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = compared("bundled", 2048)
    check_command(found, "plan", "bundled", "--to", "2k", "-o", "plan.json")
    assert rw.ContextPlan.read("plan.json") == found.plan


def test_the_order_after_training_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = compared("bundled", 2048, after_training=True)
    assert [each.rank_after_training for each in found.candidates][:3] == [1, 2, 3]
    assert f"{found.best.method} ranks first for use after training" in found.summary()
    check_command(found, "plan", "bundled", "--to", "2k", "--after-training", "-o", "plan.json")
    assert rw.ContextPlan.read("plan.json") == found.plan


def test_layers_and_start_are_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = compared("gemma-3-4b", "256k", layers=["sliding_attention"], from_original=True)
    assert {candidate.layer for candidate in found.candidates} == {"sliding_attention"}
    named = run_command(
        "plan", "gemma-3-4b", "--to", "256k", "--layers", "sliding_attention", "--from-original"
    )
    assert named == json.loads(json.dumps(found.to_json()))
    with pytest.raises(InputError, match="no rotating layers of type chunked"):
        compared("gemma-3-4b", "256k", layers=["chunked"])


@pytest.mark.parametrize(
    ("architecture", "by_factors", "others"),
    [
        ("llama", ("llama.cpp", "ollama"), ("llama.cpp", "ollama")),
        ("gemma3", (), ("llama.cpp", "ollama")),
        ("baichuan", None, None),
    ],
)
def test_of_a_gguf_file_llama_cpps_rules_say_who_loads_the_plans(
    architecture: str,
    by_factors: tuple[str, ...] | None,
    others: tuple[str, ...] | None,
    tmp_path: Path,
) -> None:
    path = header_only(
        tmp_path / "small.gguf", architecture=architecture, keys={"context_length": 512}
    )
    found = check_result(compared(path, 1024))
    runtimes = {candidate.method: candidate.runtimes for candidate in found.candidates}
    assert runtimes["llama3"] == runtimes["two_band"] == by_factors
    assert {runtimes[method] for method in ("yarn", "ntk", "linear", "base_change")} == {others}
    assert {row.runtime for row in found.serving} == {"llama.cpp", "ollama"}


def test_the_picture_shows_all_candidates() -> None:
    found = compared("bundled", 1024)
    _, labels = found.figure().axes[0].get_legend_handles_labels()
    methods = {label.partition(" to ")[0].partition(",")[0] for label in labels}
    assert {candidate.method for candidate in found.candidates} <= methods


def test_where_pairs_rest_methods_that_no_runtime_expresses_rank_last(tmp_path: Path) -> None:
    published = Path(__file__).parents[1] / "models" / "published" / "gemma-4-e4b.json"
    content = json.loads(published.read_text())
    content["text_config"]["global_head_dim"] = 64  # smaller heads are judged in less time
    gemma = tmp_path / "config.json"
    gemma.write_text(json.dumps(content))
    said: list[str] = []
    found = compared(gemma, "256k", notice=said.append)
    beyond = [each.runtimes == () for each in found.candidates]
    assert beyond == sorted(beyond)
    ranks = [each.rank for each in found.candidates if each.rank is not None]
    assert ranks == [*range(1, len(ranks) + 1)]
    assert {"yarn", "llama3"} <= {each.method for each in found.candidates if not each.runtimes}
    (why,) = (each for each in said if "rank last" in each)
    assert (
        "24 of 32 pairs do not rotate (frequency 0), which no stock runtime can combine with llama3"
        in why
    )
    assert found.rope_parameters is not None
    first, *others = ranking_of(found.present, 2**18).candidates  # nobody was asked
    assert first.method == "base_change" or (first.schedule.rescale_factors == 1).all()
    assert first.out_of_distribution_pairs == 0, "so a plan that changes nothing is first"
    assert "yarn" in {each.method for each in others[:3]}
