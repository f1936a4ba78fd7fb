"""Loading: what works, and one line for each way in which a folder is no model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from ropewalk.audit.examination import audit
from ropewalk.errors import InputError, InvalidValue, RopewalkError, UnknownName, Unsupported
from ropewalk.exporting.gate import probe_ids
from ropewalk.models.config import present_plan
from ropewalk.models.load import load, load_stock_config, load_tokenizer
from ropewalk.progress import log_notice
from tests.models.tiny import VOCABULARY, tiny_model, tokens

MARKER = "a pickle was opened"


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole model, in bfloat16, in three shards."""
    folder = tmp_path_factory.mktemp("saved")
    model = tiny_model().to(torch.bfloat16)
    model.save_pretrained(folder, max_shard_size="12KB")
    words = Tokenizer(WordLevel({f"w{i}": i for i in range(VOCABULARY)}, unk_token="w0"))
    PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(folder)
    assert len(list(folder.glob("*.safetensors"))) > 2
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    """A copy of it, to break."""
    return Path(shutil.copytree(saved, tmp_path / "model"))


def edit_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def one_file(folder: Path) -> Path:
    """Put all weights into one file."""
    weights = {}
    for shard in folder.glob("*.safetensors"):
        weights.update(load_file(shard))
        shard.unlink()
    (folder / "model.safetensors.index.json").unlink()
    path = folder / "model.safetensors"
    save_file(weights, path, metadata={"format": "pt"})
    return path


def test_a_folder_gives_model_tokenizer_and_present_plan(saved: Path) -> None:
    loaded = load(str(saved), device="cpu")
    assert loaded.name == str(saved)
    assert (loaded.dtype, loaded.device) == ("float32", "cpu")
    assert not loaded.model.training
    assert loaded.present_plan == present_plan(saved, str(saved))
    assert loaded.tokenizer.convert_tokens_to_ids("w5") == 5
    ids = tokens(8)
    with torch.no_grad():
        rounded = tiny_model()
        for weight in rounded.parameters():
            weight.copy_(weight.to(torch.bfloat16))
        assert torch.equal(loaded.model(ids).logits, rounded(ids).logits)


@pytest.mark.parametrize(
    ("dtype", "device", "found"),
    [
        ("bfloat16", "cpu", "bfloat16"),
        ("float64", "cpu", "float64"),
        ("auto", "meta", "bfloat16"),  # not a CPU: the checkpoint's own
    ],
)
def test_dtype_and_device_are_as_asked(saved: Path, dtype: str, device: str, found: str) -> None:
    loaded = load(str(saved), dtype=dtype, device=device)
    assert (loaded.dtype, loaded.device) == (found, device)


def test_one_file_of_weights_loads_too(folder: Path) -> None:
    one_file(folder)
    assert load(str(folder), device="cpu").dtype == "float32"


def test_unknown_dtypes_and_absent_devices_are_refused(saved: Path) -> None:
    with pytest.raises(UnknownName, match="valid: auto, float32, bfloat16"):
        load(str(saved), dtype="int4")
    with pytest.raises(InvalidValue):
        load(str(saved), device="cuda:63")
    with pytest.raises(InvalidValue, match="is not a device; give"):
        load(str(saved), device="abacus")


def encoder(folder: Path) -> None:
    edit_config(folder, model_type="eurobert", architectures=["EuroBertForMaskedLM"])


def sees_later_tokens(folder: Path) -> None:
    edit_config(folder, is_causal=False)


def adapter(folder: Path) -> None:
    remove_config(folder)
    own = {"peft_type": "LORA", "base_model_name_or_path": "vendor/base-model"}
    (folder / "adapter_config.json").write_text(json.dumps(own))


def remove_config(folder: Path) -> None:
    (folder / "config.json").unlink()


def break_config(folder: Path) -> None:
    (folder / "config.json").write_text("{")


def no_rope(folder: Path) -> None:
    edit_config(folder, model_type="gpt2", rope_parameters=None)


def alien(folder: Path) -> None:
    edit_config(folder, model_type="alien")


def with_code(folder: Path) -> None:
    edit_config(folder, model_type="alien", auto_map={"AutoModelForCausalLM": "alien.Alien"})
    (folder / "alien.py").write_text(f"raise SystemExit({MARKER!r})")


def no_weights(folder: Path) -> None:
    one_file(folder).unlink()


def only_pickle(folder: Path) -> None:
    no_weights(folder)
    # Unpickling this would end the test run.
    (folder / "pytorch_model.bin").write_bytes(
        b"cbuiltins\nexit\n(S'" + MARKER.encode() + b"'\ntR."
    )


def lose_shards(folder: Path) -> None:
    for shard in sorted(folder.glob("*.safetensors"))[:2]:
        shard.unlink()


def cut_a_shard(folder: Path) -> None:
    shard = min(folder.glob("*.safetensors"))
    shard.write_bytes(shard.read_bytes()[:-16])


def shard_outside(folder: Path) -> None:
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"]["lm_head.weight"] = "../other/model.safetensors"
    path.write_text(json.dumps(index))


def index_without_map(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text('{"weight_map": ["a"]}')


def lose_a_weight(folder: Path) -> None:
    path = one_file(folder)
    weights = load_file(path)
    del weights["model.layers.1.self_attn.q_proj.weight"]
    save_file(weights, path, metadata={"format": "pt"})


def other_shape(folder: Path) -> None:
    edit_config(folder, intermediate_size=48)


def unloadable(folder: Path) -> None:
    edit_config(folder, quantization_config={"quant_method": "gptq", "bits": 4})


def unknown_activation(folder: Path) -> None:
    edit_config(folder, hidden_act="blorp")


def padding_beyond(folder: Path) -> None:
    edit_config(folder, pad_token_id=10**6)


def types_in_a_list(folder: Path) -> None:
    edit_config(folder, model_type=["llama"])


def lose_tokenizer(folder: Path) -> None:
    for path in folder.glob("tokenizer*"):
        path.unlink()


def other_class(folder: Path) -> None:
    """Any class of transformers can be named as that of the tokenizer."""
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PretrainedConfig"}')


@pytest.mark.parametrize(
    ("damage", "error", "says"),
    [
        (remove_config, InputError, "holds no config.json, so it is not a transformers model"),
        (adapter, InputError, "an adapter of 'vendor/base-model', not of a model; .*merge_and_unl"),
        (encoder, Unsupported, "is an encoder, which predicts no next token, so ropewalk cannot"),
        (sees_later_tokens, Unsupported, "this llama is an encoder, which predicts no next token"),
        (break_config, InputError, "is not JSON"),
        (no_rope, Unsupported, "not a rotary embedding"),
        (alien, Unsupported, "does not know model type 'alien'; a newer one may"),
        (with_code, Unsupported, "needs custom code from that folder, which ropewalk never"),
        (no_weights, InputError, "holds a config but no weights"),
        (only_pickle, Unsupported, r"only as a pickle \(pytorch_model.bin\).*save_pretrained"),
        (lose_shards, InputError, "2 of its . weight files are missing: model-0000"),
        (cut_a_shard, InputError, r"bytes of tensors, but .* are there; copy the file again"),
        (shard_outside, InputError, "must name a file of the same folder"),
        (index_without_map, InputError, "has no weight_map of file names"),
        (lose_a_weight, InputError, r"no file holds 1 tensor that .* asks for \(model.*q_proj"),
        (other_shape, InputError, r"6 tensors have another shape than .* for \(model.*mlp"),
        (unloadable, InputError, "transformers cannot load it: .*GPTQ"),
        (unknown_activation, InputError, "transformers cannot load it: KeyError: 'blorp'"),
        (padding_beyond, InputError, "transformers cannot load it: AssertionError: Padding_idx"),
        (types_in_a_list, InvalidValue, "config.json: model_type = .* must be a string"),
        (lose_tokenizer, InputError, "its tokenizer cannot be loaded"),
        (other_class, InputError, "its tokenizer_class, PreTrainedConfig, is no tokenizer"),
    ],
)
def test_a_folder_that_is_no_whole_model_is_refused_in_one_line(
    folder: Path, damage: Callable[[Path], None], error: type[RopewalkError], says: str
) -> None:
    damage(folder)
    with pytest.raises(error, match=says) as caught:
        load(str(folder), device="cpu")
    assert caught.value.exit_status == 2
    assert str(caught.value).isprintable()


def test_an_allowed_download_brings_neither_pickles_nor_code(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fnmatch

    import huggingface_hub

    asked = {}

    def snapshot(hub_id: str, *, allow_patterns: list[str]) -> str:
        asked[hub_id] = allow_patterns
        return str(saved)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    loaded = load("someone/some-model", device="cpu", allow_download=True)
    assert loaded.name == loaded.present_plan.model == "someone/some-model"
    (patterns,) = asked.values()

    def fetched(name: str) -> bool:
        return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)

    assert all(fetched(path.name) for path in saved.iterdir())
    assert fetched("README.md")  # and the licence: an extension's card states them
    assert fetched("LICENSE.txt")
    assert not any(map(fetched, ("pytorch_model.bin", "modeling_x.py", "x.pt", "x.msgpack")))


def test_a_download_that_fails_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    def fails(*args: Any, **kwargs: Any) -> str:
        raise OSError("no route to host\nmore of it")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fails)
    with pytest.raises(RopewalkError, match=r"cannot be fetched.*no route to host$") as caught:
        load("someone/some-model", allow_download=True)
    assert caught.value.exit_status == 1


def test_what_is_in_memory_is_taken_as_it_is(saved: Path) -> None:
    loaded = load("bundled", device="cpu")
    assert load(loaded) is loaded
    with pytest.raises(InputError, match=r"needs a tokenizer.*load\(model, tokenizer=…\)"):
        load(loaded.model)
    live = load(loaded.model, tokenizer=loaded.tokenizer)
    assert live.model is loaded.model
    assert live.present_plan.schedules == loaded.present_plan.schedules


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated")
def test_a_model_with_adapters_in_it_is_refused(saved: Path) -> None:
    model, config = load(str(saved)), peft.LoraConfig(target_modules=["q_proj"])
    adapted = peft.get_peft_model(model.model, config)
    with pytest.raises(Unsupported, match=r"give model\.merge_and_unload\(\)"):
        load(adapted, tokenizer=model.tokenizer)
    assert load(adapted.merge_and_unload(), tokenizer=model.tokenizer).vocabulary


def test_a_notice_shows_no_control_characters(caplog: pytest.LogCaptureFixture) -> None:
    log_notice("a\x1b[31mb")
    assert "\x1b" not in caplog.text


@pytest.mark.parametrize("value", [{"num_attention_heads": 0}, {"dtype": "float7"}])
def test_a_config_that_transformers_does_not_take_is_named_by_all_who_ask_for_it(
    folder: Path, value: dict[str, object]
) -> None:
    edit_config(folder, **value)
    for ask in (load_stock_config, load_tokenizer, probe_ids):
        with pytest.raises(InputError, match=r"rejects its config\.json"):
            ask(folder)
    assert audit(folder).verdict == "wrong"


def test_threads_load_one_after_another() -> None:
    """transformers ties weights under settings of the whole process."""
    with ThreadPoolExecutor(4) as threads:
        loaded = list(threads.map(load, ["bundled"] * 8))
    for each in loaded:
        assert each.model.lm_head.weight is each.model.model.embed_tokens.weight
