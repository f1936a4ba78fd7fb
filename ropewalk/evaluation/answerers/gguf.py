"""A GGUF file: a private llama.cpp serves it, and is asked as any server is."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ropewalk.data.corpora import Document
from ropewalk.errors import InputError, InvalidValue, RopewalkError, Unsupported
from ropewalk.evaluation.answerers.server import (
    TASKS,
    Served,
    asking,
    canary_of,
    subject_of,
)
from ropewalk.evaluation.answering import check_written
from ropewalk.evaluation.conditions import default_lengths
from ropewalk.evaluation.encoding import Encoder
from ropewalk.evaluation.runner import Evaluation
from ropewalk.evaluation.served.client import Address, Client
from ropewalk.evaluation.served.server import Server, ServerInfo
from ropewalk.evaluation.settings import EvaluationSettings
from ropewalk.exporting.manifest import sha256
from ropewalk.gguf import llama_cpp_run
from ropewalk.gguf.architectures import architecture
from ropewalk.gguf.cache import cache_bytes, free_memory
from ropewalk.gguf.header import GGUFHeader
from ropewalk.gguf.parts import read_parts, whole
from ropewalk.gguf.rewriting import spans
from ropewalk.models.source import resolve, stated_assumptions
from ropewalk.progress import share
from ropewalk.run_directory import check_run_place

if TYPE_CHECKING:
    from ropewalk.evaluation.answerers import Asked

PLACE = 2
_TOKENIZER = "tokenizer.ggml."
_TOKENS = "tokenizer.ggml.tokens"
_LONGEST_ANSWER = 86400.0
"""Seconds. The server is on this machine, and an end of it is noticed at once."""


def claims(asked: Asked) -> bool:
    model = asked.model
    known = isinstance(model, str | Path) and asked.server is None
    return known and resolve(model, allow_download=asked.allow_download).kind == "GGUF file"


@contextmanager
def opened(asked: Asked) -> Iterator[Evaluation]:
    """The file in a llama.cpp of its own, if it states all that llama.cpp needs."""
    asked.refuse(
        "plans methods to",
        "a GGUF file is measured as it is; to measure it under a plan, write it with the plan "
        "first (`export`, runtime llama.cpp), and evaluate the file that this makes",
    )
    asked.refuse(
        "tokenizer model_name fingerprint concurrency timeout",
        "{name} is for a server, and a GGUF file is served by a llama.cpp of its own; leave {name} "
        "out, or serve the file and give its address (`server`)",
    )
    if asked.dtype != "auto":
        raise InvalidValue(
            "dtype", asked.dtype, "a GGUF file is computed in its own types", "leave it out"
        )
    if asked.device not in ("auto", "cpu"):
        raise InvalidValue(
            "device",
            asked.device,
            "ropewalk runs llama.cpp on the CPU",
            "leave it out, or serve the file on that device and give the address (`server`)",
        )
    source = resolve(asked.model)
    assert source.path is not None
    parts = read_parts(source.path)
    header, files = whole(parts), tuple(part.path for part in parts)
    if asked.run is not None:
        check_run_place(asked.run, files)
    _check_model(header)
    for part in parts:
        spans(part)  # refuses one that is cut
    follows = source.present_plan
    stated_assumptions(source, asked.notice, strict=asked.strict)
    original, last = follows.original_length, follows.target_length
    settings = asked.settings(TASKS, "generate", lambda: default_lengths(original, (), last))
    check_written(
        settings.tasks,
        settings.mode,
        they="llama.cpp's server does not give",
        instead="measure the folder that the file was converted from",
    )
    _check_lengths(header, settings.lengths)
    if not llama_cpp_run.available():
        raise llama_cpp_run.absent()
    before = _states(files)
    digest = _digest(files, share(asked.progress, "reading the file"))

    def end() -> None:
        if _states(files) != before:
            raise RopewalkError(
                f"{source.path}: changed while it was measured, so the answers are those of two "
                "files; evaluate it again, into a new directory"
            )

    with (
        _served(files, header, asked.documents, settings) as (server, encoder),
        asking(server.client, 1) as pool,
    ):
        _check_revealed(server.info, header, max(settings.lengths))
        answerer = Served(
            server,
            asked.in_chat(encoder),
            pool,
            1,
            subject=subject_of(digest, follows),
            identity={
                "weights_sha256": digest,
                "llama_cpp": llama_cpp_run.runtime(),
                "serves": server.info.length,
                "tokenizer_sha256": encoder.sha256,
                "bos": bool(encoder.bos),
            },
            original_length=original,
            canary=canary_of(encoder, asked.documents),
            files=files,
            ended=end,
        )
        yield Evaluation(answerer, asked.documents, asked.within_budget(settings, 1), asked.notice)


class _Private(Address):
    """The address of a server of our own. Its port changes each time, so it is not shown."""

    __slots__ = ()

    def __str__(self) -> str:
        return "a private llama.cpp"


@contextmanager
def _served(
    files: Sequence[Path],
    header: GGUFHeader,
    documents: Sequence[Document],
    settings: EvaluationSettings,
) -> Iterator[tuple[Server, Encoder]]:
    """A server of this file alone, until the end of the `with` block."""
    from ropewalk.evaluation.served.llama_cpp_tokens import encoder_of

    with llama_cpp_run.serving(
        files[0],
        length=max(settings.lengths),
        exact=False,  # a file is measured as it is served
        # Several questions on one text are what keeping it is for; else answers must not depend on
        # those before, which a run that goes on does not ask again.
        keeps_prompts=settings.mode == "shared_context",
    ) as llama:
        try:
            where = urlsplit(llama.address)
            private = _Private("http", where.hostname or "", where.port, "")
            client = Client(private, timeout=_LONGEST_ANSWER, attempts=2)
            template = header.values.get("tokenizer.chat_template")
            names = (f"{_TOKENIZER}{kind}_token_id" for kind in ("eos", "eot"))
            encoder = encoder_of(
                client,
                header.lengths[_TOKENS],
                _tokenizer_digest(header),
                [end for name in names if type(end := header.values.get(name)) is int],
                None if template is None else str(template),
            )
            yield Server.open(client, encoder, canary_of(encoder, documents)[:16]), encoder
        except RopewalkError:
            if (reason := llama.end()) is None:
                raise
            raise RopewalkError(
                f"{files[0]}: llama.cpp ended while it ran: {reason}; the same command goes on "
                "from its `run`, if it has one; give shorter lengths if memory ran out"
            ) from None


def _check_model(header: GGUFHeader) -> None:
    """Refuse what is no language model that rotates, with a vocabulary."""
    own = architecture(header.architecture)
    if own.known and not own.rotates:
        raise Unsupported(
            f"{header.path}: architecture {own.name} has no rotation, so there is no plan to "
            "measure; give a model with RoPE"
        )
    if not header.lengths.get(_TOKENS):
        raise InputError(
            f"{header.path}: holds no vocabulary ({_TOKENS}); convert the model again, with its "
            "tokenizer"
        )


def _check_lengths(header: GGUFHeader, lengths: Sequence[int]) -> None:
    """Refuse what llama.cpp would cut, or what memory does not hold."""
    longest = max(lengths)
    stated = header.count("context_length")
    if stated is not None and longest > stated:
        raise InvalidValue(
            "lengths",
            longest,
            f"{header.path} has a context of {stated:,} tokens, and llama.cpp serves no more",
            "extend the file (`ropewalk plan`, then `ropewalk export`), or give shorter lengths",
        )
    needed, free = cache_bytes(header, longest), free_memory()
    if needed is not None and free is not None and needed > free:
        raise InvalidValue(
            "lengths",
            longest,
            f"the cache of llama.cpp takes {needed / 2**30:.3g} GiB at that length, and "
            f"{free / 2**30:.3g} GiB of memory are free",
            "give shorter lengths, or serve the file on a machine with more memory and give its "
            "address (`server`)",
        )


def _check_revealed(info: ServerInfo, header: GGUFHeader, longest: int) -> None:
    """Refuse a server whose account of itself differs from the file's and ours."""
    for what, told, ours in (
        ("a trained length", info.revealed.get("n_ctx_train"), header.count("context_length")),
        ("a vocabulary", info.revealed.get("n_vocab"), header.lengths[_TOKENS]),
    ):
        if told != ours:
            raise RopewalkError(
                f"{header.path}: llama.cpp reads {what} of {told}, and the file states {ours}; "
                "convert the model again"
            )
    if info.length is None or info.length < longest:
        raise RopewalkError(
            f"{header.path}: llama.cpp serves {info.length} tokens of the {longest} asked for; "
            "give shorter lengths"
        )


def _tokenizer_digest(header: GGUFHeader) -> str:
    """A SHA-256 of the file's tokenizer, and of the code that follows it."""
    digest = hashlib.sha256(llama_cpp_run.runtime().encode())
    with header.path.open("rb") as file:
        for key, (start, end) in sorted(header.spans.items()):
            if key.startswith(_TOKENIZER):
                file.seek(start)
                digest.update(file.read(end - start))
    return digest.hexdigest()


def _digest(files: Sequence[Path], progress: Callable[[float], None]) -> str:
    """The SHA-256 of a file; of several, that of their digests."""
    total, before, found = sum(file.stat().st_size for file in files), 0, []
    for file in files:
        found.append(sha256(file, progress, before, total))
        before += file.stat().st_size
    return found[0] if len(found) == 1 else hashlib.sha256("".join(found).encode()).hexdigest()


def _states(files: Sequence[Path]) -> list[tuple[int, int, int]]:
    """The state by which a file is known not to have been written to."""
    return [(s.st_ino, s.st_size, s.st_mtime_ns) for s in (file.stat() for file in files)]
