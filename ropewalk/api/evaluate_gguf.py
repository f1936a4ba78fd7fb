"""`evaluate` with a GGUF file: a private llama.cpp serves it, and is asked as any server is."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ropewalk.api.common import (
    Corpus,
    Length,
    PlanLike,
    as_documents,
    as_path,
    stated_assumptions,
)
from ropewalk.api.evaluate_server import Asked, EvaluatedServer, canary_of, measured, subject_of
from ropewalk.data.corpora import corpus_digest
from ropewalk.errors import InputError, InvalidValue, RopewalkError, Unsupported
from ropewalk.evaluation.conditions import AS_IT_IS
from ropewalk.evaluation.served.client import Address, Client
from ropewalk.exporting.manifest import sha256
from ropewalk.gguf import llama_cpp_run
from ropewalk.gguf.architectures import architecture
from ropewalk.gguf.cache import cache_bytes, free_memory
from ropewalk.gguf.header import GGUFHeader
from ropewalk.gguf.parts import read_parts, whole
from ropewalk.gguf.rewriting import spans
from ropewalk.models.source import Source
from ropewalk.progress import Notice, Progress, share
from ropewalk.records import Mode
from ropewalk.run_directory import check_run_place

if TYPE_CHECKING:
    from ropewalk.data.corpora import Document
    from ropewalk.evaluation.encoding import Encoder
    from ropewalk.evaluation.served.server import Server, ServerInfo
    from ropewalk.evaluation.settings import EvaluationSettings

_TOKENIZER = "tokenizer.ggml."
_TOKENS = "tokenizer.ggml.tokens"
_SMALL = 64 * 2**20
"""Bytes."""
_LONGEST_ANSWER = 86400.0
"""Seconds. The server is on this machine, and an end of it is noticed at once."""


class _Private(Address):
    """Where a server of our own is. Its port is another one each time, so it is not told."""

    __slots__ = ()

    def __str__(self) -> str:
        return "a private llama.cpp"


def check_as_it_is(
    *,
    plans: Sequence[PlanLike],
    methods: Sequence[str],
    to: Length | None,
    official: str | Path | None,
    dtype: str,
    device: str,
    others: Mapping[str, bool],
) -> None:
    """Refuse arguments that a file as it is has no place for; `others`: whether each is unset."""
    if len(plans) or tuple(methods) not in ((), (AS_IT_IS,)) or to is not None:
        raise Unsupported(
            "a GGUF file is measured as it is; to measure it under a plan, write it with the plan "
            "first (`export`, runtime llama.cpp), and evaluate the file that this makes"
        )
    if official is not None:
        raise Unsupported(
            "official inputs are read in process alone; measure the folder that the file was "
            "converted from, or ask for ruler-syn"
        )
    if dtype != "auto":
        raise InvalidValue(
            "dtype", dtype, "a GGUF file is computed in its own types", "leave it out"
        )
    if device not in ("auto", "cpu"):
        raise InvalidValue(
            "device",
            device,
            "llama.cpp is run on the CPU here",
            "leave it out, or serve the file there and give its address (`server`)",
        )
    for key, unset in others.items():
        if not unset:
            raise InputError(
                f"`{key}` is for a server, and a GGUF file is served by a llama.cpp of its own; "
                f"leave `{key}` out, or serve the file and give its address (`server`)"
            )


def evaluate_gguf(
    source: Source,
    *,
    tasks: Sequence[str] | None,
    lengths: Sequence[Length] | None,
    samples: int,
    mode: Mode | None,
    corpus: Corpus,
    field: str,
    seed: int,
    run: str | Path | None,
    strict: bool,
    progress: Progress,
    notice: Notice,
) -> EvaluatedServer:
    """What `evaluate` does with a GGUF file."""
    assert source.path is not None
    asked = Asked.of(
        *(tasks, lengths, samples, mode, seed),
        they="llama.cpp's server does not give",
        instead="measure the folder that the file was converted from",
    )
    place = None if run is None else as_path(run, "run")
    parts = read_parts(source.path)
    header, files = whole(parts), tuple(part.path for part in parts)
    if place is not None:
        check_run_place(place, files)
    _check_model(header)
    for part in parts:
        spans(part)  # refuses one that is cut
    follows = source.present_plan
    stated_assumptions(source, notice, strict=strict)
    settings = asked.settings(lambda: (follows.original_length, follows.target_length))
    _check_lengths(header, settings.lengths)
    documents = as_documents(corpus, field, notice)
    if not llama_cpp_run.available():
        raise llama_cpp_run.absent()
    before = _states(files)
    digest = _digest(files, share(progress, "reading the file"))
    with _served(files, header, documents, settings) as (server, encoder):
        _check_revealed(server.info, header, max(settings.lengths))
        found = measured(
            server,
            encoder,
            documents,
            settings,
            subject_of(digest, follows),
            identity={
                "weights_sha256": digest,
                "llama_cpp": llama_cpp_run.runtime(),
                "serves": server.info.length,
                "tokenizer_sha256": encoder.sha256,
                "bos": bool(encoder.bos),
                "corpus_sha256": corpus_digest(documents),
            },
            original=follows.original_length,
            run=place,
            apart_from=files,
            verdict=lambda _: None,
            concurrency=1,
            progress=progress,
            notice=notice,
        )
        if _states(files) != before:
            raise RopewalkError(
                f"{source.path}: changed while it was measured, so the answers are those of two "
                "files; evaluate it again, into a new directory"
            )
    return found


@contextmanager
def _served(
    files: Sequence[Path],
    header: GGUFHeader,
    documents: Sequence[Document],
    settings: EvaluationSettings,
) -> Iterator[tuple[Server, Encoder]]:
    """A server of this file alone, until the end of the `with` block."""
    from ropewalk.evaluation.served.llama_cpp_tokens import encoder_of
    from ropewalk.evaluation.served.server import Server
    from ropewalk.gguf.llama_cpp_run import serving

    with serving(
        files[0],
        length=max(settings.lengths),
        threads=_threads(files),
        exact=False,  # a file is measured as it is served
        # Several questions on one text are what keeping it is for; else answers must not depend on
        # those before, which a run that goes on does not ask again.
        keeps_prompts=settings.mode == "shared_context",
    ) as llama:
        try:
            where = urlsplit(llama.address)
            private = _Private("http", where.hostname or "", where.port, "")
            client = Client(private, timeout=_LONGEST_ANSWER, attempts=2)
            encoder = encoder_of(client, header.lengths[_TOKENS], _tokenizer_digest(header))
            yield Server.open(client, encoder, canary_of(encoder, documents)[:16]), encoder
        except RopewalkError:
            if (reason := llama.end()) is None:
                raise
            raise RopewalkError(
                f"{files[0]}: llama.cpp ended while it ran: {reason}; the same command goes on "
                "from its `run`, if it has one; give shorter lengths if memory ran out"
            ) from None


def _threads(files: Sequence[Path]) -> int:
    """As many as there are cores; of a small model they would mostly wait for each other."""
    size = sum(file.stat().st_size for file in files)
    return 1 if size < _SMALL else os.cpu_count() or 1


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
            f"{header.path} states {stated:,} tokens, and llama.cpp serves no more",
            "plan and export the file to a longer context first, or give shorter lengths",
        )
    needed, free = cache_bytes(header, longest), free_memory()
    if needed is not None and free is not None and needed > free:
        raise InvalidValue(
            "lengths",
            longest,
            f"the cache of llama.cpp takes {needed / 2**30:.3g} GiB there, and "
            f"{free / 2**30:.3g} GiB of memory are free",
            "give shorter lengths, or serve the file where there is more memory and give its "
            "address (`server`)",
        )


def _check_revealed(info: ServerInfo, header: GGUFHeader, longest: int) -> None:
    """Refuse a server that says something else of itself than the file and we do."""
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
    """A SHA-256 of all that the file says of its tokenizer, and of the code that follows it."""
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
    """By which a file is known not to have been written to."""
    return [(s.st_ino, s.st_size, s.st_mtime_ns) for s in (file.stat() for file in files)]
