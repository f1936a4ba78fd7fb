"""A small tokenizer in SentencePiece's manner, made on the spot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, trainers
from transformers import GemmaTokenizer

from ropewalk.data.corpora import HELD_OUT, read_documents
from ropewalk.gguf.sentencepiece import SPACE

BOS = {"SpecialToken": {"id": "<s>", "type_id": 0}}
TEXT = {"Sequence": {"id": "A", "type_id": 0}}
METASPACE = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "first", "split": False}
PREPEND = {
    "type": "Sequence",
    "normalizers": [
        {"type": "Prepend", "prepend": SPACE},
        {"type": "Replace", "pattern": {"String": " "}, "content": SPACE},
    ],
}


def stated(**changes: Any) -> dict[str, Any]:
    """Its tokenizer.json, with pieces trained on the bundled text and bytes for all others."""
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trained = Tokenizer(models.BPE(unk_token="<unk>"))
    trained.pre_tokenizer = pre_tokenizers.Metaspace(SPACE)
    text = next(read_documents(HELD_OUT)).text[:30_000]
    trainer = trainers.BpeTrainer(vocab_size=900, special_tokens=special, show_progress=False)
    trained.train_from_iterator(text.splitlines(), trainer)
    value: dict[str, Any] = json.loads(trained.to_str())
    vocab = value["model"]["vocab"]
    pieces = sorted((set(vocab) - set(special)), key=vocab.__getitem__)
    merges = [
        [piece[:at], piece[at:]]
        for piece in pieces
        for at in range(1, len(piece))
        if piece[:at] in vocab and piece[at:] in vocab
    ]
    value["model"].update(merges=merges, byte_fallback=True, fuse_unk=True)
    value["added_tokens"] = value["added_tokens"][:3]
    value |= {"normalizer": PREPEND, "pre_tokenizer": None}
    value["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [BOS, TEXT],
        "pair": [BOS, TEXT, TEXT],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
    }
    return value | changes


AFTER_SPACES = {
    "type": "Split",
    "pattern": {"String": " "},
    "behavior": "MergedWithPrevious",
    "invert": False,
}
RUNS = [sign * count for sign in ("\n", SPACE) for count in (2, 3, 4)]
"""User-defined pieces of Gemma's, which its rules join as well."""


def write_gemma(folder: Path) -> Path:
    """The same as transformers' own class for Gemma saves it."""
    old: dict[str, Any] = stated()["model"]
    pieces = sorted(old["vocab"], key=old["vocab"].__getitem__)[3:]
    special = ("<pad>", "<eos>", "<bos>", "<unk>", "<mask>")
    texts = ("<start_of_turn>", "\n", *RUNS, "<h1>")
    vocab = {text: at for at, text in enumerate(dict.fromkeys((*special, *texts, *pieces)))}
    runs = [(run[:at], run[at:]) for run in RUNS for at in range(1, len(run))]
    rules = [*runs, *map(tuple, old["merges"])]
    tokenizer = GemmaTokenizer(vocab=vocab, merges=rules, add_bos_token=True)
    tokenizer.add_tokens([AddedToken(text, normalized=False, special=False) for text in texts])
    tokenizer.save_pretrained(folder)
    return folder


def write(folder: Path, **changes: Any) -> Path:
    """In a model's folder, in place of the one that is there."""
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
    }
    (folder / "tokenizer.json").write_text(json.dumps(stated(**changes)), "utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    return folder
