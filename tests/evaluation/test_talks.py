"""Conversations by chat templates: the tokens of the template, and only answers weigh."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from ropewalk.errors import InputError
from ropewalk.evaluation.talks import TemplateTalks
from ropewalk.models.load import load_tokenizer
from ropewalk.models.source import resolve

TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Two and two?"},
    {"role": "assistant", "content": "Four."},
    {"role": "user", "content": "And one?"},
    {"role": "assistant", "content": "Five, I say."},
]
CHATML = (
    "{{ bos_token }}{% for m in messages %}[{{ m.role }}]\n{{ m.content }}{{ eos_token }}\n"
    "{% endfor %}{% if add_generation_prompt %}[assistant]\n{% endif %}"
)
"""As Qwen and SmolLM2 have it, here with the model's EOS at the end of each turn."""
MARKED = (
    "{{ bos_token }}{% for m in messages %}[{{ m.role }}]\n{% if m.role == 'assistant' %}"
    "{% generation %}{{ m.content }}{{ eos_token }}{% endgeneration %}{{ '\\n' }}{% else %}"
    "{{ m.content }}{{ eos_token }}{{ '\\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]\n{% endif %}"
)
FORGETFUL = (
    "{% for m in messages %}[{{ m.role }}]\n{% if m.role == 'assistant' and loop.last %}(thought) "
    "{% endif %}{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}[assistant]\n{% endif %}"
)
"""As templates do that drop the thoughts of earlier answers."""


def talks(template: str | None) -> TemplateTalks:
    tokenizer = copy.deepcopy(load_tokenizer(resolve("bundled").folder))
    tokenizer.chat_template = template
    return TemplateTalks(tokenizer, 1024)


def learnt(found: tuple[Any, Any], own: TemplateTalks) -> list[str]:
    """The stretches of a conversation that weigh."""
    tokens, weights = found
    parts, reached = [], 0
    for start, end, weight in [*weights, (len(tokens), len(tokens), 0.0)]:
        assert weight == 0
        if reached < start:
            parts.append(own._tokenizer.decode(tokens[reached:start].tolist()))
        reached = end
    return parts


@pytest.mark.parametrize("template", [CHATML, MARKED])
def test_only_answers_and_their_ends_weigh(template: str) -> None:
    own = talks(template)
    found = own.conversation(TALK)
    end = own._tokenizer.eos_token
    assert learnt(found, own) == [f"Four.{end}", f"Five, I say.{end}"]
    text = own._tokenizer.decode(found[0].tolist())
    assert text.startswith(f"{own._tokenizer.bos_token}[system]\nBe brief.{end}\n[user]")
    assert text.endswith(f"Five, I say.{end}")  # the line break behind EOS is none of a document
    assert found[0][0] == own.begin
    assert found[0][-1] == own.end


def test_a_template_marks_and_prefixes_give_the_same() -> None:
    marked, plain = talks(MARKED).conversation(TALK), talks(CHATML).conversation(TALK)
    assert marked[0].tolist() == plain[0].tolist()
    assert marked[1] == plain[1]


def test_a_conversation_may_end_with_a_question() -> None:
    own = talks(CHATML)
    found = own.conversation(TALK[:4])
    assert learnt(found, own) == [f"Four.{own._tokenizer.eos_token}"]


@pytest.mark.parametrize(
    ("template", "messages", "says"),
    [
        (None, TALK, "has no chat template"),
        (FORGETFUL, TALK, r"renders the beginning of a conversation .*message 3"),
        (CHATML, TALK[:2], "no message has the role 'assistant'"),
        (CHATML, [], "no message has the role"),
        (CHATML, [{"role": "assistant", "content": "a<|end|>b"}], r"spells '<\|end\|>'"),
        (
            "{{ raise_exception('roles must alternate') }}",
            TALK,
            "refuses it: .roles must alternate",
        ),
        ("{% for", TALK, "the chat template refuses it"),
        ("{{ eos_token }}", TALK, "marks no part of the conversation as an answer"),
        ("{{ ''.__class__.__mro__ }}", TALK, "the chat template refuses it"),
    ],
)
def test_what_cannot_be_told_apart_is_refused(
    template: str | None, messages: list[dict[str, str]], says: str
) -> None:
    with pytest.raises(InputError, match=says):
        talks(template).conversation(messages)


def test_a_last_answer_of_a_template_that_forgets_is_learnt() -> None:
    """Nothing was forgotten yet."""
    own = talks(FORGETFUL)
    assert learnt(own.conversation(TALK[:3]), own) == ["(thought) Four.\n"]


def test_tokens_of_another_vocabulary_are_named() -> None:
    with pytest.raises(InputError, match="holds the token 1024, and the model's vocabulary has"):
        talks(None).check([3, 1024])
    talks(None).check([1023])
    talks(None).check([])
