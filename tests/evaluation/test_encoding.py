from __future__ import annotations

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
    assert with_bos.fingerprint == Encoder(tiny.tokenizer()).fingerprint
    assert with_bos.fingerprint != without.fingerprint


def test_sequences_are_full_and_end_when_there_is_enough() -> None:
    encoder = Encoder(tiny.tokenizer())
    texts = [document.text for document in tiny.documents()]
    found = list(encoder.sequences(tiny.documents(), 100, 1000))
    assert [len(sequence) for sequence in found] == [100] * 10
    assert {int(sequence[0]) for sequence in found} == {0}
    assert "".join(map(encoder.text, found)) == texts[0][: 99 * 10]
    assert list(encoder.sequences(tiny.documents(), 10**6, 1000)) == []
