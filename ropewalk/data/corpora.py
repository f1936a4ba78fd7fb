"""Text from files, folders, data sets (rows.py), or the standard library of the running Python.

A corpus is read as a stream of documents, so that it may be larger than memory. Its fingerprint
goes into the ids of all samples drawn from it.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from ropewalk.data import rows
from ropewalk.data.rows import BY_ENDING, HUB, SHARD_ENDING, Document, Vocabulary, Weighted
from ropewalk.errors import InputError
from ropewalk.progress import Notice, log_notice

__all__ = ["Document", "Vocabulary", "Weighted", "corpus_digest", "read_documents"]

STANDARD_LIBRARY = "python"
HELD_OUT = "held-out"
HELD_OUT_FOLDER = Path(__file__).parent / HELD_OUT.replace("-", "_")
MANIFEST = "manifest.json"
"""The file by which a folder of tokens is known."""
TEXT_ENDINGS = (".txt", ".md", ".rst", ".py", ".tex")
CARDS = ("README", "LICENSE")
"""Names of files that describe rows."""
TABLES = (".csv", ".tsv", ".json")
"""Endings of rows that are not read, and that nobody means as one text."""
COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip", ".tar", ".tgz")
TEXT_FIELD = "text"


def may_have_rows(source: object) -> bool:
    """True for a file, folder or data set that may hold rows: no text file, list or own text."""
    named = isinstance(source, str | Path) and source not in (STANDARD_LIBRARY, HELD_OUT)
    return named and Path(str(source)).suffix.lower() not in TEXT_ENDINGS


def read_documents(
    source: str | Path,
    *,
    field: str = TEXT_FIELD,
    weights: str | None = None,
    vocabulary: Vocabulary | None = None,
    allow_download: bool = False,
    notice: Notice = log_notice,
) -> Iterator[Document]:
    """The documents of a file, of a folder (its text files in the order of their names, or else
    those with rows), of a data set (`hub:NAME`), or of the standard library (`python`). Rows hold
    one document each in `field`, and what parts of it weigh in the field `weights`, if that is
    given; tokens need the `vocabulary`. `held-out` is text that the bundled models were
    not trained on."""
    if source == STANDARD_LIBRARY:
        return standard_library()
    fields = [field, *([] if weights is None else [weights])]
    if isinstance(source, str) and source.startswith(HUB):
        if not (allow_download or Path(source.removeprefix(HUB).split(":")[0]).exists()):
            raise InputError(
                f"{source}: is not read from the network, except by `data build` and "
                "`train`; add --allow-download there, or name a file"
            )
        records = rows.hub(source, fields)
        return (rows.document(row, field, weights, vocabulary) for row in records)
    path = HELD_OUT_FOLDER if source == HELD_OUT else Path(source)
    try:
        is_folder, is_there = path.is_dir(), path.exists()
    except OSError as error:  # a name that no file system takes
        raise InputError(f"{source}: cannot be read ({error.strerror}); check the path") from None
    if is_folder and (path / rows.STATE).is_file():
        return (rows.document(row, field, weights, vocabulary) for row in rows.saved(path, fields))
    if is_folder:
        of, others = _folder(path)
        if others and source != HELD_OUT:
            names = ", ".join(each.relative_to(path).as_posix() for each in others[:3])
            more = f" and {len(others) - 3:,} more" if len(others) > 3 else ""
            notice(f"in {path}, not read as documents: {names}{more}")
        if of and of[0].suffix.lower() not in TEXT_ENDINGS:
            corpora = (
                read_documents(each, field=field, weights=weights, vocabulary=vocabulary)
                for each in of
            )
            return chain.from_iterable(corpora)
        return (Document(each.relative_to(path).as_posix(), _text(each)) for each in of)
    if not is_there:
        raise InputError(
            f"{source}: there is no such file or folder; give a text file, .jsonl, .parquet, .npy, "
            f"a folder, hub:NAME for a data set, {HELD_OUT!r} for the text that ships with "
            f"ropewalk, or {STANDARD_LIBRARY!r} for the standard library of this Python"
        )
    if not path.is_file():  # a pipe or a device may have no end
        raise InputError(f"{source}: is not a regular file; write its text to one, and name that")
    if path.suffix.lower() == SHARD_ENDING:
        return rows.numpy_shard(path, vocabulary)
    reader = BY_ENDING.get(path.suffix.lower())
    if reader is not None:
        return (rows.document(row, field, weights, vocabulary) for row in reader(path, fields))
    if path.suffix.lower() in COMPRESSED:
        raise InputError(
            f"{path}: is compressed; unpack it, and give the path of the unpacked file"
        )
    if path.suffix.lower() in TABLES:
        raise InputError(
            f"{path}: would be read as one text; write its rows as .jsonl, or name it .txt if one "
            "text is what you mean"
        )
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


def _folder(path: Path) -> tuple[list[Path], list[Path]]:
    """The text files of a folder, or those with rows or tokens, if the only text is their card; and
    its other files, but for cards and what is hidden."""
    within = path.resolve()
    endings = (*BY_ENDING, SHARD_ENDING)
    files = sorted(p for p in path.rglob("*") if p.is_file())
    rows_of = [p for p in files if p.suffix.lower() in endings]
    text = [p for p in files if p.suffix.lower() in TEXT_ENDINGS]
    if rows_of:  # a card that describes them is no text of its own
        text = [p for p in text if p.stem.upper() not in CARDS]
    if rows_of and text and _bytes(rows_of) > _bytes(text):  # it is not clear what is meant
        raise InputError(
            f"{path}: holds files of text ({text[0].name}) and of rows or tokens "
            f"({rows_of[0].name}), which are not read together; name a file, or a folder with one "
            "kind only"
        )
    read = text or rows_of
    for file in read:  # a corpus from elsewhere must not lead to files of its user
        if not file.resolve().is_relative_to(within):
            raise InputError(
                f"{file}: is a link to a file outside {path}, which is not read; put a copy in "
                "its place, or name the file itself"
            )
    if read:
        others = set(files).difference(read)
        return read, [p for p in files if p in others and not _aside(p.relative_to(path))]
    if (path / MANIFEST).is_file():
        raise InputError(
            f"{path}: is a folder of tokens, not of text; `ropewalk train` reads one such folder, "
            "alone and without a name, and other commands read the text it was built from"
        )
    if (path / rows.SPLITS).is_file():
        parts = ", ".join(sorted(each.name for each in path.iterdir() if each.is_dir()))
        raise InputError(f"{path}: holds several data sets; name one of its folders: {parts}")
    raise InputError(
        f"{path}: contains no text files ({', '.join(TEXT_ENDINGS)}), and none with rows "
        f"({', '.join((*BY_ENDING, SHARD_ENDING))})"
    )


def _aside(path: Path) -> bool:
    """True of a card, and of what is hidden."""
    hidden = any(part.startswith((".", "__")) for part in path.parts)
    return hidden or path.stem.upper() in CARDS


def _bytes(files: Iterable[Path]) -> int:
    return sum(file.stat().st_size for file in files)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}: is not UTF-8 text (byte {error.start}); convert it, or name a text file"
        ) from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None


LINES = 5
"""Lines in a row, each with a letter or digit in it, that two texts share only if one is a copy."""


def apart_from(documents: Iterable[Document], others: Iterable[Document]) -> list[Document]:
    """The documents of which no run of five lines occurs in the others.

    A text of fewer lines is compared as a whole.
    """
    runs = {run for other in others for run in _runs(other.text)}
    return [document for document in documents if runs.isdisjoint(_runs(document.text))]


def _runs(text: str) -> set[int]:
    lines = [line.strip() for line in text.splitlines() if any(map(str.isalnum, line))]
    starts = range(max(1, len(lines) - LINES + 1))
    return {hash(tuple(lines[start : start + LINES])) for start in starts}
