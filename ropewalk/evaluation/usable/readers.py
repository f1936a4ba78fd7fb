"""Who reads the documents: a model in this process, a server, or a GGUF file in a llama.cpp.

A server needs no tokenizer here. It counts its own tokens (`/tokenize` of llama.cpp, vLLM and
SGLang); where it does not, they are estimated from the characters, by what it says that it read.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from ropewalk.errors import InputError
from ropewalk.evaluation.answering import TokenScores
from ropewalk.evaluation.encoding import SMALL_VOCABULARY, Encoder, IntArray
from ropewalk.evaluation.planted import Planted
from ropewalk.evaluation.samples import common_beginning
from ropewalk.evaluation.served.check import beginnings, check, check_canary
from ropewalk.evaluation.served.client import Client, Refused, ServerError
from ropewalk.evaluation.served.fingerprint import Fingerprint, Verdict
from ropewalk.evaluation.served.server import Server, ServerInfo, discover
from ropewalk.evaluation.usable.asked import Continuation, asked_by
from ropewalk.evaluation.usable.documents import CONTINUES, Asking
from ropewalk.lengths import MAX_MEASURED_LENGTH
from ropewalk.models.source import Source, resolve, runnable
from ropewalk.progress import share
from ropewalk.records import AS_IT_IS
from ropewalk.run_directory import RunDirectory
from ropewalk.torchrun import Ranks
from ropewalk.values import Value

if TYPE_CHECKING:
    from ropewalk.evaluation.in_llama_cpp import FileInLlamaCpp
    from ropewalk.evaluation.in_process import InProcess
    from ropewalk.evaluation.usable.request import HowLong

_REFUSALS = (400, 413, 422)
"""The statuses by which servers refuse a prompt that is too long."""
_LENGTHS = ("n_ctx_train", "trained_length", "length")
"""The names under which servers tell a model's length, and one of their own that is none."""
_CAREFUL = 1.05
"""Estimated tokens are more by this: a document must not be longer than its length."""
_OFF = (0.6, 1.6)
"""The farthest that an estimate is corrected by what was read of the first documents."""
_WRONG = 2.0
"""The factor beyond which a count is no tokenizer's, if the facts of what it counts are found."""
_GOES_ON = 64
"""The tokens that two texts with different beginnings go on by, where those may be cut."""
_SAME = 0.1
"""The most by which a server's two counts of a text may differ, a template's and a BOS apart."""
_FEWEST, _MOST = 1 / 32, 4.0
"""The tokens of a character of text that are believed: bytes of UTF-8 at most."""
_TRIED = 1500
"""Characters of each of two texts by which a server's tokens are estimated, where they fit."""


@dataclass(frozen=True, eq=False)
class DocumentAnswers(Value):
    """A document that was read: one line of the journal."""

    degree: str
    length: int
    number: int
    tokens: int
    """The tokens of the longest prompt, by our count."""
    read: int
    """The tokens that were read of it, by the server's count."""
    right: tuple[bool, ...]
    depths: tuple[float, ...]
    growth: float = 1.0
    """The tokens by which a server read more of the last prompt than of the first, as a part of
    those by which it is longer: about none if both were cut."""
    refused: str = ""
    """The server's words, if it refused the document."""
    unfinished: int = 0
    """The answers that ended within the model's thoughts."""

    @property
    def share(self) -> float:
        return sum(self.right) / len(self.right)


class Askable(NamedTuple):
    """A model or a server, before it is asked: all that a plan of the reading needs."""

    name: str
    claims: int | None
    """The length that it is said to have."""
    small: bool
    window: int | None = None
    """The length that it was trained at, where that is known."""
    serves: int | None = None
    """The length that a server has room for, if it says so."""
    is_remote: bool = False
    """Another machine, which may charge for every token that it is sent."""
    source: Source | None = None
    server: ServerInfo | None = None
    reports: object = None
    """A length that a server reports and that is none."""


class DocumentReader(Protocol):
    """Reads documents, and counts tokens as the model does."""

    identity: Mapping[str, object]
    """The part of a run's configuration that identifies whose answers they are."""
    runs: str
    """The way it runs, in words."""
    added: int = 0
    """The tokens that a server adds to each prompt, a BOS among them."""

    @abstractmethod
    def count(self, text: str) -> int:
        """The tokens of a text."""

    @abstractmethod
    def answers(self, degree: str, length: int, number: int, asking: Asking) -> DocumentAnswers:
        """The answers to the questions of a document."""

    def room(self, length: int) -> int:
        """The tokens for a document of this length."""
        return length

    def learn(self, read: Sequence[DocumentAnswers]) -> None:
        """Correct an estimate of tokens by documents whose facts are found."""
        return

    def check_same(self, directory: RunDirectory | None) -> None:
        """Refuse a model that is no longer the one that the run began with."""
        return


def subject_of(call: HowLong) -> Askable:
    """The model or server that is asked, by its files or its own words; nothing is loaded."""
    if call.is_server:
        client = Client.of(str(call.model), call.timeout)
        if not client.where.is_local and client.key and client.where.scheme == "http":
            call.notice(f"warning: the key is sent to {client.where.host} unencrypted; use https")
        info = discover(client, call.model_name)
        # Servers state their length under several names; an impossible value is reported, not used.
        stated = [info.length, *(info.revealed.get(name) for name in _LENGTHS)]
        lengths = [n for n in stated if type(n) is int and 0 < n <= MAX_MEASURED_LENGTH]
        vocabulary = info.revealed.get("n_vocab")
        return Askable(
            *(info.model.rpartition("/")[2] or info.model, max(lengths, default=None)),
            small=isinstance(vocabulary, int) and vocabulary < SMALL_VOCABULARY,
            is_remote=not client.where.is_local,
            serves=info.length,
            server=info,
            reports=next((n for n in stated if n is not None and n not in lengths), None),
        )
    source = resolve(call.model, allow_download=call.how.allow_download)
    if source.kind == "GGUF file":
        small = source.header.lengths.get("tokenizer.ggml.tokens", 0) < SMALL_VOCABULARY
    else:
        from ropewalk.models.load import load_tokenizer

        source = runnable(
            call.model, call.how, strict=call.strict, notice=call.notice, run=call.run
        )
        is_live = source.kind == "live model"
        tokenizer = source.value.tokenizer if is_live else load_tokenizer(source.folder)
        small = len(tokenizer) < SMALL_VOCABULARY
    plan = source.present_plan
    name = source.short_name
    return Askable(name, plan.target_length, small, plan.original_length, source=source)


@contextmanager
def reading(call: HowLong, subject: Askable, longest: int) -> Iterator[DocumentReader]:
    """The reader, ready until the end of the `with` block; `longest` is the longest document."""
    source = subject.source
    if source is None:
        client = Client.of(str(call.model), call.timeout)
        assert subject.server is not None
        yield ServedReader(Server(client, subject.server, None), call, longest)
    elif source.kind == "GGUF file":
        from ropewalk.evaluation.in_llama_cpp import FileInLlamaCpp, check_own_types, scores_of
        from ropewalk.gguf.llama_cpp_run import CACHES, Engine

        check_own_types(call.how)
        digesting = share(call.progress, "reading the file")
        with FileInLlamaCpp(source, Engine(), digesting) as file:
            file.check_memory(longest, CACHES[0], "claimed")
            running = file.run(file.setting(None, longest, CACHES[0], AS_IT_IS), longest)
            scores = partial(scores_of, running)
            yield ReaderHere(file, f"{file.dtype}, {file.device}", scores, file.check_unchanged)
    else:
        from ropewalk.evaluation.answerers.in_process import load_to_read
        from ropewalk.evaluation.conditions import conditions_of
        from ropewalk.evaluation.in_process import InProcess

        loaded = load_to_read(
            *(call.model, source, longest, "claimed", Ranks(), call.how, call.notice)
        )
        model = InProcess(loaded, conditions_of(source.present_plan, ()), source.places)

        def read(tokens: IntArray, positions: Sequence[int], start: int) -> TokenScores:
            with model.under(model.subjects[0], len(tokens)):
                return model.losses([tokens], [start])[0]

        yield ReaderHere(model, f"{model.dtype} on {model.device}", read)


class ReaderHere(DocumentReader):
    """A model of this machine, which reads a document once for all of its questions."""

    def __init__(
        self,
        model: FileInLlamaCpp | InProcess,
        runs: str,
        scores: Callable[[IntArray, Sequence[int], int], TokenScores],
        check_same: Callable[[], None] = lambda: None,
    ) -> None:
        """`scores` are those of some places of a text, as of all from a start on."""
        self._encoder, self.identity, self.runs = model.encoder, model.identity, runs
        self._scores, self._check_same = scores, check_same

    def count(self, text: str) -> int:
        return len(self._encoder.sequence(text))

    def answers(self, degree: str, length: int, number: int, asking: Asking) -> DocumentAnswers:
        tokens = self._encoder.sequence(asking.text).tolist()
        begin, answers = len(tokens), []
        for question in asking.questions:
            prompt = self._encoder.pieces(question.text)
            answered = self._encoder.pieces(question.text + question.answer)
            # A token that joins both belongs to the answer: the model must predict it.
            shared = common_beginning(prompt, answered)
            answers.append(slice(len(tokens) + shared, len(tokens) + len(answered)))
            tokens += [*answered.tolist(), *self._encoder.pieces(question.end).tolist()]
        document = Planted(
            degree,
            np.array(tokens, dtype=np.int64),
            slice(begin, begin),  # no loss of its text is asked for
            tuple(answers),
            tuple(question.depth for question in asking.questions),
            partial(self._encoder.goes_on, CONTINUES.pattern),
        )
        scores = self._scores(document.tokens, document.scored.tolist(), document.scored_from)
        right = tuple(document.matched(scores, answer) for answer in document.answers)
        size = len(tokens)
        return DocumentAnswers(degree, length, number, size, size, right, document.depths)

    def check_same(self, directory: RunDirectory | None) -> None:
        self._check_same()


class ServedReader(DocumentReader):
    """A server, which is asked a question at a time and writes the answer."""

    def __init__(self, server: Server, call: HowLong, longest: int) -> None:
        self._server, self._documents = server, call.documents
        self._careful = _CAREFUL
        self._longest = max(longest, server.info.length or 0)
        self._tried = min(_TRIED, longest // 4)
        self._way = asked_by(server, self._longest)
        self._chats = not isinstance(self._way, Continuation)
        self.identity = {"server": server.info.to_json(), **({"chat": True} if self._chats else {})}
        how = ", asked through its chat template" if self._chats else ""
        self.runs = f"{server.info}{how}"
        self._exact = self._counts_as_read()
        self.added = 0 if self._chats else self._shared

    def count(self, text: str) -> int:
        counted = self._counted(text) if self._exact else None
        return int(self._careful * self._ratio * len(text)) + 1 if counted is None else counted

    def room(self, length: int) -> int:
        return min(length, self._longest - self._way.thoughts) - self._way.around

    def answers(self, degree: str, length: int, number: int, asking: Asking) -> DocumentAnswers:
        right, counts, refused, unfinished = [], [0], "", 0
        for place in range(len(asking.questions)):
            try:
                is_right, read, within = self._way.answer(asking, place)
            except Refused as error:
                if error.status not in _REFUSALS:
                    raise
                refused = error.said or f"status {error.status}"
                right.append(False)
                continue
            counts.append(read)
            right.append(is_right)
            unfinished += within
        if any(counts):  # what refuses one question of a document, as a filter does, is no length
            refused = ""
        first, last = (self.count(asking.prompts[i]) for i in (0, -1))
        return DocumentAnswers(
            *(degree, length, number, last + self._way.around, counts[-1]),
            tuple(right),
            tuple(question.depth for question in asking.questions),
            1.0 if refused else round((counts[-1] - counts[1]) / max(1, last - first), 3),
            refused,
            unfinished,
        )

    def learn(self, read: Sequence[DocumentAnswers]) -> None:
        count, expected = sum(each.read for each in read), sum(each.tokens for each in read)
        factor = count / expected
        if not 1 / _WRONG <= factor <= _WRONG:
            raise ServerError(
                f"{self._server.client.where}: says that it read {count:,} tokens "
                f"(usage.prompt_tokens) of documents of about {expected:,}, and finds their facts; "
                "so it counts wrong, and nothing shows how long a document is: let it count all "
                "tokens of a prompt"
            )
        self._careful = _CAREFUL * min(max(_CAREFUL * factor, _OFF[0]), _OFF[1])

    def reads_beginnings(self, texts: Sequence[str]) -> bool | None:
        """True if texts go on otherwise after another beginning, False if none does, as if it were
        cut; None in between."""
        differ = 0
        for text, other in zip(texts, [*texts[1:], texts[0]], strict=True):
            part = len(text) // 10  # a cut of less would not make a length fail
            both = (text, other[:part] + text[part:])
            differ += len({self._way.goes_on(each, _GOES_ON) for each in both}) > 1
        return None if differ == 1 else differ > 1

    def check_same(self, directory: RunDirectory | None) -> None:
        self._server.check_unchanged()
        if not self._chats:
            # The trial that was read, so its length is one that the server serves.
            text = "".join(self._trials)
            check_canary(self._server, directory, beginnings(text))

    def compared(self, fingerprint: Fingerprint, encoder: Encoder | None) -> Verdict:
        """The verdict on the server by the fingerprint of the weights that it should have."""
        if self._chats:
            raise InputError(
                f"{self._server.client.where}: offers only chat completions, and `against` "
                "compares how prompts are continued (/v1/completions); leave `against` out"
            )
        trial, name = fingerprint.sequence[:16], self._server.info.model
        return check(Server.open(self._server.client, encoder, trial, name), fingerprint)

    def _counted(self, text: str) -> int | None:
        """The tokens of a text by the server's tokenizer; None if it does not offer it."""
        path, model = "/tokenize", self._server.info.model
        body: dict[str, object] = {"model": model, "prompt": text, "content": text}
        body |= {"add_special_tokens": True, "add_special": True}
        try:
            answer = self._server.client.post(path, body)
        except ServerError:
            return None
        tokens = answer.get("tokens") if isinstance(answer, dict) else None
        return len(tokens) if isinstance(tokens, list) and tokens else None

    def _counts_as_read(self) -> bool:
        """True if the server's tokenizer counts what its model reads; that of a proxy may count
        more, and documents would be shorter than their length."""
        counted, read = self._counted("".join(self._trials)), self._read_of_trials[2]
        return counted is not None and abs(counted - read + self._shared) <= _SAME * read

    @cached_property
    def _trials(self) -> tuple[str, str]:
        text = "".join(document.text for document in self._documents)[: 2 * self._tried]
        first = text.rfind("\n", 0, len(text) // 2) + 1 or len(text) // 2
        return text[:first], text[first:]

    @cached_property
    def _read_of_trials(self) -> tuple[int, int, int]:
        """The tokens that the server reads of two texts, and of both together."""
        one, two = self._trials
        first, second, both = map(self._way.tokens_of, (one, two, one + two))
        return first, second, both

    @cached_property
    def _shared(self) -> int:
        """The tokens that the counts of two texts hold twice, and that of both once."""
        one, two, both = self._read_of_trials
        return max(0, one + two - both)

    @cached_property
    def _ratio(self) -> float:
        """Tokens by character, without a chat's template."""
        template = self._shared if self._chats else 0
        ratio = (self._read_of_trials[2] - template) / sum(map(len, self._trials))
        return min(max(ratio, _FEWEST), _MOST)
