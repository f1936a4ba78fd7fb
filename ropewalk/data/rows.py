"""Rows of data sets: JSONL, Parquet, data sets saved by `datasets`, and those of the hub.

A row is made into a document by what its field holds: text, or the tokens of a model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ropewalk.data.packing import IntArray
from ropewalk.errors import InputError, InvalidValue, first_line
from ropewalk.extras import required_by
from ropewalk.untrusted import parse_json, read_json, real_number, whole_number

MOST_WEIGHT = 1000
"""The largest weight of a token, compared with the others of a step."""
MOST_FILES = 100_000
AT_ONCE = 16
"""Rows that are made into Python's values: one may hold a million tokens."""
PIECE = 2**22
"""Tokens of a shard that are looked through at once."""
HUB = "hub:"
STATE, SPLITS = "state.json", "dataset_dict.json"
"""The files that mark folders of `datasets`: of one data set, and of several by their names."""


class Weighted(NamedTuple):
    """The weight in training of predicting the places from `start` to `end` (not included)."""

    start: int
    end: int
    weight: float


class Document(NamedTuple):
    """One text, and a name for it."""

    name: str
    text: str
    tokens: IntArray | None = None
    """The tokens, instead of a text."""
    weights: tuple[Weighted, ...] = ()
    """Of tokens, in their order; the rest weighs 1."""


class Vocabulary(NamedTuple):
    """The tokens of a model: needed if rows hold tokens."""

    size: int
    begin: int | None
    end: int | None
    """The tokens that begin and end a text, which windows put around documents."""


class Row(NamedTuple):
    name: str
    fields: object
    place: str


def document(row: Row, field: str, weights: str | None, vocabulary: Vocabulary | None) -> Document:
    value = row.fields
    if not isinstance(value, dict):
        raise InputError(
            f"{row.place}: is not a JSON object; each line must be an object that holds the text"
        )
    content, place = value.get(field), f"{row.place}: {field}"
    if isinstance(content, list | np.ndarray):
        owner = _needed(vocabulary, place)
        tokens = _tokens(content, place, owner)
        return _bare(row.name, tokens, _weights(value, weights, tokens.size, row), owner)
    if content is None and field in value:
        raise InputError(f"{place}: is null; leave such rows out, or name another field")
    if not isinstance(content, str):
        names = ", ".join(islice(map(str, value), 8)) or "nothing"
        raise InvalidValue(
            place, content, "must be the text of a document", f"give another `field`: {names}"
        )
    if weights is not None:
        raise InvalidValue(
            "weights", weights, "belongs to tokens, and the rows hold text", "store their tokens"
        )
    return Document(row.name, content)


def _bare(
    name: str, tokens: IntArray, weights: Iterable[Weighted], vocabulary: Vocabulary
) -> Document:
    """A document of tokens, without those around it that windows put there."""
    first = int(tokens.size > 0 and tokens[0] == vocabulary.begin)
    last = tokens.size - int(tokens.size > first and tokens[-1] == vocabulary.end)
    moved = (
        Weighted(max(start, first) - first, min(end, last) - first, weight)
        for start, end, weight in weights
    )
    kept = tuple(span for span in moved if span.start < span.end)
    return Document(name, "", tokens[first:last], kept)


def _needed(vocabulary: Vocabulary | None, place: str) -> Vocabulary:
    if vocabulary is None:
        raise InputError(
            f"{place}: holds tokens, not text, and only `data build` and `train` read tokens; "
            "name a field of text (`field`)"
        )
    return vocabulary


def _tokens(value: object, place: str, vocabulary: Vocabulary) -> IntArray:
    try:
        array = np.asarray(value)
    except ValueError:  # rows of different lengths
        array = np.zeros((0, 0))
    if array.ndim != 1 or (array.size and not np.issubdtype(array.dtype, np.integer)):
        raise InvalidValue(place, "this list", "must be one row of tokens", "write [17, 4, …]")
    return _checked(array, place, vocabulary)


def _checked(array: NDArray[Any], place: str, vocabulary: Vocabulary) -> IntArray:
    """Tokens that the model has."""
    tokens = array.astype(np.int64)
    if tokens.min(initial=0) < 0:
        raise InvalidValue(place, int(tokens.min()), "is not a token", "tokens are 0 or more")
    if (largest := int(tokens.max(initial=0))) >= vocabulary.size:
        raise InputError(
            f"{place}: holds the token {largest}, and the model's vocabulary has "
            f"{vocabulary.size}: these tokens come from another tokenizer; give the text, or the "
            "model that they are for"
        )
    return tokens


def _weights(
    value: Mapping[str, object], field: str | None, length: int, row: Row
) -> tuple[Weighted, ...]:
    """Checked, since they may come from anywhere."""
    if field is None:
        return ()
    place, spans = f"{row.place}: {field}", value.get(field)
    remedy = "write [[0, 12, 0], [12, 20, 5]], with places counted in tokens, or []"
    if not isinstance(spans, list):
        raise InvalidValue(place, spans, "must be a list of [start, end, weight]", remedy)
    weights, reached = [], 0
    for span in spans:
        if not isinstance(span, list | tuple) or len(span) != 3:
            raise InvalidValue(place, span, "must be [start, end, weight]", remedy)
        # A column of Parquet holds numbers of one kind: next to a weight of 0.5, a place is 3.0.
        start, end = (
            int(each)
            if isinstance(each, float) and each.is_integer()
            else whole_number(each, place)
            for each in span[:2]
        )
        weight = real_number(span[2], place)
        if not reached <= start <= end <= length:
            raise InvalidValue(
                place,
                [start, end],
                f"must be in rising order without overlap, within the {length} tokens",
                remedy,
            )
        if not 0 <= weight <= MOST_WEIGHT:
            raise InvalidValue(place, weight, f"must be between 0 and {MOST_WEIGHT}", remedy)
        weights.append(Weighted(start, end, weight))
        reached = end
    return tuple(weights)


def jsonl(path: Path, fields: Sequence[str]) -> Iterator[Row]:
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                place = f"{path}: line {number}"
                try:
                    value = parse_json(line.decode("utf-8"), source=place)
                except UnicodeDecodeError:
                    raise InputError(f"{place}: is not UTF-8 text; convert the file") from None
                yield Row(f"{path.name}:{number}", value, place)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None


def parquet(path: Path, fields: Sequence[str]) -> Iterator[Row]:
    with required_by(f"{path}: Parquet"):
        import pyarrow
        from pyarrow import parquet
    try:
        table = parquet.ParquetFile(path)
        check_columns(table.schema_arrow.names, fields, path)
        yield from _of_batches(table.iter_batches(AT_ONCE, columns=list(fields)), path, path.name)
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(f"{path}: is not a readable Parquet file ({error})") from None


def saved(folder: Path, fields: Sequence[str]) -> Iterator[Row]:
    """The rows that `datasets` wrote by `save_to_disk`."""
    with required_by(f"{folder}: a data set on disk"):
        import pyarrow
    state = read_json(folder / STATE)
    files = state.get("_data_files") if isinstance(state, dict) else None
    names = [each.get("filename") for each in files or [] if isinstance(each, dict)]
    if not names or len(names) > MOST_FILES:
        raise InputError(f"{folder / STATE}: names no data files; save the data set again")
    for name in names:
        path = folder / str(name)
        if Path(str(name)).name != name or not path.is_file() or path.is_symlink():
            raise InputError(
                f"{folder / STATE}: names {name!r}, which is not a file of this folder; save "
                "the data set again"
            )
        try:
            with pyarrow.memory_map(str(path)) as raw:
                table = pyarrow.ipc.open_stream(raw)
                check_columns(table.schema.names, fields, path)
                batches = (batch.select(list(fields)) for batch in table)
                yield from _of_batches(batches, path, path.name)
        except (pyarrow.ArrowException, OSError) as error:
            raise InputError(f"{path}: is not a readable Arrow file ({error})") from None


def hub(named: str, fields: Sequence[str]) -> Iterator[Row]:
    """A data set of the hub, as a stream: hub:NAME, hub:NAME:SPLIT, or hub:NAME:SPLIT:CONFIG.

    NAME may be a folder of files too, which `datasets` then reads by the same code.
    """
    with required_by(f"{named}: data sets of the hub"):
        import datasets
    name, split, config, *more = [*named.removeprefix(HUB).split(":"), "", ""][:4]
    if not name or (more and more[0]):
        raise InvalidValue("corpus", named, "is not a name", "write hub:NAME:SPLIT:CONFIG")
    split = split or "train"
    try:
        stream = datasets.load_dataset(name, config or None, split=split, streaming=True)
    except Exception as error:  # of many kinds: no network, no such data set, split or config
        raise InputError(f"{named}: cannot be opened ({first_line(error)})") from None
    if stream.column_names is not None:
        check_columns(stream.column_names, fields, named)
    for number, row in enumerate(_until_cut(stream, named), start=1):
        yield Row(f"{name}:{split}:{number}", row, f"{named}: row {number}")


def _until_cut(stream: Iterable[Any], named: str) -> Iterator[Any]:
    try:
        yield from stream
    except Exception as error:  # of many kinds: of the network, or of files that are damaged
        raise InputError(
            f"{named}: the stream ended early ({first_line(error)}); run the same command again "
            "to continue where it stopped"
        ) from None


def check_columns(names: Sequence[str], fields: Sequence[str], where: object) -> None:
    for column in fields:
        if column not in names:
            raise InvalidValue(
                "field", column, f"{where} has no such column", f"choose from {', '.join(names)}"
            )


def _of_batches(batches: Iterable[Any], path: Path, name: str) -> Iterator[Row]:
    number = 0
    for batch in batches:
        for start in range(0, batch.num_rows, AT_ONCE):
            for row in batch.slice(start, AT_ONCE).to_pylist():
                number += 1
                yield Row(f"{name}:{number}", row, f"{path}: row {number}")


def numpy_shard(path: Path, vocabulary: Vocabulary | None) -> Iterator[Document]:
    """Tokens: a row of documents, each ended by the token that ends a text, or one in each row."""
    place = str(path)
    vocabulary = _needed(vocabulary, place)
    try:
        shard = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{path}: is not a readable numpy array ({error})") from None
    if shard.ndim not in (1, 2) or not np.issubdtype(shard.dtype, np.integer):
        raise InputError(
            f"{path}: must be an array of whole numbers in one or two dimensions, not "
            f"{shard.dtype} of shape {shard.shape}"
        )
    rows: Iterable[NDArray[Any]] = shard
    if shard.ndim == 1:
        rows = _cut(shard, vocabulary.end)
    for number, row in enumerate(rows, start=1):
        tokens = _checked(row, f"{place}: document {number}", vocabulary)
        yield _bare(f"{path.name}:{number}", tokens, (), vocabulary)


def _cut(shard: NDArray[Any], end: int | None) -> Iterator[NDArray[Any]]:
    """Cut behind each end of a text, without reading all of what may be larger than memory."""
    begin = 0
    for start in range(0, shard.size if end is not None else 0, PIECE):
        for place in (np.flatnonzero(shard[start : start + PIECE] == end) + start + 1).tolist():
            yield shard[begin:place]
            begin = place
    if begin < shard.size:
        yield shard[begin:]


BY_ENDING: dict[str, Callable[[Path, Sequence[str]], Iterator[Row]]] = {
    ".jsonl": jsonl,
    ".parquet": parquet,
}
SHARD_ENDING = ".npy"
