"""Exported to GGUF, a model does in the real llama.cpp what the planned one does."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFReader

import ropewalk as rw
from ropewalk.audit.examination import audit
from ropewalk.context_plan import FULL_ATTENTION, ContextPlan, PlanStep
from ropewalk.data.corpora import Document
from ropewalk.errors import GateFailed, InputError, InvalidValue, UnknownName, Unsupported
from ropewalk.evaluation import tasks
from ropewalk.evaluation.encoding import Encoder
from ropewalk.evaluation.haystack import Haystack
from ropewalk.evaluation.samples import generate
from ropewalk.exporting import llama_cpp
from ropewalk.exporting.exported import NotTheSame
from ropewalk.exporting.llama_cpp import BEYOND, MOST_TOKENS, TOLERANCES, export
from ropewalk.gguf import families, llama_cpp_run, provenance
from ropewalk.gguf import model as gguf_model
from ropewalk.gguf.architectures import Architecture, architecture
from ropewalk.gguf.settings import GGUFSetting, setting_in
from ropewalk.models.config import BUNDLED, BUNDLED_FOLDER, present_plan
from ropewalk.models.load import LoadedModel, load, load_tokenizer
from ropewalk.models.placement import GGUF_TYPES
from ropewalk.progress import Status
from ropewalk.schedule import RotaryGeometry, RotarySchedule
from tests.exporting.folders import proven
from tests.gguf.gguf_cases import (
    FOUND,
    SCHEDULES,
    edit_json,
    named_plan,
    plan_of,
    searched,
    start_of,
    tiny_folder,
    unproven,
)

QUICK = 40
"""Positions beyond the window where a test is about something else than lengths."""


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llama_cpp, "BEYOND", QUICK)


@pytest.fixture(scope="module")
def bundled() -> LoadedModel:
    return load(BUNDLED, dtype="float32", device="cpu")


def fields(path: Path) -> dict[str, Any]:
    return {name: field.contents() for name, field in GGUFReader(path).fields.items()}


def tensors(path: Path) -> dict[str, Any]:
    return {tensor.name: tensor for tensor in GGUFReader(path).tensors}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in ("searched", "yarn") else pytest.mark.slow)
        for name in SCHEDULES
    ],
)
def test_the_bundled_model_computes_the_plan_far_beyond_its_window(
    name: str, tmp_path: Path
) -> None:
    made = export(BUNDLED, named_plan(name), tmp_path / "model.gguf")
    assert f"PARAMETER num_ctx {named_plan(name).target_length}" in made.elsewhere[0]
    agreement = proven(made)
    assert agreement.passed
    assert agreement.tolerance == TOLERANCES["F32"] == 1e-3
    assert agreement.tokens > BEYOND == 500
    assert agreement.runtime.startswith("llama.cpp (xllamacpp 20")


@pytest.mark.parametrize("dtype", ["F16", pytest.param("BF16", marks=pytest.mark.slow), "Q8_0"])
def test_rounded_types_are_within_what_their_rounding_costs(dtype: str, tmp_path: Path) -> None:
    out = tmp_path / "model.gguf"
    agreement = proven(export(BUNDLED, named_plan("searched"), out, dtype=dtype))
    assert TOLERANCES["F32"] < agreement.max_difference <= agreement.tolerance == TOLERANCES[dtype]
    kinds = {tensor.tensor_type.name for tensor in tensors(out).values()}
    assert kinds == {"F32", dtype}
    assert tensors(out)["rope_freqs.weight"].tensor_type.name == "F32"


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("llama", {"tie_word_embeddings": True}),
        ("llama", {"attention_bias": True, "mlp_bias": True}),
        ("llama", {"num_key_value_heads": 1, "head_dim": 32}),
        ("mistral", {"sliding_window": None}),
        ("qwen2", {}),
        ("qwen2", {"tie_word_embeddings": True}),
    ],
    ids=lambda value: str(value),
)
@pytest.mark.parametrize("name", ["linear", "ntk", "searched"])
@pytest.mark.usefixtures("quick")
def test_every_family_computes_every_kind_of_plan(
    family: str, changes: dict[str, Any], name: str, tmp_path: Path
) -> None:
    folder = tiny_folder(tmp_path / "model", family, **changes)
    schedule = replace(SCHEDULES[name](start_of(folder)), attention_scaling=1.1)
    exported = export(folder, plan_of(schedule), tmp_path / "model.gguf")
    assert proven(exported).passed
    architecture = "qwen2" if family == "qwen2" and name != "searched" else "llama"
    assert fields(tmp_path / "model.gguf")["general.architecture"] == architecture
    renamed = any("saved as architecture llama" in warning for warning in exported.warnings)
    assert renamed is (family == "qwen2" and architecture == "llama")


@pytest.mark.usefixtures("quick")
def test_shards_make_the_same_file(tmp_path: Path) -> None:
    written = []
    for shards in (False, True):
        folder = tiny_folder(tmp_path / f"shards {shards}", shards=shards)
        assert (folder / "model.safetensors.index.json").exists() is shards
        out = tmp_path / f"{shards}.gguf"
        export(folder, named_plan("searched", folder), out)
        written.append({n: t.data.tobytes() for n, t in tensors(out).items()})
    assert written[0] == written[1]


def test_one_tensor_is_in_memory_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen layers weigh four times as much as four, and take no more memory to write."""
    peaks = []
    for layers in (4, 16):
        folder = tiny_folder(tmp_path / str(layers), num_hidden_layers=layers, hidden_size=128)
        plan = named_plan("searched", folder)
        tracemalloc.start()  # it sees numpy's memory, in which tensors are converted
        unproven(export)(folder, plan, tmp_path / f"{layers}.gguf", dtype="F16")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]


@pytest.mark.parametrize(
    "forgotten",
    [{"attention": 1.0}, {"factors": None}, {"base": 5e5}],
    ids=lambda value: next(iter(value)),
)
@pytest.mark.usefixtures("quick")
def test_what_is_forgotten_is_noticed_and_the_file_is_not_left(
    forgotten: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = setting_in

    def forgetful(own: Architecture, schedule: RotarySchedule, **how: Any) -> GGUFSetting:
        return replace(honest(own, schedule, **how), **forgotten)

    monkeypatch.setattr(families, "setting_in", forgetful)
    for dtype in ("F32", "Q8_0"):
        with pytest.raises(NotTheSame, match=r"in llama\.cpp .* differ") as caught:
            export(BUNDLED, named_plan("searched"), tmp_path / "model.gguf", dtype=dtype)
        assert not proven(caught.value.result).passed
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("quick")
def test_another_tokenization_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ropewalk.gguf.tokenizer._pre_tokenizer", lambda stated: "gpt-2")
    with pytest.raises(GateFailed):
        export(BUNDLED, named_plan("plain"), tmp_path / "model.gguf")
    assert list(tmp_path.iterdir()) == []


def test_without_llama_cpp_nothing_is_claimed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llama_cpp_run, "available", lambda: False)
    exported = export(BUNDLED, named_plan("plain"), tmp_path / "model.gguf")
    assert exported.agreement is None
    assert any(
        "written, and not run: " in warning and "pip install 'ropewalk[gguf]'" in warning
        for warning in exported.warnings
    )


@pytest.mark.parametrize("model", ["a model", "models--org--a model/snapshots/0123456789abcdef"])
def test_the_file_says_what_it_is_and_nothing_of_this_machine(model: str, tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / model)
    edit_json(folder / "tokenizer_config.json", unk_token=load_tokenizer(folder).eos_token)
    out = tmp_path / "out.gguf"
    plan = replace(named_plan("linear", folder), model=str(folder))
    unproven(export)(folder, plan, out)
    found = fields(out)
    assert found["general.name"] == "a model"
    assert found["general.type"] == "model"
    assert found["general.size_label"].endswith(("K", "M"))
    assert found["tokenizer.ggml.unknown_token_id"] == load_tokenizer(folder).eos_token_id
    assert str(tmp_path) not in str(found)
    assert ContextPlan.loads(found[provenance.PLAN], "plan").id == plan.id


def answers_right(path: Path, bundled: LoadedModel, length: int, count: int = 1) -> list[bool]:
    """Which pass keys llama.cpp writes, asked in prompts of a length."""
    passkey, encoder = tasks.named("passkey"), Encoder(bundled.tokenizer)
    unused = Haystack([Document("unused", "the task has a filler of its own")])
    with llama_cpp_run.running(path, length=length) as llama:
        return [
            passkey.score(
                bundled.tokenizer.decode(llama.generate(sample.prompt.tolist(), sample.allowance)),
                sample.references,
            )
            == 1
            for sample in generate(passkey, encoder, unused, length, count, 0)
        ]


@pytest.mark.slow
def test_the_exported_file_alone_finds_the_pass_key_beyond_the_window(
    bundled: LoadedModel, tmp_path: Path
) -> None:
    for name, plan in (("searched", ContextPlan.read(FOUND)), ("plain", named_plan("plain"))):
        unproven(export)(BUNDLED, plan, tmp_path / f"{name}.gguf")
    assert all(answers_right(tmp_path / "searched.gguf", bundled, 1024, 3))
    assert all(answers_right(tmp_path / "searched.gguf", bundled, 2048, 3))
    # It is the plan that does it.
    assert not all(answers_right(tmp_path / "plain.gguf", bundled, 2048, 3))
    assert not any(answers_right(tmp_path / "plain.gguf", bundled, 4096))


# What llama.cpp can say.


def geometry(**changes: Any) -> RotaryGeometry:
    values: dict[str, Any] = {"head_dim": 8, "rotary_dim": 8, "base": 1e4, "original_length": 64}
    return RotaryGeometry(**{**values, "pair_layout": "half", **changes})


def said(schedule: RotarySchedule) -> GGUFSetting:
    return setting_in(architecture("llama"), schedule)


def test_each_shape_is_said_in_the_plainest_way() -> None:
    start = RotarySchedule.plain(geometry())
    assert said(start).base == 1e4
    assert (said(start).linear, said(start).factors) == (1, None)
    doubled = said(start.rescaled(np.full(4, 2.0), 128, attention_scaling=1.5))
    assert (doubled.base, doubled.linear, doubled.factors) == (1e4, 2, None)
    assert doubled.attention == 1.5
    any_factors = np.array([1, 1.5, 4, 2])
    other = said(start.rescaled(any_factors, 128))
    assert (other.base, other.linear) == (1e4, 1)
    assert other.factors is not None
    np.testing.assert_array_equal(other.factors, any_factors)


def test_a_new_base_is_a_new_base() -> None:
    start = RotarySchedule.plain(geometry())
    other = RotarySchedule.plain(geometry(base=5e5))
    found = said(start.rescaled(start.inverse_frequencies / other.inverse_frequencies, 128))
    assert found.base == pytest.approx(5e5)
    assert found.factors is None


def test_a_softmax_scaling_goes_into_cos_and_sin() -> None:
    start = replace(RotarySchedule.plain(geometry()), softmax_scaling=1.44, attention_scaling=1.5)
    assert said(start).attention == pytest.approx(1.8)


def test_a_change_of_factors_with_the_length_is_refused(tmp_path: Path) -> None:
    start = start_of()
    steps = (PlanStep(512, start), PlanStep(4096, searched(start)))
    with pytest.raises(Unsupported, match="steps up to 512, 4096"):
        export(BUNDLED, ContextPlan("two", {FULL_ATTENTION: steps}), tmp_path / "model.gguf")


def test_the_context_as_it_is_is_exported_too(tmp_path: Path) -> None:
    plan = present_plan(BUNDLED_FOLDER)
    made = export(BUNDLED, plan, tmp_path / "model.gguf")
    assert proven(made).passed
    assert proven(made).tokens == plan.target_length - 1


def test_a_plan_of_another_model_is_refused(tmp_path: Path) -> None:
    other = plan_of(RotarySchedule.plain(geometry()))
    with pytest.raises(InvalidValue, match=r"4 pairs.*16 rotary pairs"):
        export(BUNDLED, other, tmp_path / "model.gguf")
    sliding = ContextPlan("x", {"sliding_attention": (PlanStep(4096, start_of()),)})
    with pytest.raises(InvalidValue):
        export(BUNDLED, sliding, tmp_path / "model.gguf")


@pytest.mark.parametrize(
    ("family", "changes", "complaint"),
    [
        ("olmo2", {}, "model type 'olmo2'"),
        ("llama", {"hidden_act": "gelu"}, "hidden_act = 'gelu'"),
        ("mistral", {"sliding_window": 12}, "sliding_window = 12"),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 12}, "sliding_window = 12"),
        ("llama", {"vocab_size": 1000}, "only 1000 embeddings"),
    ],
)
def test_models_that_it_would_compute_wrongly_are_refused(
    family: str, changes: dict[str, Any], complaint: str, tmp_path: Path
) -> None:
    folder = tiny_folder(tmp_path / "model", family, **changes)
    with pytest.raises(Unsupported, match=complaint):
        export(folder, present_plan(folder), tmp_path / "model.gguf")
    assert not (tmp_path / "model.gguf").exists()


def test_a_missing_head_is_refused(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "model", tie_word_embeddings=True)
    edit_json(folder / "config.json", tie_word_embeddings=False)
    with pytest.raises(InputError, match=r"no lm_head\.weight"):
        export(folder, present_plan(folder), tmp_path / "model.gguf")


def test_a_tensor_without_a_place_is_refused(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "model", num_hidden_layers=3)
    edit_json(folder / "config.json", num_hidden_layers=2)
    with pytest.raises(Unsupported, match=r"model\.layers\.2\..*no place"):
        export(folder, present_plan(folder), tmp_path / "model.gguf")


def test_a_value_above_f16_is_refused(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = tiny_folder(tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    weights["lm_head.weight"][0, 0] = 1e5
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(Unsupported, match=r"lm_head\.weight: holds a value of 1e\+05"):
        export(folder, present_plan(folder), tmp_path / "model.gguf", dtype="F16")
    assert not (tmp_path / "model.gguf").exists()


@pytest.mark.usefixtures("quick")
def test_rows_that_no_block_divides_are_f16_in_q8_0(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "model", hidden_size=48)
    out = tmp_path / "model.gguf"
    unproven(export)(folder, named_plan("searched", folder), out, dtype="Q8_0")
    kinds = {name: tensor.tensor_type.name for name, tensor in tensors(out).items()}
    assert kinds["blk.0.attn_q.weight"] == "F16"
    assert kinds["blk.0.attn_output.weight"] == "Q8_0"


def test_an_unknown_dtype_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="F32, F16, BF16, Q8_0"):
        export(BUNDLED, named_plan("plain"), tmp_path / "model.gguf", dtype="Q4_K_M")


def test_a_file_that_exists_is_refused_and_replaced_when_asked(tmp_path: Path) -> None:
    out = tmp_path / "model.gguf"
    out.write_text("mine")
    with pytest.raises(InputError, match="exists already"):
        unproven(export)(BUNDLED, named_plan("plain"), out)
    assert out.read_text() == "mine"
    unproven(export)(BUNDLED, named_plan("plain"), out, overwrite=True)
    assert out.read_bytes()[:4] == b"GGUF"


def test_a_disk_too_small_is_seen_before_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gguf_model.GGUFModel, "bytes", lambda model: 2**62)
    with pytest.raises(InputError, match="free"):
        unproven(export)(BUNDLED, named_plan("plain"), tmp_path / "model.gguf")
    assert list(tmp_path.iterdir()) == []


def test_the_size_that_is_checked_is_the_size_that_is_written(tmp_path: Path) -> None:
    for dtype in GGUF_TYPES:
        out = tmp_path / f"{dtype}.gguf"
        unproven(export)(BUNDLED, named_plan("searched"), out, dtype=dtype)
        total = sum(tensor.n_bytes for tensor in tensors(out).values())
        assert total <= out.stat().st_size < total + 200_000  # the vocabulary


@pytest.mark.usefixtures("quick")
def test_a_long_trained_length_is_no_long_comparison(tmp_path: Path) -> None:
    """Nor is that of `verify`; both tell or bound what they read."""
    folder = tiny_folder(tmp_path / "model", max_position_embeddings=32768)
    plan = rw.plan(folder, 65536, "linear").plan
    told: list[Status] = []
    made = export(folder, plan, tmp_path / "out.gguf", progress=told.append)
    compared = [status for status in told if status.stage == "compare"]
    assert compared[0].detail == "llama.cpp reads the exported file: 0 of 2,048 tokens"
    assert [status.done for status in compared] == sorted(status.done for status in compared)
    assert proven(made).passed
    agreement = audit(tmp_path / "out.gguf").agreement
    assert agreement is not None
    assert agreement.passed
    assert 64 <= agreement.tokens < 128


def test_a_small_model_is_compared_beyond_a_window_of_more_than_the_usual_text(
    tmp_path: Path,
) -> None:
    """The proof says how far it reaches."""
    folder = tiny_folder(tmp_path / "model", max_position_embeddings=2048)
    agreement = proven(export(folder, rw.plan(folder, 4096, "linear").plan, tmp_path / "out.gguf"))
    assert agreement.passed
    assert agreement.length == 2048 + BEYOND > MOST_TOKENS
    assert f"up to position {agreement.length:,} " in str(agreement)
