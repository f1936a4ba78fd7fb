"""The lines to paste: read back by each runtime's rules, or run, they give the plan."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ropewalk as rw
from ropewalk.context_plan import ContextPlan
from ropewalk.exporting import llama_cpp
from ropewalk.exporting.exported import modelfile
from ropewalk.gguf import llama_cpp_run
from ropewalk.models.assumptions import assumptions
from ropewalk.models.config import BUNDLED, ORIGINAL_LENGTH, Config, load_config, present_plan
from ropewalk.models.load import load
from ropewalk.outputs import write_atomically
from ropewalk.runtimes import engines, named
from ropewalk.runtimes.serving import Serving
from tests.audit.verified import GOLDEN, PUBLISHED, traps, verified
from tests.gguf.gguf_cases import named_plan, unproven
from tests.gguf.gguf_files import header_only
from tests.runtimes.test_model_classes import small

LLAMA2 = GOLDEN / "llama-2-7b.json"
RUNTIMES = ["transformers", "vllm", "sglang", "llama.cpp", "ollama"]
OF_FILES = ["llama.cpp", "ollama"]
FLAGS = {"vllm": "--hf-overrides", "sglang": "--json-model-override-args"}
"""By engine, the flag that changes the config."""


def rows(model: object, to: str, method: str, **parameters: Any) -> dict[str, Serving]:
    found = rw.plan(model, to, method, parameters=parameters).serving
    of_file = str(model).endswith(".gguf")
    assert [row.runtime for row in found] == (OF_FILES if of_file else RUNTIMES)
    return {row.runtime: row for row in found}


def option(line: str, name: str) -> str:
    words = shlex.split(line)
    return words[words.index(name) + 1]


@pytest.mark.parametrize(
    ("name", "method"),
    [
        *product(("llama-2-7b", "smollm3-3b", "command-r"), ("linear", "ntk", "yarn", "ntk_mixed")),
        *product(("gemma-3-4b",), ("linear", "ntk", "ntk_mixed")),  # it is not geometric for yarn
    ],
)
def test_what_is_pasted_into_a_config_is_read_back_as_the_plan(name: str, method: str) -> None:
    path = GOLDEN / f"{name}.json"
    config = load_config(path)
    planned = rw.plan(path, "256k", method)
    (row, vllm, sglang, *_) = planned.serving
    assert row.fit == "exact"
    members = json.loads(f"{{{' '.join(row.lines).removesuffix(',')}}}")
    inner = members if "text_config" not in config else {"text_config": members}
    assert ("text_config in config.json" in row.reason) == ("text_config" in config)
    _, _, gone = row.reason.partition(", and remove ")
    removed = gone.split(" and ") if gone else []
    pasted = _pasted(config, inner, removed)
    _computes(present_plan(pasted), planned.plan)
    contradicting = {"scaling-conflict", "theta-conflict"}
    assert contradicting.isdisjoint(each.name for each in assumptions(pasted))
    for engine, flag in zip((vllm, sglang), FLAGS.values(), strict=True):
        if name == "command-r" and method == "ntk_mixed":
            assert engine.fit == "impossible"
            assert "these are interleaved" in engine.reason
            continue
        assert engine.fit == "exact"
        assert "not tested here" in engine.reason
        overrides = json.loads(option(engine.lines[0], flag))
        reading = named(engine.runtime).read(_pasted(config, overrides))
        for layer_type in planned.plan.schedules:
            schedule, step = planned.plan.longest(layer_type), reading.at(2**18, layer_type)
            assert step is not None
            expected = schedule.inverse_frequencies
            np.testing.assert_allclose(step.inverse_frequencies, expected, rtol=1e-12)
            assert step.attention_scaling == pytest.approx(schedule.attention_scaling)


def _pasted(
    config: Config, members: Config, removed: Sequence[str] = ("rope_scaling", "rope_theta")
) -> Config:
    if "text_config" in members:
        inner = _pasted(config["text_config"], members["text_config"], removed)
        return {**config, "text_config": inner}
    return {k: v for k, v in config.items() if k not in removed} | members


def _computes(read: ContextPlan, planned: ContextPlan) -> None:
    assert set(read.schedules) == set(planned.schedules)
    for layer_type in planned.schedules:
        one, other = read.longest(layer_type), planned.longest(layer_type)
        np.testing.assert_allclose(one.inverse_frequencies, other.inverse_frequencies, rtol=1e-12)
        assert one.attention_scaling == pytest.approx(other.attention_scaling)


def test_a_setting_that_reaches_further_than_its_config_states_is_served_so_far() -> None:
    """Qwen3's recipe: 40,960 stated, four times 32,768 served, and the engines go by the first."""
    config = load_config(PUBLISHED / "qwen3-8b-yarn.json")
    found = rw.plan(config, "128k")
    assert found.nothing_to_change
    _, *engines = found.serving[:3]
    for engine, flag in zip(engines, FLAGS.values(), strict=True):
        assert named(engine.runtime).read(config).limit == 40960
        overrides = json.loads(option(engine.lines[0], flag))
        assert overrides == {"max_position_embeddings": 131072}
        assert named(engine.runtime).read(_pasted(config, overrides)).limit == 131072


@pytest.mark.parametrize(
    ("change", "vllm", "sglang"),
    [
        ({"rope_type": "linear", "factor": 4.0}, 16384, 16384),
        ({"rope_type": "linear", "factor": 4.0, ORIGINAL_LENGTH: 1024}, 16384, 4096),
        ({"rope_type": "dynamic", "factor": 4.0}, 16384, 16384),
        ({"rope_type": "default", "factor": 4.0}, 16384, 16384),
        ({"rope_type": "yarn", "factor": 4.0}, 4096, 4096),
        ({"rope_type": "llama3", "factor": 4.0, ORIGINAL_LENGTH: 1024}, 4096, 4096),
    ],
)
def test_the_lengths_that_engines_accept(change: Config, vllm: int, sglang: int) -> None:
    config = {**load_config(LLAMA2), "rope_scaling": change}
    assert (named("vllm").accepts(config), named("sglang").accepts(config)) == (vllm, sglang)
    assert named("vllm").accepts({**config, "model_max_length": 2048}) == vllm // 2
    gemma = {**load_config(GOLDEN / "gemma-3-4b.json")}
    assert named("vllm").accepts(gemma) == 131072, "its stated length is scaled already"


def test_the_commands_of_a_known_model() -> None:
    found = rows("llama-2-7b", "16k", "yarn")
    hub_id = "meta-llama/Llama-2-7b-hf"
    assert found["vllm"].lines[0].startswith(f"vllm serve {hub_id} --max-model-len 16384 --hf-")
    assert f"--model-path {hub_id} --context-length 16384 --json-" in found["sglang"].lines[0]
    assert found["llama.cpp"].fit == "exact"
    assert found["llama.cpp"].lines == (
        "llama-server -m MODEL.gguf -c 16384 --override-kv llama.context_length=int:16384 "
        "--rope-scaling yarn --rope-scale 4.0 --yarn-orig-ctx 4096 --yarn-beta-fast 32.0 "
        "--yarn-beta-slow 1.0",
    )
    assert found["ollama"].fit == "exact"
    export, written, _ = found["ollama"].lines
    assert export == (
        f"ropewalk export {hub_id} --plan plan.json --runtime llama.cpp -o MODEL.gguf "
        "--allow-download"
    )
    lines = "'FROM ./MODEL.gguf' 'PARAMETER num_ctx 16384'"
    assert written == rf"printf '%s\n' {lines} > Modelfile"


@pytest.mark.parametrize(
    ("method", "parameters"),
    [
        ("ntk_mixed", {}),
        ("yarn", {"truncate": False}),
        ("yarn", {"attention_factor": 1.3}),
        ("llama3", {}),
    ],
)
def test_what_no_flag_says_is_exported_first(method: str, parameters: dict[str, Any]) -> None:
    row = rows("llama-2-7b", "16k", method, **parameters)["llama.cpp"]
    assert row.fit == "exact"
    assert row.reason.startswith("export it first: llama.cpp's flags can express")
    assert row.lines[0].startswith("ropewalk export ")
    assert row.lines[1] == "llama-server -m MODEL.gguf -c 16384"


@pytest.mark.parametrize(
    ("model", "method", "runtime", "reason"),
    [
        (
            "command-r",
            "yarn",
            "ollama",
            "'cohere': the export to GGUF supports apertus, gemma3_text",
        ),
        ("olmo-2-7b", "ntk_mixed", "llama.cpp", "ignores factors by pair"),
        ("mixtral-8x7b", "yarn", "sglang", "does not pass the scaling on"),
        ("mistral-7b-v0.1", "ntk_mixed", "llama.cpp", "sliding_window = 4096"),
        ("deepseek-v2-lite", "linear", "vllm", "fails on rope type 'linear'"),
    ],
)
def test_what_cannot_be_has_its_reason_and_no_lines(
    model: str, method: str, runtime: str, reason: str
) -> None:
    found = rw.plan(model, "256k", method, from_original=True).serving
    row = next(row for row in found if row.runtime == runtime)
    assert (row.fit, row.lines) == ("impossible", ())
    assert reason in row.reason


def test_a_base_reaches_the_classes_that_lose_a_scaling() -> None:
    assert rows("mixtral-8x7b", "64k", "ntk")["sglang"].fit == "exact"


def test_a_window_in_every_layer_is_said_for_every_runtime() -> None:
    rows = rw.plan("mistral-7b-v0.1", "32k", "yarn", notice=lambda _: None).serving
    assert all("was trained to see the last 4096 positions only" in row.reason for row in rows)
    assert "sliding_window" not in str(rw.plan("mistral-7b-v0.3", "64k", "yarn").serving)


def test_an_approximation_names_what_is_approximated() -> None:
    found = {row.runtime: row for row in rw.plan(LLAMA2, "16k", "dynamic_ntk").serving}
    assert {row.fit for row in found.values()} == {"approximate"}
    assert "the longest schedule at every length" in found["vllm"].reason
    assert found["ollama"].lines[0].endswith("--approximate")
    log_n = {row.runtime: row for row in rw.plan(LLAMA2, "16k", "yarn", log_n="beyond").serving}
    assert log_n["transformers"].reason.startswith("log-n: its mean over the target")


def test_a_plan_that_leaves_a_scaling_alone_is_served_by_an_unmodified_file() -> None:
    *_, llama, ollama = rw.plan(PUBLISHED / "qwen3-8b-yarn.json", "128k").serving
    assert (llama.fit, ollama.fit) == ("exact", "exact")
    override = "--override-kv qwen3.context_length=int:131072"
    assert llama.lines == (f"llama-server -m MODEL.gguf -c 131072 {override}",)
    assert "convert it from a config with max_position_embeddings = 131072" in ollama.reason
    assert "num_ctx 131072" in ollama.lines[0]


def test_a_file_of_a_class_that_was_not_examined_is_unknown() -> None:
    for row in rw.plan(PUBLISHED / "gemma-4-e4b.json", "128k").serving[3:]:
        assert row.fit == "unknown"
        assert "'gemma4_text' was not examined" in row.reason
        assert row.lines


def test_a_tokenizer_that_states_less_limits_no_engine(tmp_path: Path) -> None:
    """vLLM reads its model_max_length for models that pool over absolute positions, no other."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_bytes(LLAMA2.read_bytes())
    write_atomically(folder / "tokenizer_config.json", '{"model_max_length": 4096}')
    found = rows(folder, "16k", "yarn")
    for engine, flag in FLAGS.items():
        (line,) = found[engine].lines
        assert json.loads(option(line, flag))["max_position_embeddings"] == 16384
    assert rows(folder, "4k", "linear")["vllm"].lines == (
        f"vllm serve {folder} --max-model-len 4096",
    )


@pytest.mark.parametrize("part", ["text_config", "llm_config", "language_config"])
def test_the_changes_of_a_wrapped_model_stand_inside_its_part(part: str) -> None:
    """vLLM replaces a dict as a whole; some models of SGLang read copies next to the part."""
    inner = {**load_config(GOLDEN / "smollm3-3b.json"), "rope_theta": 2e6}
    config = {"model_type": "llava", part: inner}
    found = rows(config, "256k", "yarn")
    assert f"{part} in config.json" in found["transformers"].reason
    for engine, flag in FLAGS.items():
        overrides = json.loads(option(found[engine].lines[0], flag))
        beside = overrides[part] if engine == "sglang" else {}
        assert overrides == {part: overrides[part], **beside}
        assert overrides[part]["rope_parameters"]["rope_theta"] == 2e6
        assert overrides[part]["rope_parameters"]["factor"] == 4.0
        assert overrides[part]["max_position_embeddings"] == 2**18


@pytest.mark.parametrize(
    ("model_type", "architecture"),
    [("qwen3_5_text", "qwen35"), ("qwen3_5_moe_text", "qwen35moe"), ("qwen3_next", "qwen3next")],
)
def test_a_config_and_its_gguf_file_get_the_same_flags(
    model_type: str, architecture: str, tmp_path: Path
) -> None:
    config = {**load_config(PUBLISHED / "qwen3.5-9b.json"), "model_type": model_type}
    by_config = rows(config, "1m", "yarn")["llama.cpp"]
    keys = {
        "context_length": 262144,
        "attention.key_length": 256,
        "rope.dimension_count": 64,
        "rope.freq_base": 1e7,
    }
    path = header_only(
        tmp_path / "MODEL.gguf",
        architecture=architecture,
        keys=keys,
        drop=["rope.scaling.original_context_length"],
    )
    by_file = rows(path, "1m", "yarn")["llama.cpp"]
    for method in ("yarn", "linear", "ntk"):
        one, other = rows(config, "1m", method)["ollama"], rows(path, "1m", method)["ollama"]
        assert (one.fit, one.lines[1:]) == (other.fit, other.lines[1:])
        assert one.lines[0] == other.lines[0].replace(str(path), "MODEL.gguf")
    assert by_config.fit == by_file.fit == "exact"
    (line,) = by_file.lines
    assert by_config.lines == (line.replace(str(path), "MODEL.gguf"),)
    # The override for builds before #28030, and what newer ones compute: the same length.
    assert f"{architecture}.context_length=int:1048576" in line
    assert "--rope-scale 4.0 --yarn-orig-ctx 262144" in line


def test_a_model_with_a_drafter_is_best_served_from_a_folder(tmp_path: Path) -> None:
    """--hf-overrides change neither the length nor, in some classes, the rotation of MTP layers."""
    config = load_config(LLAMA2)
    nextn, mtp = "num_nextn_predict_layers", "mtp_num_hidden_layers"
    for own, layers in (({}, 0), ({nextn: 1}, 1), ({nextn: 0}, 0), ({mtp: 2}, 2), ({mtp: True}, 0)):
        row = rows({**config, **own}, "16k", "yarn")["vllm"]
        assert (f"its {layers} MTP layers" in row.reason) == bool(layers)
        assert len(row.lines) == (3 if layers else 1)
        for length, told in ((16384, bool(layers)), (4096, False)):
            found = verified(tmp_path, {**config, **own}, "vllm", length=length)
            assert ("drafter-unscaled" in traps(found.warnings)) == told
    turned = load_config(PUBLISHED / "qwen3-next-80b.json") | {mtp: 1}
    assert len(rows(turned, "1m", "yarn")["vllm"].lines) == 1


def test_the_stated_length_agrees_with_the_factor(tmp_path: Path) -> None:
    """exllamav3 takes their ratio for the factor, and ignores the factor."""
    config = load_config(LLAMA2)
    cases = (("yarn", 4.0, 16384), ("yarn", 8.0, 32768), ("linear", 4.0, 4096))
    for method, factor, stated in cases:
        plan = rw.plan(config, "16k", method, parameters={"factor": factor}).plan
        written = engines()["vllm"].written_config(config, plan)
        assert written["max_position_embeddings"] == stated
        own = replace(plan, provenance={**plan.provenance, "recipe": "a vendor's"})
        assert engines()["vllm"].written_config(config, own)["max_position_embeddings"] <= 16384
        for length, noted in ((stated, False), (stated // 2, method == "yarn")):
            changed = {**written, "max_position_embeddings": length}
            found = verified(tmp_path, changed, "vllm")
            assert ("factor-recomputed" in traps(found.warnings)) == noted


def test_a_gguf_file_is_served_with_flags_or_as_it_is(tmp_path: Path) -> None:
    path = header_only(tmp_path / "a model.gguf", keys={"context_length": 512})
    found = rows(path, "1k", "linear")
    # A Modelfile has no setting of RoPE, so Ollama is given an exported file.
    export = f"ropewalk export '{path}' --plan plan.json --runtime llama.cpp -o extended.gguf"
    assert found["ollama"].lines[0] == export
    assert "FROM ./extended.gguf" in found["ollama"].lines[1]
    assert found["llama.cpp"].lines == (
        f"llama-server -m '{path}' -c 1024 --override-kv llama.context_length=int:1024 "
        "--rope-scaling linear --rope-scale 2.0",
    )
    by_factors = rows(path, "1k", "ntk_mixed")["llama.cpp"]
    assert (by_factors.fit, by_factors.lines[0]) == ("exact", export)
    other = header_only(tmp_path / "q.gguf", architecture="qwen2", keys={"context_length": 512})
    for runtime in ("llama.cpp", "ollama"):
        without = rows(other, "1k", "ntk_mixed")[runtime]
        assert without.fit == "approximate"
        assert without.lines[0].endswith("-o extended.gguf --approximate")
        assert "architecture qwen2: llama.cpp refuses a file with factors by pair" in without.reason
        assert "the nearest that it can express (rope." in without.reason
    still = header_only(tmp_path / "m.gguf", architecture="kolibri", keys={"context_length": 512})
    assert rows(still, "1k", "ntk_mixed")["llama.cpp"].fit == "impossible"
    assert rows(still, "1k", "linear")["ollama"].fit == "impossible"
    # In its layers with a window, this architecture follows the file alone.
    keys = {"context_length": 512, "attention.sliding_window": 64}
    windows = header_only(tmp_path / "w.gguf", architecture="gemma2", keys=keys)
    by_file = rows(windows, "1k", "linear")["llama.cpp"]
    assert by_file.fit == "exact"
    assert by_file.lines[0].startswith("ropewalk export ")
    assert "flags do not change its layers with a sliding window" in by_file.reason
    same = rows(path, "512", "linear")
    assert same["llama.cpp"].lines == (f"llama-server -m '{path}' -c 512",)
    assert f"FROM {path}" in same["ollama"].lines[0]


@pytest.mark.parametrize("name", ["50%s.gguf", "it's $(id) here.gguf", r"a\nb.gguf"])
def test_a_shell_makes_of_the_lines_what_they_say(name: str, tmp_path: Path) -> None:
    line, _ = modelfile(str(tmp_path / name), 2048)
    subprocess.run(["sh", "-c", line], cwd=tmp_path, check=True)
    written = (tmp_path / "Modelfile").read_text()
    assert written == f"FROM {tmp_path / name}\nPARAMETER num_ctx 2048\n"


PARAMETERS = {
    "--rope-freq-base": "rope_freq_base = float({})",
    "--rope-scale": "rope_freq_scale = 1 / {}",
    "--rope-scaling": (
        "rope_scaling_type = xllamacpp.llama_rope_scaling_type['LLAMA_ROPE_SCALING_TYPE_' + '{}']"
    ),
    "--yarn-orig-ctx": "yarn_orig_ctx = {}",
    "--yarn-beta-fast": "yarn_beta_fast = {}",
    "--yarn-beta-slow": "yarn_beta_slow = {}",
}
"""llama-server's flags as settings of the binding. --override-kv has none: the file states it."""


@pytest.mark.parametrize(
    ("method", "parameters"),
    [("ntk", {}), ("linear", {}), ("yarn", {}), ("yarn", {"beta_fast": 16.0, "beta_slow": 2.0})],
)
def test_llama_cpp_follows_the_plan_by_these_flags_on_an_unmodified_file(
    method: str, parameters: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = rw.plan(BUNDLED, "4k", method, parameters=parameters)
    (line,) = next(row for row in planned.serving if row.runtime == "llama.cpp").lines
    words = shlex.split(line)
    assert words[5:7] == ["--override-kv", "llama.context_length=int:4096"]
    flags = dict(zip(words[7::2], words[8::2], strict=True))
    settings = [PARAMETERS[flag].format(value.upper()) for flag, value in flags.items()]
    script = Path(llama_cpp_run._SERVER).read_text(encoding="utf-8")
    own = '    params.fit_params = flags.pop("fit") == "on"\n'
    assert own in script
    server = tmp_path / "server.py"
    server.write_text(
        script.replace(own, own + "".join(f"    params.{setting}\n" for setting in settings)),
        encoding="utf-8",
    )
    monkeypatch.setattr(llama_cpp_run, "_SERVER", server)
    file = tmp_path / "plain.gguf"  # it states 4k, and turns as pretrained
    unproven(llama_cpp.export)(BUNDLED, named_plan("plain"), file)
    loaded = load(BUNDLED, dtype="float32", device="cpu")
    tokens = np.random.default_rng(8).integers(len(loaded.tokenizer), size=600)
    with llama_cpp_run.running(file, length=601) as llama:
        said = llama.log_probabilities(tokens.tolist(), start=560)
    allowed = llama_cpp.tolerance("F32", len(tokens))
    assert llama_cpp.beside(loaded.model, planned.plan, tokens, said, allowed).passed
    assert not llama_cpp.beside(loaded.model, named_plan("plain"), tokens, said, allowed).passed


def merged(config: Config, overrides: Config) -> Config:
    """The top level after SGLang's `get_config`: a setting is put over the one that is there."""
    keys = ("rope_scaling", "rope_parameters")
    there: Config = next((config[key] for key in keys if config.get(key)), {})
    rest = {key: value for key, value in config.items() if key not in keys}
    new = {k: {**there, **v} if k in keys and v else v for k, v in overrides.items()}
    return {**rest, **({} if set(keys) & set(new) else {"rope_parameters": there}), **new}


HUNYUAN = {
    **load_config(PUBLISHED / "hunyuan-7b.json"),
    "model_type": "hunyuan_v1_moe",
    "architectures": ["HunYuanMoEV1ForCausalLM"],
    "rope_scaling": {
        "type": "dynamic",
        "alpha": 1000.0,
        "factor": 1.0,
        "beta_fast": 32,
        "beta_slow": 1,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
    },
}
OLMO3 = {
    **small("olmo3", num_hidden_layers=4, max_position_embeddings=8192, rope_theta=500000.0),
    "num_attention_heads": 4,
    "vocab_size": 100,
    "architectures": ["Olmo3ForCausalLM"],
    "sliding_window": 4096,
    "layer_types": [*["sliding_attention"] * 3, "full_attention"],
}
BY_YARN = {"rope_type": "yarn", "factor": 2.0, ORIGINAL_LENGTH: 4096, "attention_factor": 1.2}


@pytest.mark.parametrize("method", ["linear", "ntk", "yarn", "llama3", "ntk_mixed"])
@pytest.mark.parametrize(
    "config",
    [
        HUNYUAN,  # with mscale and mscale_all_dim, which would keep YaRN's attention factor at 1
        OLMO3,  # of which SGLang keeps the keys of transformers 4 only
        {**OLMO3, "rope_scaling": BY_YARN},
        load_config(PUBLISHED / "qwen3-next-80b.json"),
        load_config(PUBLISHED / "qwen3-8b-yarn.json"),
        load_config(PUBLISHED / "llama2-7b-32k.json"),
    ],
    ids=["hunyuan", "olmo3", "olmo3-yarn", "qwen3-next", "qwen3-yarn", "llama2-linear"],
)
def test_sglang_puts_a_setting_over_the_one_that_is_there(config: Config, method: str) -> None:
    length = 16 * present_plan(config).target_length
    plan = rw.plan(config, length, method, from_original=method == "yarn")
    row = {row.runtime: row for row in plan.serving}["sglang"]
    if config["model_type"] == "olmo3" and method == "ntk" and "rope_scaling" not in config:
        assert row.fit == "impossible"
        assert "one base for layers with a window" in row.reason
        return
    overrides = json.loads(option(row.lines[0], FLAGS["sglang"]))
    seen = merged(config, overrides)
    assert (named("sglang").accepts(seen) or 0) >= length
    reading = named("sglang").read(seen)
    assert (reading.refused, reading.unread) == (None, None)
    for layer_type, steps in plan.plan.schedules.items():
        got = reading.layers[layer_type][-1]
        wanted = steps[-1].schedule
        assert got.inverse_frequencies == pytest.approx(wanted.inverse_frequencies, rel=1e-12)
        assert got.attention_scaling == pytest.approx(wanted.attention_scaling, rel=1e-12)


def test_a_part_of_a_part_is_served_from_an_export_in_sglang() -> None:
    """It would replace the inner part by a dict, and fail."""
    inner = {**load_config(GOLDEN / "smollm3-3b.json"), "model_type": "qwen3"}
    outer = {"model_type": "llava", "thinker_config": {"model_type": "t", "text_config": inner}}
    found = rows(outer, "256k", "yarn")
    assert "reaches no part of a part" in found["sglang"].reason
    assert found["sglang"].lines[0].startswith("ropewalk export ")
    assert "thinker_config" in option(found["vllm"].lines[0], FLAGS["vllm"])


def test_keys_that_a_class_moves_are_changed_where_they_go() -> None:
    """Qwen2.5-VL publishes a flat config, and its class keeps the keys in text_config."""
    found = rows(load_config(PUBLISHED / "qwen2.5-vl-7b.json"), "256k", "ntk")
    for engine, flag in FLAGS.items():
        overrides = json.loads(option(found[engine].lines[0], flag))
        assert overrides["text_config"]["max_position_embeddings"] == 2**18
        assert ("rope_parameters" in overrides) == (engine == "sglang")


def test_what_a_cpu_loses_is_said_where_sglang_is_named() -> None:
    found = rows(GOLDEN / "gemma-3-4b.json", "512k", "linear")
    assert "on a CPU with AMX" in found["sglang"].reason
    assert "AMX" not in found["vllm"].reason
