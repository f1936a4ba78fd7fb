"""What a GGUF file says, what llama.cpp makes of it, and what is wrong with it."""

from __future__ import annotations

import struct
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from ropewalk.audit.examination import audit
from ropewalk.context_plan import FULL_ATTENTION, ContextPlan
from ropewalk.errors import InputError, Unsupported
from ropewalk.exporting import llama_cpp
from ropewalk.gguf import llama_cpp_run
from ropewalk.gguf.header import FREQUENCIES, LONG, SHORT, read_header
from ropewalk.gguf.rotation import assumptions, geometry_of
from ropewalk.gguf.weights import model_of
from ropewalk.models.config import BUNDLED_FOLDER, present_plan
from ropewalk.models.install import applied
from ropewalk.models.load import load
from ropewalk.planning.extension import extend
from ropewalk.runtimes import every
from ropewalk.runtimes.trials.llama_cpp import compared, without_settings
from ropewalk.schedule import LogN, RotarySchedule
from tests.examples import examples
from tests.gguf import tiny_architectures
from tests.gguf.gguf_cases import plan_of, start_of, tiny_folder, unproven
from tests.gguf.gguf_files import PAIRS, header_only, rewritten

TARGET = 4096
FACTORS = np.geomspace(1, 8, PAIRS).astype(np.float32)


def plain(path: Path) -> RotarySchedule:
    return RotarySchedule.plain(geometry_of(read_header(header_only(path))))


def searched(path: Path, scaling: float = 1.05) -> ContextPlan:
    schedule = replace(
        plain(path),
        rescale_factors=FACTORS.astype(np.float64),
        length=TARGET,
        attention_scaling=scaling,
    )
    return plan_of(schedule)


WHOLE: dict[str, Any] = {
    "keys": {"rope.scaling.attn_factor": 1.05},
    "tensors": {FREQUENCIES: FACTORS},
}


def named(path: Path, plan: ContextPlan | None = None, length: int | None = None) -> set[str]:
    return {finding.trap for finding in audit(path, plan=plan, length=length, run=False).warnings}


def test_the_header_is_what_the_gguf_package_reads(tmp_path: Path) -> None:
    path = header_only(tmp_path / "a.gguf", **WHOLE)
    header, known = read_header(path), gguf.GGUFReader(path)
    for name, value in header.values.items():
        assert known.fields[name].contents() == pytest.approx(value)
    assert set(header.tensors) == {tensor.name for tensor in known.tensors}
    for tensor in known.tensors:
        assert header.tensors[tensor.name].start == tensor.data_offset
        assert np.array_equal(header.floats(tensor.name), tensor.data)
    start, form = header.places["llama.rope.scaling.attn_factor"]
    (stored,) = struct.unpack_from(form, path.read_bytes(), start)
    assert stored == header.values["llama.rope.scaling.attn_factor"]


@given(data=st.data())
@examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_file_is_refused_or_read_and_never_more(
    data: st.DataObject, tmp_path: Path
) -> None:
    content = bytearray(header_only(tmp_path / "a.gguf", **WHOLE).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(4, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(content[: data.draw(st.integers(5, len(content)))])
    with suppress(InputError):  # one line for the user; anything else is a failure
        audit(cut, run=False)


@pytest.mark.parametrize("count", [2**63, 2**40])
def test_a_count_beyond_the_file_is_refused_at_once(count: int, tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    array = struct.pack("<Q", 1) + b"x" + struct.pack("<IIQ", 9, 8, count)
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + array)
    with pytest.raises(InputError, match="not a whole GGUF file"):
        read_header(path)


def test_a_clean_file_passes_without_a_word(tmp_path: Path) -> None:
    path = header_only(tmp_path / "a.gguf", **WHOLE)
    assert named(path) == set()
    assert named(path, searched(tmp_path / "b.gguf")) == set()


@pytest.mark.parametrize(("scale", "lost"), [(None, True), (0.1, False), (0.2, True)])
def test_a_growth_of_queries_that_the_file_lacks_is_named(
    scale: float | None, lost: bool, tmp_path: Path
) -> None:
    """llama.cpp reads no such key as no growth: measured on a tiny mistral3."""
    keys: dict[str, Any] = {"rope.scaling.original_context_length": 512}
    keys |= {} if scale is None else {"attention.temperature_scale": scale}
    path = header_only(tmp_path / "a.gguf", architecture="mistral3", keys=keys)
    start = plain(tmp_path / "plain.gguf")
    plan = plan_of(replace(start, log_n=LogN("steps", 512, 0.1)), start.length)
    assert named(path, plan) == ({"position-scaling-lost"} if lost else set())


@pytest.mark.parametrize("method", ["linear", "yarn", "ntk"])
def test_the_reading_of_native_types_is_their_schedule(method: str, tmp_path: Path) -> None:
    start = plain(tmp_path / "plain.gguf")
    schedule = extend(start, TARGET, method)
    keys: dict[str, Any] = {"rope.scaling.type": method, "rope.scaling.factor": 8.0}
    if method == "ntk":
        assert schedule.geometric_base is not None
        keys = {"rope.freq_base": schedule.geometric_base}
    path = header_only(tmp_path / "a.gguf", keys=keys)
    found = every()["llama.cpp"].read_file(read_header(path)).at(TARGET, FULL_ATTENTION)
    assert found is not None
    np.testing.assert_allclose(found.inverse_frequencies, schedule.inverse_frequencies, rtol=1e-6)
    assert found.attention_scaling == pytest.approx(schedule.attention_scaling)
    assert named(path, plan_of(schedule)) == set()


@pytest.mark.parametrize(
    ("trap", "change"),
    [
        ("factors-dropped", {"tensors": {}}),
        ("attention-factor-dropped", {"keys": {}}),
        ("attention-factor-dropped", {"architecture": "llama4"}),
        ("theta-missing", {"drop": ["rope.freq_base"]}),
        ("theta-lost", {"keys": {**WHOLE["keys"], "rope.freq_base": 10_000.0}}),
        ("factors-ignored", {"architecture": "qwen2"}),
        ("factors-ignored", {"tensors": {LONG: FACTORS, SHORT: FACTORS}}),
        ("factors-ignored", {"keys": {**WHOLE["keys"], "rope.scaling.type": "longrope"}}),
        ("factor-count", {"tensors": {FREQUENCIES: FACTORS[:-1]}}),
        ("length-limit", {"keys": {**WHOLE["keys"], "context_length": 512}}),
    ],
)
def test_a_broken_file_is_named_beside_its_plan(
    trap: str, change: dict[str, Any], tmp_path: Path
) -> None:
    path = header_only(tmp_path / "a.gguf", **{**WHOLE, **change})
    assert trap in named(path, searched(tmp_path / "b.gguf"))


def test_factors_that_are_not_above_zero_are_named_whatever_the_plan(tmp_path: Path) -> None:
    path = header_only(tmp_path / "a.gguf", tensors={FREQUENCIES: -np.ones_like(FACTORS)})
    assert "frequencies-differ" in named(path)


@pytest.mark.parametrize(
    ("architecture", "key"),
    [
        ("hunyuan-dense", "rope.scaling.alpha"),
        ("deepseek2", "rope.scaling.yarn_log_multiplier"),
        ("gemma2", "rope.freq_base_swa"),
        ("gemma2", "rope.scaling.factor"),  # of the type none, and yet its windows follow it
    ],
)
def test_a_key_that_no_plan_expresses_leaves_the_rotation_open(
    architecture: str, key: str, tmp_path: Path
) -> None:
    keys: dict[str, Any] = {key: 4.0, "rope.scaling.type": "none"}
    path = header_only(tmp_path / "a.gguf", architecture=architecture, keys=keys)
    assert f"llama.cpp: what {key} = 4 does" in audit(path, run=False).summary()
    assert f"what {key} = 4 does" in assumptions(read_header(path))[-1]


def test_the_remedy_for_a_short_file_is_a_key_that_it_has(tmp_path: Path) -> None:
    path = header_only(tmp_path / "a.gguf", keys={**WHOLE["keys"], "context_length": 512})
    found = audit(path, plan=searched(tmp_path / "b.gguf"), run=False)
    (limit,) = [finding for finding in found.warnings if finding.trap == "length-limit"]
    assert limit.remedy.startswith(f"raise context_length to {TARGET}")


def test_yarn_multiplies_its_attention_factor_by_that_of_the_file(tmp_path: Path) -> None:
    schedule = extend(plain(tmp_path / "plain.gguf"), TARGET, "yarn")
    keys: dict[str, Any] = {"rope.scaling.type": "yarn", "rope.scaling.factor": 8.0}
    assert named(header_only(tmp_path / "a.gguf", keys=keys), plan_of(schedule)) == set()
    keys["rope.scaling.attn_factor"] = schedule.attention_scaling
    twice = header_only(tmp_path / "b.gguf", keys=keys)
    assert named(twice) == {"attention-factor-squared"}
    squared = replace(schedule, attention_scaling=schedule.attention_scaling**2)
    found = every()["llama.cpp"].read_file(read_header(twice)).at(TARGET, FULL_ATTENTION)
    assert found is not None
    assert found.attention_scaling == pytest.approx(squared.attention_scaling)


def test_two_lists_are_chosen_by_the_declared_length(tmp_path: Path) -> None:
    lists = {LONG: FACTORS, SHORT: np.ones(PAIRS, dtype=np.float32)}
    keys = {"rope.scaling.type": "longrope"}
    path = header_only(tmp_path / "a.gguf", tensors=lists, keys=keys)
    assert every()["llama.cpp"].read_file(read_header(path)).switches == "by the declared length"
    found = audit(path, run=False)
    assert [finding.trap for finding in found.warnings] == ["short-text-taxed"]
    assert not found.wrong
    del lists[SHORT]
    assert named(header_only(tmp_path / "b.gguf", tensors=lists)) >= {"factors-dropped"}


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled model under any λ and an attention scaling, for the real llama.cpp."""
    pytest.importorskip("xllamacpp")
    start = present_plan(BUNDLED_FOLDER).longest()
    schedule = replace(extend(start, TARGET, "ntk_mixed"), attention_scaling=1.05)
    out = tmp_path_factory.mktemp("gguf") / "model.gguf"
    unproven(llama_cpp.export)("bundled", plan_of(schedule), out)
    return out


def test_every_setting_of_our_export_takes_effect_in_llama_cpp(exported: Path) -> None:
    assert list(without_settings(read_header(exported))) == []


def test_the_rules_of_yarn_are_those_of_llama_cpp(exported: Path, tmp_path: Path) -> None:
    """Its attention factor, times the file's: seen in log-probabilities beyond the window."""
    factor = 1.05
    keys = {"rope.scaling.type": "yarn", "rope.scaling.factor": 8.0}
    path = rewritten(
        exported,
        tmp_path / "yarn.gguf",
        {**keys, "rope.scaling.attn_factor": factor},
        drop=[FREQUENCIES],
    )
    schedule = extend(present_plan(BUNDLED_FOLDER).longest(), TARGET, "yarn")
    scaling = schedule.attention_scaling * factor
    tokens = np.random.default_rng(8).integers(200, size=640)
    said = llama_cpp_run.log_probabilities(path, tokens.tolist(), start=600, top=8)
    loaded = load("bundled", dtype="float32", device="cpu")
    plan = plan_of(replace(schedule, attention_scaling=scaling))
    with torch.inference_mode(), applied(loaded.model, plan):
        logits = loaded.model(torch.from_numpy(tokens)[None]).logits[0, 600:]
    planned = logits.double().log_softmax(-1).gather(1, torch.from_numpy(said.tokens[:40]))
    np.testing.assert_allclose(said.values[:40], planned.numpy(), atol=1e-3)


@pytest.mark.parametrize(
    ("family", "dtype"),
    [
        ("llama", "F32"),
        ("qwen2", "Q8_0"),
        pytest.param("llama", "Q8_0", marks=pytest.mark.slow),
        pytest.param("qwen2", "F32", marks=pytest.mark.slow),
    ],
)
def test_a_file_is_compared_with_its_own_weights(family: str, dtype: str, tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    folder = tiny_folder(tmp_path / "model", family)
    schedule = extend(start_of(folder), 64, "ntk_mixed")
    plan = plan_of(schedule, 64)
    out = tmp_path / "model.gguf"
    unproven(llama_cpp.export)(str(folder), plan, out, dtype=dtype)
    header = read_header(out)
    assert header.architecture == "llama"
    assert compared(header, schedule).passed
    found = audit(out, plan=plan)
    assert found.agreement is not None
    assert found.agreement.passed
    assert found.warnings == ()
    if dtype == "F32":
        assert not compared(header, replace(schedule, attention_scaling=1.2)).passed


@pytest.mark.parametrize("dead", ["q_proj", pytest.param("k_proj", marks=pytest.mark.slow)])
def test_a_file_with_a_layer_that_attends_by_nothing_is_compared_too(
    dead: str, tmp_path: Path
) -> None:
    pytest.importorskip("xllamacpp")
    folder = tiny_folder(tmp_path / "model")
    name = f"model.layers.0.self_attn.{dead}.weight"
    weights = load_file(folder / "model.safetensors")
    weights[name].zero_()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    plan = plan_of(extend(start_of(folder), 64, "yarn"), 64)
    out = tmp_path / "model.gguf"
    unproven(llama_cpp.export)(str(folder), plan, out)
    agreement = audit(out, plan=plan).agreement
    assert agreement is not None
    assert agreement.passed


def test_an_architecture_that_cannot_be_built_again_is_said(tmp_path: Path) -> None:
    header = read_header(header_only(tmp_path / "a.gguf", architecture="gemma", **WHOLE))
    with pytest.raises(Unsupported, match="architecture 'gemma'"):
        model_of(header)
    header = read_header(header_only(tmp_path / "b.gguf", tensors={"blk.0.odd.weight": FACTORS}))
    with pytest.raises(Unsupported, match=r"blk\.0\.odd\.weight"):
        model_of(header)
    header = read_header(tiny_architectures.made(tmp_path / "c.gguf", "qwen2"))
    with pytest.raises(InputError, match="do not belong to a model"):
        model_of(replace(header, values={**header.values, "qwen2.attention.head_count": 2**32 - 1}))


def test_a_factor_without_effect_is_seen(exported: Path, tmp_path: Path) -> None:
    keys = {"rope.scaling.type": "none", "rope.scaling.factor": 8.0}
    (found,) = without_settings(read_header(rewritten(exported, tmp_path / "none.gguf", keys)))
    assert found.trap == "no-effect"
    assert found.what.startswith("rope.scaling.factor changes nothing")


def test_a_file_that_llama_cpp_refuses(exported: Path, tmp_path: Path) -> None:
    path = tmp_path / "cut.gguf"
    path.write_bytes(exported.read_bytes()[:-4096])
    (found,) = without_settings(read_header(path))
    assert found.trap == "refused"


@pytest.mark.parametrize(
    ("keys", "wrong"),
    [({}, True), ({"pooling_type": 1}, False), ({"attention.causal": True}, None)],
)
def test_a_file_that_sees_later_tokens_writes_no_text(
    keys: dict[str, Any], wrong: bool | None, tmp_path: Path
) -> None:
    path = header_only(tmp_path / "a.gguf", keys={"attention.causal": False, **keys})
    found = [f for f in audit(path, run=False).warnings if f.trap == "not-causal"]
    assert [finding.wrong for finding in found] == ([] if wrong is None else [wrong])
