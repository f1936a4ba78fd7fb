"""Tokenised documents on disk, mapped into memory: written once, read by every epoch and rank.

A store is a run directory (run_directory.py), so building one can be killed and started again:

    run.json               the texts and the tokenizer
    shards.jsonl           one line for each finished shard, with the checksums of its files
    tokens-00000.npy       the tokens of a shard's documents, one behind the other
    documents-00000.npy    the length and the domain of each
    manifest.json          written last: a store without it is not finished

Documents have no special tokens. Those depend on how windows are made (windows.py), so one store
serves every way of making them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from itertools import chain, islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ropewalk.data.corpora import Document
from ropewalk.errors import InputError, InvalidValue
from ropewalk.progress import Progress, Status, silent
from ropewalk.run_directory import Journal, RunDirectory
from ropewalk.untrusted import Fields, read_json

FORMAT = "ropewalk-tokens-1"
MANIFEST, SHARDS, COMMAND = "manifest.json", "shards.jsonl", "data build"
SHARD = 2**24
"""Tokens from which on a shard is written."""
BATCH = 2**22
"""Characters that are tokenised at once, at least: a fast tokenizer uses every core for them."""
MOST_DOMAINS = 1000
MOST_SHARDS = 100_000
TOKEN, FIELD = np.dtype("<u4"), np.dtype("<i8")

IntArray = NDArray[np.int64]
Encode = Callable[[Sequence[str]], Sequence[Sequence[int]]]
"""Texts to tokens, without special tokens."""


@dataclass(frozen=True)
class Shard:
    """A finished shard, as its line in the journal and in the manifest has it."""

    documents: int
    tokens: int
    tokens_sha256: str
    documents_sha256: str
    texts_sha256: str
    """Of all texts up to the end of this shard."""

    def to_json(self) -> dict[str, object]:
        return dict(vars(self))

    @classmethod
    def from_json(cls, value: object, path: str) -> Shard:
        fields = Fields(value, path)
        return fields.build(
            cls,
            documents=fields.integer("documents"),
            tokens=fields.integer("tokens"),
            tokens_sha256=fields.text("tokens_sha256"),
            documents_sha256=fields.text("documents_sha256"),
            texts_sha256=fields.text("texts_sha256"),
        )


def build(
    folder: str | Path,
    texts: Mapping[str, Iterable[Document]],
    encode: Encode,
    *,
    tokenizer: str,
    sources: Sequence[Path] = (),
    shard: int = SHARD,
    progress: Progress = silent,
) -> TokenStore:
    """Tokenise texts by domain into a folder, or go on where a killed build was.

    `tokenizer` is the fingerprint of what `encode` does; `sources` are never written to.
    """
    if not 1 <= len(texts) <= MOST_DOMAINS:
        raise InvalidValue(
            "corpus", len(texts), f"must be 1 to {MOST_DOMAINS} texts", "name each once"
        )
    configuration = {"tokenizer_sha256": tokenizer, "domains": list(texts), "shard": shard}
    with RunDirectory(folder, COMMAND, configuration, apart_from=sources) as directory:
        _Build(directory, texts, encode, shard, progress).run()
    return TokenStore.open(folder)


class _Build:
    """Documents in, shards out; those that the journal has are read again, not tokenised."""

    def __init__(
        self,
        directory: RunDirectory,
        texts: Mapping[str, Iterable[Document]],
        encode: Encode,
        shard: int,
        progress: Progress,
    ) -> None:
        self._directory, self._encode, self._shard = directory, encode, shard
        self._names, self._progress = list(texts), progress
        self._documents = chain.from_iterable(
            ((domain, document.text) for document in documents)
            for domain, documents in enumerate(texts.values())
        )
        self._digest = hashlib.sha256()
        self._journal = directory.journal(SHARDS)
        self._done = _shards(self._journal)
        self._tokens = 0

    def run(self) -> None:
        for number, shard in enumerate(self._done):
            self._skip(shard, number)
        if (self._directory.path / MANIFEST).exists():
            if next(self._documents, None) is not None:
                raise self._changed("the store was finished")
            return
        waiting: list[tuple[int, NDArray[np.uint32]]] = []
        size = 0
        for domain, tokens in self._tokenised():
            waiting.append((domain, tokens))
            size += tokens.size
            if size >= self._shard:
                self._write(waiting)
                waiting, size = [], 0
        if waiting:
            self._write(waiting)
        if not self._tokens:
            raise InputError("the texts hold no token; give a corpus with text in it")
        manifest = {
            "format": FORMAT,
            "tokenizer_sha256": self._directory.configuration["tokenizer_sha256"],
            "domains": self._names,
            "shards": [shard.to_json() for shard in self._done],
        }
        self._directory.write(MANIFEST, json.dumps(manifest, indent=1) + "\n")

    def _skip(self, shard: Shard, number: int) -> None:
        for domain, text in islice(self._documents, shard.documents):
            self._taken(domain, text)
        if self._digest.hexdigest() != shard.texts_sha256:
            raise self._changed(f"shard {number} was built")
        self._tokens += shard.tokens

    def _changed(self, since: str) -> InputError:
        return InputError(
            f"{self._directory.path}: the texts have changed since {since}; build into a new "
            "directory"
        )

    def _taken(self, domain: int, text: str) -> None:
        raw = text.encode("utf-8", "surrogatepass")
        self._digest.update(b"%d %d " % (domain, len(raw)))
        self._digest.update(raw)

    def _tokenised(self) -> Iterator[tuple[int, NDArray[np.uint32]]]:
        """Each document's tokens; what was taken from here is in the digest, and no more."""
        waiting: list[tuple[int, str]] = []
        characters = 0
        for domain, text in self._documents:
            waiting.append((domain, text))
            characters += len(text)
            if characters >= BATCH:
                yield from self._encoded(waiting)
                waiting, characters = [], 0
        if waiting:
            yield from self._encoded(waiting)

    def _encoded(self, waiting: list[tuple[int, str]]) -> Iterator[tuple[int, NDArray[np.uint32]]]:
        encoded = self._encode([text for _, text in waiting])
        for (domain, text), ids in zip(waiting, encoded, strict=True):
            self._taken(domain, text)
            yield domain, np.array(ids, dtype=TOKEN)

    def _write(self, documents: list[tuple[int, NDArray[np.uint32]]]) -> None:
        number = len(self._done)
        tokens = np.concatenate([own for _, own in documents])
        table = np.array([(own.size, domain) for domain, own in documents], dtype=FIELD)
        shard = Shard(
            len(documents),
            tokens.size,
            self._kept(f"tokens-{number:05}.npy", tokens),
            self._kept(f"documents-{number:05}.npy", table),
            self._digest.hexdigest(),
        )
        self._journal.append([shard.to_json()])
        self._done.append(shard)
        self._tokens += shard.tokens
        self._progress(Status("tokenising", 0.0, f"{self._tokens / 1e6:,.1f}M tokens"))

    def _kept(self, name: str, array: NDArray[np.generic]) -> str:
        content = BytesIO()
        np.lib.format.write_array(content, array, allow_pickle=False)
        self._directory.write(name, content.getvalue())
        return hashlib.sha256(content.getvalue()).hexdigest()


def _shards(journal: Journal) -> list[Shard]:
    return [
        Shard.from_json(record, f"{journal.path}[{i}]") for i, record in enumerate(journal.records)
    ]


@dataclass(frozen=True, eq=False)
class TokenStore:
    """Documents by their number, without reading the others."""

    folder: Path
    tokenizer_sha256: str
    domains: tuple[str, ...]
    shards: tuple[Shard, ...]

    @classmethod
    def open(cls, folder: str | Path) -> TokenStore:
        """A finished store; the sizes of its files must be those that its manifest says."""
        path = Path(folder)
        if not (path / MANIFEST).exists() and (path / SHARDS).exists():
            raise InputError(f"{path}: is not finished; run the same `data build` again")
        fields = Fields(read_json(path / MANIFEST), f"{path / MANIFEST}: ")
        if (found := fields.text("format")) != FORMAT:
            raise InputError(f"{path}: is of format {found!r}, not {FORMAT!r}")
        shards = fields.items("shards")
        if len(shards) > MOST_SHARDS:
            raise InputError(f"{path}: has more than {MOST_SHARDS:,} shards; check the manifest")
        store = cls(
            path,
            fields.text("tokenizer_sha256"),
            tuple(str(name) for name in fields.items("domains")),
            tuple(Shard.from_json(s, f"{path}: shards[{i}]") for i, s in enumerate(shards)),
        )
        fields.close()
        for number in range(len(store.shards)):
            store._check(number)
        return store

    def __len__(self) -> int:
        return sum(shard.documents for shard in self.shards)

    @cached_property
    def lengths(self) -> IntArray:
        """The tokens of each document."""
        return self._column(0)

    @cached_property
    def of_domain(self) -> IntArray:
        """The index of each document's domain."""
        return self._column(1)

    def tokens(self, document: int, start: int = 0, end: int | None = None) -> IntArray:
        """Those of a document from one place to another."""
        document = range(len(self))[document]
        number = int(np.searchsorted(self._first, document, side="right")) - 1
        length = int(self.lengths[document])
        begin = int(self._begins[document])
        start, end, _ = slice(start, end).indices(length)
        return np.asarray(self._mapped[number][begin + start : begin + end], dtype=np.int64)

    def check(self, progress: Progress = silent) -> None:
        """Compare every file with its checksum."""
        for number, shard in enumerate(self.shards):
            progress(Status("checking", number / len(self.shards)))
            for kind, expected in (
                ("tokens", shard.tokens_sha256),
                ("documents", shard.documents_sha256),
            ):
                path = self._path(kind, number)
                with path.open("rb") as file:
                    if hashlib.file_digest(file, "sha256").hexdigest() != expected:
                        raise InputError(
                            f"{path}: is damaged (its checksum differs from the manifest's); "
                            "build the store again"
                        )

    def _path(self, kind: str, number: int) -> Path:
        return self.folder / f"{kind}-{number:05}.npy"

    def _map(self, kind: str, number: int) -> NDArray[np.generic]:
        path = self._path(kind, number)
        try:
            found: NDArray[np.generic] = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError) as error:
            raise InputError(f"{path}: cannot be read ({error}); build the store again") from None
        return found

    def _check(self, number: int) -> None:
        shard = self.shards[number]
        tokens, documents = self._map("tokens", number), self._map("documents", number)
        good = (
            (tokens.dtype, tokens.shape) == (TOKEN, (shard.tokens,))
            and (documents.dtype, documents.shape) == (FIELD, (shard.documents, 2))
            and int(documents[:, 0].sum()) == shard.tokens
            and (not shard.documents or int(documents.min()) >= 0)
            and (not shard.documents or int(documents[:, 1].max()) < len(self.domains))
        )
        if not good:
            raise InputError(
                f"{self.folder}: shard {number} is not as its manifest says; build the store again"
            )

    def _column(self, column: int) -> IntArray:
        parts = [np.asarray(self._map("documents", i)[:, column]) for i in range(len(self.shards))]
        found = np.concatenate([np.zeros(0, dtype=np.int64), *parts]).astype(np.int64)
        found.flags.writeable = False
        return found

    @cached_property
    def _mapped(self) -> list[NDArray[np.generic]]:
        return [self._map("tokens", number) for number in range(len(self.shards))]

    @cached_property
    def _first(self) -> IntArray:
        """The number of each shard's first document."""
        counts = np.array([shard.documents for shard in self.shards])
        return np.asarray(np.cumsum(counts) - counts)

    @cached_property
    def _begins(self) -> IntArray:
        """Where each document begins in its shard."""
        ends = np.cumsum(self.lengths)
        begins = ends - self.lengths
        per_shard = np.array([shard.documents for shard in self.shards])
        return begins - np.repeat(begins[self._first], per_shard)
