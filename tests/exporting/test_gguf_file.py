"""A GGUF file exported to a GGUF file: weights untouched, and the plan in the real llama.cpp."""

from __future__ import annotations

import errno
import json
import os
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gguf
import numpy as np
import pytest

import ropewalk as rw
from ropewalk.audit.examination import audit
from ropewalk.audit.files.gguf import TOKENS
from ropewalk.context_plan import ContextPlan
from ropewalk.errors import GateFailed, InputError, InvalidValue, Unsupported
from ropewalk.exporting import gguf_file, llama_cpp
from ropewalk.exporting.gguf_file import export
from ropewalk.gguf import rewriting, settings
from ropewalk.gguf.architectures import architecture
from ropewalk.gguf.header import FREQUENCIES, LONG, SHORT, GGUFHeader, TensorPlace, read_header
from ropewalk.gguf.llama_cpp_run import LogProbabilities
from ropewalk.gguf.parts import read_model, read_parts
from ropewalk.gguf.rotation import geometry_of
from ropewalk.gguf.settings import setting_of
from ropewalk.models.config import BUNDLED
from ropewalk.planning.extension import extend_plan
from ropewalk.progress import Status
from ropewalk.schedule import LogN
from tests.exporting.folders import proven
from tests.gguf import tiny_architectures
from tests.gguf.damages import DAMAGES, QUERIES, damaged, own_keys
from tests.gguf.gguf_cases import named_plan, searched, tiny_folder, unproven
from tests.gguf.gguf_cases import plan_of as with_schedule
from tests.gguf.gguf_files import finished, header_only, raw_file, split
from tests.gguf.tiny_architectures import ORIGINAL, deep

TARGET = 1024
"""Twice the window of the models here."""
QUICK = 24


@pytest.fixture(autouse=True)
def beyond(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The slow tests compare all positions up to the target, the others go a little beyond."""
    marked = request.node.get_closest_marker("slow")
    monkeypatch.setattr(gguf_file, "BEYOND", TARGET - 513 if marked else QUICK)
    if marked:
        monkeypatch.setattr(gguf_file, "MOST_TOKENS", TARGET)
        monkeypatch.setattr(gguf_file, "COMPARED", TARGET)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of the bundled model and of a tiny Qwen2, as they are: 512 tokens, no scaling."""
    folder = tmp_path_factory.mktemp("sources")
    plan = with_schedule(named_plan("plain").longest(), 512)
    for dtype in ("F32", "F16", "Q8_0"):
        unproven(llama_cpp.export)(BUNDLED, plan, folder / f"{dtype}.gguf", dtype=dtype)
    quantized(folder / "F32.gguf", folder / "Q4_0.gguf", gguf.GGMLQuantizationType.Q4_0)
    tiny = tiny_folder(folder / "qwen2", "qwen2")
    own = with_schedule(named_plan("plain", tiny).longest(), 512)
    unproven(llama_cpp.export)(tiny, own, folder / "qwen2.gguf")
    return folder


def quantized(source: Path, out: Path, kind: gguf.GGMLQuantizationType) -> None:
    """The same file with its matrices in another type."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(out, "llama")
    for name, item in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            inner = item.types[-1] if item.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, item.contents(), item.types[0], inner)
    for tensor in reader.tensors:
        if len(tensor.shape) == 1:
            writer.add_tensor(tensor.name, np.array(tensor.data))
        else:
            packed = gguf.quants.quantize(np.array(tensor.data), kind)
            writer.add_tensor(tensor.name, packed, raw_dtype=kind)
    finished(writer, out)


def plan_of(path: Path, method: str, length: int = TARGET, **parameters: object) -> ContextPlan:
    return rw.plan(path, length, method, parameters=parameters).plan


def copied(one: Path, other: Path) -> Iterator[str]:
    """The tensors that both have, byte for byte; another size or type raises."""
    first, second = read_model(one), read_model(other)
    sizes = {name: own for part in read_parts(one) for name, own in rewriting.spans(part).items()}
    for name, place in first.tensors.items():
        if name in (FREQUENCIES, LONG, SHORT):
            continue
        beside = second.tensors[name]
        assert (place.shape, place.kind) == (beside.shape, beside.kind)
        assert _bytes(first, place, sizes[name]) == _bytes(second, beside, sizes[name])
        yield name


def _bytes(header: GGUFHeader, place: TensorPlace, size: int) -> bytes:
    with (place.path or header.path).open("rb") as file:
        file.seek(place.start)
        return file.read(size)


STORED = ["F32", "F16", "Q8_0", "Q4_0"]
METHODS = ["ntk", "linear", "yarn"]
slow = pytest.mark.slow


@pytest.mark.parametrize(
    ("stored", "method"),
    [
        *(("F32", "ntk"), ("Q8_0", "yarn"), ("Q4_0", "linear")),
        *(pytest.param(stored, method, marks=slow) for stored in STORED for method in METHODS),
    ],
)
def test_what_flags_can_say_is_the_source_with_those_flags(
    stored: str, method: str, sources: Path, tmp_path: Path
) -> None:
    source, out = sources / f"{stored}.gguf", tmp_path / "out.gguf"
    before = source.read_bytes()
    agreement = proven(export(source, plan_of(source, method), out))
    # The same llama.cpp on the same weights: nothing but a float's way into a key is between them.
    assert agreement.max_difference < 1e-4 < agreement.tolerance
    assert agreement.tokens >= min(gguf_file.COMPARED, TARGET - 1)
    assert len(list(copied(source, out))) == len(read_header(source).tensors)
    assert source.read_bytes() == before
    assert read_header(out).values["llama.context_length"] == TARGET
    assert audit(out, run=gguf_file.BEYOND > QUICK).verdict == "OK"


@pytest.mark.parametrize(
    "stored", ["F32", "Q8_0", *(pytest.param(stored, marks=slow) for stored in STORED[:3])]
)
def test_factors_are_those_weights_in_transformers(
    stored: str, sources: Path, tmp_path: Path
) -> None:
    source, out = sources / f"{stored}.gguf", tmp_path / "out.gguf"
    plan = with_schedule(searched(named_plan("plain").longest(), TARGET), TARGET)
    agreement = proven(export(source, plan, out))
    assert agreement.passed
    usual = llama_cpp.TOLERANCES[stored]  # of any model; this one's own rounding is measured
    assert agreement.tolerance == usual if stored == "F32" else agreement.tolerance < usual
    assert FREQUENCIES in read_header(out).tensors
    assert len(list(copied(source, out))) == len(read_header(source).tensors)
    np.testing.assert_allclose(
        read_header(out).floats(FREQUENCIES), plan.longest().rescale_factors, rtol=1e-6
    )
    assert audit(out, run=gguf_file.BEYOND > QUICK).verdict == "OK"


def test_factors_on_four_bits_are_within_what_the_source_is_off(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How far llama.cpp rounds with such weights is measured, on the source as it is."""
    source, out = sources / "Q4_0.gguf", tmp_path / "out.gguf"
    plan = plan_of(source, "ntk_mixed", 4096)
    agreement = proven(export(source, plan, out))
    assert agreement.passed
    assert 0.05 < agreement.tolerance < 3
    assert len(list(copied(source, out))) == len(read_header(source).tensors)
    assert audit(out, run=False).verdict != "wrong"
    honest = settings.changes
    monkeypatch.setattr(
        settings, "changes", lambda *given: replace(honest(*given), tensors={})
    )  # the factors are forgotten
    with pytest.raises(GateFailed, match="differ from the planned model's"):
        export(source, plan, tmp_path / "wrong.gguf")


def test_factors_a_little_off_are_found_in_eight_bits(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They move this model by less than rounding moves others, and by more than it moves this."""
    source, honest = sources / "Q8_0.gguf", settings.changes

    def off(*given: Any) -> rewriting.Changes:
        found = honest(*given)
        return replace(found, tensors={name: 1.05 * own for name, own in found.tensors.items()})

    monkeypatch.setattr(settings, "changes", off)
    monkeypatch.setattr(gguf_file, "BEYOND", 256)
    with pytest.raises(GateFailed, match="differ from the planned model's"):
        export(source, plan_of(source, "ntk_mixed", 2048), tmp_path / "wrong.gguf")


K_TYPES = {"Q4_K": (12, 144, (0,)), "Q6_K": (14, 210, (208,))}
"""GGML's number, the bytes of a block of 256, and where in it a scale in float16 stands."""


def of_blocks(path: Path, kind: str) -> Path:
    """A model of width 256 whose matrices are random blocks of a type: no package here quantises to
    these, and any bytes are weights of theirs."""
    number, size, scales = K_TYPES[kind]
    random = np.random.default_rng(3)
    keys = {
        "context_length": 512,
        "embedding_length": 256,
        "block_count": 2,
        "feed_forward_length": 256,
        "attention.head_count": 4,
        "attention.head_count_kv": 4,
        "rope.dimension_count": 64,
    }
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in keys.items():
        writer.add_uint32(f"llama.{key}", value)
    writer.add_float32("llama.rope.freq_base", 1e4)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256)), "a"]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(pieces)
    writer.add_token_scores([0.0] * len(pieces))
    writer.add_token_types([2, 3, 3] + [6] * 256 + [1])
    names = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"]
    matrices = {f"blk.{i}.{name}.weight": 256 for i in range(2) for name in names}
    for name, rows in {"token_embd.weight": len(pieces), **matrices}.items():
        blocks = random.integers(0, 256, (rows, size), dtype=np.uint8)
        for at in scales:  # of a size that weights have
            blocks[:, at : at + 2] = np.frombuffer(np.float16(2e-4).tobytes(), dtype=np.uint8)
        if kind == "Q4_K":
            blocks[:, 2:4] = np.frombuffer(np.float16(1.5e-3).tobytes(), dtype=np.uint8)
        writer.add_tensor(name, blocks, raw_dtype=gguf.GGMLQuantizationType(number))
    for name in ["output_norm", *(f"blk.{i}.{n}_norm" for i in range(2) for n in ("attn", "ffn"))]:
        writer.add_tensor(f"{name}.weight", np.ones(256, dtype=np.float32))
    return finished(writer, path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", K_TYPES)
@pytest.mark.parametrize("method", [*METHODS, "ntk_mixed"])
def test_k_quants_follow_the_plan(kind: str, method: str, tmp_path: Path) -> None:
    source, out = of_blocks(tmp_path / "a.gguf", kind), tmp_path / "b.gguf"
    agreement = proven(export(source, plan_of(source, method), out))
    assert agreement.passed
    assert len(list(copied(source, out))) == len(read_header(source).tensors)


def test_a_plan_replaces_the_scaling_that_the_file_has(sources: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "one.gguf", tmp_path / "two.gguf"
    unproven(export)(sources / "F32.gguf", plan_of(sources / "F32.gguf", "ntk_mixed"), first)
    again = rw.plan(first, 2048, "linear", from_original=True).plan
    assert proven(export(first, again, second)).passed
    header = read_header(second)
    assert FREQUENCIES not in header.tensors
    assert header.values["llama.rope.scaling.factor"] == 4
    assert audit(second, run=False).verdict != "wrong"
    # And on top of it, where that is asked.
    stacked = rw.plan(first, 2048, "ntk_mixed").plan
    assert proven(export(first, stacked, tmp_path / "three.gguf")).passed


def test_a_wrong_setting_is_noticed_and_nothing_is_left(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = sources / "F32.gguf"
    plan, honest = plan_of(source, "linear"), rewriting.number
    monkeypatch.setattr(
        settings, "number", lambda form, value: honest(form, 3.0 if value == 2.0 else value)
    )
    with pytest.raises(GateFailed, match="differ from the planned model's"):
        export(source, plan, tmp_path / "out" / "b.gguf")
    assert list((tmp_path / "out").iterdir()) == []


WRONG: dict[str, tuple[str, str, bytes]] = {
    "no scaling": ("yarn", "rope.scaling.type", rewriting.text("none")),
    "another type": ("yarn", "rope.scaling.type", rewriting.text("linear")),
    "another factor": ("yarn", "rope.scaling.factor", rewriting.number("<f", 4.0)),
    "another base": ("ntk", "rope.freq_base", rewriting.number("<f", 1e6)),
    "windows scaled too": ("yarn", "rope.freq_base_swa", rewriting.number("<f", 1e6)),
}
"""What a file might state by mistake, of a plan by a method to twice the window."""


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("name", ["gemma3", pytest.param("Q8_0", marks=slow)])
def test_each_compared_position_shows_a_wrong_rotation(
    name: str, wrong: str, sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So few positions are compared because any one of them is enough."""
    method, key, value = WRONG[wrong]
    source = sources / f"{name}.gguf"
    if name == "gemma3":
        deep(source, name, 6, context_length=512, rope__freq_base=1e6)
    elif wrong == "windows scaled too":
        pytest.skip("a llama has no windows")
    plan = plan_of(source, method)
    seen = list[float]()

    def by_position(one: LogProbabilities, other: LogProbabilities) -> float:
        for i in range(len(one.positions)):
            rows = (
                replace(own, tokens=own.tokens[i : i + 1], values=own.values[i : i + 1])
                for own in (one, other)
            )
            seen.append(difference(*rows))
        return difference(one, other)

    honest, difference = settings.changes, gguf_file.difference
    monkeypatch.setattr(gguf_file, "difference", by_position)
    monkeypatch.setattr(gguf_file, "COMPARED", 16)
    unwrong = proven(export(source, plan, tmp_path / "right.gguf"))
    assert (unwrong.max_difference, max(seen)) == (0, 0), "equal to the last bit"
    seen.clear()

    def planted(header: GGUFHeader, *given: Any) -> rewriting.Changes:
        found = honest(header, *given)
        return replace(found, keys={**found.keys, f"{header.architecture}.{key}": value})

    monkeypatch.setattr(settings, "changes", planted)
    with pytest.raises(GateFailed, match="differ from the planned model's"):
        export(source, plan, tmp_path / "wrong.gguf")
    assert 16 <= len(seen) <= 32
    assert min(seen) > 5 * gguf_file.SAME


def test_a_comparison_tells_what_it_reads(sources: Path, tmp_path: Path) -> None:
    told = list[Status]()
    source = sources / "F32.gguf"
    export(source, plan_of(source, "yarn"), tmp_path / "out.gguf", progress=told.append)
    compared = [status for status in told if status.stage == "compare"]
    assert len(compared) > 30
    assert [status.done for status in compared] == sorted(status.done for status in compared)
    assert (compared[0].done, compared[-1].done) == (0, 1)
    first, last = compared[0].detail, compared[-1].detail
    assert first == "llama.cpp reads the exported file: 0 of 536 tokens"
    assert last == "llama.cpp reads the source with the plan as flags: 536 of 536 tokens"
    before = [status for status in told if status.stage == "export"]
    assert told == [*before, *compared], "each stage has its own time that is left"


def test_what_an_architecture_cannot_say_is_refused_with_the_nearest_and_its_cost(
    sources: Path, tmp_path: Path
) -> None:
    source, out = sources / "qwen2.gguf", tmp_path / "out.gguf"
    plan = plan_of(source, "ntk_mixed")
    with pytest.raises(Unsupported) as caught:
        export(source, plan, out)
    said = str(caught.value)
    assert "architecture qwen2: llama.cpp refuses a file with factors by pair" in said
    assert "the nearest that it can express is rope.freq_base = " in said
    assert "approximation cost: " in said
    assert "nats per token" in said
    assert not out.exists()
    exported = export(source, plan, out, approximate=True)
    assert proven(exported).passed
    assert any(warning.startswith("approximation cost: ") for warning in exported.warnings)
    assert len(list(copied(source, out))) == len(read_header(source).tensors)


def test_the_nearest_schedule_is_the_nearest(tmp_path: Path) -> None:
    path = header_only(tmp_path / "a.gguf", architecture="qwen3", keys={"context_length": 512})
    start = rw.inspect(path).schedule
    for method in ("ntk", "linear", "yarn"):
        own = extend_plan(rw.inspect(path).plan, TARGET, method).longest()
        near = settings.expressible(own)
        np.testing.assert_allclose(near.rescale_factors, own.rescale_factors, rtol=0.02)
        assert setting_of(read_header(path), near).by_flags
    assert start.length == 512


@pytest.mark.parametrize("method", ["ntk", "linear", "yarn"])
def test_the_nearest_schedule_keeps_what_scales_the_softmax(method: str, tmp_path: Path) -> None:
    path = header_only(tmp_path / "a.gguf", architecture="qwen3", keys={"context_length": 512})
    own = extend_plan(rw.inspect(path).plan, TARGET, method).longest()
    sharper = replace(own, softmax_scaling=1.3)
    assert settings.expressible(sharper).softmax_scaling == 1.3
    assert settings.expressible(sharper).attention_scaling == own.attention_scaling
    assert settings.expressible(sharper, own_attention=True).softmax_scaling == 1


def test_a_split_model_becomes_a_folder_or_one_file(sources: Path, tmp_path: Path) -> None:
    parts = split(sources / "Q8_0.gguf", tmp_path / "parts", 3)
    plan = plan_of(parts[0], "ntk_mixed")
    folder = export(parts[0], plan, tmp_path / "out")
    assert proven(folder).passed
    assert sorted(path.name for path in (tmp_path / "out").glob("*.gguf")) == [
        path.name for path in parts
    ]
    assert f"-m {tmp_path / 'out' / parts[0].name} " in folder.load
    one = export(parts[1], plan, tmp_path / "one.gguf")
    assert proven(one).max_difference == proven(folder).max_difference
    for out in (tmp_path / "out" / parts[0].name, tmp_path / "one.gguf"):
        assert len(list(copied(sources / "Q8_0.gguf", out))) == len(list(copied(parts[0], out)))
        assert audit(out, run=False).verdict == "OK"
    with pytest.raises(InputError, match="exists already"):
        export(parts[0], plan, tmp_path / "out")
    unproven(export)(parts[0], plan, tmp_path / "out", overwrite=True)
    changed = tmp_path / "out" / parts[1].name
    changed.write_bytes(changed.read_bytes()[:-1] + b"!")
    assert audit(changed, run=False).verdict == "wrong"


@pytest.mark.parametrize("key", [*settings._REPLACED])
def test_no_setting_of_the_source_survives_a_plan(key: str, sources: Path, tmp_path: Path) -> None:
    """Whatever the source says of its rotation, under any name that llama.cpp reads."""
    header = read_header(sources / "F32.gguf")
    own = setting_of(header, plan_of(sources / "F32.gguf", "linear").longest())
    changes = settings.changes(header, own, TARGET, 512)
    assert f"llama.{key}" in {*changes.without, *changes.keys}


@pytest.mark.slow
@pytest.mark.parametrize("name", tiny_architectures.known())
def test_files_of_many_architectures_are_extended(name: str, tmp_path: Path) -> None:
    """Beside the source with flags, to three times its window; factors where it takes them."""
    source, out = tmp_path / "a.gguf", tmp_path / "b.gguf"
    own, made = architecture(name), tiny_architectures.made(tmp_path / "made.gguf", name)
    window = {f"{name}.context_length": rewriting.number("<I", ORIGINAL)}
    rewriting.join(read_parts(made), source, rewriting.Changes(window))
    longer = 3 * ORIGINAL
    if not own.rotates:
        with pytest.raises(Unsupported, match=r"no positions"):
            plan_of(source, "linear", longer)
        return
    for method in METHODS:
        plan = plan_of(source, method, longer)
        exported = export(source, plan, out, overwrite=True)
        if settings.flags_reach_all_layers(read_header(source)):
            assert proven(exported).max_difference < 2e-3, method
        else:
            assert any("flags do not change its layers" in said for said in exported.warnings)
        assert set(copied(source, out)) == set(read_header(source).tensors)
    plan = plan_of(source, "ntk_mixed", longer)
    if not own.honours_factors:
        with pytest.raises(Unsupported, match="nearest"):
            export(source, plan, out, overwrite=True)
        export(source, plan, out, overwrite=True, approximate=True)
        return
    if own.attn_factor:
        longest = replace(plan.longest(), attention_scaling=1.1)
        plan = with_schedule(longest, longer)
    exported = export(source, plan, out, overwrite=True)
    assert exported.agreement is None or exported.agreement.passed
    found = rw.inspect(out).schedule
    np.testing.assert_allclose(found.rescale_factors, plan.longest().rescale_factors, rtol=1e-6)
    assert found.attention_scaling == pytest.approx(plan.longest().attention_scaling)
    assert audit(out, run=False).verdict != "wrong"


@pytest.mark.parametrize("name", DAMAGES)
def test_what_llama_cpp_cannot_load_is_not_written(
    name: str, sources: Path, tmp_path: Path
) -> None:
    change, told = DAMAGES[name]
    source = damaged(sources / "F32.gguf", tmp_path / "a.gguf", change)
    with pytest.raises(GateFailed, match=rf"llama\.cpp cannot load it: .*({told})") as caught:
        export(source, plan_of(source, "linear"), tmp_path / "b.gguf")
    assert f"it cannot load {source} either" in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["a.gguf"]
    assert caught.value.exit_status == 1


@pytest.mark.parametrize("kind", [1, 24])
def test_a_type_of_other_numbers_is_refused(kind: int, sources: Path, tmp_path: Path) -> None:
    """The bytes behind its end would be cut off, and the copy would load."""
    source = tmp_path / "a.gguf"
    data = bytearray((sources / "F32.gguf").read_bytes())
    at = data.index(QUERIES.encode()) + len(QUERIES)
    struct.pack_into("<I", data, at + 4 + 8 * 2, kind)
    source.write_bytes(data)
    with pytest.raises(InputError, match=r"attn_q\.weight would end .* before the next tensor"):
        export(source, plan_of(source, "linear"), tmp_path / "b.gguf")
    assert not (tmp_path / "b.gguf").exists()


@pytest.mark.parametrize("name", ["a tensor renamed", "another shape", "a block less than stated"])
def test_a_file_that_is_not_run_is_refused_by_its_header(
    name: str, sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = damaged(sources / "F32.gguf", tmp_path / "a.gguf", DAMAGES[name][0])
    monkeypatch.setattr(gguf_file, "MOST_BYTES", 0)  # as of a large file
    with pytest.raises(InputError, match=r"so llama\.cpp cannot load it; convert it again"):
        export(source, plan_of(source, "linear"), tmp_path / "b.gguf")
    assert not (tmp_path / "b.gguf").exists()


def test_what_llama_cpp_cannot_say_is_refused(sources: Path, tmp_path: Path) -> None:
    header = read_header(sources / "F32.gguf")
    schedule = plan_of(sources / "F32.gguf", "linear").longest()
    for changed, message in (
        (replace(schedule, kept_initial_positions=4), "cannot keep initial positions"),
        (replace(schedule, log_n=LogN("beyond", 512)), "cannot scale queries by log n"),
    ):
        with pytest.raises(Unsupported, match=message):
            setting_of(header, changed)
    for name, message in (
        ("mamba", "does not rotate in llama.cpp"),
        ("kolibri", "it is not known which settings llama.cpp"),
    ):
        path = header_only(tmp_path / f"{name}.gguf", architecture=name)
        with pytest.raises(Unsupported, match=message):
            setting_of(read_header(path), schedule)
    # Its queries are normalised after their rotation: no factor in cos and sin has an effect.
    normed = read_header(header_only(tmp_path / "n.gguf", architecture="hunyuan-dense"))
    assert setting_of(normed, schedule).by_flags
    with pytest.raises(Unsupported, match=r"an attention scaling of 1\.1 has no effect"):
        setting_of(normed, replace(schedule, attention_scaling=1.1))
    file = tiny_architectures.made(tmp_path / "normed.gguf", "hunyuan-dense")
    for method in ("llama3", "yarn"):  # llama.cpp multiplies by its own factor, without effect
        plan = rw.plan(file, to=192, method=method).plan
        export(file, plan, tmp_path / "near.gguf", overwrite=True, approximate=True)
        assert audit(tmp_path / "near.gguf", run=False).verdict != "wrong"
    other = header_only(tmp_path / "other.gguf")
    with pytest.raises(InvalidValue, match="this file has heads of 16"):
        export(other, plan_of(sources / "F32.gguf", "linear"), tmp_path / "b.gguf")
    with pytest.raises(InputError, match="`dtype` is not for a GGUF file"):
        rw.export(
            sources / "F32.gguf",
            plan_of(sources / "F32.gguf", "linear"),
            tmp_path / "b.gguf",
            "llama.cpp",
            dtype="F16",
        )
    with pytest.raises(InputError, match="is a GGUF file; give the folder"):
        rw.export(sources / "F32.gguf", named_plan("linear"), tmp_path / "b", "transformers")


def test_a_source_is_never_written_to(sources: Path, tmp_path: Path) -> None:
    source = tmp_path / "a.gguf"
    source.write_bytes((sources / "F32.gguf").read_bytes())
    plan = plan_of(source, "linear")
    os.link(source, tmp_path / "linked.gguf")
    for out in (source, source / "b.gguf"):
        with pytest.raises(InputError):
            export(source, plan, out, overwrite=True)
    # A second name of the same file is replaced by rename, and the source keeps its bytes.
    unproven(export)(source, plan, tmp_path / "linked.gguf", overwrite=True)
    assert source.read_bytes() == (sources / "F32.gguf").read_bytes()


def test_a_plan_of_another_original_length_is_refused(sources: Path, tmp_path: Path) -> None:
    """Its heads and base may be the same: such a plan would be written, and then proven."""
    source = sources / "F32.gguf"
    geometry = geometry_of(read_header(source))
    like = {
        "embedding_length": 4 * geometry.head_dim,
        "rope.dimension_count": geometry.rotary_dim,
        "rope.freq_base": geometry.base,
        "rope.scaling.original_context_length": 256,
        "context_length": 256,
    }
    other = header_only(tmp_path / "other.gguf", keys=like)
    assert replace(geometry_of(read_header(other)), original_length=512) == geometry
    with pytest.raises(InvalidValue, match=r"original length 256': this file has .* length 512;"):
        unproven(export)(source, plan_of(other, "linear"), tmp_path / "b.gguf")
    assert not (tmp_path / "b.gguf").exists()


def test_a_plan_of_a_file_of_another_name_is_told_of(sources: Path, tmp_path: Path) -> None:
    source = sources / "F32.gguf"
    renamed = tmp_path / "renamed.gguf"
    renamed.write_bytes(source.read_bytes())
    for asked, told in ((plan_of(source, "linear"), False), (plan_of(renamed, "linear"), True)):
        found = unproven(export)(source, asked, tmp_path / f"{told}.gguf").warnings
        assert any("created from 'renamed.gguf'" in warning for warning in found) == told


@pytest.mark.parametrize("length", [2**32, 2**40])
def test_a_length_that_no_file_can_state_is_refused(
    length: int, sources: Path, tmp_path: Path
) -> None:
    source = sources / "F32.gguf"
    with pytest.raises(InvalidValue, match=rf"plan.target_length = {length}: .* 4,294,967,295; "):
        export(source, plan_of(source, "linear", length), tmp_path / "b.gguf")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_for_the_comparison_without_room_is_named(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = sources / "F32.gguf"
    asked, usage = plan_of(source, "linear"), shutil.disk_usage
    small = tmp_path / "small"
    small.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(small))

    def free(path: str | Path) -> object:
        inside = small in Path(path).parents
        return SimpleNamespace(free=100) if inside else usage(path)

    monkeypatch.setattr(shutil, "disk_usage", free)
    exported = export(source, asked, tmp_path / "b.gguf")
    assert exported.agreement is None
    assert any(f"not compared: {small}: the comparison needs" in w for w in exported.warnings)
    monkeypatch.setattr(shutil, "disk_usage", usage)
    real = rewriting.join

    def full(parts: object, out: Path, *given: object) -> None:
        if small in out.parents:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(parts, out, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(rewriting, "join", full)
    exported = export(source, asked, tmp_path / "c.gguf")
    assert any(f"{small}: cannot be written (No space left" in w for w in exported.warnings)
    assert list(small.iterdir()) == []


def test_the_load_line_is_quoted(sources: Path, tmp_path: Path) -> None:
    source, out = sources / "F32.gguf", tmp_path / "it's $(id).gguf"
    exported = unproven(export)(source, plan_of(source, "linear"), out)
    assert shlex.split(exported.load)[:3] == ["llama-server", "-m", str(out)]
    again = unproven(llama_cpp.export)(BUNDLED, named_plan("linear"), tmp_path / "a b.gguf")
    assert shlex.split(again.load)[:3] == ["llama-cli", "-m", str(tmp_path / "a b.gguf")]


def test_a_disk_too_small_is_seen_before_writing(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewriting, "needs", lambda parts: 2**60)
    with pytest.raises(InputError, match=r"needs up to 1\.07e\+09 GiB, and its disk has"):
        export(sources / "F32.gguf", plan_of(sources / "F32.gguf", "linear"), tmp_path / "b.gguf")
    assert list(tmp_path.iterdir()) == []


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
import ropewalk as rw
from pathlib import Path
from ropewalk.exporting import gguf_file
gguf_file.MOST_BYTES = 0  # as of a large file, which is not run
plan = rw.plan(sys.argv[1], "1k", "ntk_mixed").plan
print(rw.export(sys.argv[1], plan, sys.argv[2], "llama.cpp").warnings)
assert "transformers" not in sys.modules
"""


def test_neither_torch_nor_transformers_is_needed(sources: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, str(sources / "F32.gguf"), str(tmp_path / "b.gguf")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "written, and not run: it is larger than" in done.stdout
    assert audit(tmp_path / "b.gguf", run=False).verdict == "OK"


@pytest.mark.parametrize(
    "waits", [(None,), pytest.param((0.3, 0.5, 0.7, 0.9), marks=pytest.mark.slow)]
)
def test_killed_at_any_moment_nothing_half_written_stands_there(
    waits: Sequence[float | None], sources: Path, tmp_path: Path
) -> None:
    source = raw_file(
        tmp_path / "a.gguf",
        own_keys(sources / "F32.gguf"),
        [("token_embd.weight", (64, 2**19), 0, os.urandom(2**27))],
    )
    before = source.stat()
    (tmp_path / "plan.json").write_text(json.dumps(plan_of(source, "linear").to_json()))
    out = tmp_path / "out" / "b.gguf"
    command = [sys.executable, "-m", "ropewalk", "export", str(source)]
    command += ["--plan", str(tmp_path / "plan.json"), "--runtime", "llama.cpp", "-o", str(out)]
    killed = 0
    for wait in waits:
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            if wait is None:  # until it writes
                while process.poll() is None and not list(out.parent.glob("*")):
                    time.sleep(0.005)
            else:
                time.sleep(wait)
            process.send_signal(signal.SIGKILL)
        killed += process.returncode == -signal.SIGKILL
        assert not out.exists() or read_header(out).values["llama.context_length"] == TARGET
        out.unlink(missing_ok=True)
    assert killed
    with pytest.raises(GateFailed):  # it is no model
        export(source, plan_of(source, "linear"), out)
    assert list(out.parent.iterdir()) == []  # what the killed ones left is removed by the next
    assert (source.stat().st_mtime_ns, source.stat().st_size) == (
        before.st_mtime_ns,
        before.st_size,
    )


def test_a_file_without_tokens_is_measured_on_some_all_the_same(tmp_path: Path) -> None:
    header = replace(read_header(header_only(tmp_path / "a.gguf")), lengths={TOKENS: 0})
    assert len(gguf_file._text([header], 8)) == 8
