"""mlx-lm and Ollama: what `verify` says of them, and the evidence that mlx-lm's rules rest on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ropewalk as rw
from ropewalk.audit.result import Audit
from ropewalk.models.config import Config, load_config, present_plan
from ropewalk.models.stock_config import stock_config
from ropewalk.planning.extension import extend_plan
from ropewalk.runtimes import mlx_lm, named, ollama
from ropewalk.runtimes.reading import RotaryReading
from ropewalk.values import table_in
from tests.audit.corpus import TARGET, source
from tests.audit.verified import GOLDEN, PUBLISHED, traps, verified
from tools.observatory import mlx_lm_classes

EVIDENCE = json.loads(
    (Path(mlx_lm_classes.__file__).with_suffix(".json")).read_text(encoding="utf-8")
)


def planned(
    folder: Path, method: str, family: str = "llama", *, v4: bool, runtime: str, **parameters: Any
) -> Audit:
    config = source(family)
    plan = extend_plan(present_plan(config), TARGET, method, parameters)
    return verified(folder, stock_config(config, plan, v4_keys=v4), runtime, plan=plan)


def wrong(audit: Audit) -> set[str]:
    return traps(audit.wrong)


def test_the_table_is_what_the_evidence_says() -> None:
    stored = table_in(mlx_lm.TABLE)
    versions, lines = EVIDENCE["versions"], EVIDENCE["lines"]
    found = mlx_lm_classes.table(versions["mlx-lm"], stored["classes"], stored["served_as"], lines)
    assert found == stored
    assert mlx_lm_classes.text(found) == mlx_lm.TABLE.read_text(encoding="utf-8")


def test_logits_follow_transformers_only_where_the_rules_say_so() -> None:
    """Where nothing of the setting arrives, a model that still agreed would refute the rules."""
    agreed = [line for line in EVIDENCE["lines"] if isinstance(line.get("logits"), float)]
    followed = [line for line in agreed if line["logits"] < mlx_lm_classes.FOLLOWS]
    assert len(followed) > 100
    for line in followed:
        arrived = set(line["arrives"].values())
        # What stands in a setting of type default is its base.
        assert arrived <= ({"plain"} if line["type"] == "default" else {"own", "plain"})
        assert line["type"] in ("default", "proportional") or "own" in arrived


@pytest.mark.parametrize("method", ["linear", "llama3", "yarn", "ntk"])
def test_mlx_lm_reads_the_keys_of_transformers_4(method: str, tmp_path: Path) -> None:
    assert not planned(tmp_path, method, v4=True, runtime="mlx-lm").wrong
    lost = planned(tmp_path, method, v4=False, runtime="mlx-lm")
    assert "theta-lost" in wrong(lost)
    assert all("--v4-keys" in finding.remedy for finding in lost.wrong)
    assert not planned(tmp_path, method, "qwen3", v4=False, runtime="mlx-lm").wrong


def test_mlx_lm_computes_attention_factors_itself(tmp_path: Path) -> None:
    yarn = planned(tmp_path, "yarn", v4=True, runtime="mlx-lm", attention_factor=1.3)
    assert wrong(yarn) == {"attention-factor-ignored"}
    assert wrong(planned(tmp_path, "ntk_mixed", v4=True, runtime="mlx-lm")) == {
        "attention-factor-ignored"
    }
    ramp = planned(tmp_path, "yarn", v4=True, runtime="mlx-lm", truncate=False)
    assert wrong(ramp) == {"truncate-ignored"}


@pytest.mark.parametrize(
    ("stated", "fine"), [(1.2079, True), (1.20794, True), (1.2078, False), (1.208, False)]
)
def test_a_rounded_attention_factor_is_no_fault(stated: float, fine: bool, tmp_path: Path) -> None:
    """OLMo 3 states 1.2079, and mlx-lm and SGLang compute 1.2079441."""
    config = {**load_config(GOLDEN / "llama-2-7b.json"), "max_position_embeddings": 32768}
    config["rope_scaling"] = {"rope_type": "yarn", "type": "yarn", "factor": 8.0,
                              "original_max_position_embeddings": 4096,
                              "attention_factor": stated}  # fmt: skip
    for runtime in ("mlx-lm", "sglang", "vllm-2025"):
        found = verified(tmp_path, config, runtime)
        assert ("attention-factor-ignored" in wrong(found)) == (not fine)


def test_mlx_lms_classes_that_drop_a_scaling_and_those_that_it_lacks(tmp_path: Path) -> None:
    dropped = planned(tmp_path, "linear", "mixtral", v4=True, runtime="mlx-lm")
    assert wrong(dropped) == {"factors-dropped"}
    assert not planned(tmp_path, "ntk", "mixtral", v4=True, runtime="mlx-lm").wrong
    none = planned(tmp_path, "ntk", "falcon", v4=False, runtime="mlx-lm")
    assert "has no class for it" in str(none.runtimes["mlx-lm"].refused)
    failed = planned(tmp_path, "yarn", "nemotron", v4=True, runtime="mlx-lm")
    assert "only supports 'linear'" in str(failed.runtimes["mlx-lm"].refused)
    untried = planned(tmp_path, "ntk", "olmo", v4=False, runtime="mlx-lm")
    assert "was not measured" in str(untried.runtimes["mlx-lm"].unread)


def test_mlx_lm_turns_phi_3_by_its_long_list_always(tmp_path: Path) -> None:
    found = verified(tmp_path, load_config(GOLDEN / "phi-3-mini-128k.json"), "mlx-lm")
    assert found.runtimes["mlx-lm"].refused is None
    assert wrong(found) == {"short-text-taxed"}


def test_mlx_lm_lets_queries_grow_where_its_class_reads_the_key(tmp_path: Path) -> None:
    growing = {
        "rope_type": "yarn",
        "rope_theta": 1e4,
        "factor": 4.0,
        "original_max_position_embeddings": 512,
        "llama_4_scaling_beta": 0.1,
    }
    for family, lost in (("ministral3", False), ("llama", True)):
        config = source(family, rope_theta=None, rope_parameters=growing)
        found = verified(tmp_path, config, "mlx-lm")
        assert ("position-scaling-lost" in wrong(found)) == lost
        assert bool(found.wrong) == lost


@pytest.mark.parametrize(
    ("family", "method", "v4", "faults"),
    [
        ("llama", "linear", True, {"length-limit"}),  # the stated length is the original
        ("llama", "llama3", True, set()),
        ("llama", "ntk", True, set()),
        ("llama", "yarn", True, {"factors-dropped", "attention-factor-dropped"}),
        ("llama", "ntk", False, {"theta-lost"}),
        ("qwen2", "yarn", True, {"refused"}),
        ("qwen2", "yarn", False, {"refused"}),
        ("qwen2", "linear", True, {"refused"}),
        ("cohere", "linear", True, {"factors-dropped", "length-limit"}),
        ("mistral", "ntk", True, {"refused"}),
    ],
)
def test_ollamas_own_converter(
    family: str, method: str, v4: bool, faults: set[str], tmp_path: Path
) -> None:
    assert wrong(planned(tmp_path, method, family, v4=v4, runtime="ollama")) == faults


def ollama_reads(family: str, **changes: Any) -> RotaryReading:
    return named("ollama").read(
        {**stock_config(source(family), present_plan(source(family))), **changes}
    )


V4 = {"rope_parameters": None, "rope_theta": 1e4}


@pytest.mark.parametrize("scaling", [{"factor": 1.0}, {"rope_type": "yarn", "factor": 4.0}])
def test_ollamas_converter_of_qwen2_fails_on_a_number_as_factor(scaling: Config) -> None:
    read = ollama_reads("qwen2", **V4, rope_scaling=scaling)
    assert "fails on a number here" in str(read.refused)
    assert ollama_reads("qwen2", **V4, rope_scaling={"type": "mrope"}).refused is None


def test_ollamas_converter_of_llama_has_no_heads_of_their_own_width() -> None:
    own = source("llama")
    head = own["hidden_size"] // own["num_attention_heads"]
    assert ollama_reads("llama", **V4, head_dim=head).refused is None
    assert "head_dim" in str(ollama_reads("llama", **V4, head_dim=2 * head).refused)


def test_ollamas_converter_of_llama_loses_llama3_without_a_base_next_to_it(tmp_path: Path) -> None:
    config = {**source("llama"), "rope_parameters": None, "rope_theta": 1e4}
    config["rope_scaling"] = {
        "rope_type": "llama3",
        "factor": 4.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 512,
    }
    assert not named("ollama").read(config).notes
    del config["rope_theta"]
    read = named("ollama").read(
        {**config, "rope_scaling": {**config["rope_scaling"], "rope_theta": 1e4}}
    )
    (note,) = read.notes
    assert "does not read this setting" in note
    (steps,) = read.layers.values()
    plain = 1e4 ** -(
        np.arange(len(steps[-1].inverse_frequencies)) / len(steps[-1].inverse_frequencies)
    )
    np.testing.assert_allclose(steps[-1].inverse_frequencies, plain)


@pytest.mark.parametrize(
    ("family", "lengths", "limit"),
    [
        ("cohere", {"model_max_length": 8192, "max_position_embeddings": 4096}, 8192),
        ("cohere", {"model_max_length": 0, "max_position_embeddings": 4096}, 4096),
        ("llama", {"model_max_length": 8192, "max_position_embeddings": 4096}, 4096),
        ("llama", {"max_position_embeddings": 0, "n_ctx": 2048}, 2048),
        ("qwen2", {"max_position_embeddings": 4096, "n_ctx": 2048}, 4096),
    ],
)
def test_each_converter_of_ollama_looks_for_the_length_in_its_own_keys(
    family: str, lengths: Config, limit: int
) -> None:
    assert ollama_reads(family, **V4, **lengths).limit == limit


def test_mlx_lm_reads_the_older_name_of_a_rope_type_first(tmp_path: Path) -> None:
    scaling = {"type": "linear", "rope_type": "dynamic", "factor": 4.0}
    config = {**source("llama"), "rope_parameters": None, "rope_theta": 1e4}
    both, alone = (
        named("mlx-lm").read({**config, "rope_scaling": setting})
        for setting in (scaling, {**scaling, "rope_type": "linear"})
    )
    for one, other in zip(both.layers.values(), alone.layers.values(), strict=True):
        assert len(one) == len(other) == 1
        np.testing.assert_array_equal(one[0].inverse_frequencies, other[0].inverse_frequencies)


def test_mlx_lm_serves_some_model_types_by_the_class_of_another() -> None:
    read = named("mlx-lm").read(load_config(PUBLISHED / "kimi-k2.json"))
    assert read.unread is None
    assert read.refused is None
    assert mlx_lm._row("xverse") == mlx_lm._row("llama")


def test_ollama_classes_that_are_not_written_down_are_not_established(tmp_path: Path) -> None:
    found = planned(tmp_path, "ntk", "gemma2", v4=True, runtime="ollama")
    assert found.verdict_in("ollama") == "not established"
    assert set(ollama._OTHERS).isdisjoint(ollama._LLAMA)


def test_an_ollama_user_is_told_of_num_ctx(tmp_path: Path) -> None:
    found = planned(tmp_path, "linear", v4=True, runtime="ollama")
    (told,) = [finding for finding in found.warnings if finding.trap == "short-by-default"]
    assert f"PARAMETER num_ctx {TARGET}" in told.remedy
    assert not told.wrong


def test_a_length_that_the_config_leaves_open_fails_no_runtime_until_it_is_asked_for() -> None:
    path = PUBLISHED / "llama2-7b-32k.json"
    found = rw.verify(path, runtimes=["ollama"], run=False)
    (note,) = [finding for finding in found.warnings if finding.trap == "length-limit"]
    assert not note.wrong
    assert "asked for" not in note.what
    assert "export a GGUF file" in note.remedy
    assert "when the server starts" not in note.remedy
    (found_wrong,) = rw.verify(path, length=2**18, runtimes=["ollama"], run=False).wrong
    assert "256k is asked for" in found_wrong.what


def test_a_runtime_that_does_not_load_a_model_has_no_length(tmp_path: Path) -> None:
    for family, verdict in (("mistral", "wrong"), ("gemma2", "not established")):
        found = planned(tmp_path, "linear", family, v4=True, runtime="ollama")
        assert found.verdict_in("ollama") == verdict
        assert traps(found.warnings).isdisjoint({"length-limit", "short-by-default"})
