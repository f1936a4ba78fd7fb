"""The questions that the model is trained to answer, as text: question and answer apart."""

from __future__ import annotations

# The prompt of LongRoPE's appendix (Ding et al. 2024, A.1).
PASSKEY_TASK = (
    "There is an important info hidden inside a lot of irrelevant text. Find it and memorize them."
    " I will quiz you about the important information there."
)
PASSKEY_FILLER = (
    "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
)
PASSKEY_NEEDLE = "The pass key is {0}. Remember it. {0} is the pass key."
PASSKEY_QUESTION = "What is the pass key? The pass key is"
# Every answer ends as the line ends in which the model found it, so that copying ends it too.
PASSKEY_END = "."


def passkey_prompt(
    passkey: int, before: int, after: int, *, paragraph: str = "\n", repeat: str = " "
) -> str:
    """The prompt: `before` repetitions of the filler, the key, `after` repetitions, the question.

    The paper shows its paragraphs, not the characters between them, so these may vary.
    """
    paragraphs = [
        PASSKEY_TASK,
        repeat.join([PASSKEY_FILLER] * before),
        PASSKEY_NEEDLE.format(passkey),
        repeat.join([PASSKEY_FILLER] * after),
        PASSKEY_QUESTION,
    ]
    return paragraph.join(filter(None, paragraphs))


def key_question(key: str) -> str:
    """The line of a key, up to its value: four digits and the end of the line."""
    return f"# key {key}"


def record_question(name: str) -> str:
    """A line of Long-eval up to its number, which `>` ends.

    Long-eval writes `line NAME: REGISTER_CONTENT is <NUMBER>`. With the same words between every
    name and its number, a model this small does not learn to find one by the other.
    """
    return f"line {name} <"
