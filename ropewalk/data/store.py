"""Tokenised documents on disk, mapped into memory: written once, read by every epoch and rank.

A store is a run directory (run_directory.py), so building one can be killed and started again:

    run.json               the texts and the tokenizer
    shards.jsonl           one line for each finished shard, with the checksums of its files
    tokens-00000.bin       the tokens of a shard's documents in their order, as uint32
    documents-00000.bin    the length and the domain of each, as int64
    weights-00000.bin      what predicting each token weighs, as float32, where texts say so, or by
                           a model's gain from the context
    manifest.json          written last: a store without it is not finished

Documents have no special tokens around them. Those depend on how windows are made (windows.py), so
one store serves every way of making them. Documents that come as tokens are stored
unchanged, and may have weights. Weights by a model are no part of the texts: what they follow from
is in run.json.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ropewalk.data.corpora import MANIFEST, Document, Weighted
from ropewalk.data.packing import IntArray
from ropewalk.errors import InputError, InvalidValue
from ropewalk.outputs import sha256_of
from ropewalk.progress import Progress, Status, silent
from ropewalk.run_directory import RunDirectory
from ropewalk.untrusted import Fields, read_json
from ropewalk.values import Value

FORMAT = "ropewalk-tokens-1"
SHARDS, COMMAND = "shards.jsonl", "data build"
SHARD, WEIGHED = 2**24, 2**20
"""Tokens from which on a shard is written: a model that weighs each takes a while."""
BATCH = 2**20
"""Characters that are tokenised at once, at least: a fast tokenizer uses every core for them, and
needs some 200 bytes for each."""
MOST_DOMAINS = 1000
LONGEST_NAME = 100
MOST_SHARDS = 100_000
MOST_BYTES = 64 * 2**20  # of a manifest
MAPPED = 64
"""Shards that are mapped at the same time: each holds a file open."""
TOKEN, FIELD, WEIGHT = np.dtype("<u4"), np.dtype("<i8"), np.dtype("<f4")

Encode = Callable[[Sequence[str]], Sequence[Sequence[int] | NDArray[np.uint32]]]
"""Texts to tokens, without special tokens."""


class Weigher(NamedTuple):
    """A model that says what predicting each token of a text weighs."""

    identity: Mapping[str, object]
    weights: Callable[[IntArray], NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Shard(Value):
    """A finished shard, as its line in the journal and in the manifest has it."""

    _optional = ("weights_sha256",)

    documents: int
    tokens: int
    tokens_sha256: str
    documents_sha256: str
    texts_sha256: str
    """A digest of all texts, and of their weights, up to the end of this shard."""
    weights_sha256: str | None = None
    """None if no text of it has weights."""

    @property
    def checksums(self) -> dict[str, str]:
        sums = {"tokens": self.tokens_sha256, "documents": self.documents_sha256}
        return sums if self.weights_sha256 is None else sums | {"weights": self.weights_sha256}


def build(
    folder: str | Path,
    texts: Mapping[str, Iterable[Document]],
    encode: Encode,
    *,
    tokenizer: str,
    weighted: bool = False,
    weigher: Weigher | None = None,
    sources: Sequence[Path] = (),
    shard: int | None = None,
    progress: Progress = silent,
) -> TokenStore:
    """Tokenise texts by domain into a folder, or resume a killed build.

    `tokenizer` is the fingerprint of what `encode` does; `sources` are never written to, and
    `weighted` refuses documents without weights. A `weigher` weighs all tokens.
    """
    _check_names(list(texts), "corpus")
    shard = shard or (SHARD if weigher is None else WEIGHED)
    configuration = {"tokenizer_sha256": tokenizer, "domains": list(texts), "shard": shard}
    if weigher is not None:
        configuration["weigher"] = weigher.identity
    with RunDirectory(folder, COMMAND, configuration, apart_from=sources) as directory:
        _Build(directory, texts, encode, weigher, shard, progress).run(weighted=weighted)
    return TokenStore(folder)


def _check_names(names: Sequence[object], key: str) -> None:
    if not 1 <= len(names) <= MOST_DOMAINS:
        raise InvalidValue(
            key,
            f"{len(names)} domains",
            f"must be between 1 and {MOST_DOMAINS}",
            "give at least one corpus",
        )
    for name in names:
        good = isinstance(name, str) and name.isprintable() and 0 < len(name) <= LONGEST_NAME
        if not good or names.count(name) > 1:
            raise InvalidValue(
                key,
                name,
                f"must be a different name of at most {LONGEST_NAME} characters for each domain",
                "write 'books' or 'code'",
            )


@dataclass(eq=False)
class _Build:
    """Documents in, shards out; those that the journal has are read again, not tokenised."""

    directory: RunDirectory
    texts: Mapping[str, Iterable[Document]]
    encode: Encode
    weigher: Weigher | None
    shard: int
    progress: Progress

    def __post_init__(self) -> None:
        self._documents = chain.from_iterable(
            ((domain, document) for document in documents)
            for domain, documents in enumerate(self.texts.values())
        )
        self._digest = hashlib.sha256()
        self._journal = self.directory.journal(SHARDS)
        self._done = self._journal.read(Shard)
        self._tokens = 0
        if len({shard.texts_sha256 for shard in self._done}) < len(self._done):
            raise InputError(
                f"{self._journal.path}: lists a shard twice, which no build does; restore it, or "
                "build into a new directory"
            )

    def run(self, *, weighted: bool) -> None:
        # A build that goes on reads the corpus from the start, to see that it is still the same.
        for number, shard in enumerate(self._done):
            self._again(shard, number)
        file = self.directory.path / MANIFEST
        if file.is_file():
            if next(self._documents, None) is not None:
                raise self._changed("the store was finished")
            if file.read_bytes() != self._manifest().encode():
                raise InputError(
                    f"{file}: has been edited since it was written; remove it, and run the same "
                    "command again to write it anew"
                )
            return
        # The remaining texts; a shard is written once it has enough tokens.
        waiting: list[_Tokenised] = []
        size = 0
        for document in self._tokenised(self._documents):
            waiting.append(document)
            size += document.tokens.size
            if size >= self.shard:
                self._write(waiting)
                waiting, size = [], 0
        if not self._tokens + size:
            raise InputError("the corpus contains no tokens; give one with text in it")
        if waiting:
            self._write(waiting)
        if weighted and all(shard.weights_sha256 is None for shard in self._done):
            raise InputError(
                "no text of the corpus has weights, so no answer would count more than the rest; "
                "name the field that holds them (`weights`), or leave it out"
            )
        self.directory.write(MANIFEST, self._manifest())

    def _manifest(self) -> str:
        manifest = {
            "format": FORMAT,
            "tokenizer_sha256": self.directory.configuration["tokenizer_sha256"],
            "domains": list(self.texts),
            "shards": [shard.to_json() for shard in self._done],
        }
        return json.dumps(manifest, indent=1) + "\n"

    def _again(self, shard: Shard, number: int) -> None:
        """Read the texts of a finished shard; tokenise them only if its files are damaged."""
        documents = islice(self._documents, shard.documents)
        if self._is_whole(shard, number):
            for domain, document in documents:
                self._hash(domain, document)
        else:
            content = _contents(list(self._tokenised(documents)))
            for kind, expected in shard.checksums.items():
                if hashlib.sha256(content[kind]).hexdigest() != expected:
                    raise self._changed(f"shard {number} was built")
                self.directory.write(_name(kind, number), content[kind])
        if self._digest.hexdigest() != shard.texts_sha256:
            raise self._changed(f"shard {number} was built")
        self._tokens += shard.tokens

    def _is_whole(self, shard: Shard, number: int) -> bool:
        return all(
            _checksum(self.directory.path / _name(kind, number)) == expected
            for kind, expected in shard.checksums.items()
        )

    def _changed(self, since: str) -> InputError:
        return InputError(
            f"{self.directory.path}: the texts have changed since {since}, or {SHARDS} lost a "
            "line; restore what was changed, or build into a new directory"
        )

    def _hash(self, domain: int, document: Document) -> None:
        raw = self._bytes(domain, document)
        self._digest.update(b"%d %d " % (domain, len(raw)))
        self._digest.update(raw)
        if document.tokens is not None:
            self._digest.update(b"tokens " + np.asarray(document.tokens, dtype=TOKEN).tobytes())
        if document.weights:
            self._digest.update(json.dumps(document.weights).encode())

    def _bytes(self, domain: int, document: Document) -> bytes:
        try:
            return document.text.encode()
        except UnicodeEncodeError as error:
            raise InputError(
                f"a document of {list(self.texts)[domain]} is not valid Unicode (character "
                f"{error.start} is half of a surrogate pair); repair the corpus"
            ) from None

    def _tokenised(self, documents: Iterator[tuple[int, Document]]) -> Iterator[_Tokenised]:
        """Each document's tokens; the digest covers the documents yielded so far, and no more."""
        waiting: list[tuple[int, Document]] = []
        characters = 0
        for domain, document in documents:
            waiting.append((domain, document))
            characters += len(document.text)
            characters += 0 if document.tokens is None else document.tokens.size
            if characters >= BATCH:
                yield from self._encoded(waiting)
                waiting, characters = [], 0
        if waiting:
            yield from self._encoded(waiting)

    def _encoded(self, waiting: list[tuple[int, Document]]) -> Iterator[_Tokenised]:
        for domain, document in waiting:
            self._bytes(domain, document)  # refuses what no tokenizer takes, before one sees it
        texts = [document.text for _, document in waiting if document.tokens is None]
        encoded = iter(self.encode(texts))
        for domain, document in waiting:
            self._hash(domain, document)
            ids = next(encoded) if document.tokens is None else document.tokens
            tokens = np.asarray(ids, dtype=TOKEN)
            yield _Tokenised(domain, tokens, self._weights(tokens, document.weights))

    def _weights(
        self, tokens: NDArray[np.uint32], spans: Sequence[Weighted]
    ) -> NDArray[np.float32] | None:
        """The weight of predicting each token."""
        if self.weigher is not None:
            return self.weigher.weights(tokens.astype(np.int64)).astype(WEIGHT)
        weights = np.ones(tokens.size, dtype=WEIGHT)
        for start, end, weight in spans:
            weights[start:end] = weight
        return weights if spans else None

    def _write(self, documents: list[_Tokenised]) -> None:
        number, content = len(self._done), _contents(documents)
        for kind, raw in content.items():
            self.directory.write(_name(kind, number), raw)
        checksums = {kind: hashlib.sha256(raw).hexdigest() for kind, raw in content.items()}
        shard = Shard(
            len(documents),
            len(content["tokens"]) // TOKEN.itemsize,
            checksums["tokens"],
            checksums["documents"],
            self._digest.hexdigest(),
            checksums.get("weights"),
        )
        self._journal.append([shard.to_json()])
        self._done.append(shard)
        self._tokens += shard.tokens
        self.progress(Status("tokenising", 0.0, f"{self._tokens / 1e6:,.1f}M tokens"))


class _Tokenised(NamedTuple):
    """A document's domain, its tokens, and their weights, if it has any."""

    domain: int
    tokens: NDArray[np.uint32]
    weights: NDArray[np.float32] | None


def _contents(documents: list[_Tokenised]) -> dict[str, bytes]:
    table = np.array([(each.tokens.size, each.domain) for each in documents], dtype=FIELD)
    files = {
        "tokens": b"".join(np.ascontiguousarray(each.tokens).data for each in documents),
        "documents": table.tobytes(),
    }
    if any(each.weights is not None for each in documents):
        files["weights"] = b"".join(
            (np.ones(each.tokens.size, WEIGHT) if each.weights is None else each.weights).tobytes()
            for each in documents
        )
    return files


def _name(kind: str, number: int) -> str:
    return f"{kind}-{number:05}.bin"


def _checksum(path: Path) -> str | None:
    """None if it is not a file, so that a pipe is not waited for."""
    return sha256_of(path) if path.is_file() else None


class TokenStore:
    """Documents by their number, without reading the others."""

    def __init__(self, folder: str | Path) -> None:
        """Open a finished store; the sizes of its files must be those in its manifest."""
        self.folder = Path(folder)
        path = self.folder / MANIFEST
        if not path.exists() and (self.folder / SHARDS).exists():
            raise InputError(f"{folder}: is not finished; run the same `data build` again")
        if self.folder.is_dir() and not path.exists():
            raise InputError(f"{folder}: has no tokens; `ropewalk data build` writes such a folder")
        # A store may come from a stranger: the manifest is checked before a shard is opened.
        fields = Fields(read_json(path, max_bytes=MOST_BYTES), f"{path}: ")
        if (version := fields.text("format")) != FORMAT:
            raise InputError(f"{folder}: is of format {version!r}, not {FORMAT!r}; build it again")
        self.tokenizer_sha256 = fields.text("tokenizer_sha256")
        names = fields.items("domains")
        _check_names(names, fields.of("domains"))
        self.domains = tuple(map(str, names))
        shards = fields.items("shards")
        fields.close()
        if not 1 <= len(shards) <= MOST_SHARDS:
            raise InputError(
                f"{path}: states {len(shards):,} shards, and the number must be between 1 and "
                f"{MOST_SHARDS:,}; restore the file, or build it again"
            )
        self.shards = tuple(
            Shard.from_json(shard, f"{path}: shards[{i}]") for i, shard in enumerate(shards)
        )
        # Where each document begins in its shard follows from the lengths alone.
        tables = [self._table(number) for number in range(len(self.shards))]
        self.lengths, self.of_domain = (_read_only(np.concatenate(tables)[:, i]) for i in (0, 1))
        counts = np.array([shard.documents for shard in self.shards])
        self._first = np.cumsum(counts) - counts
        begins = np.cumsum(self.lengths) - self.lengths
        self._begins = begins - np.repeat(begins[self._first], counts)
        self.weighted = any(shard.weights_sha256 is not None for shard in self.shards)
        """True if predicting some tokens weighs more than predicting others."""
        self._maps: dict[tuple[str, int], NDArray[Any]] = {}

    def __reduce__(self) -> tuple[object, ...]:
        """Another process opens the folder itself."""
        return TokenStore, (self.folder,)

    def __repr__(self) -> str:
        return f"<TokenStore {self.folder}: {self.lengths.sum():,} tokens>"

    def __len__(self) -> int:
        return int(self.lengths.size)

    def tokens(self, document: int, start: int = 0, end: int | None = None) -> IntArray:
        """The tokens of a document from one place to another."""
        number, span = self._place(document, start, end)
        if span.start == span.stop:
            return np.zeros(0, dtype=np.int64)
        return np.asarray(self._mapped("tokens", number)[span], dtype=np.int64)

    def weights(self, document: int, start: int = 0, end: int | None = None) -> NDArray[np.float32]:
        """The weights of predicting these tokens."""
        number, span = self._place(document, start, end)
        if span.start == span.stop or self.shards[number].weights_sha256 is None:
            return np.ones(span.stop - span.start, dtype=np.float32)
        return np.asarray(self._mapped("weights", number)[span], dtype=np.float32)

    def _place(self, document: int, start: int, end: int | None) -> tuple[int, slice]:
        """The shard of a document, and the place of the part in it."""
        document = range(len(self))[document]
        number = int(np.searchsorted(self._first, document, side="right")) - 1
        begin = int(self._begins[document])
        start, end, _ = slice(start, end).indices(int(self.lengths[document]))
        return number, slice(begin + start, begin + max(start, end))

    @property
    def with_text(self) -> tuple[str, ...]:
        """The domains that have a token."""
        there = set(self.of_domain[self.lengths > 0].tolist())
        return tuple(name for index, name in enumerate(self.domains) if index in there)

    def check(self, progress: Progress = silent, *, vocabulary: int | None = None) -> None:
        """Compare every file with its checksum, and every token with the size of a vocabulary."""
        for number, shard in enumerate(self.shards):
            progress(Status("checking tokens", number / len(self.shards)))
            for kind, expected in shard.checksums.items():
                path = self.folder / _name(kind, number)
                if _checksum(path) != expected:
                    raise _damaged(path, "its checksum is not the one in the manifest")
            if shard.weights_sha256 is not None:
                weights = self._mapped("weights", number)
                if not (np.isfinite(weights) & (weights >= 0)).all():
                    path = self.folder / _name("weights", number)
                    raise _damaged(path, "weights must be finite, and 0 or more")
            largest = int(self._mapped("tokens", number).max(initial=0))
            if vocabulary is not None and largest >= vocabulary:
                raise InputError(
                    f"{self.folder / _name('tokens', number)}: holds the token {largest}, and the "
                    f"model's vocabulary has {vocabulary}; build the folder with this model"
                )

    def _mapped(self, kind: str, number: int) -> NDArray[Any]:
        key = kind, number
        if key not in self._maps:
            if len(self._maps) >= MAPPED:
                del self._maps[next(iter(self._maps))]  # the one that was mapped first
            path, count = self.folder / _name(kind, number), self.shards[number].tokens
            try:
                self._maps[key] = np.memmap(
                    path, WEIGHT if kind == "weights" else TOKEN, "r", shape=(count,)
                )
            except (OSError, ValueError) as error:
                raise InputError(f"{path}: cannot be read ({error})") from None
        return self._maps[key]

    def _table(self, number: int) -> IntArray:
        """The lengths and domains of a shard's documents, once its files have the right sizes."""
        shard = self.shards[number]
        sizes = {
            "tokens": shard.tokens * TOKEN.itemsize,
            "documents": shard.documents * 2 * FIELD.itemsize,
        }
        if shard.weights_sha256 is not None:
            sizes["weights"] = shard.tokens * WEIGHT.itemsize
        for kind, size in sizes.items():
            path = self.folder / _name(kind, number)
            if not path.is_file():
                raise _damaged(path, "there is no such file")
            if path.stat().st_size != size or shard.documents < 1:
                raise _damaged(path, "its size is not the one in the manifest")
        path = self.folder / _name("documents", number)
        table = np.fromfile(path, FIELD).reshape(-1, 2).astype(np.int64)
        lengths, domains = table[:, 0], table[:, 1]
        good = (
            0 <= lengths.min() <= lengths.max() <= shard.tokens
            and int(lengths.sum()) == shard.tokens
            and 0 <= domains.min() <= domains.max() < len(self.domains)
        )
        if not good:
            raise _damaged(path, "its lengths or domains do not fit the manifest")
        return table


def _read_only(array: IntArray) -> IntArray:
    result = np.ascontiguousarray(array)
    result.flags.writeable = False
    return result


def _damaged(path: Path, reason: str) -> InputError:
    return InputError(
        f"{path}: is damaged ({reason}); run the same `data build` again to repair it"
    )
