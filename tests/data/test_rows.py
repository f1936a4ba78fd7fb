"""Rows of data sets become documents of text or tokens, by whatever file they come."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from ropewalk.data import rows
from ropewalk.data.corpora import read_documents
from ropewalk.data.rows import Document, Vocabulary, Weighted
from ropewalk.errors import InputError, InvalidValue, Unsupported

BEGIN, END = 1, 2


@pytest.fixture(autouse=True)
def no_bars() -> Iterator[None]:
    """Of the data sets that tests write."""
    datasets.disable_progress_bars()
    yield
    datasets.enable_progress_bars()


LETTERS = Vocabulary(100, BEGIN, END)
ROWS: list[dict[str, Any]] = [
    {"question": f"{i} + 1", "answer": i + 1, "input_ids": [BEGIN, 5, i, END]} for i in range(40)
]


def written(folder: Path, kind: str, content: list[dict[str, Any]] = ROWS) -> str:
    """The same rows, as each kind of corpus holds them."""
    if kind == "jsonl":
        (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in content))
        return str(folder / "rows.jsonl")
    if kind == "parquet":
        table = pyarrow.Table.from_pylist(content)
        parquet.write_table(table, folder / "rows.parquet", row_group_size=7)
        return str(folder / "rows.parquet")
    if kind == "saved":
        datasets.Dataset.from_list(content).save_to_disk(folder / "saved", num_shards=3)
        return str(folder / "saved")
    (folder / "hub").mkdir()
    written(folder / "hub", "parquet", content)
    return f"hub:{folder / 'hub'}"


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "saved", "hub"])
def test_every_kind_gives_the_same_documents(
    kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source = written(tmp_path, kind)
    texts = [document.text for document in read_documents(source, field="question")]
    assert texts == [f"{i} + 1" for i in range(40)]
    found = list(read_documents(source, field="input_ids", vocabulary=LETTERS))
    assert [own.tokens.tolist() for own in found if own.tokens is not None] == [
        [5, i] if i != END else [5, END] for i in range(40)
    ]  # windows put BOS and EOS around a document
    assert len({own.name for own in found}) == 40
    with pytest.raises(InputError, match="other"):
        list(read_documents(source, field="other"))
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "saved", "hub"])
def test_a_shard_of_another_vocabulary_is_refused_with_its_row(kind: str, tmp_path: Path) -> None:
    source = written(tmp_path, kind, [*ROWS, {**ROWS[0], "input_ids": [1, 250, 2]}])
    with pytest.raises(InputError, match=r"(row 13|row 41|line 41): input.*: holds the token 250"):
        list(read_documents(source, field="input_ids", vocabulary=LETTERS))


def test_tokens_are_no_text_to_measure_and_text_has_no_weights(tmp_path: Path) -> None:
    source = written(tmp_path, "jsonl")
    with pytest.raises(InputError, match="only `data build` and `train` read"):
        list(read_documents(source, field="input_ids"))
    with pytest.raises(InvalidValue):
        list(read_documents(source, field="question", vocabulary=LETTERS, weights="answer"))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ([{"role": "user"}], "must be one row of tokens"),
        ([1.5], "must be one row of tokens"),
        ([[1], [2]], "must be one row of tokens"),
        ([[1], [2, 3]], "must be one row of tokens"),
        ([3, -1], "-1: is not a token"),
        ([2**70], "must be one row of tokens"),
    ],
)
def test_rows_that_fit_nothing_are_refused(content: Any, says: str, tmp_path: Path) -> None:
    source = written(tmp_path, "jsonl", [{"input_ids": content}])
    with pytest.raises(InputError, match=rf"line 1.*{says}"):
        list(read_documents(source, field="input_ids", vocabulary=LETTERS))


def test_weights_of_tokens_move_with_them(tmp_path: Path) -> None:
    row = {"input_ids": [BEGIN, 5, 6, 7, END], "loss": [[0, 2, 0], [3, 5, 2.5]]}
    source = written(tmp_path, "jsonl", [row])
    [own] = read_documents(source, field="input_ids", weights="loss", vocabulary=LETTERS)
    assert own.tokens is not None
    assert own.tokens.tolist() == [5, 6, 7]
    assert own.weights == (Weighted(0, 1, 0), Weighted(2, 3, 2.5))


def test_shards_of_numpy_are_documents_by_their_ends_or_rows(tmp_path: Path) -> None:
    path = tmp_path / "shard.npy"
    np.save(path, np.array([1, 7, 8, 2, 9, 2, 5, 6], dtype=np.uint16))

    def read() -> list[list[int]]:
        found = read_documents(path, vocabulary=LETTERS)
        return [own.tokens.tolist() for own in found if own.tokens is not None]

    assert read() == [[7, 8], [9], [5, 6]]
    rows.PIECE, whole = 3, rows.PIECE
    try:
        assert read() == [[7, 8], [9], [5, 6]]
    finally:
        rows.PIECE = whole
    np.save(path, np.array([[1, 7, 2], [2, 8, 9]]))
    assert read() == [[7], [2, 8, 9]]
    np.save(path, np.array([5, 300]))
    with pytest.raises(InputError, match="document 1: holds the token 300"):
        read()
    for wrong in (np.zeros(3), np.zeros((1, 1, 1), dtype=int), np.array(3)):
        np.save(path, wrong)
        with pytest.raises(InputError, match="must be an array of whole numbers in one or two"):
            read()
    np.save(path, np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match="is not a readable numpy array"):
        read()
    path.write_bytes(b"\x93NUMPY")
    with pytest.raises(InputError, match="is not a readable numpy array"):
        read()
    with pytest.raises(InputError, match="only `data build` and `train` read"):
        list(read_documents(path))


def test_a_folder_holds_rows_in_several_files(tmp_path: Path) -> None:
    for name in ("b", "a"):
        content = [{"text": f"{name}{i}"} for i in range(2)]
        (tmp_path / name).mkdir()
        written(tmp_path / name, "jsonl", content)
    assert [own.text for own in read_documents(tmp_path)] == ["a0", "a1", "b0", "b1"]


def test_several_data_sets_in_a_folder_are_named(tmp_path: Path) -> None:
    data = datasets.Dataset.from_list([{"text": "one"}])
    datasets.DatasetDict(train=data, test=data).save_to_disk(tmp_path / "both")
    with pytest.raises(InputError, match="name one of its folders: test, train"):
        read_documents(tmp_path / "both")
    assert [own.text for own in read_documents(tmp_path / "both" / "train")] == ["one"]


@pytest.mark.parametrize(
    "name", ["../secret.arrow", "missing.arrow", "/etc/passwd", "link.arrow", 7]
)
def test_a_saved_data_set_does_not_lead_out_of_its_folder(name: object, tmp_path: Path) -> None:
    folder = Path(written(tmp_path, "saved"))
    (tmp_path / "secret.arrow").write_bytes((folder / "data-00000-of-00003.arrow").read_bytes())
    (folder / "link.arrow").symlink_to(tmp_path / "secret.arrow")
    state = json.loads((folder / "state.json").read_text())
    state["_data_files"] = [{"filename": name}]
    (folder / "state.json").write_text(json.dumps(state))
    with pytest.raises(InputError, match=r"names .* which is not a file of this folder"):
        list(read_documents(folder, field="question"))


@pytest.mark.parametrize("state", ["[]", "{}", '{"_data_files": []}', '{"_data_files": [3]}', "{"])
def test_a_saved_data_set_with_another_state_is_refused(state: str, tmp_path: Path) -> None:
    folder = Path(written(tmp_path, "saved"))
    (folder / "state.json").write_text(state)
    with pytest.raises(InputError, match=r"state\.json"):
        list(read_documents(folder, field="question"))


def test_a_damaged_saved_data_set_is_named(tmp_path: Path) -> None:
    folder = Path(written(tmp_path, "saved"))
    file = folder / "data-00001-of-00003.arrow"
    file.write_bytes(file.read_bytes()[:200])
    with pytest.raises(InputError, match="is not a readable Arrow file"):
        list(read_documents(folder, field="question"))


def test_the_hub_is_asked_only_if_that_is_allowed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"is not read from the network.*add --allow-download"):
        read_documents("hub:some/set")


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ("hub:", "is not a name"),
        ("hub:a:b:c:d", "is not a name"),
        ("hub:{}:validation", "cannot be opened"),
        ("hub:{}:train:other", "cannot be opened"),
        ("hub:{}/none", "cannot be opened"),
    ],
)
def test_what_cannot_be_opened_is_named(
    named: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    folder = written(tmp_path, "hub").removeprefix("hub:")
    with pytest.raises(InputError, match=says):
        list(read_documents(named.format(folder), field="question", allow_download=True))


@pytest.mark.parametrize("error", [ConnectionError("reset by peer"), RuntimeError()])
def test_a_stream_that_breaks_off_says_how_to_go_on(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = written(tmp_path, "hub")

    def broken(self: Any) -> Any:
        yield ROWS[0]
        raise error

    monkeypatch.setattr(datasets.IterableDataset, "__iter__", broken)
    documents = read_documents(source, field="question")
    assert next(documents).text == "0 + 1"
    with pytest.raises(InputError, match=r"\((reset by peer|RuntimeError)\); run the same"):
        next(documents)


@pytest.mark.parametrize("kind", ["parquet", "saved", "hub"])
def test_without_its_extra_a_data_set_says_what_to_install(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = written(tmp_path, kind)
    monkeypatch.setitem(sys.modules, "datasets" if kind == "hub" else "pyarrow", None)
    with pytest.raises(Unsupported, match=r"ropewalk\[data\]"):
        list(read_documents(source, field="question"))


def test_what_is_no_text_is_shown_with_the_fields_there(tmp_path: Path) -> None:
    source = written(tmp_path, "parquet")
    with pytest.raises(InvalidValue, match="answer = 1: must be the text of a document"):
        list(read_documents(source, field="answer"))
    assert Document("a", "b") == Document("a", "b")
