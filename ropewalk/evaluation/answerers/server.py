"""An OpenAI-compatible server: it writes answers, several at a time, and may be another tomorrow.

A fingerprint is compared first, if there is one.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from ropewalk.context_plan import ContextPlan
from ropewalk.data.corpora import Document
from ropewalk.errors import InputError, InvalidValue
from ropewalk.evaluation.answering import Answer, Answerer, Batches, check_written
from ropewalk.evaluation.conditions import default_lengths
from ropewalk.evaluation.encoding import Encoder
from ropewalk.evaluation.runner import Evaluation
from ropewalk.evaluation.samples import Sample
from ropewalk.evaluation.served.check import beginnings, check, check_canary
from ropewalk.evaluation.served.client import Client
from ropewalk.evaluation.served.fingerprint import Fingerprint, Verdict
from ropewalk.evaluation.served.server import Server, ServerInfo
from ropewalk.evaluation.settings import EvaluationSettings
from ropewalk.evaluation.tasks import Task
from ropewalk.lengths import check_measured
from ropewalk.models.config import BUNDLED_FOLDERS
from ropewalk.models.source import Source
from ropewalk.outputs import digest_at
from ropewalk.progress import share
from ropewalk.records import AS_IT_IS, AS_SERVED, UNKNOWN, Mode, Subject
from ropewalk.run_directory import RunDirectory, check_run_place
from ropewalk.run_on_disk import result_in
from ropewalk.untrusted import check_between, read_json, whole_number

if TYPE_CHECKING:
    from ropewalk.evaluation.answerers import Asked

PLACE = 1
TASKS = ("passkey", "needle", "lines", "kv")
VERDICT = "verdict.json"
MOST_AT_ONCE = 256
CHECKED_EVERY = 64
"""Batches after which a server is asked again what it is."""
_CANARY_TOKENS, _ECHOED = 1024, 64


def claims(call: Asked) -> bool:
    return call.server is not None


@contextmanager
def opened(call: Asked) -> Iterator[Evaluation]:
    """The server, its tokenizer, and the plan that it is said to follow."""
    client, fingerprint = _client(call), call.fingerprint
    # The tokenizer: a folder's, or the model's, which is then read for a fingerprint too.
    source, folder = None, call.tokenizer
    if call.model is not None:
        source = call.source()
        folder = source.folder if folder is None else folder
    elif folder is None:
        raise InputError(
            "a server does not state its tokenizer; give the folder that holds it (`tokenizer`), "
            "or the planned model itself"
        )
    elif call.run is not None:
        check_run_place(call.run)
    encoder = encoder_of(folder)
    canary = canary_of(encoder, call.documents)
    server = Server.open(client, encoder, canary[:16], call.model_name)
    # Lengths follow from whatever states one: the plan, the model, the fingerprint, or the server.
    follows = _plan(call) or (None if source is None else source.present_plan)
    planned = follows or fingerprint
    settings = call.settings(TASKS, "generate", lambda: _doublings(server.info, planned))
    with asking(client, call.concurrency) as pool:
        answerer = Served(
            server,
            call.in_chat(encoder),
            pool,
            call.concurrency,
            subject=served_subject(server.info, follows, fingerprint),
            identity={
                "server": server.info.to_json(),
                "tokenizer_sha256": encoder.sha256,
                "plan": None if follows is None else follows.to_json(),
                "compared_sha256": _digest(fingerprint, source),
            },
            original_length=max(settings.lengths) if planned is None else planned.original_length,
            canary=canary[: max(settings.lengths) - 1],
            compared=partial(_compared, call, server),
            files=() if source is None else source.places,
        )
        yield Evaluation(answerer, call.documents, call.within_budget(settings, 1), call.notice)


def _digest(fingerprint: Fingerprint | None, source: Source | None) -> str | None:
    """Of what the server is compared with."""
    if fingerprint is not None:
        return hashlib.sha256(fingerprint.dumps().encode()).hexdigest()
    return None if source is None else digest_at(source.path)


def _plan(call: Asked) -> ContextPlan | None:
    return (call.plans or (None,))[0]


def _client(call: Asked) -> Client:
    """The connection, once all is refused that can be refused without a request."""
    call.refuse_llama_cpp()
    call.refuse(
        "methods to",
        "a server follows the plan that it was started with; leave out {name}",
    )
    if len(call.plans) > 1:
        raise InputError(f"a server follows one plan, and {len(call.plans)} are given; give one")
    early = call.settings(TASKS, "generate", lambda: (2,))
    check_written(early.tasks, early.mode)
    at_once = whole_number(call.concurrency, "concurrency")
    check_between(at_once, 1, MOST_AT_ONCE, "concurrency", "4 is a usual number")
    assert call.server is not None
    client = Client.of(call.server, call.timeout)
    if not client.where.is_local and client.key and client.where.scheme == "http":
        call.notice(f"warning: the key is sent to {client.where.host} unencrypted; use https")
    # A fingerprint stands for one plan; compared with a server of another, it would name a fault.
    plan, fingerprint = _plan(call), call.fingerprint
    if fingerprint is not None and plan is not None and fingerprint.plan_id != plan.id:
        raise InputError(
            f"the fingerprint is that of the plan {fingerprint.plan_id}, and the plan given is "
            f"{plan.id}; give the two that belong together"
        )
    return client


def _compared(call: Asked, server: Server, directory: RunDirectory | None) -> Verdict | None:
    """The verdict on the server, kept in the run; a run that goes on keeps its first one."""
    verdict = None if directory is None else result_in(directory.path, VERDICT, Verdict)
    if verdict is None and (fingerprint := call.fingerprint or _fingerprint(call)) is not None:
        verdict = check(server, fingerprint, share(call.progress, "comparing"))
        if directory is not None:
            directory.keep(VERDICT, verdict.to_json())
    if verdict is not None and verdict.status != "same":
        call.notice(f"warning: {verdict.summary()}")
    return verdict


def _fingerprint(call: Asked) -> Fingerprint | None:
    """The fingerprint of the given model under the plan; None without a model."""
    if call.model is None:
        return None
    from ropewalk.evaluation.served import reference
    from ropewalk.models.load import load

    loaded = load(call.model, **call.how._asdict())
    progress = share(call.progress, "fingerprint")
    return reference.fingerprint(
        *(loaded, _plan(call), call.documents, call.seed),
        progress=progress,
        notice=call.notice,
    )


class Served(Answerer):
    """A server that answers as one subject."""

    identity: Mapping[str, object] = MappingProxyType({})

    def __init__(
        self,
        opened: Server,
        encoder: Encoder,
        pool: ThreadPoolExecutor,
        concurrency: int,
        *,
        subject: Subject,
        identity: Mapping[str, object],
        original_length: int,
        canary: list[int],
        compared: Callable[[RunDirectory | None], Verdict | None] = lambda _: None,
        files: Sequence[Path] = (),
    ) -> None:
        self.opened, self.encoder = opened, encoder
        self._pool, self._most = pool, 2 * concurrency
        self.server, self.model, self.device = opened.info, opened.info.model, opened.info.kind
        self.dtype = _dtype(opened.info)
        self.identity, self.original_length = identity, original_length
        self._subject, self._canary, self._compared = subject, canary, compared
        self.files = tuple(files)

    @property
    def subjects(self) -> Sequence[Subject]:
        return [self._subject]

    def check(self, settings: EvaluationSettings) -> None:
        info, longest = self.opened.info, max(settings.lengths)
        if info.length is not None and longest > info.length:
            raise InvalidValue(
                "lengths",
                longest,
                f"{info.url} serves {info.length:,} tokens",
                "start it with a longer context, or give shorter lengths",
            )

    def begin(self, directory: RunDirectory | None) -> None:
        self.opened.check_no_echo(self._canary[:_ECHOED])
        self._check_canary(directory)
        self.verdict = self._compared(directory)

    def answers(self, task: Task, mode: Mode, batches: Batches) -> Iterator[Sequence[Answer]]:
        """In the order of the batches, whichever answer comes first."""
        waiting: deque[list[Future[Answer]]] = deque()
        for count, batch in enumerate(batches, start=1):
            if count % CHECKED_EVERY == 0:
                self.opened.check_unchanged()
            waiting.append([self._pool.submit(self._answer, sample) for sample in batch])
            if len(waiting) >= self._most:
                yield [each.result() for each in waiting.popleft()]
        while waiting:
            yield [each.result() for each in waiting.popleft()]

    def _answer(self, sample: Sample) -> Answer:
        return Answer(self.opened.complete(sample.prompt.tolist(), count=sample.allowance).text)

    def end(self, directory: RunDirectory | None) -> None:
        self.opened.check_unchanged()
        self._check_canary(directory)

    def _check_canary(self, directory: RunDirectory | None) -> None:
        parts = beginnings(self._canary)
        if self.opened.takes_tokens:
            check_canary(self.opened, directory, parts)
        else:  # the parts of a text may be other tokens than those of the whole
            texts = [self.encoder.text(np.array(part, dtype=np.int64)) for part in parts]
            check_canary(self.opened, directory, texts)


@contextmanager
def asking(client: Client, concurrency: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that ask; after an error, none of them waits on for its answer."""
    pool = ThreadPoolExecutor(concurrency, thread_name_prefix="ropewalk-server")
    try:
        yield pool
    except BaseException:
        client.stop()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def encoder_of(folder: Path) -> Encoder:
    """The tokenizer of a folder, or of a model that ships with the package."""
    folder = BUNDLED_FOLDERS.get(str(folder), folder)
    if not folder.is_dir():
        raise InputError(
            f"tokenizer: {folder}: there is no such folder; give the folder of the model that the "
            "plan was made for"
        )
    from ropewalk.models.load import load_tokenizer

    file = folder / "generation_config.json"
    settings = read_json(file) if file.is_file() else None
    ends = settings.get("eos_token_id") if isinstance(settings, Mapping) else None
    end_ids = [end for end in (ends if isinstance(ends, list) else [ends]) if type(end) is int]
    return Encoder(load_tokenizer(folder), ends=end_ids)


def canary_of(encoder: Encoder, documents: Sequence[Document]) -> list[int]:
    """The fixed prompt by whose answer a changed model is noticed."""
    text = "".join(each.text for each in documents)[: 8 * _CANARY_TOKENS]
    tokens: list[int] = encoder.sequence(text)[:_CANARY_TOKENS].tolist()
    return tokens


def served_subject(
    info: ServerInfo, follows: ContextPlan | None, fingerprint: Fingerprint | None = None
) -> Subject:
    """A server stands for the weights, which it does not show."""
    text = json.dumps(info.to_json(), sort_keys=True)
    weights = hashlib.sha256(text.encode()).hexdigest()
    if follows is not None:
        plain = follows.methods in ("plain", AS_IT_IS)
        method = AS_SERVED if plain else f"{follows.methods} {AS_SERVED}"
        return Subject(weights[:16], follows.id, method)
    if fingerprint is not None:
        return Subject(weights[:16], fingerprint.plan_id, f"{fingerprint.method} {AS_SERVED}")
    return Subject(weights[:16], UNKNOWN, AS_SERVED)


def _doublings(info: ServerInfo, planned: ContextPlan | Fingerprint | None) -> tuple[int, ...]:
    """The doublings from a quarter of the original length to the longest that is served."""
    if planned is not None:
        original, last = planned.original_length, planned.target_length
    elif info.length is not None:
        check_measured(info.length, "the length that the server says it serves")
        original = last = info.length
    else:
        raise InputError(
            f"{info.url} does not say how long a sequence it serves; give lengths (`lengths`)"
        )
    return default_lengths(original, (), last)


def _dtype(info: ServerInfo) -> str:
    """The type of the weights, if the server states it."""
    names = ("ftype", "dtype", "quantization_level")
    values = (info.revealed.get(name) for name in names)
    return next((value for value in values if isinstance(value, str)), "unknown dtype")
