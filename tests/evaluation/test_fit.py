"""A tokenizer or a length that a model cannot take is refused before it is run."""

from __future__ import annotations

from typing import Any

import pytest

import ropewalk as rw
from ropewalk.costs.refusals import check_memory
from ropewalk.errors import InputError, InvalidValue
from ropewalk.evaluation.encoding import Encoder
from ropewalk.models.load import LoadedModel, load
from tests.evaluation import tiny

TEXTS = ["All work and no play makes Jack a dull boy. " * 40 + "\n"] * 60


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> LoadedModel:
    """A model whose tokenizer knows more tokens than it has embeddings for; running it fails."""
    model = tiny.model(vocab_size=100)

    def unwanted(*_: Any, **__: Any) -> None:
        raise AssertionError("the model was run")

    monkeypatch.setattr(model.model, "forward", unwanted)
    return load(model, tokenizer=tiny.tokenizer())


def test_a_token_beyond_the_vocabulary_is_named_before_the_first_forward(
    small: LoadedModel,
) -> None:
    message = r"has token \d+ \('.*'\), and the model's vocabulary ends at 99"
    with pytest.raises(InputError, match=message):
        rw.evaluate(small, tasks=["perplexity"], corpus=TEXTS, lengths=[64])
    with pytest.raises(InputError, match=message):
        rw.search(small, 256, corpus=TEXTS, budget=1)
    with pytest.raises(InputError, match=message):
        rw.precision(small, corpus=TEXTS, quick=True)


def test_tokens_within_the_vocabulary_are_taken() -> None:
    tokenizer = tiny.tokenizer()
    assert len(Encoder(tokenizer, len(tokenizer)).sequence("any text")) > 1
    with pytest.raises(InputError, match="ends at -1"):
        Encoder(tokenizer, 0)  # its BOS


def test_hidden_states_larger_than_the_memory_are_refused() -> None:
    model = tiny.model()
    for in_chunks, says in ((True, "cache .*lengths of at most"), (False, "layer at work")):
        check_memory(model, 2**16, "lengths", in_chunks=in_chunks)
        with pytest.raises(InvalidValue, match=rf"(?s)lengths = .*{says}"):
            check_memory(model, 2**40, "lengths", in_chunks=in_chunks)
