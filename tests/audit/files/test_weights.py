"""A damaged file of weights is found by its header alone; nothing is run."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from safetensors.torch import load_file as load_torch
from safetensors.torch import save_file as save_torch
from transformers import (
    CONFIG_MAPPING,
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
)

from ropewalk.audit.examination import audit
from ropewalk.audit.files.finite import odd
from ropewalk.audit.files.names import NAMINGS, after_the_layers, in_each_layer, strangers
from ropewalk.audit.files.shapes import USUAL, check_shapes, ties
from ropewalk.audit.files.weights import numbers
from ropewalk.errors import InputError, Unsupported
from ropewalk.models.config import Config, ConfigReader
from ropewalk.models.load import load
from ropewalk.models.safetensors_header import read_header
from tests.audit.files.folders import (
    INDEX,
    SINGLE,
    bundled,
    edit,
    in_shards,
    judged,
    keep,
    put_together,
    taken_apart,
    write_index,
)
from tests.models.tiny import FAMILIES, thinned, tiny_model

EMBEDDING = "model.embed_tokens.weight"
QUERIES = "model.layers.1.self_attn.q_proj.weight"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return bundled(tmp_path / "model")


def test_a_whole_model_is_well(folder: Path) -> None:
    found = judged(folder)
    assert found.verdict == "OK"
    assert found.verdict_in("vllm") == "OK"
    assert [str(check) for check in found.checks] == [
        "weights: 29 tensors in model.safetensors, complete, shapes match the config",
        "tokenizer: tokenizer.json loads, its largest id 1,023 of 1,024",
        "bytes: not compared: no manifest",
    ]
    assert judged(in_shards(folder)).verdict == "OK"


def _in_a_larger_model(folder: Path, *, ties: bool) -> Path:
    """The model as the text part of one that sees, as transformers saves Llava."""
    text = json.loads((folder / "config.json").read_text())
    outer = {"model_type": "llava", "tie_word_embeddings": ties}
    edit(folder / "config.json", lambda _: outer | {"text_config": text})
    return folder


def _renamed(folder: Path, more: dict[str, torch.Tensor]) -> None:
    tensors = load_torch(folder / SINGLE)
    inner = {f"language_model.{name}": value for name, value in tensors.items()}
    save_torch(inner | more, folder / SINGLE)


def test_the_text_model_of_a_larger_one(folder: Path) -> None:
    """Its head has the prefix too, or none is there where the larger config ties it."""
    edit(folder / "config.json", lambda config: config.update(tie_word_embeddings=False))
    _in_a_larger_model(folder, ties=False)
    tower = {"vision_tower.patch.weight": torch.ones(4, 4)}
    embedding = load_torch(folder / SINGLE)[EMBEDDING]
    whole = (folder / SINGLE).read_bytes()
    _renamed(folder, tower | {"language_model.lm_head.weight": embedding})
    assert judged(folder).checks[0].verdict == "OK"
    (folder / SINGLE).write_bytes(whole)
    _renamed(folder, tower)
    assert judged(folder).checks[0].verdict != "OK"
    edit(folder / "config.json", lambda config: config.update(tie_word_embeddings=True))
    assert judged(folder).checks[0].verdict == "OK"
    there = load_torch(folder / SINGLE)
    save_torch({n: v for n, v in there.items() if n not in tower}, folder / SINGLE)
    found = judged(folder)
    assert found.checks[0].verdict == "not established"
    assert "no tensor is of another part" in str(found)


def _header(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        header, tensors = taken_apart(path)
        changed = change(header)
        put_together(path, header if changed is None else changed, tensors)

    return damage


def _cut(path: Path, share: float) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty": (lambda path: path.write_bytes(b""), "is empty"),
    "garbage": (lambda path: path.write_bytes(bytes(range(256)) * 40), "too few for its header"),
    "a pointer": (lambda path: path.write_text("version https://git-lfs…"), "pointer of Git LFS"),
    "halved": (lambda path: _cut(path, 0.5), "describes 1,468,160 bytes of tensors, but 73"),
    "cut in its header": (lambda path: _cut(path, 0.001), "too few for its header"),
    "longer": (lambda path: path.write_bytes(path.read_bytes() + b"\0"), "1,468,161 are there"),
    "no JSON": (lambda path: put_together(path, b"{" * 100, b""), "is not JSON"),
    "no object": (lambda path: put_together(path, b"[]", b""), "is not a JSON object"),
    "no text": (lambda path: put_together(path, b'{"\xff": 1}', b""), "is not UTF-8"),
    "no tensor": (lambda path: put_together(path, {}, b""), "the files hold no tensor"),
    "a name twice": (
        lambda path: put_together(path, b'{"a": {}, "a": {}}', b""),
        "stands twice in one object",
    ),
    "an entry that is none": (_header(lambda h: {**h, QUERIES: 3}), "does not describe"),
    "a negative place": (
        _header(lambda h: h[QUERIES].update(data_offsets=[-4, 4])),
        "no readable type, shape or place",
    ),
    "another shape": (_header(lambda h: h[QUERIES].update(shape=[127, 128])), "is not the size"),
    "an overlap": (
        _header(lambda h: h[QUERIES].update(data_offsets=h[EMBEDDING]["data_offsets"])),
        "is not the size",
    ),
    "two in one place": (
        _header(
            lambda h: h["model.layers.0.self_attn.q_proj.weight"].update(
                data_offsets=h[QUERIES]["data_offsets"]
            )
        ),
        "leaves a gap",
    ),
    "metadata that are no strings": (
        _header(lambda h: h.update(__metadata__={"a": 5})),
        "must map strings to strings",
    ),
    "another file beside it": (
        lambda path: path.with_name("model-00001-of-00002.safetensors").write_bytes(b"a"),
        "model-00001-of-00002.safetensors: its 1 bytes are too few for its header",
    ),
    "a gap": (_header(lambda h: h.pop(QUERIES) and None), "leaves a gap"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_file_is_wrong(folder: Path, name: str) -> None:
    damage, complaint = DAMAGES[name]
    damage(folder / SINGLE)
    found = judged(folder)
    assert found.verdict == found.verdict_in("vllm") == "wrong"
    (finding,) = found.wrong
    assert finding.trap == "weights-damaged"
    assert complaint in finding.what
    assert str(folder) not in finding.what


CONFIGS: dict[str, tuple[dict[str, Any], str]] = {
    "vocabulary": ({"vocab_size": 1025}, "embed_tokens.weight is 1024 × 128, and the config asks"),
    "width": ({"hidden_size": 256}, "the config asks for 1024 × 256"),
    "heads": (
        {"num_attention_heads": 8},
        "q_proj.weight is 128 × 128, and the config asks for 256",
    ),
    "key heads": ({"num_key_value_heads": 2}, "k_proj.weight is 128 × 128"),
    "head size": ({"head_dim": 64}, "q_proj.weight is 128 × 128"),
    "inner": ({"intermediate_size": 100}, "gate_proj.weight is 352 × 128"),
    "fewer layers": ({"num_hidden_layers": 2}, "3 layers are there, and the config asks for 2"),
    "more layers": ({"num_hidden_layers": 4}, "3 layers are there, and the config asks for 4"),
    "not tied": ({"tie_word_embeddings": False}, "there is no lm_head.weight"),
}


def test_a_head_that_the_class_makes_up_is_missing(folder: Path) -> None:
    """Llama's class does not tie it, where the config says nothing."""
    edit(
        folder / "config.json",
        lambda config: {k: v for k, v in config.items() if k != "tie_word_embeddings"},
    )
    assert "there is no lm_head.weight" in judged(folder).wrong[0].what


def test_a_head_that_some_runtimes_leave_out_is_named(folder: Path) -> None:
    tensors = load_torch(folder / SINGLE)
    save_torch(tensors | {"lm_head.weight": tensors[EMBEDDING].clone()}, folder / SINGLE)
    assert judged(folder).verdict == "OK"
    save_torch(tensors | {"lm_head.weight": tensors[EMBEDDING] + 1}, folder / SINGLE)
    (finding,) = judged(folder).wrong
    assert "lm_head.weight is not model.embed_tokens.weight, and the config ties" in finding.what


def test_a_part_under_any_key_needs_the_other_parts(folder: Path) -> None:
    text = json.loads((folder / "config.json").read_text())
    edit(folder / "config.json", lambda _: {"model_type": "llava", "llm_config": text})
    assert "no tensor is of another part" in str(judged(folder).checks[0])


def test_types_that_tie_the_head_are_those_of_transformers() -> None:
    for kind in USUAL:
        stated = getattr(CONFIG_MAPPING[kind], "tie_word_embeddings", None)
        assert stated is None or ties(ConfigReader({"model_type": kind})) == stated


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_of_another_model_is_wrong(folder: Path, name: str) -> None:
    changes, complaint = CONFIGS[name]
    edit(folder / "config.json", lambda config: config.update(changes))
    found = judged(folder)
    assert found.verdict == "wrong"
    assert complaint in " ".join(finding.what for finding in found.wrong)
    assert "weights-differ" in {finding.trap for finding in found.wrong}


@pytest.mark.parametrize(
    "absent",
    [
        *(QUERIES, "model.layers.2.mlp.up_proj.weight", "model.layers.0.input_layernorm.weight"),
        "model.norm.weight",
    ],
)
def test_a_tensor_that_is_not_there_is_named(folder: Path, absent: str) -> None:
    names = [name for name in taken_apart(folder / SINGLE)[0] if name != "__metadata__"]
    keep(folder / SINGLE, [name for name in names if name != absent])
    (finding,) = judged(folder).wrong
    assert finding.what == f"no file holds 1 tensor that the config asks for ({absent})"


def test_names_that_no_class_looks_for_are_wrong(folder: Path) -> None:
    for prefix, verdict in (("model.", "OK"), ("", "OK"), ("model.model.", "wrong")):
        header, tensors = taken_apart(folder / SINGLE)
        own = {name.replace("model.", prefix): place for name, place in header.items()}
        other = folder.with_name("renamed") / SINGLE
        shutil.copytree(folder, other.parent, dirs_exist_ok=True)
        put_together(other, own, tensors)
        assert judged(other.parent).checks[0].verdict == verdict


def test_a_text_model_alone_has_no_names_of_a_larger_one() -> None:
    """transformers would fill all of its weights with random numbers."""
    model = tiny_model("gemma3_text")
    shapes = {f"language_model.{n}": (*w.shape,) for n, w in model.state_dict().items()}
    config = json.loads(model.config.to_json_string(use_diff=False))
    assert check_shapes(shapes, config).problems[0].startswith("names begin with 'language_model.")


def test_a_second_file_of_the_same_tensors_is_wrong_unless_an_index_chooses(folder: Path) -> None:
    keep(folder / SINGLE, [QUERIES], folder / "consolidated.safetensors")
    [finding] = judged(folder).wrong
    assert finding.what.startswith(f"consolidated.safetensors holds {QUERIES} too, and there is no")
    names = [name for name in taken_apart(folder / SINGLE)[0] if name != "__metadata__"]
    write_index(folder, dict.fromkeys(names, SINGLE))
    assert not judged(folder).wrong


@pytest.mark.parametrize("indexed", [False, True])
def test_vllm_loads_files_of_mistral_in_place_of_others(folder: Path, indexed: bool) -> None:
    """Mistral publishes both, and params.json has a rope setting of its own."""
    if indexed:
        in_shards(folder)
    tensors = {"layers.0.attention.wq.weight": torch.ones(8, 8)}
    save_torch(tensors, folder / "consolidated.safetensors")
    found = audit(folder, runtimes=["vllm", "vllm-2025", "sglang"], run=False)
    assert found.verdict_in("sglang") == "OK"
    assert found.verdict_in("vllm") == found.verdict_in("vllm-2025") == "not established"
    assert "loads consolidated.safetensors, and params.json in pl" in str(found.not_established)


def test_a_second_file_of_other_tensors_is_loaded_by_vllm_alone(folder: Path) -> None:
    save_torch({"base_model.lora_A.weight": torch.ones(8)}, folder / "adapter_model.safetensors")
    [finding] = judged(folder).wrong
    assert finding.what.startswith("adapter_model.safetensors holds base_model.lora_A.weight, and")
    assert audit(folder, runtimes=["transformers"], run=False).verdict == "OK"


def test_an_adapter_in_the_folder_makes_transformers_load_another_model(folder: Path) -> None:
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "other/model"}')
    [finding] = judged(folder).wrong
    assert "transformers loads the base model that it names" in finding.what


@pytest.mark.parametrize("number", ["00", "\N{ARABIC-INDIC DIGIT ZERO}"])
def test_a_layer_is_numbered_as_classes_write_it(folder: Path, number: str) -> None:
    header, tensors = taken_apart(folder / SINGLE)
    renamed = {name.replace("layers.0.", f"layers.{number}."): own for name, own in header.items()}
    put_together(folder / SINGLE, renamed, tensors)
    found = judged(folder)
    assert {each.trap for each in found.wrong} == {"weights-differ"}
    assert found.wrong[0].what == "2 layers are there, and the config asks for 3"


@pytest.mark.parametrize("key", ["attention_bias", "mlp_bias"])
def test_biases_that_the_config_asks_for_must_be_there(folder: Path, key: str) -> None:
    edit(folder / "config.json", lambda config: config.update({key: True}))
    (finding,) = judged(folder).wrong
    assert finding.trap == "weights-differ"
    assert "_proj.bias" in finding.what


INDEXES: dict[str, tuple[object, str]] = {
    "numbers for files": ({"weight_map": {EMBEDDING: 5}}, "must name a file of the same folder"),
    "control characters": ({"weight_map": {EMBEDDING: "\x1b[2J"}}, r"'\x1b[2J' must name a file"),
    "a file that is absent": ({"weight_map": {EMBEDDING: "no.safetensors"}}, "does not hold it"),
    "a list": ([], "has no weight_map"),
}


@pytest.mark.parametrize("name", INDEXES)
def test_an_index_next_to_a_whole_file_must_fit_it(folder: Path, name: str) -> None:
    index, complaint = INDEXES[name]
    (folder / INDEX).write_text(json.dumps(index), encoding="utf-8")
    (finding,) = judged(folder).wrong
    assert finding.trap == "weights-misplaced"
    assert complaint in finding.what
    assert finding.what.isprintable()


def _places(change: Callable[[dict[str, str]], object]) -> Callable[[Path], None]:
    return lambda folder: edit(folder / INDEX, lambda index: change(index["weight_map"]) and None)


SHARDS: dict[str, tuple[Callable[[Path], object], str]] = {
    "a file that is not there": (
        lambda folder: (folder / "model-00002-of-00002.safetensors").unlink(),
        "names model-00002-of-00002.safetensors, which is not there",
    ),
    "a file cut": (
        lambda folder: _cut(folder / "model-00001-of-00002.safetensors", 0.9),
        "bytes of tensors",
    ),
    "a name in the wrong file": (
        _places(lambda where: where.update({QUERIES: "model-00001-of-00002.safetensors"})),
        "which does not hold it",
    ),
    "a name that is nowhere": (
        _places(lambda where: where.update({"more": "model-00001-of-00002.safetensors"})),
        "places more in model-00001-of-00002.safetensors, which does not hold it",
    ),
    "a tensor that is not listed": (
        _places(lambda where: where.pop(QUERIES)),
        "does not place there",
    ),
    "a path that leads out": (
        _places(lambda where: where.update({QUERIES: "../model.safetensors"})),
        "must name a file of the same folder",
    ),
    "no map": (lambda folder: (folder / INDEX).write_text("{}"), "has no weight_map"),
    "no JSON": (lambda folder: (folder / INDEX).write_text("{"), "is not JSON"),
}


@pytest.mark.parametrize("name", SHARDS)
def test_an_index_and_its_files_belong_together(folder: Path, name: str) -> None:
    damage, complaint = SHARDS[name]
    damage(in_shards(folder))
    found = judged(folder)
    assert found.verdict == "wrong"
    assert complaint in found.wrong[0].what


@pytest.mark.parametrize("metadata", [None, []])
def test_transformers_alone_needs_the_metadata_of_an_index(folder: Path, metadata: object) -> None:
    edit(in_shards(folder) / INDEX, lambda index: index.update(metadata=metadata))
    assert judged(folder).verdict == "OK"  # by vLLM, which reads the map alone
    found = audit(folder)
    assert found.verdict_in("vllm") == found.verdict_in("sglang") == "OK"
    [finding] = found.wrong
    assert (finding.trap, "transformers" in finding.runtimes) == ("weights-misplaced", True)
    assert "metadata" in finding.what
    with pytest.raises(InputError, match="metadata"):
        load(str(folder), device="cpu")


def test_what_is_not_looked_at_is_not_established(folder: Path) -> None:
    config = folder / "config.json"
    found = judged(config)
    assert found.verdict == "not established"
    assert found.not_established[0].startswith("weights: only a config was given; give the folder")
    (folder / SINGLE).rename(folder / "pytorch_model.bin")
    (line,) = judged(folder).not_established
    assert "only in a pickle (pytorch_model.bin), which can run any code" in line
    (folder / "pytorch_model.bin").rename(folder / "other.safetensors")
    (line,) = judged(folder).not_established
    assert line.startswith("weights: other.safetensors is neither")
    (folder / "other.safetensors").unlink()
    assert judged(folder).not_established[0].startswith("weights: none in this folder")


def test_a_model_type_that_nobody_knows_is_not_established(folder: Path) -> None:
    edit(folder / "config.json", lambda config: config.update(model_type="evil"))
    found = judged(folder)
    assert found.verdict == found.verdict_in("vllm") == "not established"
    assert found.runtimes["vllm"].basis == "not looked at"
    weights, line = found.not_established
    assert "the naming of model type 'evil' is not known here" in weights
    assert line.startswith("vllm: model type 'evil' is not in ropewalk's table of model types")
    # Its naming may be another: what differs is no proof that it is wrong.
    edit(folder / "config.json", lambda config: config.update(vocab_size=1025))
    assert judged(folder).verdict == "not established"


@pytest.mark.parametrize("architecture", ["EvilForCausalLM", "Qwen2ForCausalLM", "Llama"])
def test_a_class_of_another_model_type_is_not_established(folder: Path, architecture: str) -> None:
    edit(folder / "config.json", lambda config: config.update(architectures=[architecture]))
    found = judged(folder)
    assert found.verdict == found.verdict_in("vllm") == "not established"
    (line,) = found.not_established
    assert line.startswith(f"vllm: chooses its class by the architecture {architecture!r}")


@pytest.mark.parametrize("inner", [352, 100], ids=["plain shapes", "shapes of their own"])
@pytest.mark.parametrize("place", ["quantization_config", "quantization", "hf_quant_config.json"])
def test_quantised_weights_are_not_established(folder: Path, inner: int, place: str) -> None:
    """Whether its method takes them is known only by running it."""
    changes: dict[str, Any] = {"intermediate_size": inner}
    if place.endswith(".json"):
        (folder / place).write_text("{}")
    else:
        changes[place] = {"quant_method": "gptq"}
    edit(folder / "config.json", lambda config: config.update(changes))
    (line,) = judged(folder).not_established
    assert "the weights are quantised" in line


@pytest.mark.parametrize("kind", ["LlamaModel", "LlamaForSequenceClassification"])
def test_a_class_without_an_output_head_needs_none(folder: Path, kind: str) -> None:
    """As of models that embed or rate a text."""
    changes = {"tie_word_embeddings": False, "architectures": [kind]}
    edit(folder / "config.json", lambda config: config.update(changes))
    tensors = load_torch(folder / SINGLE)
    tensors["score.weight"] = torch.ones(1, 128)
    save_torch(tensors, folder / SINGLE, metadata={"format": "pt"})
    assert "leaves the output head to its class" in judged(folder).not_established[0]
    assert audit(folder).verdict == audit(folder, run=False).verdict == "not established"


@pytest.mark.parametrize("kind", sorted(NAMINGS))
def test_the_names_of_a_type_are_those_of_transformers(kind: str) -> None:
    """With its biases and without; experts, routers and the like are not asked for."""
    keys = {key for key, *_ in NAMINGS[kind].optional if key}
    for settings in (dict.fromkeys(keys, True), dict.fromkeys(keys, False)):
        config = AutoConfig.for_model(kind, num_hidden_layers=1, **settings)
        writes = type(config) in MODEL_FOR_CAUSAL_LM_MAPPING
        with torch.device("meta"):
            model = (AutoModelForCausalLM if writes else AutoModel).from_config(config)
        names = {name.removeprefix("model.") for name in model.state_dict()}
        names = {name.removeprefix("language_model.") for name in names}
        own = [name.removeprefix("layers.0.") for name in names if name.startswith("layers.0.")]
        reader = ConfigReader({"model_type": kind, **settings})
        asked = {f"layers.0.{name}" for name in in_each_layer(reader)}
        assert asked | set(after_the_layers(reader)) <= {
            name.removeprefix("gpt_neox.") for name in names
        }
        assert asked
        assert strangers(reader, own) == ()


@pytest.mark.parametrize(
    ("family", "kind", "stranger"),
    [
        ("qwen3", "mistral", "self_attn.q_norm.weight"),
        ("qwen3", "llama", "self_attn.q_norm.weight"),
        ("qwen2", "llama", "self_attn.q_proj.bias"),
        ("gemma3_text", "gemma2", "self_attn.q_norm.weight"),
        ("gpt_oss", "mixtral", "self_attn.sinks"),
    ],
)
def test_a_model_under_the_name_of_another_type_is_wrong(
    family: str, kind: str, stranger: str
) -> None:
    model = tiny_model(family)
    shapes = {name: tuple(weight.shape) for name, weight in model.state_dict().items()}
    config = json.loads(model.config.to_json_string(use_diff=False)) | {"model_type": kind}
    problem = check_shapes(shapes, config).problems[-1]
    assert stranger in problem
    assert problem.endswith(f"no layer of model type {kind!r} has tensors of that name")


def test_a_tensor_of_no_layer_that_a_type_has_not_is_wrong(folder: Path) -> None:
    """transformers leaves it out, and vLLM does not load the model."""
    tensors = load_torch(folder / SINGLE)
    save_torch(tensors | {"model.more.weight": torch.ones(8)}, folder / SINGLE)
    [finding] = judged(folder).wrong
    assert finding.what == "model.more.weight: a 'llama' has no tensors of that name"


def test_a_buffer_of_older_files_is_no_stranger(folder: Path) -> None:
    tensors = load_torch(folder / SINGLE)
    queries = (name for name in tensors if name.endswith("q_proj.weight"))
    buffers = {
        name.replace("q_proj.weight", f"rotary_emb.{own}"): torch.ones(8)
        for name in queries
        for own in ("inv_freq", "cos_cached")
    }
    save_torch(tensors | buffers, folder / SINGLE)
    assert judged(folder).verdict == "OK"


def test_the_masks_in_the_files_of_pythia_are_no_weights(tmp_path: Path) -> None:
    tiny_model("gpt_neox").save_pretrained(tmp_path)
    tensors = load_torch(tmp_path / SINGLE)
    dense = [name for name in tensors if name.endswith("attention.dense.weight")]
    for name in dense:
        place = name.removesuffix("dense.weight")
        mask = torch.ones(1, 1, 8, 8, dtype=torch.bool)
        tensors |= {f"{place}bias": mask, f"{place}masked_bias": torch.tensor(-1e9)}
    save_torch(tensors, tmp_path / SINGLE)
    assert dense
    assert judged(tmp_path).wrong == ()


def test_a_layer_that_predicts_further_tokens_has_parts_of_its_own() -> None:
    model = tiny_model("deepseek_v3")
    config = json.loads(model.config.to_json_string(use_diff=False))
    count, width = config["num_hidden_layers"], config["hidden_size"]
    shapes = {name: tuple(weight.shape) for name, weight in model.state_dict().items()}
    shapes |= {
        name.replace("layers.0.", f"layers.{count}."): shape
        for name, shape in shapes.items()
        if "layers.0." in name
    }
    shapes[f"model.layers.{count}.eh_proj.weight"] = (width, 2 * width)
    assert check_shapes(shapes, {**config, "num_nextn_predict_layers": 1}).problems == ()
    [asked, *_] = check_shapes(shapes, {**config, "num_nextn_predict_layers": 0}).problems
    assert f"{count + 1} layers are there" in asked


def test_types_and_sizes_that_this_reader_does_not_know_are_not_damage(tmp_path: Path) -> None:
    path = tmp_path / SINGLE
    put_together(path, {"a": {"dtype": "F2", "shape": [4], "data_offsets": [0, 1]}}, b"0")
    with pytest.raises(Unsupported, match="has the type 'F2', not known here"):
        read_header(path)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", 2**25))
        file.truncate(2**26)
    with pytest.raises(Unsupported, match="larger than the limit"):
        read_header(path)


def test_the_header_of_the_library_is_read(tmp_path: Path) -> None:
    tensors: dict[str, Any] = {"b": np.ones((2, 3), np.float16), "a": np.zeros((0, 4))}
    tensors["c"] = np.array(1, np.int8)
    save_file(tensors, tmp_path / SINGLE, metadata={"format": "np"})
    read = read_header(tmp_path / SINGLE)
    assert {name: (own.dtype, own.shape) for name, own in read.items()} == {
        "b": ("F16", (2, 3)),
        "a": ("F64", (0, 4)),
        "c": ("I8", ()),
    }
    with pytest.raises(InputError, match="cannot be read"):
        read_header(tmp_path / "nowhere.safetensors")


@pytest.mark.parametrize("family", thinned((*FAMILIES, "apertus")))
def test_the_usual_naming_holds_for_the_families(family: str) -> None:
    """Real models of transformers, and each of its sizes changed in the config alone."""
    assert family in USUAL
    model = tiny_model(family)
    shapes = {name: tuple(weight.shape) for name, weight in model.state_dict().items()}
    config = json.loads(model.config.to_json_string(use_diff=False))
    found = check_shapes(shapes, config)
    assert (found.problems, found.unknown) == ((), "")
    assert found.rows == config["vocab_size"]
    for key in ("vocab_size", "hidden_size", "num_attention_heads", "num_hidden_layers"):
        if key == "num_attention_heads" and family == "gpt_neox":
            continue  # its queries are as wide as the model, however many heads there are
        assert check_shapes(shapes, {**config, key: config[key] + 1}).problems, key
    all_compared(shapes, config)


def all_compared(shapes: Mapping[str, tuple[int, ...]], config: Config) -> None:
    """Each tensor is missed, in one layer and in all, and each of its sizes compared."""
    again = {name.replace("layers.0.", "layers.1.") for name in shapes if "layers.0." in name}
    left = ("lm_head.weight", *(f"norms.{i}.weight" for i in range(1, 4)))
    for name, shape in shapes.items():
        if name in again:
            continue
        for lost in ({name}, {name, name.replace("layers.0.", "layers.1.")}):
            less = {other: own for other, own in shapes.items() if other not in lost}
            missed = check_shapes(less, config)
            assert missed.problems or missed.unknown or name.endswith(left), lost
        assert check_shapes({**shapes, name: (*shape, 8)}, config).problems, name
        for at in range(len(shape)):
            other = (*shape[:at], shape[at] + 8, *shape[at + 1 :])
            assert check_shapes({**shapes, name: other}, config).problems, (name, at)


@pytest.mark.parametrize("key", ["num_hidden_layers", "num_key_value_heads", "intermediate_size"])
def test_a_size_that_the_config_leaves_to_its_class_is_not_established(key: str) -> None:
    """Transformers fills in its class's own, and refuses the weights, or draws further layers."""
    model = tiny_model("llama")
    shapes = {name: tuple(weight.shape) for name, weight in model.state_dict().items()}
    config = json.loads(model.config.to_json_string(use_diff=False))
    del config[key]
    assert "leaves" in check_shapes(shapes, config).unknown


@pytest.mark.parametrize(
    ("family", "change", "told"),
    [
        ("mixtral", {"num_local_experts": 8}, "experts, and the config asks for 8"),
        ("mixtral", {"intermediate_size": 96}, "and the config asks for 96"),
        ("deepseek_v3", {"n_shared_experts": 4}, "and the config asks for 64"),
        ("deepseek_v3", {"first_k_dense_replace": 0}, "layer 0 has no experts, and the config"),
        ("deepseek_v3", {"first_k_dense_replace": 2}, "layer 1 has experts, and the config asks"),
        ("mixtral", {"decoder_sparse_step": 2}, "layer 0 has experts, and the config asks for"),
    ],
)
def test_experts_are_as_many_and_as_wide_as_the_config_asks(
    family: str, change: dict[str, int], told: str, tmp_path: Path
) -> None:
    """In the files each expert has tensors of its own, whatever the loaded class holds."""
    model = tiny_model(family)
    model.save_pretrained(tmp_path)
    shapes = {
        name: tuple(own.shape)
        for name, own in load_torch(next(tmp_path.glob("*.safetensors"))).items()
    }
    config = json.loads(model.config.to_json_string(use_diff=False))
    assert any("experts.3." in name for name in shapes)
    assert check_shapes(shapes, config).problems == ()
    part = next(name for name in shapes if "experts.3." in name)
    less = {name: shape for name, shape in shapes.items() if name != part}
    assert any("an expert of layer" in each for each in check_shapes(less, config).problems)
    assert any(told in problem for problem in check_shapes(shapes, config | change).problems)
    for keys, left in (
        (("intermediate_size", "moe_intermediate_size"), "the width of experts"),
        (("num_experts_per_tok",), "the number of experts for a token"),
        (("num_local_experts", "n_routed_experts"), "the number of experts"),
        *([(("n_group",), "the grouping of experts")] if "n_group" in config else []),
    ):
        less = {key: value for key, value in config.items() if key not in keys}
        assert f"leaves {left} to its class" in check_shapes(shapes, less).unknown


@pytest.mark.parametrize(
    ("family", "changes"),
    [("deepseek_v3", {"first_k_dense_replace": 2}), ("cwm", {"mlp_bias": True})],
)
def test_forms_that_few_models_take_are_right(family: str, changes: dict[str, Any]) -> None:
    model = tiny_model(family, **changes)
    shapes = {name: tuple(weight.shape) for name, weight in model.state_dict().items()}
    found = check_shapes(shapes, json.loads(model.config.to_json_string(use_diff=False)))
    assert found.problems == ()


def test_experts_in_one_tensor_are_experts_too(tmp_path: Path) -> None:
    model = tiny_model("granitemoe")
    model.save_pretrained(tmp_path)
    shapes = {name: stored.shape for name, stored in read_header(tmp_path / SINGLE).items()}
    config = json.loads(model.config.to_json_string(use_diff=False))
    assert check_shapes(shapes, config).problems == ()
    dense = {name: shape for name, shape in shapes.items() if "block_sparse_moe" not in name}
    assert "no layer has experts, and those of a 'granitemoe' have" in (
        check_shapes(dense, config).problems
    )


def test_a_norm_of_one_head_that_only_the_class_asks_for(tmp_path: Path) -> None:
    """The rules know no names of such norms but the first; the stock loader reads headers too."""
    tiny_model("stablelm").save_pretrained(tmp_path)
    weights = load_torch(tmp_path / SINGLE)
    weights = {name: own for name, own in weights.items() if "k_layernorm.norms.1." not in name}
    save_torch(weights, tmp_path / SINGLE, metadata={"format": "pt"})
    (finding,) = audit(tmp_path, runtimes=["transformers"], run=False).wrong
    assert "no file holds 2 tensors" in finding.what


def test_nothing_heavy_is_needed(folder: Path) -> None:
    """Under a second and 300 MB, in a process of its own; on a busy machine, its CPU time."""
    program = (
        "import sys, time; start = time.process_time()\n"
        "from pathlib import Path\n"
        "from ropewalk.audit.examination import audit\n"
        f"found = audit({str(folder)!r}, runtimes=['vllm', 'sglang'], run=False)\n"
        "assert found.verdict == 'OK', found\n"
        "assert {'torch', 'transformers', 'safetensors'}.isdisjoint(sys.modules)\n"
        "status = Path('/proc/self/status')\n"  # of this process alone, unlike its rusage
        "lines = status.read_text().splitlines() if status.is_file() else ['VmHWM: 0']\n"
        "print(time.process_time() - start, *(x.split()[1] for x in lines if 'VmHWM' in x))\n"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    seconds, used = map(float, said.stdout.split())
    assert seconds < 1
    assert used < 300_000  # KiB


def test_a_header_of_many_tensors_is_quick(tmp_path: Path) -> None:
    """More than any file of a published model has."""
    entry = {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}
    header = {
        f"model.layers.{i // 1000}.mlp.experts.{i % 1000}.up_proj.weight": {
            **entry,
            "data_offsets": [i, i + 1],
        }
        for i in range(20_000)
    }
    put_together(tmp_path / SINGLE, header, bytes(20_000))
    start = time.process_time()
    assert len(read_header(tmp_path / SINGLE)) == 20_000
    assert time.process_time() - start < 2


@pytest.mark.parametrize("dtype", ["F64", "F32", "F16", "BF16", "F8_E5M2", "F8_E4M3"])
@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_a_number_that_is_none_is_found_without_a_manifest(
    dtype: str, value: str, tmp_path: Path
) -> None:
    own = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
    kind = getattr(torch, {**own, "F8_E5M2": "float8_e5m2", "F8_E4M3": "float8_e4m3fn"}[dtype])
    whole, broken = torch.randn(7, 9), torch.randn(7, 9)
    broken[-1, -1] = float(value)
    save_torch({"a": whole.to(kind), "b": broken.to(kind)}, tmp_path / SINGLE)
    stored = {tmp_path / SINGLE: read_header(tmp_path / SINGLE)}
    # F8_E4M3 has no infinite values: torch writes its largest number for them.
    none = dtype == "F8_E4M3" and value != "nan"
    assert odd(numbers(stored)).not_finite == (() if none else ("b",))


@pytest.mark.parametrize("value", [1e300, 3.4028235677973366e38, -3.4028235677973366e38, 3.4e38])
def test_a_float64_that_float32_cannot_hold_is_found(value: float, tmp_path: Path) -> None:
    weights = torch.tensor([1.0, value], dtype=torch.float64)
    save_torch({"a": weights}, tmp_path / SINGLE)
    stored = {tmp_path / SINGLE: read_header(tmp_path / SINGLE)}
    found = odd(numbers(stored)).not_finite
    assert found == (() if weights.float().isfinite().all() else ("a",))


@pytest.mark.parametrize("sharded", [False, True])
def test_a_model_with_nan_is_wrong(sharded: bool, folder: Path) -> None:
    weights = load_torch(folder / SINGLE)
    weights[QUERIES][3, 5] = float("nan")
    save_torch(weights, folder / SINGLE, metadata={"format": "pt"})
    if sharded:
        in_shards(folder)
    found = judged(folder)
    assert found.verdict == found.verdict_in("vllm") == "wrong"
    (finding,) = found.wrong
    assert finding.what == f"{QUERIES} holds NaN or values that are infinite in float32"


def test_one_matrix_of_zeros_is_a_note_and_a_bias_of_zeros_is_none(folder: Path) -> None:
    weights = load_torch(folder / SINGLE)
    weights[QUERIES].zero_()
    for name, own in weights.items():
        if own.ndim == 1:
            weights[name] = torch.zeros_like(own)
    save_torch(weights, folder / SINGLE, metadata={"format": "pt"})
    found = judged(folder)
    [note] = [each for each in found.warnings if each.trap == "weights-zero"]
    assert note.what == f"{QUERIES} holds zeros alone"
    assert not note.wrong
    assert found.verdict == "OK"


@pytest.mark.parametrize("lost", ["model.embed_tokens.", "proj"])
def test_zeros_in_the_embedding_or_in_most_matrices_are_wrong(folder: Path, lost: str) -> None:
    weights = load_torch(folder / SINGLE)
    for name, own in weights.items():
        if lost in name:
            own.zero_()
    save_torch(weights, folder / SINGLE, metadata={"format": "pt"})
    found = judged(folder)
    assert [each.trap for each in found.wrong] == ["weights-zero"]


@pytest.mark.parametrize("kind", [torch.int32, torch.int8, torch.bool])
def test_weights_that_are_whole_numbers_are_wrong(kind: torch.dtype, folder: Path) -> None:
    weights = load_torch(folder / SINGLE)
    weights[QUERIES] = weights[QUERIES].to(kind)
    save_torch(weights, folder / SINGLE, metadata={"format": "pt"})
    (finding,) = judged(folder).wrong
    assert f"{QUERIES} is stored as " in finding.what
