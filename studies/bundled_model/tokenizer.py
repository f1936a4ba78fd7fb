"""The tokenizer: byte-level BPE, split before merging exactly as Qwen2 splits.

Every digit is its own token, so a number is copied digit by digit, and llama.cpp knows the split
under the name "qwen2". There is no normalizer: any text comes back byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from string import ascii_uppercase

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from studies.bundled_model.prompts import key_question, passkey_prompt, record_question

VOCABULARY = 1024
BOS, EOS = "<|begin|>", "<|end|>"

QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def train_tokenizer(texts: list[str], seed: int) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN2_SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[BOS, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_training_lines(texts, seed), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A",
        pair=f"{BOS} $A $B",
        special_tokens=[(BOS, tokenizer.token_to_id(BOS))],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=BOS,
        eos_token=EOS,
        pad_token=EOS,
        clean_up_tokenization_spaces=False,
    )


def _training_lines(texts: list[str], seed: int) -> Iterator[str]:
    """The text and the prompts, so that a prompt costs few tokens of a small window."""
    rng = np.random.default_rng(seed)
    for text in texts:
        # No merge of two capitals may come from the text: each letter of a key stays a token.
        yield re.sub(r"[A-Z]{2,}", " ", text)
    for _ in range(60_000):
        yield key_question("".join(rng.choice(list(ascii_uppercase), 2)))
    for _ in range(2_000):
        yield passkey_prompt(0, 1, 0)
        yield record_question("")
