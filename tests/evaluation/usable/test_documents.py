"""Documents of many facts as text: they fill a length, and ask for what stands in them."""

from __future__ import annotations

import re
from functools import cache

import pytest

from ropewalk.data.documents import as_documents
from ropewalk.errors import InputError
from ropewalk.evaluation.usable.documents import (
    DISTRACTORS,
    FACTS,
    FULL,
    MIXED,
    MULTIKEY,
    NOLIMA,
    SINGLE,
    Degree,
    Library,
    is_right,
)
from ropewalk.progress import unheard


@cache
def library(small: bool = False, seed: int = 0) -> Library:
    documents = as_documents("held-out", "text", unheard)
    return Library(documents, small, seed, lambda text: len(text) // 4)


@pytest.mark.parametrize("degree", [SINGLE, MIXED, MULTIKEY, NOLIMA], ids=lambda d: d.name)
def test_a_document_fills_its_length_and_holds_its_answers(degree: Degree) -> None:
    own = library()
    assert own.facts_in(degree, 4096) == FACTS
    for number in range(3):
        asking = own.document(degree, 4096, number, FACTS)
        assert FULL * 4096 <= own.count(asking.whole) <= 4096
        assert len(asking.prompts) == FACTS
        before = asking.text
        for prompt, question in zip(asking.prompts, asking.questions, strict=True):
            assert prompt.startswith(before)
            before = prompt
            assert question.answer.strip() in asking.text
            assert 0 <= question.depth < 1
        longer = own.document(degree, 8192, number, FACTS)
        facts = [(q.text, q.answer) for q in asking.questions]
        assert [(q.text, q.answer) for q in longer.questions] == facts
    assert asking != own.document(degree, 4096, 3, FACTS)


def test_harder_questions_have_others_like_them_or_share_no_word() -> None:
    asking = library().document(MULTIKEY, 4096, 0, FACTS)
    assert asking.text.count("The special number of") == FACTS + DISTRACTORS
    asking = library().document(NOLIMA, 4096, 0, FACTS)
    stated = {line for line in asking.text.split("\n") if line.startswith("Indeed,")}
    assert len(stated) == FACTS
    for question in asking.questions:
        [fact] = [line for line in stated if question.answer.strip() in line]
        words = {w.lower() for w in re.findall(r"\w{4,}", fact)}
        assert not words & {w.lower() for w in re.findall(r"\w{4,}", question.text)}
        assert asking.text.count(question.answer.strip()) == 1


def test_small_models_are_asked_in_few_tokens() -> None:
    own = library(small=True)
    assert [degree.name for degree in own.degrees] == ["single", "multikey"]
    asking = own.document(SINGLE, 512, 0, 4)
    assert all(re.fullmatch(r"# key [A-Z]{2}", q.text) for q in asking.questions)


def test_what_does_not_fit_is_refused() -> None:
    assert library().facts_in(MIXED, 100) == 0
    assert 0 < library().facts_in(MIXED, 500) < FACTS
    with pytest.raises(InputError, match=r"facts and questions .* more than 200"):
        library().document(MIXED, 200, 0, FACTS)


@pytest.mark.parametrize(
    ("written", "answer", "right"),
    [
        (" 1234567.\nWhat", " 1234567", True),
        ("1234567", " 1234567", True),
        (" 12345678", " 1234567", False),
        ("the number 1234567", " 1234567", False),
        ("0a1b-2c", "0a1b", False),
        ("", " 1", False),
    ],
)
def test_an_answer_is_right_if_it_is_written_and_ends(
    written: str, answer: str, right: bool
) -> None:
    assert is_right(written, answer) is right
