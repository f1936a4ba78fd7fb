"""Drafters: the published forms, what each runtime does with them, and an export that reaches."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ropewalk as rw
from ropewalk.api.export import _drafter
from ropewalk.errors import InputError, InvalidValue, RopewalkError, Unsupported
from ropewalk.exporting import fresh_process, llama_cpp
from ropewalk.gguf import llama_cpp_run
from ropewalk.models.config import BUNDLED_FOLDER, Config, load_config, present_plan
from ropewalk.models.source import resolve
from ropewalk.runtimes import engines
from ropewalk.runtimes.drafters import drafter_of, drafting
from ropewalk.runtimes.serving import Serving
from tests.api.conformance import check_result
from tests.audit.verified import GOLDEN, PUBLISHED, traps, verified
from tests.cli.calling import result_of
from tests.exporting.folders import answered_here
from tests.gguf.gguf_cases import unproven
from tests.gguf.gguf_files import header_only

CONFIGS = Path(__file__).parent / "drafters"
LLAMA = {**load_config(GOLDEN / "llama-3.1-8b.json"), "vocab_size": 128256}
QWEN3 = load_config(CONFIGS / "dspark-qwen3-8b.json") | {
    "architectures": ["Qwen3ForCausalLM"],
    "num_hidden_layers": 36,
    "layer_types": ["full_attention"] * 36,
}
QWEN35 = load_config(CONFIGS / "mtp-qwen3.5-0.8b.json")
FORMS = {
    "eagle3-llama-3.1-8b": ("EAGLE3", LLAMA, "256k"),
    "dspark-qwen3-8b": ("DSpark", QWEN3, "128k"),
    "model-qwen3-0.6b": ("a small model", QWEN3, "128k"),
    "mtp-qwen3.5-0.8b": ("MTP layers", QWEN35, "1m"),
    "speculators-qwen3.6-35b": ("DFlash", QWEN35, "1m"),
    "dflash-qwen3.6-35b": ("DFlash", QWEN35, "1m"),
}
RUNTIMES = ("vllm", "sglang", "llama.cpp")


def saved(folder: Path, config: Config) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def rows_of(name: str, folder: Path, target: Config | None = None) -> dict[str, Serving]:
    """The rows for a published drafter under its target's plan, of a folder that states none."""
    form, config, length = FORMS[name]
    here = saved(folder / "target", target or config)
    drafts = (
        here
        if form == "MTP layers"
        else saved(folder / "draft", load_config(CONFIGS / f"{name}.json"))
    )
    source = resolve(here)
    plan = rw.plan(source, length, "yarn").plan
    found = drafter_of(source, resolve(drafts))
    assert found.form == form
    return {row.runtime: row for row in drafting(source, found, plan)}


@pytest.mark.parametrize(
    ("name", "fits", "said"),
    [
        ("eagle3-llama-3.1-8b", "approximate impossible approximate", "past 2k it rotates"),
        ("dspark-qwen3-8b", "approximate exact exact", "rotates otherwise than the target"),
        ("model-qwen3-0.6b", "impossible exact exact", "vLLM lowers the server's length to"),
        ("mtp-qwen3.5-0.8b", "exact exact exact", "the options on the line change it too"),
        ("speculators-qwen3.6-35b", "approximate impossible exact", "does not hold such a drafter"),
        ("dflash-qwen3.6-35b", "impossible impossible approximate", "to the 262144 of the"),
    ],
)
def test_each_runtime_says_what_it_does_beyond_the_drafter(
    name: str, fits: str, said: str, tmp_path: Path
) -> None:
    found = rows_of(name, tmp_path)
    assert [found[runtime].fit for runtime in RUNTIMES] == fits.split()
    assert said in found["vllm"].reason
    length = rw.plan(resolve(tmp_path / "target"), FORMS[name][2], "yarn").plan.target_length
    own = name.startswith("mtp")
    for runtime, row in found.items():
        if not row.lines:
            assert row.reason == "SGLang does not read transformer_layer_config"
            continue
        # What does not rotate as it should is exported with the target; other lines are enough.
        assert ("ropewalk export" in row.lines[0]) == (row.fit != "exact")
        words = shlex.split(row.lines[-1])
        assert str(length) in words
        named = {"sglang": "--speculative-draft-model-path", "llama.cpp": "--spec-draft-model"}
        assert runtime == "vllm" or (named[runtime] in words) != own
    words = shlex.split(found["vllm"].lines[-1])
    spec = json.loads(words[words.index("--speculative-config") + 1])
    assert ("model" in spec) != own
    assert spec.get("max_model_len", length) == length


def test_a_drafter_that_states_the_length_is_served_as_it_is(tmp_path: Path) -> None:
    """The target within its own length: nothing to export, and no length for a raised drafter."""
    target = resolve(saved(tmp_path / "target", QWEN3))
    plan = target.present_plan
    for name, own in (("dspark-qwen3-8b", {}), ("model-qwen3-0.6b", {"vocab_size": 151900})):
        config = {**load_config(CONFIGS / f"{name}.json"), **own}
        found = drafter_of(target, resolve(saved(tmp_path / "draft", config)))
        rows = drafting(target, found, plan)
        assert [row.fit for row in rows] == ["impossible" if own else "exact"] * 2 + ["exact"]
        assert all(len(row.lines) == (0 if own else 1) for row in rows[:2])
        assert not own or "refuses a draft model of 151900 tokens" in rows[0].reason


@pytest.mark.parametrize("name", [name for name in FORMS if not name.startswith("mtp")])
def test_every_published_drafter_gets_a_config_that_reaches(name: str, tmp_path: Path) -> None:
    """By longrope too, of which vLLM would take the original length."""
    _, config, length = FORMS[name]
    target = resolve(saved(tmp_path / "target", config))
    draft = saved(tmp_path / "draft", load_config(CONFIGS / f"{name}.json"))
    for method in ("yarn", "ntk_mixed"):
        plan = rw.plan(target, length, method).plan
        found = _drafter(target, draft, plan, engines()["vllm"])
        assert found.plan.target_length == plan.target_length
        exported = saved(tmp_path / "exported", engines()["vllm"].written_config(config, plan))
        there, beside = resolve(exported), resolve(saved(tmp_path / "beside", found.config))
        row, *_ = drafting(there, drafter_of(there, beside), plan)
        assert (row.runtime, row.fit) == ("vllm", "exact")
        assert f'"max_model_len": {plan.target_length}' in row.lines[-1]


@pytest.mark.parametrize("kind", ["head", "model"])
def test_an_exported_drafter_reaches(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A head rotates as the target does, a small model by a setting of its own; files are links."""
    monkeypatch.setattr(fresh_process, "run_script", answered_here)
    own: Config = {**load_config(BUNDLED_FOLDER), "num_hidden_layers": 2}
    if kind == "head":
        own |= {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 64}
    else:
        own |= {"max_position_embeddings": 256, "rope_theta": 500.0}
    own.pop("rope_parameters")
    own["rope_theta"] = own.get(
        "rope_theta", load_config(BUNDLED_FOLDER)["rope_parameters"]["rope_theta"]
    )
    draft, out = saved(tmp_path / "draft", own), tmp_path / "out"
    (draft / "pytorch_model.bin").write_bytes(b"weights")
    (draft / "modeling.py").write_text("raise SystemExit")
    (draft / "secret.txt").symlink_to("/etc/hostname")
    plan = rw.plan("bundled", "2k", "yarn").plan
    made = rw.export("bundled", plan, out, "vllm", drafter=draft)
    beside = tmp_path / "out-drafter"
    assert (beside / "pytorch_model.bin").resolve() == draft / "pytorch_model.bin"
    assert (beside / "pytorch_model.bin").is_symlink()
    assert {path.name for path in beside.iterdir()} == {
        *("config.json", "plan.json", "ropewalk.manifest.json", "pytorch_model.bin")
    }
    written = present_plan(beside)
    assert written.target_length >= plan.target_length
    if kind == "head":
        np.testing.assert_allclose(
            written.longest().inverse_frequencies, plan.longest().inverse_frequencies, rtol=1e-6
        )
    else:
        assert written.longest().geometry.base == 500
    (line,) = made.drafting
    assert str(beside) in line
    verified_now = rw.verify(out, drafter=beside, run=False)
    assert next(row.fit for row in verified_now.drafting) == "exact"
    assert "drafter-short" not in traps(verified_now.warnings)
    # Beside another export it is refused before anything is written, and replaced if asked.
    with pytest.raises(InputError, match="exists already"):
        rw.export("bundled", plan, tmp_path / "out", "vllm", drafter=draft)
    shutil.rmtree(out)
    with pytest.raises(InputError, match="out-drafter: exists already"):
        rw.export("bundled", plan, out, "vllm", drafter=draft)
    assert not out.exists()


def test_a_drafter_that_does_not_reach_fails_the_verification(tmp_path: Path) -> None:
    target = saved(tmp_path / "target", QWEN3 | {"max_position_embeddings": 65536})
    draft = saved(tmp_path / "draft", load_config(CONFIGS / "model-qwen3-0.6b.json"))
    found = verified(target, load_config(target), "vllm", drafter=draft)
    assert traps(check_result(found).wrong) >= {"drafter-short"}
    assert [row.runtime for row in found.drafting] == list(RUNTIMES)
    told = result_of(
        "verify", str(target), "--runtime", "vllm", "--no-run", "--drafter", str(draft)
    )
    assert told.exit_code == 1
    assert "with the drafter, sglang: impossible: SGLang does not start" in told.output
    assert "\n    vllm serve " in told.output


def test_inspect_names_a_drafter(tmp_path: Path) -> None:
    for name, said in (
        ("speculators-qwen3.6-35b", "a drafter (DFlash)"),
        ("eagle3-llama-3.1-8b", "a drafter (EAGLE3)"),
        ("mtp-qwen3.5-0.8b", "its 1 MTP layers can draft for it"),
        ("model-qwen3-0.6b", ""),
    ):
        found = rw.inspect(CONFIGS / f"{name}.json")
        assert found.drafter.startswith(said), name
        assert bool(found.drafter) == bool(said)
        assert found.drafter in found.summary()


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"vocab_size": 32000}, InvalidValue, "vocab_size = 32000: the target has 151936"),
        ({"vocab_size": "many"}, InvalidValue, "vocab_size"),
        ({"architectures": ["MedusaModel"]}, Unsupported, "MedusaModel.* is no drafter that"),
        ({"architectures": ["PEagleDraft"]}, Unsupported, "is no drafter that"),
        ({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}, RopewalkError, "gpt2"),
        ({"schedules": {}, "model_type": None}, InputError, "is a plan"),
        ({"padding": "x" * 2**21}, InputError, "config.json"),
    ],
)
def test_bad_drafters(change: dict[str, Any], error: type, said: str, tmp_path: Path) -> None:
    target = saved(tmp_path / "target", QWEN3)
    config = load_config(CONFIGS / "dspark-qwen3-8b.json") | change
    draft = saved(tmp_path / "draft", {k: v for k, v in config.items() if v is not None})
    with pytest.raises(error, match=said):
        rw.verify(target, drafter=draft, runtimes=["vllm"], run=False)


def test_a_runtime_that_does_not_load_a_drafter_does_not_draft_with_it(tmp_path: Path) -> None:
    target = resolve(saved(tmp_path / "target", QWEN3))
    yarn = {"rope_type": "yarn", "factor": None, "original_max_position_embeddings": 32768}
    config = {**load_config(CONFIGS / "model-qwen3-0.6b.json"), "rope_scaling": yarn}
    found = drafter_of(target, resolve(saved(tmp_path / "draft", config)))
    for row in drafting(target, found, target.present_plan)[:2]:
        assert row.fit == "impossible"
        assert "cannot draft with it" in row.reason
        assert "needs a value for factor" in row.reason


@pytest.mark.parametrize("name", ["model-qwen3-0.6b", "eagle3-llama-3.1-8b"])
@pytest.mark.parametrize(
    ("change", "fit", "said"),
    [
        ({"num_attention_heads": 0}, "impossible", "num_attention_heads = 0"),
        ({"is_causal": False}, "impossible", "is_causal"),
        (
            {"model_type": "of_its_own", "rope_theta": 1e6},
            "unknown",
            "'of_its_own' is not in ropewalk's table",
        ),
    ],
)
def test_a_drafter_that_cannot_write_or_is_not_known_is_not_exact(
    name: str, change: dict[str, object], fit: str, said: str, tmp_path: Path
) -> None:
    target = saved(tmp_path / "target", FORMS[name][1])
    config = {"head_dim": 128, **load_config(CONFIGS / f"{name}.json"), **change}
    draft = saved(tmp_path / "draft", config)
    found = verified(target, load_config(target), "vllm", drafter=draft)
    assert {row.fit for row in found.drafting} <= {fit, "impossible"}
    assert said in found.drafting[0].reason
    assert found.verdict == ("wrong" if fit == "impossible" else "not established")
    assert fit == "impossible" or said in str(found.not_established)


def test_exports_without_such_a_drafter(tmp_path: Path) -> None:
    plan = rw.plan("bundled", "2k", "yarn").plan
    other = BUNDLED_FOLDER.with_name("bundled_2")
    with pytest.raises(InputError, match=r"transformers has no drafter .*; leave `drafter` out"):
        rw.export("bundled", plan, tmp_path / "out", "transformers", drafter=other)
    target = saved(tmp_path / "mtp", {**load_config(BUNDLED_FOLDER), "num_nextn_predict_layers": 1})
    with pytest.raises(InputError, match="the export itself has its MTP layers; leave"):
        rw.export(target, plan, tmp_path / "out", "vllm", drafter=target)
    file = header_only(tmp_path / "small.gguf")
    with pytest.raises(InputError, match="GGUF file, which holds no transformers config"):
        rw.export("bundled", plan, tmp_path / "out", "vllm", drafter=file)


@pytest.mark.parametrize(
    ("name", "kept"),
    [("qwen3-next-80b", ""), ("glm-4.6", ""), ("deepseek-v3.2", "keep the length of config.json")],
)
def test_overrides_reach_some_mtp_layers(name: str, kept: str, tmp_path: Path) -> None:
    """Most classes of vLLM rotate MTP layers by the target's config as it is overridden."""
    config = {**load_config(PUBLISHED / f"{name}.json"), "num_nextn_predict_layers": 1}
    length = 2 * present_plan(config).target_length
    found = verified(tmp_path / "model", config, "vllm", length=length)
    told = [f.consequence for f in found.warnings if f.trap == "drafter-unscaled"]
    assert bool(told) == bool(kept)
    assert kept in "".join(told)


_SERVED = """
import json, os, sys, urllib.request, xllamacpp
params, kinds = xllamacpp.CommonParams(), xllamacpp.common_speculative_type
params.model.path = params.speculative.draft.mparams.path = sys.argv[1]
params.speculative.types = [kinds.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
params.n_ctx, params.n_parallel, params.n_gpu_layers = 2048, 1, 0
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
params.warmup = params.fit_params = False
params.rope_freq_scale, params.yarn_orig_ctx = 1 / 4, 512
params.rope_scaling_type = xllamacpp.llama_rope_scaling_type.LLAMA_ROPE_SCALING_TYPE_YARN
out = os.dup(1)
os.dup2(2, 1)
server = xllamacpp.Server(params)
asked = {"prompt": [7 * i % 900 + 10 for i in range(1500)], "n_predict": 32, "temperature": 0}
request = urllib.request.Request(f"{server.listening_address}/completion")
request.add_header("Content-Type", "application/json")
answer = json.load(urllib.request.urlopen(request, json.dumps(asked).encode()))
os.write(out, json.dumps(answer["timings"]).encode())
os._exit(0)
"""


@pytest.mark.skipif(not llama_cpp_run.available(), reason="xllamacpp is not installed")
def test_llama_cpp_drafts_beyond_the_drafters_length(tmp_path: Path) -> None:
    """Its file states 512 tokens. As RoPE options reach both, it accepts all of its own drafts."""
    plan = present_plan(BUNDLED_FOLDER)
    assert plan.target_length == 512
    file = tmp_path / "model.gguf"
    unproven(llama_cpp.export)(str(BUNDLED_FOLDER), plan, file)
    ran = subprocess.run(
        [sys.executable, "-c", _SERVED, str(file)], stdout=subprocess.PIPE, timeout=120, check=True
    )
    timings = json.loads(ran.stdout)
    assert timings["draft_n"] == timings["draft_n_accepted"] > 0
