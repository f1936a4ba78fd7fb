"""A model and a tokenizer small enough to build in every test."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from ropewalk.data.corpora import Document
from ropewalk.evaluation.encoding import Encoder
from ropewalk.models.config import present_plan
from ropewalk.models.load import LoadedModel

WINDOW = 128


@cache
def tokenizer(*, bos: bool = True) -> PreTrainedTokenizerFast:
    """One token a byte, BOS before."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate(["<s>", *alphabet])}
    backend = Tokenizer(models.BPE(vocabulary, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    if bos:
        backend.post_processor = processors.TemplateProcessing(
            single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 0)]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<s>",
        add_bos_token=bos,
        clean_up_tokenization_spaces=False,
    )


@cache
def model(**changes: Any) -> LlamaForCausalLM:
    """Random weights, large enough that its predictions differ from position to position."""
    torch.manual_seed(0)
    config = LlamaConfig(
        **{
            "vocab_size": len(tokenizer()),
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "intermediate_size": 48,
            "max_position_embeddings": WINDOW,
            "initializer_range": 0.3,
            "bos_token_id": 0,
            "eos_token_id": None,
            **changes,
        }
    )
    return LlamaForCausalLM(config).eval()


def loaded(*, bos: bool = True, **changes: Any) -> LoadedModel:
    """Both of them, as `load` returns a folder that holds them."""
    own = model(**changes)
    return LoadedModel("tiny", own, tokenizer(bos=bos), present_plan(own.config, "tiny"))


def folder_of(own: Any, place: Path) -> Path:
    """A folder that holds a model and the tokenizer."""
    own.save_pretrained(place)
    tokenizer().save_pretrained(place)
    return place


class LargeEncoder(Encoder):
    """The same tokenizer, taken for that of a model that is asked in prose."""

    @property
    def is_small(self) -> bool:
        return False


def documents(count: int = 3, lines: int = 120) -> list[Document]:
    """Prose of a sort, different from document to document."""
    return [
        Document(
            f"document {d}",
            "\n".join(f"In line {i} of text {d} there are {i * d} words." for i in range(lines)),
        )
        for d in range(count)
    ]


def saved(place: Path, **changes: Any) -> Path:
    """The model and its tokenizer, as a folder."""
    model(**changes).save_pretrained(place)
    tokenizer().save_pretrained(place)
    return place


def texts(place: Path, count: int = 3, lines: int = 120) -> Path:
    """The documents, as a folder of text files."""
    place.mkdir(exist_ok=True)
    for document in documents(count, lines):
        (place / f"{document.name}.txt").write_text(document.text)
    return place
