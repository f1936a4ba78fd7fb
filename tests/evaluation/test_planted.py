"""Planted documents: what they hold, where, and that no two share a token of the corpus."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.data.corpora import Document, read_documents
from ropewalk.errors import InputError
from ropewalk.evaluation import planted
from ropewalk.evaluation.chat import Chat
from ropewalk.evaluation.encoding import Encoder
from ropewalk.evaluation.planted import Planted, Split, Stretch, plant, split_corpus
from tests.evaluation import tiny

LENGTH = 512
ENCODER = Encoder(tiny.tokenizer())


def split(
    documents: Sequence[Document] | None = None,
    length: int = LENGTH,
    sizes: tuple[int, int, int] = (4, 3, 3),
    seed: int = 0,
    encoder: Encoder = ENCODER,
) -> Split:
    return split_corpus(documents or tiny.documents(), encoder, length, sizes, seed)


def ranges(documents: Sequence[Planted]) -> list[tuple[str, int]]:
    """The stretches, as document of the corpus and first token."""
    return [(name, int(begin)) for name, _, begin in (d.source.rpartition("@") for d in documents)]


@pytest.mark.parametrize(
    ("length", "encoder"),
    [(200, ENCODER), (512, ENCODER), (1100, ENCODER), (1100, tiny.LargeEncoder(tiny.tokenizer()))],
)
def test_every_document_is_as_long_as_asked_and_answers_its_own_questions(
    length: int, encoder: Encoder
) -> None:
    made = split(length=length, sizes=(2, 1, 1), encoder=encoder).all
    for document in made:
        assert len(document.tokens) == length
        assert document.tokens[0] == encoder.bos[0]
        assert document.text.stop - document.text.start == length // 4
        whole = encoder.text(document.tokens)
        for answer, depth in zip(document.answers, document.depths, strict=True):
            value = encoder.text(document.tokens[answer]).strip()
            assert re.fullmatch(r"\d{4}|\d{7}", value)
            # Once where it is planted, and once where it is asked for.
            assert whole.count(value) == 2
            at = len(encoder.pieces(whole[: whole.index(value)]))
            assert 0 <= at - depth * length < 70
            assert document.text.stop <= answer.start


def test_depths_are_stratified_and_no_fact_stands_in_the_scored_text() -> None:
    for document in split(length=1024, sizes=(2, 1, 1)).all:
        end = document.text.start / 1024
        depths = np.sort(document.depths)
        assert len(depths) == planted.FACTS
        assert depths[-1] < end
        # Every stratum of the text before the scored part holds one.
        assert (np.diff([0, *depths, end]) < 2.6 * end / planted.FACTS).all()
        assert "key" not in ENCODER.text(document.tokens[document.text])


@given(
    lines=st.lists(st.integers(1, 60), min_size=1, max_size=6),
    sizes=st.tuples(*[st.integers(1, 4)] * 3),
    seed=st.integers(0, 3),
)
def test_documents_of_different_sets_never_share_a_token_of_the_corpus(
    lines: list[int], sizes: tuple[int, int, int], seed: int
) -> None:
    corpus = [
        Document(f"{i}", "\n".join(f"{i} holds line {line}." for line in range(15 * count)))
        for i, count in enumerate(lines)
    ]
    try:
        made = split(corpus, 256, sizes, seed)
    except InputError:
        return
    assert all((made.search, made.selection, made.reporting))
    for (one, first), (other, second) in zip(
        sorted(ranges(made.all)), sorted(ranges(made.all))[1:], strict=False
    ):
        assert one != other or second - first >= 256


def test_a_text_under_two_names_stands_on_one_side_only() -> None:
    [document, *_] = tiny.documents()
    twice = [document, Document("copy", document.text), *tiny.documents()[1:]]
    made = split(twice, sizes=(8, 8, 8))
    texts = [d.tokens[d.text].tobytes() for d in made.all]
    assert len(set(texts)) == len(texts)
    names = {name for name, _ in ranges(made.all)}
    assert len(names & {document.name, "copy"}) == 1


def test_documents_depend_on_the_seed_and_on_nothing_else() -> None:
    def tokens(found: Split) -> list[list[int]]:
        return [document.tokens.tolist() for document in found.all]

    assert tokens(split()) == tokens(split())
    assert tokens(split()) != tokens(split(seed=1))


def test_text_without_lines_gets_lines_for_its_facts() -> None:
    words = " ".join(f"word{i}" for i in range(2000))
    for document in split([Document("words", words)], sizes=(1, 1, 1)).all:
        whole = ENCODER.text(document.tokens)
        assert whole.count("\n# key ") == 2 * len(document.answers)


def test_a_short_corpus_gives_fewer_documents_and_says_so() -> None:
    told: list[str] = []
    corpus = [*tiny.documents(), Document("note", "short")]
    made = split_corpus(corpus, ENCODER, 1024, (50, 20, 20), 0, told.append)
    assert len(made.all) == sum(len(ENCODER.pieces(d.text)) // 1024 for d in corpus)
    [message] = told
    assert "of the 90 stretches" in message
    assert "note (5 tokens)" in message


def test_documents_shorter_than_the_target_are_named_with_their_lengths() -> None:
    corpus = [Document(f"{i}.txt", "word " * 100 * i) for i in range(1, 9)]
    with pytest.raises(InputError, match=r"1\.txt \(500 tokens\).* and 3 more; give longer"):
        split(corpus, 65536)


def test_a_target_that_holds_no_fact_is_refused() -> None:
    with pytest.raises(InputError, match="more than a quarter of the target of 64"):
        split(length=64)


def test_the_text_that_ships_is_enough_for_four_times_the_window() -> None:
    from ropewalk.models.load import load
    from ropewalk.searching.model.settings import DOCUMENTS

    told: list[str] = []
    encoder = Encoder(load("bundled").tokenizer)
    made = split_corpus(list(read_documents("held-out")), encoder, 2048, DOCUMENTS, 0, told.append)
    assert tuple(map(len, (made.search, made.selection, made.reporting))) == DOCUMENTS
    assert told == []


def test_through_a_chat_the_user_gives_the_text_and_the_model_answers() -> None:
    chat = Chat("<|user|>\nBe brief.\n", "\n<|model|>\n", "<|end|>\n<|user|>\n")
    encoder = ENCODER.with_chat(chat)
    stretch = Stretch("text@0", ENCODER.pieces(tiny.documents()[0].text * 3)[:1100])
    plain = plant(stretch, ENCODER, 1100, 0, 0, mixed_within=1100)
    document = plant(stretch, encoder, 1100, 0, 0, mixed_within=1100)
    assert len(document.tokens) == 1100
    whole = encoder.text(document.tokens)
    assert whole.startswith(chat.before)
    given, told = whole.split(f"{planted.ASKED}{chat.after}")
    for answer in document.answers:
        value = encoder.text(document.tokens[answer]).strip()
        assert (given.count(value), told.count(value)) == (1, 1)
    assert encoder.text(document.tokens[document.text]) in given
    # The template takes room from the facts, not from the text.
    assert 0 < len(document.answers) < len(plain.answers)
