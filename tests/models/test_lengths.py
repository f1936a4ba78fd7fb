"""The three lengths, against what publishers document: a row a model, by its config alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ropewalk.context_plan import FULL_ATTENTION
from ropewalk.errors import InvalidValue, Unsupported
from ropewalk.models.assumptions import assumptions
from ropewalk.models.config import ConfigReader, load_config, present_plan
from ropewalk.models.lengths import Stated, three_lengths
from ropewalk.models.source import resolve
from ropewalk.models.stock_config import with_plan
from ropewalk.planning.extension import extend_plan, within_trained

PUBLISHED = Path(__file__).parent / "published"
GOLDEN = Path(__file__).parents[1] / "golden" / "configs"
K = 1024
HEADS = {"hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 36}


def config(model_type: str, length: int, **values: Any) -> dict[str, Any]:
    values.setdefault("rope_theta", 1e6)
    return {"model_type": model_type, **HEADS, "max_position_embeddings": length, **values}


def yarn(factor: float, original: int, **values: Any) -> dict[str, Any]:
    own = {"type": "yarn", "factor": factor, "original_max_position_embeddings": original}
    return {"rope_scaling": {**own, **values}}


DOCUMENTED = json.loads(Path(__file__).with_name("documented_lengths.json").read_text())
"""The reference, trained and served length of each model; and its config, if no file holds that."""
REFUSED = {"baichuan2-13b", "granite-4.0-h", "mpt-7b", "nemotron-h", "qwen2.5-7b-1m", "gpt-j-6b"}


@pytest.mark.parametrize("name", DOCUMENTED)
def test_the_three_lengths_are_those_that_publishers_document(name: str) -> None:
    path = next((d / f"{name}.json" for d in (PUBLISHED, GOLDEN) if (d / f"{name}.json").is_file()),
                None)  # fmt: skip
    own = load_config(path) if path else DOCUMENTED[name]["config"]
    found = ConfigReader(own).lengths()
    assert [found.reference, found.trained, found.served] == DOCUMENTED[name]["lengths"]
    if found.guess:
        assert any(each.name == "length-guessed" for each in assumptions(own))
    plan = present_plan(own)
    geometry = plan.longest(plan.main_layer).geometry
    assert geometry.original_length == found.reference


def test_each_published_config_has_a_row() -> None:
    files = {path.stem for folder in (PUBLISHED, GOLDEN) for path in folder.glob("*.json")}
    assert files == {*REFUSED, *(n for n, own in DOCUMENTED.items() if "config" not in own)}


def test_a_guess_names_its_key_and_is_replaced_by_a_stated_length(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config("qwen3", 40960)))
    source = resolve(path)
    (text,) = source.assumptions
    assert "max_position_embeddings is 40960" in text
    assert "32768" in text
    stated = source.with_trained_length(40960)
    assert stated.assumptions == ()
    assert stated.present_plan.longest().geometry.original_length == 40960
    assert stated.trained_length == 40960


def test_what_may_be_a_fine_tuned_model_keeps_its_length_with_a_warning() -> None:
    (found,) = assumptions(config("qwen2", 131072))
    assert found.name == "length-open"
    assert "131072" in found.text
    assert "32768" in found.text
    assert assumptions(config("qwen2", 131072), trained=32768) == ()


def test_a_catalogue_name_tells_both_answers() -> None:
    source = resolve("qwen2.5-7b")
    (text,) = source.assumptions
    assert "trained at 32768" in text
    assert "131072" in text
    assert source.trained_length == source.present_plan.longest().geometry.original_length == 32768
    assert source.present_plan.target_length == 131072
    assert resolve("qwen3-8b").assumptions == ()


def test_lengths_that_contradict_each_other_are_named_with_their_order() -> None:
    above = config("llama", 8192, **yarn(4, 32768))
    (found,) = assumptions(above)
    assert found.name == "lengths-conflict"
    assert "rope_scaling.original_max_position_embeddings is 32768" in found.text
    assert "keys of the config" in found.text
    (found,) = assumptions(DOCUMENTED["Yarn-Mistral-7b-64k"]["config"])
    assert "max_sequence_length is 131072" in found.text
    assert assumptions(DOCUMENTED["Yarn-Mistral-7b-128k"]["config"]) == ()
    with pytest.raises(InvalidValue, match=r"trained_length = 4096: is below 8192"):
        resolve(GOLDEN / "llama-3.1-8b.json").with_trained_length(4096).present_plan  # noqa: B018


@pytest.mark.parametrize("kind", ["linear", "yarn", "llama3"])
def test_a_sequence_longer_than_the_factor_reaches_is_a_contradiction(kind: str) -> None:
    """With an original length and without one, the factor is followed; dynamic NTK has no end."""
    scaling = {"type": kind, "factor": 8.0}
    for more in ({}, {"original_max_position_embeddings": 4 * K}):
        own = config("llama", 4 * K, max_sequence_length=64 * K, rope_scaling={**scaling, **more})
        lengths = ConfigReader(own).lengths()
        assert (lengths.reference, lengths.trained, lengths.served) == (4 * K, 32 * K, 32 * K)
        assert "max_sequence_length is 65536, while" in lengths.conflict
        assert "the factor 8 lead to 32768; the second is followed" in lengths.conflict
    own = config("llama", 4 * K, max_sequence_length=64 * K, rope_scaling={"type": "dynamic"})
    lengths = three_lengths(Stated("llama", "dynamic", 4 * K, config=own))
    assert (lengths.trained, lengths.conflict) == (64 * K, "")


@pytest.mark.parametrize("value", [0, -1, "long", 1.5, True, [1], 2**50])
def test_a_damaged_length_is_named(value: object) -> None:
    with pytest.raises(InvalidValue, match="max_sequence_length"):
        present_plan(config("llama", 4096, max_sequence_length=value))


def test_dual_chunks_state_the_native_length_and_stay_refused() -> None:
    chunks = {"original_max_position_embeddings": 262144}
    own = config("qwen2", 1010000, dual_chunk_attention_config=chunks)
    found = three_lengths(Stated("qwen2", "default", 1010000, config=own))
    assert (found.reference, found.trained, found.served) == (256 * K, 256 * K, 1010000)
    with pytest.raises(Unsupported, match="dual chunk attention"):
        present_plan(own)


@pytest.mark.parametrize(
    ("length", "values"),
    [
        (8 * K, {"original_max_position_embeddings": 64 * K}),
        (64 * K, {"original_max_position_embeddings": 64 * K}),
        (8 * K, {"max_sequence_length": 64 * K}),
        (64 * K, {}),
    ],
)
@pytest.mark.parametrize("target", [16 * K, 48 * K])
def test_a_shorter_plan_does_not_shorten_the_length_of_pretraining(
    length: int, values: dict[str, Any], target: int
) -> None:
    own = config("llama", length, **values)
    plan = within_trained(present_plan(own), target, [FULL_ATTENTION])
    written = with_plan(own, plan)
    assert written["max_position_embeddings"] == target
    assert ConfigReader(written).lengths().reference == 64 * K
    assert present_plan(written).schedules == plan.schedules


def test_two_lists_are_cut_where_the_target_lies() -> None:
    present = present_plan(load_config(GOLDEN / "phi-3-mini-128k.json"))
    for target, steps in ((65536, 2), (4096, 1), (2048, 1)):
        found = extend_plan(present, target, "linear").steps()
        assert ([step.up_to_length for step in found][-1], len(found)) == (target, steps)
