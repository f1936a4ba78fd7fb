"""Stretches of a long text give the tokens of the whole, or the text is not cut."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import cache
from itertools import islice
from typing import Any

import numpy as np
import pytest
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from ropewalk.data.corpora import standard_library
from ropewalk.evaluation import encoding, long_texts
from ropewalk.evaluation.encoding import Encoder

BLANKS, LINES = long_texts._JOINTS


def texts() -> list[str]:
    return [document.text for document in islice(standard_library(), 12)]


def awkward() -> str:
    """Code, and what might look beyond a cut: blanks, line breaks, accents, other scripts."""
    return "\n".join(
        [
            *(text[:9000] for text in texts()[:8]),
            "Ein Seil, länger als\u0301 das Tau.\n中文没有空格。\n第二行\n" * 60,
            "  \n\n\n   x " * 120 + "\r\n\r\n a\tb" * 80,
            "A B c" * 200 + "it's we'll don't I 'm " * 50,
            "🪢🪢 rope\u200d" * 100 + "abc" * 900,
        ]
    )


def byte_level(*, prefix: bool = False, pattern: str | None = None) -> Tokenizer:
    own = Tokenizer(models.BPE())
    own.pre_tokenizer = pre_tokenizers.ByteLevel(prefix, use_regex=pattern is None)
    own.post_processor = processors.ByteLevel(trim_offsets=True)
    if prefix:
        own.normalizer = normalizers.NFC()
    if pattern is not None:
        split = pre_tokenizers.Split(Regex(pattern), "isolated")
        own.pre_tokenizer = pre_tokenizers.Sequence([split, own.pre_tokenizer])
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    return trained(own, trainers.BpeTrainer(vocab_size=700, initial_alphabet=alphabet))


LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def pieces(*, apart: bool, unigram: bool = False) -> Tokenizer:
    """As sentencepiece does; without words `apart`, as the files of Llama 2 and Gemma have it."""
    unknown = "<unk>"
    model = (
        models.Unigram()
        if unigram
        else models.BPE(byte_fallback=True, fuse_unk=True, unk_token=unknown)
    )
    own = Tokenizer(model)
    own.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    special = [unknown, *(f"<0x{byte:02X}>" for byte in range(256))]
    if unigram:
        trainer: Any = trainers.UnigramTrainer(
            vocab_size=500, special_tokens=[unknown], unk_token=unknown
        )
    else:
        trainer = trainers.BpeTrainer(vocab_size=900, special_tokens=special)
    trained(own, trainer)
    if not apart:
        own.pre_tokenizer = None
        own.normalizer = normalizers.Sequence(
            [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
        )
    return own


def trained(own: Tokenizer, trainer: Any) -> Tokenizer:
    trainer.show_progress = False
    own.train_from_iterator([text[:6000] for text in texts()], trainer)
    return own


def word_pieces() -> Tokenizer:
    own = Tokenizer(models.WordPiece(unk_token="<unk>"))
    own.normalizer = normalizers.BertNormalizer()
    own.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return trained(own, trainers.WordPieceTrainer(vocab_size=700, special_tokens=["<unk>"]))


KINDS: dict[str, Callable[[], Tokenizer]] = {
    "gpt2": byte_level,
    "a blank before": lambda: byte_level(prefix=True),
    "llama3": lambda: byte_level(pattern=LLAMA3),
    "llama2": lambda: pieces(apart=False),
    "metaspace": lambda: pieces(apart=True),
    "unigram": lambda: pieces(apart=True, unigram=True),
    "word pieces": word_pieces,
}


@cache
def encoder(kind: str) -> Encoder:
    return Encoder(PreTrainedTokenizerFast(tokenizer_object=KINDS[kind]()))


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that the tokenizer is given."""
    given: list[str] = []
    real = Encoder._read

    def noted(self: Encoder, text: str) -> Any:
        given.append(text)
        return real(self, text)

    monkeypatch.setattr(Encoder, "_read", noted)
    return given


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("stretch", "margin"), [(1500, 24), (300, 3), (20_000, 256)])
def test_stretches_give_the_tokens_of_the_whole(
    kind: str, stretch: int, margin: int, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    own, text = encoder(kind), awkward()
    whole = own._plain([text], return_offsets_mapping=True)
    for module in (long_texts, encoding):
        monkeypatch.setattr(module, "STRETCH", stretch)
    monkeypatch.setattr(long_texts, "MARGIN", margin)
    own.__dict__.pop("_at_once", None)
    assert own._joints is not None
    [tokens] = own.batch([text])
    assert tokens.tolist() == whole["input_ids"][0]
    assert own.begins(text).tolist() == [begin for begin, _ in whole["offset_mapping"][0]]
    del own.__dict__["_at_once"]
    assert len(read) > len(text) // (4 * stretch)


@pytest.mark.parametrize(
    ("token", "left"),
    [
        ("Ġword", {BLANKS, LINES}),
        ("ĊĊĠĠ", {BLANKS, LINES}),
        (";ĊĊ", {BLANKS, LINES}),
        ("theĠend", {LINES}),
        ("the▁", {LINES}),
        ("Ċx", {BLANKS}),
        ("<0x0A>", {BLANKS, LINES}),
    ],
)
def test_a_joint_that_a_token_spans_is_not_used(token: str, left: set[str]) -> None:
    found = long_texts.joints(["a", "Ġ", token])
    assert found is not None
    assert set(found.pattern.split("|")) == left
    assert long_texts.joints([token, "theĠend", "Ċx"]) is None


def test_a_text_is_read_whole_where_no_cut_is_proven(read: list[str]) -> None:
    own = pieces(apart=False, unigram=True)
    own.normalizer = normalizers.Replace(" ", "▁")
    whole = Encoder(PreTrainedTokenizerFast(tokenizer_object=own))
    assert whole._at_once == math.inf
    byte = encoder("gpt2")
    unbroken = "绳" * (3 * long_texts.STRETCH)
    assert byte.batch([unbroken])[0].size == 9 * long_texts.STRETCH
    assert read == [unbroken]


@pytest.mark.parametrize("words", [700, 701])
def test_stretches_that_disagree_are_read_as_one(
    words: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tokenizer that takes two words at a time depends on where a text begins."""
    monkeypatch.setattr(long_texts, "STRETCH", 50)
    monkeypatch.setattr(long_texts, "MARGIN", 20)
    lengths: list[int] = []

    def read(text: str) -> long_texts.Tokens:
        lengths.append(len(text))
        places = [found.start() for found in re.finditer(r" ?\w+", text)][::2]
        return np.array([len(text[a : a + 9]) for a in places], np.uint32), np.array(places)

    random = np.random.default_rng(words)
    text = " ".join("abcdefgh"[: random.integers(1, 9)] for _ in range(words))
    joint = long_texts.joints([])
    assert joint is not None
    found = [part for _, part in long_texts.in_stretches(text, read, joint)]
    assert np.concatenate(found).tolist() == read(text)[1].tolist()
    assert max(lengths[:-1]) > 300  # several became one
