"""The bundled model as it is shipped: what it weighs, how it reads text, and what it retrieves."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from string import ascii_uppercase
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

import ropewalk as rw
from ropewalk.data.corpora import HELD_OUT, read_documents
from ropewalk.errors import UnknownName
from ropewalk.models.config import BUNDLED_FOLDER as BUNDLED
from ropewalk.models.config import BUNDLED_FOLDERS
from studies.bundled_model import corpus
from studies.bundled_model.measure import Questions, exact_match
from studies.bundled_model.prompts import PASSKEY_FILLER, key_question, passkey_prompt
from studies.bundled_model.tokenizer import QWEN2_SPLIT

SAMPLES = 64


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(BUNDLED, local_files_only=True)


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    loaded = AutoModelForCausalLM.from_pretrained(BUNDLED, local_files_only=True)
    return loaded.eval()


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    read: dict[str, Any] = json.loads((BUNDLED / "training_record.json").read_text("utf-8"))
    return read


@pytest.fixture(scope="module")
def held_out() -> str:
    return "".join(document.text for document in read_documents(HELD_OUT))


@pytest.fixture(scope="module")
def questions(tokenizer: Any, held_out: str, model: LlamaForCausalLM) -> Questions:
    length = model.config.max_position_embeddings
    return Questions(tokenizer, held_out, words=["amber", "fjord"], length=length)


def test_it_is_a_stock_llama_with_a_plain_rotation(model: LlamaForCausalLM) -> None:
    assert type(model) is LlamaForCausalLM
    assert model.config.max_position_embeddings == 512
    assert model.config.rope_parameters == {"rope_type": "default", "rope_theta": 10_000.0}


def test_it_computes_in_float32_although_half_the_bytes_are_shipped(
    model: LlamaForCausalLM,
) -> None:
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert all(torch.equal(each, each.bfloat16().float()) for each in model.parameters())


def test_all_three_weigh_under_five_megabytes() -> None:
    sizes = [f.stat().st_size for folder in BUNDLED_FOLDERS.values() for f in folder.iterdir()]
    assert sum(sizes) < 5_000_000


def test_three_seeds_are_three_models_with_one_tokenizer() -> None:
    weights = {rw.load(name).model.lm_head.weight.sum().item() for name in BUNDLED_FOLDERS}
    assert len(weights) == 3
    assert len({(f / "tokenizer.json").read_bytes() for f in BUNDLED_FOLDERS.values()}) == 1
    [schedule] = {rw.load(name).present_plan.longest() for name in BUNDLED_FOLDERS}
    assert schedule.method == "plain"
    with pytest.raises(UnknownName, match="bundled:2, bundled:3"):
        rw.inspect("bundled:4")


def test_no_path_of_the_training_machine_is_shipped() -> None:
    home = str(Path.home())
    for folder in BUNDLED_FOLDERS.values():
        for file in folder.glob("*.json"):
            assert home not in file.read_text("utf-8"), file


@given(st.text())
def test_any_text_comes_back_unchanged(tokenizer: Any, text: str) -> None:
    assert tokenizer.decode(tokenizer(text)["input_ids"][1:]) == text


@given(st.text(alphabet="0123456789", min_size=1))
def test_every_digit_is_a_token(tokenizer: Any, digits: str) -> None:
    assert tokenizer.tokenize(digits) == list(digits)


@given(st.text(max_size=20))
def test_bos_is_added_once_and_first(tokenizer: Any, text: str) -> None:
    ids = tokenizer(text)["input_ids"]
    assert ids[0] == tokenizer.bos_token_id
    assert tokenizer.bos_token_id not in ids[1:]
    assert tokenizer(text, add_special_tokens=False)["input_ids"] == ids[1:]


def test_text_is_split_as_llama_cpp_splits_for_qwen2() -> None:
    stored = json.loads((BUNDLED / "tokenizer.json").read_text("utf-8"))
    split, byte_level = stored["pre_tokenizer"]["pretokenizers"]
    assert stored["normalizer"] is None
    assert split["pattern"] == {"Regex": QWEN2_SPLIT}
    assert split["behavior"] == "Isolated"
    assert not split["invert"]
    assert not byte_level["add_prefix_space"]
    assert not byte_level["use_regex"]


def test_nearly_every_key_is_two_tokens(tokenizer: Any) -> None:
    """A question must begin with the same tokens as the line it asks for."""
    empty = len(tokenizer.tokenize(key_question("")[:-1]))
    keys = ["".join(pair) for pair in product(ascii_uppercase, repeat=2)]
    lengths = [len(tokenizer.tokenize(key_question(key))) - empty for key in keys]
    assert lengths.count(2) >= len(keys) - 2


def test_the_passkey_prompt_fits_the_window_with_filler(tokenizer: Any) -> None:
    ids = tokenizer(passkey_prompt(12345, 5, 5) + " 12345")["input_ids"]
    assert len(ids) <= 512
    assert len(tokenizer.tokenize(PASSKEY_FILLER)) < 32


@pytest.mark.slow
def test_a_single_needle_is_always_found(
    model: LlamaForCausalLM, tokenizer: Any, questions: Questions
) -> None:
    assert exact_match(model, tokenizer, questions.needle(SAMPLES, seed=7, distractors=0)) == 1.0


@pytest.mark.slow
def test_a_needle_is_found_among_distractors(
    model: LlamaForCausalLM, tokenizer: Any, questions: Questions
) -> None:
    assert exact_match(model, tokenizer, questions.needle(SAMPLES, seed=7, distractors=3)) >= 0.95


def test_the_passkey_is_found_at_any_depth(
    model: LlamaForCausalLM, tokenizer: Any, questions: Questions
) -> None:
    assert exact_match(model, tokenizer, questions.passkey(SAMPLES, seed=7)) >= 0.95


def test_retrieval_ends_with_the_window(
    model: LlamaForCausalLM, tokenizer: Any, held_out: str
) -> None:
    """What the bundled model is for: there must be something to extend."""
    beyond = Questions(tokenizer, held_out, words=[], length=4 * 512)
    assert exact_match(model, tokenizer, beyond.needle(16, seed=7, distractors=3)) < 0.5


def test_a_passkey_is_generated_and_not_only_scored(
    model: LlamaForCausalLM, tokenizer: Any
) -> None:
    prompt = tokenizer(passkey_prompt(90817, 3, 4), return_tensors="pt")
    generated = model.generate(**prompt, max_new_tokens=7, do_sample=False)
    written = tokenizer.decode(generated[0, prompt["input_ids"].shape[1] :])
    assert written.startswith(" 90817.")


def test_held_out_text_is_what_was_recorded(record: dict[str, Any], held_out: str) -> None:
    assert corpus.sha256([held_out]) == record["data"]["held_out"]["sha256"]
    assert len(held_out) == sum(
        module["characters"] for module in record["data"]["held_out"]["modules"].values()
    )


def test_held_out_text_does_not_overlap_training_text(
    record: dict[str, Any], held_out: str
) -> None:
    """By the recorded sample: both sides keep the same hashes, so a copied passage would show."""
    overlap = record["data"]["overlap"]
    kept = set(corpus.sampled(corpus.shingles([held_out])))
    assert kept
    assert kept.isdisjoint(overlap["sampled_training_shingles"])
    assert overlap["shared_shingles"] == 0


def test_a_copied_passage_would_show_in_the_sample(held_out: str) -> None:
    passage = "\n".join(held_out.splitlines()[:2000])
    assert set(corpus.sampled(corpus.shingles(["import this\n" + passage]))) & set(
        corpus.sampled(corpus.shingles([held_out]))
    )


def test_the_record_meets_its_own_gate(record: dict[str, Any]) -> None:
    gate = record["gate"]
    assert gate["samples"] >= 128
    assert list(record["models"]) == list(BUNDLED_FOLDERS)
    for model in record["models"].values():
        for task, least in gate["least"].items():
            assert model["passed_the_gate_with"][task] >= least, task
