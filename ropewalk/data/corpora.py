"""Text from files: plain text, JSONL, Parquet, or the standard library of the running Python.

A corpus is read as a stream of documents, so that it may be larger than memory. Its fingerprint
goes into the ids of all samples drawn from it.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from ropewalk.errors import InputError, InvalidValue
from ropewalk.extras import required_by
from ropewalk.untrusted import parse_json, real_number, whole_number

STANDARD_LIBRARY = "python"
HELD_OUT = "held-out"
HELD_OUT_FOLDER = Path(__file__).parent / HELD_OUT.replace("-", "_")
MANIFEST = "manifest.json"
"""By which a folder of tokens is known."""
TEXT_ENDINGS = (".txt", ".md", ".rst", ".py", ".tex")
TEXT_FIELD = "text"
MOST_WEIGHT = 1000
"""Of a token: what a single one may count beside the others of a step."""


class Weighted(NamedTuple):
    """What predicting the characters from `start` to `end` (not included) weighs in training."""

    start: int
    end: int
    weight: float


class Document(NamedTuple):
    """One text, and a name for it."""

    name: str
    text: str
    weights: tuple[Weighted, ...] = ()
    """In their order; what none covers weighs 1."""


def read_documents(
    source: str | Path, *, field: str = TEXT_FIELD, weights: str | None = None
) -> Iterator[Document]:
    """The documents of a file, of a folder (its text files in the order of their names), or of
    the standard library (`python`); JSONL and Parquet hold one a row, in `field`, and what parts
    of it weigh in the field `weights`, if that is given. `held-out` is text that the bundled models
    were not trained on."""
    if source == STANDARD_LIBRARY:
        return standard_library()
    path = HELD_OUT_FOLDER if source == HELD_OUT else Path(source)
    try:
        is_folder, is_there = path.is_dir(), path.exists()
    except OSError as error:  # a name that no file system takes
        raise InputError(f"{source}: cannot be read ({error.strerror}); check the path") from None
    if is_folder:
        return _folder(path)
    if not is_there:
        raise InputError(
            f"{source}: there is no such file or folder; give a text file, .jsonl, .parquet, a "
            f"folder, {HELD_OUT!r} for the text that ships with ropewalk, or {STANDARD_LIBRARY!r} "
            "for the standard library of this Python"
        )
    if not path.is_file():  # a pipe or a device may have no end
        raise InputError(f"{source}: is not a regular file; write its text to one, and name that")
    reader = _BY_ENDING.get(path.suffix.lower())
    if reader is not None:
        rows = reader(path, [field] if weights is None else [field, weights])
        return (_document(name, row, field, weights, place) for name, row, place in rows)
    return (Document(each.name, _text(each)) for each in (path,))


def corpus_digest(documents: Iterable[Document]) -> str:
    """A SHA-256 of the texts, in their order, whatever their names."""
    import hashlib  # slow, and `--help` signs nothing

    digest = hashlib.sha256()
    for document in documents:
        text = document.text.encode("utf-8", "surrogatepass")
        digest.update(len(text).to_bytes(8, "little"))
        digest.update(text)
    return digest.hexdigest()


def standard_library() -> Iterator[Document]:
    """The modules of the running Python: about ten million characters of code and prose.

    It changes with the version of Python, so nothing that must stay comparable should use it.
    """
    root = Path(sysconfig.get_path("stdlib"))
    left_out = {"site-packages", "test", "tests", "idlelib", "lib2to3", "__pycache__"}
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root)
        if left_out.isdisjoint(name.parts):
            yield Document(name.as_posix(), _text(path))


def _folder(path: Path) -> Iterator[Document]:
    files = sorted(p for p in path.rglob("*") if p.suffix.lower() in TEXT_ENDINGS and p.is_file())
    if not files:
        if (path / MANIFEST).is_file():
            raise InputError(
                f"{path}: is a folder of tokens, not of text; `ropewalk train` reads one such "
                "folder, alone and without a name, and other commands read the text it was built "
                "from"
            )
        raise InputError(
            f"{path}: contains no text files ({', '.join(TEXT_ENDINGS)}); name a .jsonl or "
            ".parquet file itself"
        )
    within = path.resolve()
    for file in files:  # a corpus from elsewhere must not lead to files of its user
        if not file.resolve().is_relative_to(within):
            raise InputError(
                f"{file}: is a link to a file outside {path}, which is not read; put a copy in its "
                "place, or name the file itself"
            )
    return (Document(file.relative_to(path).as_posix(), _text(file)) for file in files)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}: is not UTF-8 text (byte {error.start}); convert it, or name a text file"
        ) from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None


_Row = tuple[str, object, str]
"""The name of a document, its fields, and where they stand."""


def _jsonl(path: Path, fields: Sequence[str]) -> Iterator[_Row]:
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
                yield f"{path.name}:{number}", value, place
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None


def _parquet(path: Path, fields: Sequence[str]) -> Iterator[_Row]:
    with required_by(f"{path}: Parquet"):
        import pyarrow
        from pyarrow import parquet
    try:
        table = parquet.ParquetFile(path)
        names = table.schema_arrow.names
        for key, column in zip(("field", "weights"), fields, strict=False):
            if column not in names:
                raise InvalidValue(
                    key, column, f"{path} has no such column", f"choose from {', '.join(names)}"
                )
        number = 0
        for batch in table.iter_batches(columns=list(fields)):
            for row in batch.to_pylist():
                number += 1
                yield f"{path.name}:{number}", row, f"{path}: row {number}"
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(f"{path}: is not a readable Parquet file ({error})") from None


def _document(name: str, value: object, field: str, weights: str | None, place: str) -> Document:
    if not isinstance(value, dict):
        raise InputError(
            f"{place}: is not a JSON object; each line must be one with the text in it"
        )
    text = value.get(field)
    if not isinstance(text, str):
        known = ", ".join(islice(map(str, value), 8)) or "nothing"
        raise InvalidValue(
            f"{place}: {field}", text, "must be the text of a document", f"there are: {known}"
        )
    if weights is None:
        return Document(name, text)
    return Document(name, text, _weights(value.get(weights), len(text), f"{place}: {weights}"))


def _weights(value: object, length: int, place: str) -> tuple[Weighted, ...]:
    """Checked, since they may come from anywhere."""
    remedy = "write [[0, 12, 0], [12, 20, 5]], with places counted in characters, or []"
    if not isinstance(value, list):
        raise InvalidValue(place, value, "must be a list of [start, end, weight]", remedy)
    found, reached = [], 0
    for own in value:
        if not isinstance(own, list | tuple) or len(own) != 3:
            raise InvalidValue(place, own, "must be [start, end, weight]", remedy)
        start, end = (whole_number(each, place) for each in own[:2])
        weight = real_number(own[2], place)
        if not reached <= start <= end <= length:
            raise InvalidValue(
                place,
                [start, end],
                f"must rise, not overlap, and lie within the {length} characters of the text",
                remedy,
            )
        if not 0 <= weight <= MOST_WEIGHT:
            raise InvalidValue(place, weight, f"must be between 0 and {MOST_WEIGHT}", remedy)
        found.append(Weighted(start, end, weight))
        reached = end
    return tuple(found)


_BY_ENDING: dict[str, Callable[[Path, Sequence[str]], Iterator[_Row]]] = {
    ".jsonl": _jsonl,
    ".parquet": _parquet,
}
