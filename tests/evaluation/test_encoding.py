from __future__ import annotations

import copy

import numpy as np
import pytest

from ropewalk.errors import InputError
from ropewalk.evaluation.encoding import Encoder
from tests.evaluation import tiny


def test_a_sequence_begins_as_the_tokenizer_begins_it() -> None:
    assert Encoder(tiny.tokenizer()).sequence("ab")[0] == 0
    assert len(Encoder(tiny.tokenizer()).sequence("ab")) == 3
    assert len(Encoder(tiny.tokenizer(bos=False)).sequence("ab")) == 2
    assert len(Encoder(tiny.tokenizer()).pieces("ab")) == 2


def test_a_doubled_bos_is_refused() -> None:
    encoder = Encoder(tiny.tokenizer())
    encoder.tokenizer.add_special_tokens({"bos_token": "<s>"})
    with pytest.raises(InputError, match="doubled BOS"):
        encoder.sequence("<s>ab")


def test_text_comes_back() -> None:
    encoder = Encoder(tiny.tokenizer())
    assert encoder.text(encoder.sequence("Größe 1\n")) == "Größe 1\n"


def test_fingerprints_tell_tokenizers_and_their_bos_apart() -> None:
    with_bos, without = Encoder(tiny.tokenizer()), Encoder(tiny.tokenizer(bos=False))
    assert with_bos.sha256 == Encoder(tiny.tokenizer()).sha256
    assert with_bos.sha256 != without.sha256


def test_what_is_written_after_the_end_is_nothing() -> None:
    """Decoding drops the token of the end, which would join `12` and `3` to `123`."""
    tokenizer = tiny.tokenizer()
    encoder = Encoder(tokenizer)
    tokens = encoder.pieces("12\n3")
    assert list(encoder.until_end(tokens)) == list(tokens)
    tokenizer_with_end = copy.deepcopy(tokenizer)
    tokenizer_with_end.eos_token = tokenizer.convert_ids_to_tokens(int(tokens[2]))
    assert Encoder(tokenizer_with_end).text(Encoder(tokenizer_with_end).until_end(tokens)) == "12"


def test_tokens_that_go_on_with_a_number_are_those_that_begin_with_a_digit() -> None:
    encoder = Encoder(tiny.tokenizer())
    found = [i for i in range(len(encoder.tokenizer)) if encoder.goes_on(r"\d", i)]
    spelled = {encoder.text(np.array([i])) for i in found}
    assert spelled == set("0123456789")
    assert encoder.continues(encoder.pieces("7 of"), r"\d")
    assert not encoder.continues(encoder.pieces(" 7"), r"\d")
    assert not encoder.continues(np.array([], dtype=np.int64), r"\d")
    assert not encoder.continues(np.array([10**6]), r"\d"), "a padded vocabulary"
