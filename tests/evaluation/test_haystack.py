from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.data.corpora import Document
from ropewalk.errors import InputError
from ropewalk.evaluation.haystack import Haystack, insert
from tests.evaluation import tiny

HAYSTACK = Haystack(tiny.documents())
WORDS = sum(len(document.text.split()) for document in tiny.documents())


@given(st.integers(0, 3 * WORDS), st.integers(0, 50))
def test_a_crop_has_so_many_words_and_ends_where_a_line_ends(words: int, seed: int) -> None:
    text = "".join(HAYSTACK.crop(seed / 51, words))
    assert len(text.split()) == words
    assert text == "" or text.endswith("\n")


@given(st.integers(1, WORDS), st.integers(0, 20))
def test_more_words_are_added_at_the_beginning(words: int, seed: int) -> None:
    shorter, longer = (HAYSTACK.crop(seed / 51, n) for n in (words, words + 5))
    assert "".join(longer).endswith("".join(shorter))


def test_a_text_longer_than_the_corpus_comes_around() -> None:
    lines = HAYSTACK.crop(0.3, 2 * WORDS)
    assert lines[: len(lines) // 2] == lines[len(lines) // 2 :]


@given(st.integers(1, WORDS // 2), st.floats(0, 1, exclude_max=True))
def test_crops_of_one_stretch_read_the_same_text(words: int, place: float) -> None:
    own = HAYSTACK.stretch(place, words)
    assert own == HAYSTACK.stretch(place, words)
    elsewhere = HAYSTACK.stretch((place + 0.5) % 1, words)
    assert elsewhere != own, "half of the text lies between them"
    assert HAYSTACK.stretch(place, 2 * WORDS) == HAYSTACK.stretch(0, 3 * WORDS), "all of it"


def test_a_corpus_without_text_is_refused() -> None:
    with pytest.raises(InputError, match="is too short"):
        Haystack([Document("blank", "\n \n")])


LINES = ["one\n", "\n", "two\n", "three\n"]


@pytest.mark.parametrize(
    ("depth", "expected"),
    [
        (0.0, "KEY\none\n\ntwo\nthree\n"),
        (0.3, "one\n\nKEY\ntwo\nthree\n"),
        (0.99, "one\n\ntwo\nthree\nKEY\n"),
    ],
)
def test_a_needle_goes_before_a_line_that_is_not_empty(depth: float, expected: str) -> None:
    assert insert(LINES, [(depth, "KEY\n")]) == expected


@given(st.lists(st.floats(0, 1, exclude_max=True), max_size=5))
def test_inserting_loses_nothing(depths: list[float]) -> None:
    text = insert(LINES, [(depth, f"KEY{i}\n") for i, depth in enumerate(depths)])
    kept = [line for line in text.splitlines(keepends=True) if not line.startswith("KEY")]
    assert kept == LINES
    assert len(text.splitlines()) == len(LINES) + len(depths)
