"""Answers in a conversation: thoughts do not count, and the first value that is stated does."""

from __future__ import annotations

import pytest

from ropewalk.evaluation.usable.asked import says, without_thoughts
from ropewalk.evaluation.usable.documents import Asking, Question

NUMBER = Question(
    "What is the special number of red-fox that the text above mentions?\n"
    "The special number of red-fox is", " 1234567", ".\n", 0.5,
)  # fmt: skip
KEY = "80cfea61-4687-74e5-3ee3-f0426e1786b3"
VALUE = "27b27032-57be-3da8-f64c-5ebbf513cc5b"
PAIR = Question(f'"{KEY}": "', VALUE, '",\n', 0.5)
SMALL = Question("# key QX", "4821", "\n", 0.5)
NAME = Question(
    "Which character is asleep?\nThe name of the character who is asleep is", " Yuki", "", 0
)


@pytest.mark.parametrize(
    ("question", "written", "right"),
    [
        (NUMBER, "1234567", True),
        (NUMBER, "The special number of red-fox is **1234567**.", True),
        (NUMBER, "The special number of red-fox is not in the text.", False),
        (NUMBER, "7654321 or 1234567", False),
        (NUMBER, "12345678", False),
        (PAIR, f'{VALUE}"', True),
        (PAIR, f'The value of "{KEY}" is "{VALUE}".', True),
        (PAIR, KEY, False),
        (SMALL, "# key QX4821", True),
        (SMALL, "4821\n# key AB1234", True),
        (NAME, "It is Yuki, who sleeps.", True),
        (NAME, "Yukio", False),
        (NAME, "Amina, Yuki", False),
        (NUMBER, "a" * 400_000, False),  # at once
    ],
)
def test_the_first_value_that_an_answer_states_counts(
    question: Question, written: str, right: bool
) -> None:
    other = Question("Which character is awake?", " Amina", "", 0)
    assert says(written, Asking("", (other, question)), 1) is right


@pytest.mark.parametrize(
    ("written", "marks", "answer"),
    [
        ("1234", False, "1234"),
        ("<think>5678?</think>\n1234", False, "\n1234"),
        ("5678?</think>1234", True, "1234"),
        ("[THINK]5678?[/THINK]1234", True, "1234"),
        ("<think>5678", False, ""),
        ("5678", True, ""),
    ],
)
def test_thoughts_are_no_answer(written: str, marks: bool, answer: str) -> None:
    assert without_thoughts(written, marks=marks) == answer
