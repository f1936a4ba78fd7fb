from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import ropewalk as rw
from ropewalk.audit.result import Audit
from ropewalk.context_plan import APPROXIMATES, PLAN, ContextPlan
from ropewalk.errors import InputError, RopewalkError, UnknownName
from ropewalk.exporting import fresh_process
from ropewalk.models.config import BUNDLED_FOLDER, load_config, present_plan
from ropewalk.models.stock_config import stock_config, with_plan
from ropewalk.outputs import write_atomically
from ropewalk.planning.extension import extend_plan
from tests.api.conformance import check_command, check_result
from tests.audit.corpus import BROKEN, CLEAN, TARGET
from tests.exporting.folders import answered_here
from tests.gguf.gguf_files import header_only
from tests.stock_process import StockProcess


def wrong(found: Audit) -> set[str]:
    return {finding.trap for finding in found.wrong}


def test_logits_of_zeros_are_no_agreement(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(BUNDLED_FOLDER, folder)
    file = folder / "model.safetensors"
    weights = load_file(file)
    save_file({**weights, "model.norm.weight": torch.zeros(128)}, file)
    found = rw.verify(folder)
    assert wrong(found) == {"no-effect"}


def test_a_clean_folder_passes_with_what_every_runtime_does(tmp_path: Path) -> None:
    export = CLEAN["searched"]
    folder = export.write(tmp_path / "model")
    plan = tmp_path / "plan.json"
    write_atomically(plan, export.plan.dumps())
    found = check_result(rw.verify(folder, plan=plan))
    assert wrong(found) == set()
    assert found.verdict == "not established", "there are neither weights nor a tokenizer"
    assert {found.verdict_in(name) for name in found.runtimes} == {"OK"}
    assert found.target == "transformers folder"
    assert found.agreement is None, "there are no weights to run"
    assert {name: reading.source for name, reading in found.runtimes.items()} == {
        "transformers": "measured",
        "vllm": "by its rules, not run",
        "sglang": "by its rules, not run",
    }
    for reading in found.runtimes.values():
        (step,) = reading.layers["full_attention"]
        assert step.attention_scaling == pytest.approx(1.05)
        np.testing.assert_allclose(
            step.inverse_frequencies, export.plan.longest().inverse_frequencies, rtol=1e-6
        )
    assert [check.verdict for check in found.checks] == ["not established"] * 3
    assert found.not_established == tuple(str(check) for check in found.checks[:2])
    assert "vllm OK (by its rules)" in found.summary()
    assert "not established: weights: none in this folder; give the folder" in found.summary()
    assert rw.verify(folder, plan=export.plan) == found
    check_command(found, "verify", folder, "--plan", plan)


def test_what_is_wrong_is_told_by_name_in_function_and_command(tmp_path: Path) -> None:
    folder = BROKEN["attention_factor of longrope without mscale"].export.write(tmp_path)
    found = check_result(rw.verify(folder))
    assert found.verdict == "wrong"
    (finding,) = found.wrong
    assert finding.trap == "attention-factor-ignored"
    assert finding.runtimes == ("vllm", "sglang")
    assert "set short_mscale and long_mscale to 1.05" in finding.remedy
    assert found.verdict_in("transformers") == "OK"
    assert found.verdict_in("vllm") == found.verdict_in("sglang") == "wrong"
    assert found.summary().endswith("; wrong: attention-factor-ignored.")
    check_command(found, "verify", folder)
    alone = rw.verify(folder, runtimes=["transformers"])
    assert not alone.wrong
    check_command(alone, "verify", folder, "--runtime", "transformers")


def test_a_length_is_checked_where_there_is_no_plan(tmp_path: Path) -> None:
    folder = CLEAN["any λ"].write(tmp_path)
    assert not rw.verify(folder, length=TARGET).wrong
    found = rw.verify(folder, length="8k")
    assert found.length == 8192
    assert "not-extended" in wrong(found)
    check_command(found, "verify", folder, "--length", "8k")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled model's weights under the config of a plan, which goes along."""
    folder = tmp_path_factory.mktemp("verify") / "model"
    shutil.copytree(BUNDLED_FOLDER, folder)
    plan = extend_plan(present_plan(BUNDLED_FOLDER), 2048, "ntk_mixed")
    write_atomically(folder / PLAN, plan.dumps())
    _write_json(folder / "config.json", with_plan(BUNDLED_FOLDER, plan))
    tokenizer = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    _write_json(folder / "tokenizer_config.json", tokenizer | {"model_max_length": 2048})
    return folder


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")


def test_weights_are_run_in_a_fresh_process_beside_the_folders_own_plan(
    exported: Path, monkeypatch: pytest.MonkeyPatch, stock: StockProcess
) -> None:
    monkeypatch.setattr(fresh_process, "run_script", stock.real)
    torch.set_num_threads(1)
    seen: list[str] = []
    found = check_result(rw.verify(exported, progress=lambda status: seen.append(status.detail)))
    assert found.verdict == "OK"
    assert found.runtimes["transformers"].basis == "run"
    assert found.runtimes["vllm"].basis == "by its rules"
    assert found.agreement is not None
    assert found.agreement.passed
    assert found.agreement.quantity == "logits"
    assert found.agreement.tokens > 512, "beyond the trained length"
    assert "compared with its own plan.json" in found.notes
    run = "running stock transformers and the planned model"
    assert list(dict.fromkeys(seen)) == ["reading", "reading weights", run]
    monkeypatch.setattr(fresh_process, "run_script", answered_here)
    check_command(found, "verify", exported)


def test_weights_under_another_config_are_found_out(exported: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(exported, folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config["rope_parameters"]["rope_theta"] *= 2
    _write_json(folder / "config.json", config)
    assert wrong(rw.verify(folder, run=False)) == {"theta-lost"}


def test_a_plan_that_was_edited_approximates_no_other(exported: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(exported, folder)
    plan = json.loads((folder / PLAN).read_text(encoding="utf-8"))
    asked = extend_plan(present_plan(BUNDLED_FOLDER), 2048, "linear")
    plan["provenance"][APPROXIMATES] = asked.id
    _write_json(folder / PLAN, plan)
    with pytest.warns(UserWarning, match="edited"):
        assert "frequencies-differ" in wrong(rw.verify(folder, plan=asked, run=False))


def test_weights_that_are_cut_off_are_named(exported: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(exported, folder)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    found = rw.verify(folder)
    assert wrong(found) == {"weights-damaged"}
    assert found.agreement is None, "what is damaged is not run"
    assert rw.verify(folder, run=False).wrong == found.wrong


def test_a_tokenizer_that_only_stock_transformers_refuses_is_named(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file is whole, and the class that its settings name is not."""
    monkeypatch.setattr(fresh_process, "run_script", answered_here)
    folder = tmp_path / "model"
    shutil.copytree(exported, folder)
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "Own",
            "auto_map": {"AutoTokenizer": [None, "own.Own"]},
            "model_max_length": 2048,
        },
    )
    found = rw.verify(folder)
    assert wrong(found) == {"tokenizer-broken"}
    assert found.verdict_in("transformers") == "wrong"
    assert found.verdict_in("vllm") == "OK"


def test_weights_that_stock_transformers_cannot_load_are_wrong(
    exported: Path, tmp_path: Path
) -> None:
    """No header shows it, and it was an error of the arguments."""
    folder = tmp_path / "model"
    shutil.copytree(exported, folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    _write_json(folder / "config.json", config | {"hidden_act": "none such"})
    found = rw.verify(folder, runtimes=["transformers"])
    assert wrong(found) == {"refused"}


def test_the_bundled_model_is_well() -> None:
    found = rw.verify("bundled", run=False)
    assert found.verdict == "OK"
    assert found == rw.verify(BUNDLED_FOLDER, run=False)
    check_command(found, "verify", "bundled", "--no-run")


def test_a_gguf_file_is_read_by_llama_cpps_rules(tmp_path: Path) -> None:
    path = header_only(tmp_path / "model.gguf", keys={"rope.scaling.attn_factor": 1.05})
    found = check_result(rw.verify(path, run=False))
    assert found.target == "GGUF file"
    assert list(found.runtimes) == ["llama.cpp"]
    check_command(found, "verify", path, "--no-run")
    with pytest.raises(InputError, match=r"only llama\.cpp and ollama load"):
        rw.verify(path, runtimes=["vllm"])
    both = rw.verify(path, runtimes=["llama.cpp", "ollama"], run=False)
    one, other = both.runtimes.values()
    assert one.layers == other.layers
    assert [finding.trap for finding in both.warnings] == ["short-by-default"]


def test_what_cannot_be_verified_is_named(tmp_path: Path) -> None:
    folder = CLEAN["plain"].write(tmp_path / "model")
    (folder / "notes.txt").write_text("not a model", encoding="utf-8")
    (folder / "empty").mkdir()
    plan: ContextPlan = CLEAN["plain"].plan
    with pytest.raises(InputError, match="there is no such file or folder"):
        rw.verify("nowhere")
    for name in ("triton", None):
        with pytest.raises(UnknownName, match=f"unknown runtime '{name}'"):
            rw.verify(folder, runtimes=[name])  # type: ignore[list-item]
    with pytest.raises(InputError, match="there is no such file"):
        rw.verify(folder, plan="no.json")
    with pytest.raises(InputError, match="not both"):
        rw.verify(folder, plan=plan, length="4k")
    with pytest.raises(InputError, match="nor a GGUF file"):
        rw.verify(folder / "notes.txt")
    with pytest.raises(InputError, match=r"config\.json: there is no such file"):
        rw.verify(folder / "empty")
    with pytest.raises(InputError, match="known only by name"):
        rw.verify("llama-3.1-8b")


def test_a_config_that_would_take_for_ever_is_refused(tmp_path: Path) -> None:
    export = CLEAN["plain"]
    export.write(tmp_path)
    _write_json(tmp_path / "config.json", {**export.config, "num_hidden_layers": 10**9})
    with pytest.raises(RopewalkError, match="num_hidden_layers = 1000000000"):
        rw.verify(tmp_path)


def test_an_export_for_transformers_says_what_it_would_be_elsewhere(tmp_path: Path) -> None:
    """vLLM and SGLang read keys of their own for the attention factor, and else take Phi-3's."""
    source = load_config(BUNDLED_FOLDER)
    plan = extend_plan(present_plan(source), 1024, "ntk_mixed")
    _write_json(tmp_path / "config.json", stock_config(source, plan))
    assert not rw.verify(tmp_path, runtimes=["transformers"]).wrong
    assert wrong(rw.verify(tmp_path)) == {"attention-factor-ignored"}


def test_a_gguf_file_is_compared_with_the_plan_next_to_it(tmp_path: Path) -> None:
    path = header_only(tmp_path / "small.gguf", keys={"context_length": 1024})
    assert not rw.verify(path, run=False).compared
    plan = rw.plan(path, "2k", "linear").plan
    write_atomically(tmp_path / PLAN, plan.dumps())
    found = rw.verify(path, run=False)
    assert found.compared
    assert "compared with the plan.json next to it" in found.notes
    assert wrong(found) == wrong(rw.verify(path, plan=plan, run=False)) != set()
    write_atomically(tmp_path / PLAN, rw.plan("gemma-3-4b", "256k", "linear").plan.dumps())
    other = rw.verify(path, run=False)
    assert not other.wrong
    assert not other.compared
    assert "not compared with the plan.json next to it, which is of another model" in other.notes


def test_an_edited_plan_is_used_and_named_by_every_command(tmp_path: Path) -> None:
    """The edit travels: through the export, whose own checksums hold, and to what is verified."""
    plan, out = tmp_path / PLAN, tmp_path / "out"
    text = rw.plan("bundled", "2k", "yarn").plan.dumps()
    plan.write_text(text.replace('"up_to_length": 2048', '"up_to_length": 6048'))
    with pytest.warns(UserWarning, match="plan.json: the plan has been edited since") as told:
        rw.export("bundled", plan, out, "transformers")
    assert len(told) == 1
    found = rw.verify(out, run=False)
    assert "the plan has been edited since ropewalk wrote it" in found.notes
    plan.write_text(text)
    assert "edited" not in ContextPlan.read(plan).provenance
