"""Questions to a server about a document: as text that it continues, or in a conversation.

    user: text, instruction, question 1 │ assistant: answer 1 │ user: question 2 │ …

Either way each prompt begins with the one before. A conversation is for servers that offer no more:
questions go through the model's chat template, and a reasoning model thinks before it answers.
"""

from __future__ import annotations

import re

from ropewalk.evaluation.chat import SETTINGS, Messages
from ropewalk.evaluation.served.client import Refused, ServerError
from ropewalk.evaluation.served.server import Server, ServerMessage
from ropewalk.evaluation.usable.documents import FACTS, Asking, Question, is_right

_AROUND, _SAID = 4, 16
"""The tokens that a model may write around an answer, to text and in a conversation."""
_THINKING, _PART = 2048, 8
"""The most tokens for the thoughts before an answer, and the part of the longest document that they
take at most."""
_NOT_OFFERED = (400, 404, 405, 415, 422, 501)
"""The statuses by which servers refuse what they do not know."""
_FORMS: tuple[tuple[str, dict[str, object]], ...] = (
    ("max_tokens", {"temperature": 0, "seed": 0, "chat_template_kwargs": SETTINGS}),
    ("max_tokens", {"temperature": 0}),
    ("max_completion_tokens", {}),
)
"""The name of the limit, and settings, that servers take: the first is greedy without thoughts."""
_INSTRUCTION = "\nComplete each of these lines from the text above. Write only what is missing.\n"
_TRIAL, _TRIED = "What is 17 + 25? Write only the number.", 64
_EMPTY = Asking("", (Question("a", "a", "", 0.0),) * FACTS)
_THOUGHT = re.compile(r"<think(?:ing)?>|\[THINK\]")
_THOUGHT_ENDS = re.compile(r"</think(?:ing)?>|\[/THINK\]")


class Continuation:
    """Prompts as text to continue, through `/v1/completions`."""

    thoughts = around = 0

    def __init__(self, server: Server, longest: int) -> None:
        """Refused by a server that does not offer this."""
        self._server = server
        self.tokens_of("a")

    def tokens_of(self, text: str) -> int:
        """The tokens that the server reads of a text."""
        return self._server.complete((), count=1, text=text, check=False).prompt_tokens

    def goes_on(self, text: str, count: int) -> str:
        """The text that the model writes after this one."""
        return self._server.complete((), count=count, text=text, check=False).text

    def answer(self, asking: Asking, number: int) -> tuple[bool, int, bool]:
        """True if the answer is right; the tokens read; true if it ended within thoughts."""
        answer = asking.questions[number].answer
        count, text = len(answer) + _AROUND, asking.prompts[number]
        reply = self._server.complete((), count=count, text=text, check=False)
        return is_right(reply.text, answer), reply.prompt_tokens, False


class Conversation:
    """Questions as messages, through `/v1/chat/completions`."""

    def __init__(self, server: Server, longest: int) -> None:
        """`longest` is the longest document."""
        self._server = server
        first = self._first_reply()
        thinking = min(_THINKING, longest // _PART)
        second = self._asked(_message(_TRIAL), thinking) if first.is_cut else first
        self._marks = _THOUGHT_ENDS.search(second.text) is not None
        thinks = second.thoughts or self._marks or (first.is_cut and not first.text.strip())
        self.thoughts = thinking if thinks else 0
        """The tokens for thoughts before an answer."""
        self.around = _AROUND + _SAID + self._read(messages(_EMPTY, FACTS - 1))
        """The tokens of a length that are not the document's."""

    def tokens_of(self, text: str) -> int:
        return self._read(_message(text))

    def goes_on(self, text: str, count: int) -> str:
        reply = self._asked(_message(text), count)
        return reply.thoughts + reply.text

    def answer(self, asking: Asking, number: int) -> tuple[bool, int, bool]:
        question = asking.questions[number]
        count = len(question.answer) + _AROUND + _SAID + self.thoughts
        reply = self._asked(messages(asking, number), count)
        text = without_thoughts(reply.text, marks=self._marks)
        within = reply.is_cut and bool(self.thoughts) and not text.strip()
        return says(text, asking, number), reply.prompt_tokens, within

    def _read(self, talk: Messages) -> int:
        return self._asked(talk, 1).prompt_tokens

    def _asked(self, talk: Messages, count: int) -> ServerMessage:
        limit, settings = self._form
        return self._server.chat(talk, **settings, **{limit: count})

    def _first_reply(self) -> ServerMessage:
        """The reply to a trial, in the first form that the server takes."""
        for self._form in _FORMS:
            try:
                return self._asked(_message(_TRIAL), _TRIED)
            except Refused as error:
                if error.status not in (400, 422) or self._form is _FORMS[-1]:
                    raise
        raise AssertionError("the last form is taken or refused")


def asked_by(server: Server, longest: int) -> Continuation | Conversation:
    """Ask for continuations if a server offers them, and in conversations otherwise."""
    refusals = []
    for way in (Continuation, Conversation):
        try:
            return way(server, longest)
        except Refused as error:
            if error.status not in _NOT_OFFERED:
                raise
            refusals.append(f"{error.status} {error.said}".strip())
    raise ServerError(
        f"{server.client.where}: continues no text (/v1/completions answers {refusals[0]}) and "
        f"does not chat (/v1/chat/completions answers {refusals[1]}); check the address, the "
        "model's name, and the server's log"
    )


def messages(asking: Asking, number: int) -> Messages:
    """The conversation up to a question, with the right answers to those before."""
    before, talk = asking.text + _INSTRUCTION, []
    for question in asking.questions[:number]:
        talk += [
            *_message(before + question.text),
            {"role": "assistant", "content": question.answer.strip()},
        ]
        before = ""
    return [*talk, *_message(before + asking.questions[number].text)]


def _message(text: str) -> Messages:
    return [{"role": "user", "content": text}]


def without_thoughts(written: str, *, marks: bool) -> str:
    """The answer after the thoughts, if any; nothing if they do not end.

    `marks`: an end is always marked, so text without one is thoughts.
    """
    ends = [each.end() for each in _THOUGHT_ENDS.finditer(written)]
    if ends:
        return written[ends[-1] :]
    return "" if marks or _THOUGHT.search(written) else written


def says(written: str, asking: Asking, number: int) -> bool:
    """True if the right value is the first that an answer states; a list of all is no answer."""
    question = asking.questions[number]
    answer, begun = question.answer.strip(), question.text.rpartition("\n")[2].strip()
    written = written.replace(begun, " ")  # people answer in whole sentences, too
    if re.search(r"\d", answer):
        words = re.findall(r"[\w-]+", written)
        values = [each for each in words if re.search(r"\d", each) and each not in question.text]
    else:
        names = {each.answer.strip() for each in asking.questions}
        values = [each for each in re.findall(r"\w+", written) if each in names]
    return values[:1] == [answer]
