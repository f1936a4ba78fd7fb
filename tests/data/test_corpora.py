from __future__ import annotations

import json
import os
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from ropewalk.data.corpora import Document, Vocabulary, corpus_digest, read_documents
from ropewalk.errors import InputError, InvalidValue


def test_a_text_file_is_one_document(tmp_path: Path) -> None:
    path = tmp_path / "essay.txt"
    path.write_text("Ünïcode\nand more", encoding="utf-8")
    assert list(read_documents(path)) == [Document("essay.txt", "Ünïcode\nand more")]


def test_a_folder_is_its_text_files_by_name(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for name in ("b.txt", "a.md", "sub/c.py", "ignored.bin"):
        (tmp_path / name).write_text(name)
    heard: list[str] = []
    found = [document.name for document in read_documents(tmp_path, notice=heard.append)]
    assert found == ["a.md", "b.txt", "sub/c.py"]
    assert heard == [f"in {tmp_path}, not read as documents: ignored.bin"]


def test_the_card_of_a_data_set_is_not_its_text(tmp_path: Path) -> None:
    row = json.dumps({"text": "a row that is read"})
    (tmp_path / "README.md").write_text("# A card, which may be long\n" * 9)
    (tmp_path / "LICENSE.txt").write_text("MIT")
    (tmp_path / "train.jsonl").write_text(row)
    assert [document.text for document in read_documents(tmp_path)] == ["a row that is read"]
    (tmp_path / "notes.txt").write_text("short")
    with pytest.raises(InputError, match=r"notes\.txt.*train\.jsonl.*not read together"):
        read_documents(tmp_path)
    (tmp_path / "notes.txt").write_text(
        "Longer than the rows, so these are text with an extra. " * 9
    )
    heard: list[str] = []
    named = [document.name for document in read_documents(tmp_path, notice=heard.append)]
    assert named == ["notes.txt"]
    assert heard == [f"in {tmp_path}, not read as documents: train.jsonl"]


@pytest.mark.parametrize("name", ["rows.csv", "rows.json", "rows.TSV"])
def test_a_table_is_not_read_as_one_text(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text('[{"text": "one"}, {"text": "two"}]')
    with pytest.raises(InputError, match="would be read as one text"):
        read_documents(tmp_path / name)


def test_jsonl_has_one_document_a_line(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text(f"{json.dumps({'text': 'one'})}\n\n{json.dumps({'text': 'two', 'id': 7})}\n")
    assert [document.text for document in read_documents(path)] == ["one", "two"]
    path.write_text(json.dumps({"body": "three"}))
    assert [document.text for document in read_documents(path, field="body")] == ["three"]


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_rows_say_what_some_of_their_tokens_weigh(kind: str, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"ids": [5, 6, 7, 8], "answers": [[0, 3, 0.0], [3, 4, 5.0]]},
        {"ids": [9], "answers": []},
    ]
    path = tmp_path / f"corpus.{kind}"
    if kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    given: Any = {"field": "ids", "vocabulary": Vocabulary(10, None, None)}
    found = [document.weights for document in read_documents(path, weights="answers", **given)]
    assert found == [((0, 3, 0), (3, 4, 5)), ()]
    assert all(not document.weights for document in read_documents(path, **given))
    with pytest.raises(InputError, match="other"):
        list(read_documents(path, weights="other", **given))


@pytest.mark.parametrize(
    ("weights", "says"),
    [
        (None, "must be a list of"),
        ([[0, 3]], "must be .start, end, weight."),
        ([[0, 4, 1]], "within the 3 tokens"),
        ([[2, 1, 1]], "must be in rising order"),
        ([[0, 2, 1], [1, 3, 1]], "without overlap"),
        ([[-1, 2, 1]], "must be in rising order"),
        ([[0, 2, -1]], "must be between 0 and 1000"),
        ([[0, 2, "5"]], "must be a number"),
        ([[0, 1.5, 5]], "must be a whole number"),
    ],
)
def test_weights_that_do_not_fit_their_tokens_are_refused(
    weights: object, says: str, tmp_path: Path
) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text(json.dumps({"ids": [1, 2, 3], "weights": weights}))
    with pytest.raises(InputError, match=rf"line 1: weights.*{says}"):
        list(
            read_documents(
                path, field="ids", weights="weights", vocabulary=Vocabulary(10, None, None)
            )
        )


def test_jsonl_is_read_as_it_is_asked_for(tmp_path: Path) -> None:
    """A corpus may be larger than memory, so what is not asked for is not looked at."""
    path = tmp_path / "corpus.jsonl"
    path.write_text('{"text": "one"}\nbroken\n')
    assert next(iter(read_documents(path))).text == "one"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b'{"text": "one"}\n{"text": 2}\n', "line 2: text"),
        ("a.jsonl", b'{"body": "one"}\n', "give another `field`: body"),
        ("a.jsonl", b'{"text": null}\n', "line 1: text: is null; leave such rows out"),
        ("a.txt.gz", b"\x1f\x8b", "is compressed; unpack it"),
        ("a.jsonl", b"[1]\n", "line 1: is not a JSON object"),
        ("a.jsonl", b"{\n", "line 1: is not JSON"),
        ("a.jsonl", b'{"text": "\xff"}\n', "line 1: is not UTF-8"),
        ("a.txt", b"\xff\xfe", "is not UTF-8 text"),
    ],
)
def test_what_cannot_be_read_is_named(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        list(read_documents(path))


def test_missing_and_empty_places_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_documents(tmp_path / "nothing.txt")
    with pytest.raises(InputError, match="contains no text files"):
        read_documents(tmp_path)


def test_a_folder_of_tokens_is_named_as_such(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(InputError, match="is a folder of tokens, not of text"):
        read_documents(tmp_path)


def test_the_standard_library_of_this_python_is_a_corpus() -> None:
    documents = list(islice(read_documents("python"), 400))
    assert "argparse.py" in {document.name for document in documents}
    assert not any("test/" in document.name for document in documents)


def test_a_fingerprint_tells_texts_apart_and_not_names() -> None:
    documents = [Document("a", "one"), Document("b", "two")]
    renamed = [Document("x", "one"), Document("y", "two")]
    joined = [Document("a", "onetwo")]
    assert corpus_digest(documents) == corpus_digest(renamed)
    assert (
        len({corpus_digest(documents), corpus_digest(joined), corpus_digest(documents[::-1])}) == 3
    )


def test_parquet(tmp_path: Path) -> None:
    path = tmp_path / "corpus.parquet"
    parquet.write_table(pyarrow.table({"text": ["one", "two"], "id": [1, 2]}), path)
    assert [document.text for document in read_documents(path)] == ["one", "two"]
    with pytest.raises(InvalidValue, match="choose from text, id"):
        list(read_documents(path, field="body"))
    path.write_bytes(b"PAR1 no more")
    with pytest.raises(InputError, match="is not a readable Parquet file"):
        list(read_documents(path))


@pytest.mark.parametrize("name", ["corpus.txt", "corpus.jsonl", "corpus.parquet", "corpus"])
def test_what_may_have_no_end_is_not_read(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(InputError, match="is not a regular file"):
        read_documents(tmp_path / name)
    with pytest.raises(InputError, match="is not a regular file"):
        read_documents("/dev/zero")


def test_a_folder_does_not_lead_out_of_itself(tmp_path: Path) -> None:
    folder, outside = tmp_path / "folder", tmp_path / "secret.txt"
    folder.mkdir()
    outside.write_text("secret")
    (folder / "own.txt").write_text("own")
    (folder / "again.txt").symlink_to("own.txt")
    assert [document.text for document in read_documents(folder)] == ["own", "own"]
    (folder / "more.txt").symlink_to(outside)
    with pytest.raises(InputError, match="is a link to a file outside"):
        read_documents(folder)
    (folder / "more.txt").unlink()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "other.txt").write_text("other")
    (folder / "below").symlink_to(tmp_path / "elsewhere")
    assert {document.text for document in read_documents(folder)} == {"own"}


def test_a_folder_that_is_itself_a_link_is_read(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "own.txt").write_text("own")
    (tmp_path / "link").symlink_to("folder")
    assert [document.text for document in read_documents(tmp_path / "link")] == ["own"]
