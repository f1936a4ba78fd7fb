"""An OpenAI-compatible server: its identity, and its answers to prompts of tokens or of text.

What a runtime's server says of itself, and what it takes, stands in the runtime's own module
(`runtimes/`). Of other servers only what `/v1/models` says is known. Every answer must say how many
tokens it read (`usage.prompt_tokens`): that shows a cut prompt, a second BOS, and a template nobody
asked for. An answer that is longer than was asked for, or that repeats the prompt, is refused:
tasks look for values in what was written, and would find them there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ropewalk.errors import InputError, InvalidValue, UnknownName, printable
from ropewalk.evaluation.encoding import Encoder
from ropewalk.evaluation.served.client import Client, Refused, ServerError
from ropewalk.lengths import MAX_LENGTH
from ropewalk.run_directory import differences
from ropewalk.runtimes import dialects
from ropewalk.runtimes.runtime import Connection, Dialect, members, plain
from ropewalk.values import Value

OTHER = "unknown kind"
TOP = 20
"""Alternatives to ask for: the most that vLLM gives by default."""
FEWER = 5
"""The most that OpenAI's own completions give."""
MOST_NAMED = 1000
"""Alternatives of one token that are read at all; a server that names more is refused."""
MOST_WRITTEN = 1000
"""Characters of a token that are believed."""
SPARE, MARGIN = 0.25, 8
"""The share, and the number, of tokens by which an answer may exceed what was asked for once its
text is tokenized again: a model may join other tokens than a tokenizer does. Of 2,000 random
answers of 13 tokens, the longest became 20."""
MOST_TEXT = 300
_BROKEN_OFF = ("abort", "error", "content_filter", "insufficient_system_resource")
"""The reasons of vLLM, SGLang, OpenAI and gateways to end an answer that its model did not end."""


@dataclass(frozen=True, eq=False)
class ServerInfo(Value):
    """A server by its account of itself. Two of them are the same if all of it is equal."""

    url: str
    kind: str
    version: str
    model: str
    length: int | None
    """The longest sequence that it claims to serve."""
    revealed: Mapping[str, Any]
    """All else that it reports of its settings and its model, verbatim."""

    def __str__(self) -> str:
        version = f" {self.version}" if self.version else ""
        length = "" if self.length is None else f", serves {self.length:,} tokens"
        return f"{self.kind}{version}, model {self.model}{length}"

    @property
    def line(self) -> str:
        """All of it in one line, as records keep it."""
        facts = (f"{k}={v}" for k, v in self.revealed.items())
        return printable("; ".join([f"{self} at {self.url}", *facts]))


@dataclass(frozen=True)
class ServerReply:
    """The text that a server writes after a prompt."""

    text: str
    prompt_tokens: int
    top: tuple[tuple[int, float], ...] | None
    """The likeliest first tokens with their log-probabilities; None if it gives none."""


@dataclass(frozen=True)
class ServerMessage:
    """The message that a server writes in a conversation."""

    text: str
    thoughts: str
    """The text of a reasoning model that the server keeps apart from its answer."""
    prompt_tokens: int
    is_cut: bool
    """True if it took all the tokens it may."""


class Miscounted(ServerError):
    """A server read another number of tokens than it was sent."""


class ChangedModel(ServerError):
    """A server has another model than before."""


def discover(client: Client, model: str | None = None) -> ServerInfo:
    """A server's description of itself."""
    listed = client.get("/v1/models")
    models = [members(entry) for entry in _list(members(listed).get("data"))]
    models = [entry for entry in models if isinstance(entry.get("id"), str)]
    names = [entry["id"] for entry in models]
    if model is None and len(names) != 1:
        if not names:
            raise InputError(
                f"{client.where}: lists no model (/v1/models); check the address, or name the "
                "model (`model_name`)"
            )
        raise InputError(
            f"{client.where}: serves {len(names)} models; name one (`model_name`): "
            f"{', '.join(map(_short, names[:8]))}"
        )
    if model is not None and names and model not in names:
        raise UnknownName("served model", model, map(_short, names[:8]))
    name = model if model is not None else names[0]
    if not 0 < len(name) <= MOST_TEXT:
        raise InvalidValue(
            "model_name", name, f"must have from 1 to {MOST_TEXT} characters", "check the server"
        )
    # Servers of one kind name themselves as owner of their models, and say more at other addresses.
    entry = next((e for e in models if e["id"] == name), {})
    dialect = next((each for each in dialects() if each.owner == entry.get("owned_by")), _UNCLAIMED)
    facts = dict(dialect.describe(client, entry, name))
    version, length = facts.pop("version", None), facts.pop("length", None)
    if type(length) is not int or not 0 < length <= MAX_LENGTH:
        facts, length = {**facts, **plain({"length": length})}, None
    return ServerInfo(
        url=str(client.where),
        kind=dialect.kind,
        version=_short(version) if isinstance(version, str) else "",
        model=name,
        length=length,
        revealed={k: _short(v) if isinstance(v, str) else v for k, v in facts.items()},
    )


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _other(client: Connection, entry: Mapping[str, Any], name: str) -> dict[str, object]:
    length = entry.get("max_model_len", entry.get("context_length"))
    return {"length": length, **plain({"owned_by": entry.get("owned_by")})}


def _first_choice(answer: Mapping[str, Any]) -> dict[str, Any]:
    return members(next(iter(_list(answer.get("choices"))), None))


_UNCLAIMED = Dialect(OTHER, "", _other)


def _short(text: str) -> str:
    return printable(" ".join(text.split())[:MOST_TEXT])


@dataclass(eq=False)
class Server:
    """A server that answers."""

    client: Client
    info: ServerInfo
    encoder: Encoder | None
    """Needed if a server takes text alone, or spells the tokens that it names."""
    takes_tokens: bool = True
    top: int = TOP
    canary: list[dict[int, float]] | None = None
    """The first answers to the canary, of a run without a directory."""
    _model: str | None = field(default=None, repr=False)
    _ids: dict[str, int] | None = field(default=None, repr=False)

    @classmethod
    def open(
        cls, client: Client, encoder: Encoder | None, trial: Sequence[int], model: str | None = None
    ) -> Server:
        """Connect to a server by its address, and find out what it is and whether it takes tokens.

        `trial`: some tokens to try with.
        """
        server = cls(client, discover(client, model), encoder)
        server.takes_tokens = server.dialect.takes_tokens and server._accepts(trial)
        if not server.takes_tokens and encoder is None:
            raise InputError(
                f"{client.where}: takes no tokens, only text; give the model's tokenizer "
                "(`tokenizer`)"
            )
        return server

    @property
    def dialect(self) -> Dialect:
        return next((each for each in dialects() if each.kind == self.info.kind), _UNCLAIMED)

    def check_unchanged(self) -> None:
        """Refuse a server whose account of itself has changed."""
        try:
            now = discover(self.client, self.info.model)
        except UnknownName as error:
            raise self._changed(self.info.model, ", ".join(error.valid)) from None
        if now != self.info:
            changes = differences(self.info.to_json(), now.to_json())
            raise self._changed(f"{self.info}", f"{now} ({'; '.join(changes[:4])})")

    def _changed(self, was: str, now: str) -> ChangedModel:
        return ChangedModel(
            f"{self.client.where}: changed its model meanwhile, from {printable(was[:MOST_TEXT])} "
            f"to {printable(now[:MOST_TEXT])}; what was measured before is kept: serve the former "
            "model again and run the same command"
        )

    def _accepts(self, tokens: Sequence[int]) -> bool:
        try:
            self.complete(tokens, count=1, check=False)
        except Refused as error:
            # mlx_lm.server answers 404 to tokens; without a tokenizer, the path may be missing.
            if error.status in (400, 415, 422, 501) or (error.status == 404 and self.encoder):
                return False
            raise
        return True

    def complete(
        self,
        tokens: Sequence[int],
        *,
        count: int,
        text: str | None = None,
        top: bool = False,
        check: bool = True,
    ) -> ServerReply:
        """Continue these tokens greedily, up to `count` tokens.

        `text` is sent in place of them, if given, as it is where a server takes no tokens. `check`:
        refuse an answer to another number of tokens.
        """
        if text is None and not self.takes_tokens:
            text = self._spelled(tokens)
        body: dict[str, object] = {
            "model": self.info.model,
            "prompt": [int(token) for token in tokens] if text is None else text,
            "max_tokens": count,
            "temperature": 0,
            "top_p": 1,
            "presence_penalty": 0,
            "frequency_penalty": 0,
            "seed": 0,
            "stream": False,
        }
        body.update(self.dialect.asked)
        if top:
            body |= {"logprobs": self.top, **self.dialect.asked_for_top}
        answer = self._read(self._ask(body), count)
        self._check_length(answer.text, count)
        if check and answer.prompt_tokens != len(tokens):
            raise self._miscounted(answer.prompt_tokens, len(tokens))
        return answer

    def chat(self, messages: Sequence[Mapping[str, str]], **how: object) -> ServerMessage:
        """The answer to a conversation; `how` are the fields of the request besides."""
        fixed = {"model": self.info.model, "messages": list(messages), "stream": False}
        answer = self._ask({**fixed, **self.dialect.asked, **how}, "/v1/chat/completions")
        choice = _first_choice(answer)
        message = choice.get("message")
        text = members(message).get("content") or ""
        if not isinstance(message, dict) or not isinstance(text, str):
            raise self._odd("has no choices[0].message of text", "check that it writes text")
        thoughts = message.get("reasoning_content") or message.get("reasoning")
        is_cut = choice.get("finish_reason") == "length"
        said = thoughts if isinstance(thoughts, str) else ""
        return ServerMessage(text, said, self._prompt_tokens(answer), is_cut)

    def check_no_echo(self, tokens: Sequence[int]) -> None:
        """Refuse a server that gives a prompt back, cut or whole, as if it were the answer."""
        assert self.encoder is not None, "who scores answers has a tokenizer"
        prompt = self.encoder.text(np.array(tokens, dtype=np.int64)).strip()
        text = None if self.takes_tokens else prompt
        said = self.complete(tokens, count=len(tokens), text=text, check=False).text.strip()
        if prompt in said or (said in prompt and 2 * len(said) > len(prompt)):
            raise self._odd(
                "repeats the prompt, which would be scored as what the model wrote",
                "let it give only what the model adds (no `echo`)",
            )

    def _check_length(self, text: str, count: int) -> None:
        """Refuse an answer that is longer than was asked for."""
        if len(text) > count * MOST_WRITTEN:
            raise self._odd(f"has {len(text):,} characters for {count:,} tokens")
        if self.encoder is None or len(text) <= count:
            return
        # What is no whole character takes several tokens to spell, and one writes several.
        whole = text.replace("\N{REPLACEMENT CHARACTER}", "")
        written = len(self.encoder.pieces(whole)) + (len(text) - len(whole)) // MARGIN
        if written > (1 + SPARE) * count + MARGIN:
            raise self._longer(written, count)

    def _longer(self, written: int, count: int) -> ServerError:
        return self._odd(
            f"has {written:,} tokens, and at most {count:,} were asked for (`max_tokens`)",
            "let it keep to that, and give only what the model adds (no `echo`)",
        )

    def _miscounted(self, read: int, sent: int) -> Miscounted:
        """The error for a prompt that was not read as it was sent."""
        if read < sent:
            cause = "it cuts prompts, or tokenizes otherwise; raise its context length"
        elif read == sent + 1:
            cause = "it adds a token, as a second BOS; make it add none"
        else:
            cause = "it puts a template around prompts, or tokenizes otherwise; serve without one"
        return Miscounted(
            f"{self.client.where}: read {read:,} tokens of a prompt of {sent:,}: {cause}, or give "
            "the tokenizer that it has (`tokenizer`)"
        )

    def _ask(self, body: dict[str, object], path: str = "/v1/completions") -> dict[str, Any]:
        try:
            answer = self.client.post(path, body)
        except ServerError as error:  # mlx_lm.server ends the connection on more than ten
            other = isinstance(error, Refused) and (
                error.status not in (400, 422) or "logprob" not in error.said.lower()
            )
            if "logprobs" not in body or self.top <= FEWER or other:
                raise
            self.top = FEWER
            answer = self.client.post(path, {**body, "logprobs": FEWER})
        if not isinstance(answer, dict):
            raise self._odd("is no object")
        if (reason := _first_choice(answer).get("finish_reason")) in _BROKEN_OFF:
            raise self._odd(
                f"was broken off ({reason}) and shows nothing of the model",
                "see the server's log, then run the same command again",
            )
        model = answer.get("model")
        if isinstance(model, str):
            if self._model is None:
                self._model = model
            elif model != self._model:
                raise self._changed(self._model, model)
        return answer

    def _read(self, answer: dict[str, Any], count: int) -> ServerReply:
        choice = _first_choice(answer)
        if not isinstance(choice.get("text"), str):
            raise self._odd("has no choices[0].text")
        read = self._prompt_tokens(answer)
        written = members(answer.get("usage")).get("completion_tokens")
        if type(written) is int and written > count:
            raise self._longer(written, count)
        return ServerReply(choice["text"], read, self._top(choice.get("logprobs")))

    def _prompt_tokens(self, answer: Mapping[str, Any]) -> int:
        read = members(answer.get("usage")).get("prompt_tokens")
        if type(read) is not int or not 0 < read <= MAX_LENGTH:
            raise self._odd(
                "has no usage.prompt_tokens, without which a cut prompt would not be noticed"
            )
        return read

    def _odd(
        self, how: str, remedy: str = "check that it is an OpenAI-compatible server of completions"
    ) -> ServerError:
        return ServerError(f"{self.client.where}: its answer {how}; {remedy}")

    def _top(self, logprobs: object) -> tuple[tuple[int, float], ...] | None:
        """The alternatives of the first token, from any of the forms that servers use."""
        fields = members(logprobs)
        content, rows = _list(fields.get("content")), _list(fields.get("top_logprobs"))
        named: list[tuple[object, object, object]] = []
        if content:
            entries = map(members, _list(members(content[0]).get("top_logprobs")))
            named = [(e.get("id"), e.get("token"), e.get("logprob")) for e in entries]
        elif rows:
            named = [(None, spelled, value) for spelled, value in members(rows[0]).items()]
        if len(named) > MOST_NAMED:
            raise self._odd(
                f"names {len(named):,} alternatives of a token, and {self.top} are asked for"
            )
        top: dict[int, float] = {}
        for number, spelled, value in named:
            token = number if type(number) is int else self._token(spelled)
            if token is None or not 0 <= token < 2**31 or isinstance(value, bool):
                continue
            # Some integers are too large for float.
            if isinstance(value, int | float) and -1e300 < value <= 0.01:
                top.setdefault(token, float(value))
        return tuple(top.items()) or None

    def _token(self, spelled: object) -> int | None:
        """The token that a server spells; None if several are spelled so."""
        if not isinstance(spelled, str):
            return None
        prefix, _, number = spelled.partition(":")
        if prefix == "token_id" and number.isdecimal() and number.isascii() and len(number) < 11:
            return int(number)
        if self.encoder is None:
            return None
        if self._ids is None:
            tokens = sorted(set(self.encoder.tokenizer.get_vocab().values()))
            ids: dict[str, int] = {}
            for token, text in zip(
                tokens, self.encoder.tokenizer.batch_decode([[t] for t in tokens]), strict=True
            ):
                ids[text] = -1 if text in ids else token
            self._ids = ids
        token_id = self._ids.get(spelled, -1)
        return None if token_id < 0 else token_id

    def _spelled(self, tokens: Sequence[int]) -> str:
        """The text that a server turns into these tokens, if it tokenizes as we do."""
        assert self.encoder is not None, "who opens a server that takes text alone has one"
        ids = list(tokens)
        bos = len(self.encoder.bos)
        text: str = self.encoder.tokenizer.decode(
            ids[bos:], skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        if self.encoder.sequence(text).tolist() != ids:
            raise InvalidValue(
                "server",
                str(self.client.where),
                "takes no tokens, and this prompt as text becomes other tokens",
                "leave out the task, or use a server that takes tokens",
            )
        return text
