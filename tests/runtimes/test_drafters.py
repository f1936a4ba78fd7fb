"""Drafters: the published forms, what each runtime does with them, and an export that reaches."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ropewalk as rw
from ropewalk.context_plan import ContextPlan
from ropewalk.errors import InputError, InvalidValue, RopewalkError, Unsupported
from ropewalk.exporting import fresh_process
from ropewalk.models.config import BUNDLED_FOLDER, Config, load_config, present_plan
from ropewalk.models.source import resolve
from ropewalk.runtimes.drafters import drafter_of, drafting, form_of
from ropewalk.runtimes.serving import Serving
from tests.audit.verified import GOLDEN, PUBLISHED, traps, verified
from tests.cli.calling import result_of
from tests.exporting.folders import answered_here
from tests.gguf.gguf_files import header_only

CONFIGS = Path(__file__).parent / "drafters"
LLAMA = {**load_config(GOLDEN / "llama-3.1-8b.json"), "vocab_size": 128256}
QWEN3 = load_config(CONFIGS / "dspark-qwen3-8b.json") | {
    "architectures": ["Qwen3ForCausalLM"],
    "num_hidden_layers": 36,
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
    return {row.runtime: row for row in drafting(source, found, plan, plan.target_length)}


@pytest.mark.parametrize(
    ("name", "fits", "said"),
    [
        ("eagle3-llama-3.1-8b", "approximate impossible approximate", "past 2k"),
        ("dspark-qwen3-8b", "approximate impossible exact", "rotates otherwise than the target"),
        ("model-qwen3-0.6b", "impossible impossible exact", "vLLM lowers the server's length to"),
        ("mtp-qwen3.5-0.8b", "approximate impossible exact", "rotates otherwise than the target"),
        ("speculators-qwen3.6-35b", "approximate impossible exact", "raises the length"),
        ("dflash-qwen3.6-35b", "impossible impossible approximate", "to the 262144 of the"),
    ],
)
def test_each_runtime_says_what_it_does_beyond_the_drafter(
    name: str, fits: str, said: str, tmp_path: Path
) -> None:
    found = rows_of(name, tmp_path)
    assert [found[runtime].fit for runtime in RUNTIMES] == fits.split()
    assert said in found["vllm"].reason
    if name.startswith("speculators"):
        assert (found["sglang"].reason, found["sglang"].lines) == (
            "SGLang does not read transformer_layer_config",
            (),
        )
    else:
        assert "SGLang does not start" in found["sglang"].reason
    length = rw.plan(resolve(tmp_path / "target"), FORMS[name][2], "yarn").plan.target_length
    *_, serve = found["vllm"].lines
    words = shlex.split(serve)
    spec = json.loads(words[words.index("--speculative-config") + 1])
    assert spec["max_model_len"] == int(words[words.index("--max-model-len") + 1]) == length
    assert ("model" in spec) == (name[:3] != "mtp")
    *_, serve = found["llama.cpp"].lines
    assert f" -c {length} " in serve
    assert ("--spec-draft-model" in serve) == (name[:3] != "mtp")


def test_a_drafter_that_states_the_length_is_served_as_it_is(tmp_path: Path) -> None:
    """The target within its own length: nothing to export, and no length for a raised drafter."""
    target = resolve(saved(tmp_path / "target", QWEN3))
    plan = target.present_plan
    for name, own in (("dspark-qwen3-8b", {}), ("model-qwen3-0.6b", {"vocab_size": 151900})):
        config = {**load_config(CONFIGS / f"{name}.json"), **own}
        found = drafter_of(target, resolve(saved(tmp_path / "draft", config)))
        rows = drafting(target, found, plan, plan.target_length)
        assert [row.fit for row in rows] == (["impossible"] * 2 if own else ["exact"] * 2) + [
            "exact"
        ]
        assert all(len(row.lines) == (0 if own else 1) for row in rows[:2])
        assert not own or "refuses a draft model of 151900 tokens" in rows[0].reason


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
        *("config.json", "plan.json", "ropewalk.manifest.json", "pytorch_model.bin"),
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
    assert traps(found.wrong) >= {"drafter-short"}
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


def test_a_target_without_mtp_layers_is_no_drafter_of_its_own(tmp_path: Path) -> None:
    target = saved(tmp_path / "target", QWEN3)
    with pytest.raises(InputError, match="has no MTP layers"):
        rw.verify(target, drafter=target, runtimes=["vllm"], run=False)
    plan = rw.plan(QWEN3, "128k", "yarn").plan
    with pytest.raises(InputError, match="leave it out"):
        rw.export("bundled", rw.plan("bundled", "2k", "yarn").plan, tmp_path / "out",
                  "transformers", drafter=BUNDLED_FOLDER.with_name("bundled_2"))  # fmt: skip
    assert isinstance(plan, ContextPlan)


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


def test_gguf_files_are_for_llama_cpp(tmp_path: Path) -> None:
    files = [header_only(tmp_path / f"{name}.gguf") for name in ("big", "small")]
    target, draft = map(resolve, files)
    plan = target.present_plan
    (row,) = drafting(target, drafter_of(target, draft), plan, plan.target_length)
    assert (row.runtime, row.fit, form_of(draft)) == ("llama.cpp", "exact", "a small model")
    (line,) = row.lines
    assert line.startswith(f"llama-server -m {files[0]}")
    assert f"--spec-draft-model {files[1]}" in line
