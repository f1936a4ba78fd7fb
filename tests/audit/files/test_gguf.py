"""What verify says of a damaged GGUF file without running it."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest

from ropewalk.audit.examination import audit
from ropewalk.audit.files.finite import Blocks, Numbers, odd
from ropewalk.audit.files.gguf import numbers
from ropewalk.exporting.llama_cpp import export
from ropewalk.gguf.header import read_header
from ropewalk.gguf.sizes import SCALES
from ropewalk.gguf.tensors import TABLE, problems, unfamiliar, unjudged
from ropewalk.models.config import BUNDLED
from tests.gguf import tiny_architectures
from tests.gguf.damages import DAMAGES, damaged, epsilon
from tests.gguf.gguf_cases import named_plan, unproven
from tests.gguf.gguf_files import KEYS, NORM, finished, header_only, raw_file, text
from tests.gguf.tiny_families import tiny

UNDECIDED = {
    "a tensor more": "odd is not known as a tensor of architecture llama",
    "no name in a block": "blk.0 is not known as a tensor of architecture llama",
    "no kind of tokenizer": "the file holds no vocabulary",
    "no vocabulary": "the file holds no vocabulary",
}
"""Damages that a header does not prove."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("gguf") / "whole.gguf"
    unproven(export)(BUNDLED, named_plan("linear"), out)
    return out


def test_a_whole_file_is_well(whole: Path, tmp_path: Path) -> None:
    assert audit(whole, run=False).verdict == "OK"
    name = "token_embd.weight"  # llama.cpp loads it with a dimension of one, too
    same = damaged(whole, tmp_path / "a.gguf", lambda k, t: t.update({name: t[name][None]}))
    assert audit(same, plan=named_plan("linear"), run=False).verdict == "OK"


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_file_is_not_well_and_not_run(name: str, whole: Path, tmp_path: Path) -> None:
    path = damaged(whole, tmp_path / "a.gguf", DAMAGES[name][0])
    found = audit(path, plan=named_plan("linear"), run=False)
    if name in UNDECIDED:
        assert found.verdict == "not established"
        assert UNDECIDED[name] in found.summary()
    else:
        assert found.verdict == "wrong"


def test_an_epsilon_larger_than_what_norms_divide_is_wrong(whole: Path, tmp_path: Path) -> None:
    """llama.cpp loads it, and writes garbage."""
    path = damaged(whole, tmp_path / "a.gguf", lambda keys, tensors: keys.update(epsilon(4e9)))
    assert audit(path, run=False).verdict == "wrong"


def test_tensors_that_llama_cpp_cannot_map_are_wrong(tmp_path: Path) -> None:
    path = raw_file(tmp_path / "a.gguf", KEYS, [NORM], alignment=8)
    assert any("multiple of 32" in each.what for each in audit(path, run=False).wrong)


@pytest.mark.parametrize(("experts", "used"), [(0, 2), (2, 0), (2, 3)])
def test_experts_are_chosen_from_those_that_are_there(
    experts: int, used: int, tmp_path: Path
) -> None:
    """Otherwise llama.cpp ends its process."""
    keys = {"block_count": 1, "expert_count": experts, "expert_used_count": used}
    told = list(problems(read_header(header_only(tmp_path / "a.gguf", keys=keys))))
    assert any("expert_used_count" in text for text in told)


@pytest.mark.parametrize(
    "keys",
    [
        {"expert_group_count": 3},
        {"expert_count": 4, "expert_used_count": 1, "expert_group_count": 3},
        {"expert_count": 4, "expert_used_count": 1, "expert_group_count": 2},
        {"expert_gating_func": 9},
    ],
)
def test_choices_of_experts_on_which_llama_cpp_ends_are_wrong(
    keys: dict[str, int], tmp_path: Path
) -> None:
    path = header_only(tmp_path / "a.gguf", keys={"block_count": 1, **keys})
    assert any(next(reversed(keys)) in text for text in problems(read_header(path)))


def test_a_bias_in_half_precision_is_wrong(tmp_path: Path) -> None:
    header = read_header(tiny_architectures.made(tmp_path / "a.gguf", "gptneox"))
    name = "blk.1.attn_output.bias"
    tensors = {**header.tensors, name: replace(header.tensors[name], kind=1)}
    (problem,) = problems(replace(header, tensors=tensors))
    assert problem.startswith(f"{name} is not stored in F32")


def test_windows_with_heads_of_another_size_are_not_judged(tmp_path: Path) -> None:
    header = read_header(tiny_architectures.made(tmp_path / "a.gguf", "cohere2"))
    other = {**header.values, "cohere2.attention.key_length_swa": 8}
    assert "heads of another size" in unjudged(replace(header, values=other))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", ["F32", "F16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
def test_numbers_that_are_none_are_found_in_each_type(
    kind: str, value: float, whole: Path, tmp_path: Path
) -> None:
    """Of quantised blocks, in their scales; gguf's own quantisation writes them."""
    name, stored = "blk.2.ffn_down.weight", gguf.GGMLQuantizationType[kind]
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "llama")
    values = np.random.default_rng(0).normal(size=(8, 64)).astype(np.float32)
    values[5, 40] = value
    with np.errstate(all="ignore"):
        packed = gguf.quants.quantize(values, stored)
    writer.add_uint32("llama.context_length", 64)
    writer.add_uint32("llama.embedding_length", 64)
    writer.add_uint32("llama.attention.head_count", 4)
    writer.add_tensor(name, packed, raw_dtype=stored)
    header = read_header(finished(writer, tmp_path / "a.gguf"))
    place = header.tensors[name]
    assert odd([numbers(header, name, place)]).not_finite == (name,)


@pytest.mark.parametrize("kind", [kind for kind in SCALES if kind not in (2, 3, 6, 7, 8)])
def test_the_scales_of_a_block_are_where_gguf_reads_them(kind: int, tmp_path: Path) -> None:
    """By gguf's own dequantisation, which makes NaN of a scale that is NaN, and of nothing else."""
    stored = gguf.GGMLQuantizationType(kind)
    _, size = gguf.GGML_QUANT_SIZES[stored]
    assert all(at % 2 == 0 and at < size for at in SCALES[kind])
    for at in range(0, size - 1, 2):
        block = np.zeros(size, np.uint8)
        block[at : at + 2] = np.array([np.nan], np.float16).view(np.uint8)
        with np.errstate(all="ignore"):
            read = gguf.quants.dequantize(block, stored)
        path = tmp_path / f"{at}.bin"
        path.write_bytes(block.tobytes())
        own = Numbers("a", path, 0, size, Blocks(size, SCALES[kind]))
        assert bool(odd([own]).not_finite) == bool(np.isnan(read).any()) == (at in SCALES[kind])


def test_the_table_is_that_of_the_tiny_files() -> None:
    """Which were made by asking llama.cpp what it misses."""
    assert json.loads(TABLE.read_text("utf-8")) == tiny_architectures.required()


@pytest.mark.parametrize("name", tiny_architectures.known())
def test_what_llama_cpp_loads_is_found_whole(name: str, tmp_path: Path) -> None:
    header = read_header(tiny_architectures.made(tmp_path / "a.gguf", name))
    assert (list(problems(header)), unjudged(header), unfamiliar(header)) == ([], "", "")


@pytest.mark.parametrize("name", ["llama", "command-r", "phimoe", "gpt-oss"])
def test_what_llama_cpp_asks_for_is_missed(name: str, tmp_path: Path) -> None:
    """The files have both epsilons, of which an architecture reads one; experts have a width."""
    made = json.loads(tiny_architectures.TABLE.read_text("utf-8"))[name]
    cases: list[tuple[str, int | None]] = [(key, None) for key in made["asked"]]
    width = {"phimoe": "feed_forward_length", "gpt-oss": "expert_feed_forward_length"}.get(name)
    cases += [(width, value) for value in (0, 80)] if width else []
    for key, value in cases:
        keys = {k: v for k, v in {**made["keys"], key: value}.items() if v is not None}
        path = tiny_architectures.write(tmp_path / "a.gguf", name, keys, made["tensors"])
        assert list(problems(read_header(path))), key


def test_every_size_of_every_tensor_is_compared_with_the_keys(tmp_path: Path) -> None:
    """The rows of the embedding are compared with the vocabulary, and named there."""
    mixtral = tiny(tmp_path / "mixtral", "mixtral")
    unproven(export)(mixtral, named_plan("ntk", mixtral), tmp_path / "mixtral.gguf")
    paths = [tiny_architectures.made(tmp_path / n, n) for n in tiny_architectures.known()]
    for path in (tmp_path / "mixtral.gguf", *paths):
        header = read_header(path)
        assert (list(problems(header)), unfamiliar(header)) == ([], "")
        blocks = {name for name in header.tensors if "blk.1" not in name}
        for name, at in ((n, i) for n in blocks for i in range(len(header.tensors[n].shape))):
            shape = list(header.tensors[name].shape)
            shape[at] += 8
            place = replace(header.tensors[name], shape=tuple(shape))
            other = replace(header, tensors={**header.tensors, name: place})
            told = list(problems(other))
            assert told or (name, at) == ("token_embd.weight", 1), (path.name, name)


@pytest.mark.parametrize(
    "key",
    [
        *("general.name", "general.file_type", "llama.pooling_type", "llama.logit_scale"),
        *("tokenizer.ggml.eot_token_id", "tokenizer.ggml.pre", "tokenizer.ggml.add_bos_token"),
    ],
)
def test_a_key_of_another_type_than_llama_cpp_loads_is_wrong(
    key: str, whole: Path, tmp_path: Path
) -> None:
    """It has two bytes, which no key that llama.cpp loads has."""
    stored = struct.pack("<IH", 2, 1)
    path = damaged(whole, tmp_path / "a.gguf", lambda keys, tensors: keys.update({key: stored}))
    found = audit(path, plan=named_plan("linear"), run=False)
    assert found.verdict == "wrong"
    assert any("must be stored as" in each.what for each in found.wrong)


LIST = "<IIQ"
TEXTS = struct.pack(LIST, 9, 8, 4) + struct.pack("<Qb", 1, 50) * 4


@pytest.mark.parametrize(
    ("architecture", "key", "stored"),
    [
        ("glm4", ".rope.dimension_sections", TEXTS),
        ("glm4", ".rope.dimension_sections", struct.pack(f"{LIST}3i", 9, 5, 3, 2, 2, 2)),
        ("glm4", ".attention.head_count", struct.pack(f"{LIST}2f", 9, 6, 2, 4.0, 4.0)),
        ("glm4", ".classifier.output_labels", struct.pack(f"{LIST}I", 9, 4, 1, 2)),
        ("cohere2", ".attention.sliding_window_pattern", struct.pack(LIST, 9, 7, 0)),
        ("apertus", "xielu.alpha_n", struct.pack(f"{LIST}f", 9, 6, 1, 1.0)),
    ],
)
def test_a_list_of_other_items_than_llama_cpp_loads_is_wrong(
    architecture: str, key: str, stored: bytes, tmp_path: Path
) -> None:
    """On a pattern of no layer it even ends its process."""
    source = tiny_architectures.made(tmp_path / "a.gguf", architecture)
    assert not list(problems(read_header(source)))
    name = f"{architecture}{key}" if key.startswith(".") else key
    changed = {"general.architecture": text(architecture), name: stored}
    path = damaged(source, tmp_path / "b.gguf", lambda keys, tensors: keys.update(changed))
    [problem] = problems(read_header(path))
    assert problem.startswith(f"{key.removeprefix('.')} must list")


def test_a_chat_template_that_is_not_jinja_is_wrong(whole: Path, tmp_path: Path) -> None:
    """llama-server does not start with it."""
    change = {"tokenizer.chat_template": text("{% for m in messages %}\n{{ m }")}
    path = damaged(whole, tmp_path / "a.gguf", lambda keys, tensors: keys.update(change))
    [finding] = audit(path, plan=named_plan("linear"), run=False).wrong
    assert finding.trap == "chat-template-broken"
    assert finding.what.startswith("tokenizer.chat_template: line 2:")


@pytest.mark.parametrize(
    ("key", "stored", "verdict"),
    [
        ("model", text("xyz"), "wrong"),
        ("model", text("none"), "not established"),
        ("pre", text("xyz"), "not established"),
        ("tokens", struct.pack("<IIQ1056I", 9, 4, 1056, *range(1056)), "wrong"),
        ("merges", struct.pack("<IIQI", 9, 4, 1, 1), "wrong"),
        ("scores", struct.pack("<IIQd", 9, 12, 1, 0.0), "wrong"),
        ("token_type", struct.pack("<IIQi", 9, 5, 1, 1), "wrong"),
        ("tokens", struct.pack("<IIQ", 9, 8, 1056) + struct.pack("<Qb", 1, 65) * 1056, "wrong"),
    ],
)
def test_a_vocabulary_that_llama_cpp_does_not_load(
    key: str, stored: bytes, verdict: str, whole: Path, tmp_path: Path
) -> None:
    change = {f"tokenizer.ggml.{key}": stored}
    path = damaged(whole, tmp_path / "a.gguf", lambda keys, tensors: keys.update(change))
    found = audit(path, plan=named_plan("linear"), run=False)
    assert found.verdict == verdict
    assert {finding.trap for finding in found.wrong} <= {"tokenizer-broken"}


def test_a_block_that_lacks_a_part_of_its_experts_is_not_well(tmp_path: Path) -> None:
    header = read_header(tiny_architectures.made(tmp_path / "a.gguf", "llama4"))
    tensors = {
        name: p for name, p in header.tensors.items() if name != "blk.3.ffn_down_exps.weight"
    }
    assert "block 3 has no tensor" in unfamiliar(replace(header, tensors=tensors))


@pytest.mark.parametrize("name", ["blk.{}.attn_q_norm.weight", "blk.{}.ffn_gate_inp.weight"])
def test_a_tensor_that_only_other_architectures_take_is_not_known(
    name: str, tmp_path: Path
) -> None:
    header = read_header(tiny_architectures.made(tmp_path / "a.gguf", "llama"))
    place = header.tensors["output_norm.weight"]
    more = {name.format(block): place for block in range(2)}
    assert "is not known" in unfamiliar(replace(header, tensors={**header.tensors, **more}))


@pytest.mark.parametrize(("rows", "right"), [(32, True), (64, False)])
def test_keys_that_queries_share_have_fewer_rows(rows: int, right: bool, tmp_path: Path) -> None:
    heights = {"attn_q": 64, "attn_k": rows, "attn_v": 32}
    path = header_only(
        tmp_path / "a.gguf",
        keys={"block_count": 1, "attention.head_count_kv": 2},
        tensors={f"blk.0.{k}.weight": np.zeros((n, 64), np.float32) for k, n in heights.items()},
    )
    told = [text for text in problems(read_header(path)) if "keys ask for" in text]
    said = "blk.0.attn_k.weight is 64 × 64, and its keys ask for 64 × 32"
    assert told == ([] if right else [said])
