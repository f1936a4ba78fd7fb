"""A store of tokens: what goes in comes out, whatever killed it, and damage is named."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ropewalk.data import store
from ropewalk.data.corpora import Document, Weighted
from ropewalk.data.store import TokenStore, build
from ropewalk.errors import InputError
from ropewalk.run_directory import Journal, read_journal

TEXTS = {
    "code": ["def f():\n    return 1\n" * n for n in (1, 5, 0, 30)],
    "prose": ["Ein Seil, länger als das Tau.", "a" * 300, "é"],
}


def documents(texts: Mapping[str, Sequence[str]] = TEXTS) -> dict[str, list[Document]]:
    return {
        name: [Document(str(i), text) for i, text in enumerate(own)] for name, own in texts.items()
    }


def encode(texts: Sequence[str]) -> list[list[int]]:
    return [list(text.encode()) for text in texts]


def built(folder: Path, texts: Mapping[str, Sequence[str]] = TEXTS) -> TokenStore:
    return build(folder, documents(texts), encode, tokenizer="bytes", shard=200)


def files(folder: Path) -> dict[str, bytes]:
    """All that a run must reproduce."""
    left_out = ("events.jsonl", "lock")
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.name not in left_out}


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "BATCH", 50)


def test_every_document_is_read_back_as_it_was(tmp_path: Path) -> None:
    found = built(tmp_path / "store")
    flat = [(name, text.encode()) for name, own in TEXTS.items() for text in own]
    assert len(found.shards) > 2
    assert found.lengths.tolist() == [len(text) for _, text in flat]
    assert [found.domains[i] for i in found.of_domain] == [name for name, _ in flat]
    for i, (_, text) in enumerate(flat):
        assert bytes(found.tokens(i).tolist()) == text
        assert bytes(found.tokens(i, 2, 9).tolist()) == text[2:9]
    assert found.tokens(-1).tolist() == list("é".encode())
    found.check()


def test_a_killed_build_goes_on_and_ends_with_the_same_bytes(tmp_path: Path) -> None:
    built(tmp_path / "whole")
    for stop in range(1, 7):
        folder, asked = tmp_path / f"killed-{stop}", 0

        def killed(texts: Sequence[str]) -> list[list[int]]:
            nonlocal asked
            asked += len(texts)
            if asked > stop:  # noqa: B023 - it is called in this turn of the loop
                raise KeyboardInterrupt
            return encode(texts)

        with pytest.raises(KeyboardInterrupt):
            build(folder, documents(), killed, tokenizer="bytes", shard=200)
        with pytest.raises(InputError):
            TokenStore(folder)
        built(folder)
        assert files(folder) == files(tmp_path / "whole")


def weighted(name: str, size: int, *weights: Weighted) -> Document:
    return Document(name, "", np.arange(size), weights)


WEIGHED = {"code": [Document("a", "x = 1\n" * 60), weighted("b", 3, Weighted(1, 3, 5.0))]}
WEIGHED["prose"] = [weighted("c", 27, Weighted(0, 3, 0.0), Weighted(26, 27, 2.5))]


def test_a_token_weighs_what_its_document_says(tmp_path: Path) -> None:
    def weighed(folder: Path, **changed: Any) -> TokenStore:
        texts = {**WEIGHED, **changed}
        return build(folder, texts, encode, tokenizer="bytes", shard=200)

    def killed() -> Iterator[Document]:
        yield WEIGHED["prose"][0]
        raise KeyboardInterrupt

    found = weighed(tmp_path / "whole")
    assert found.weighted
    assert not built(tmp_path / "plain").weighted
    assert len(found.shards) == 2
    assert found.weights(0).tolist() == [1] * 360
    assert found.weights(1).tolist() == [1, 5, 5]
    assert found.weights(2).tolist() == [0, 0, 0] + [1] * 23 + [2.5]
    assert found.weights(2, 5, 5).tolist() == []
    with pytest.raises(KeyboardInterrupt):
        weighed(tmp_path / "killed", prose=killed())
    weighed(tmp_path / "killed")
    assert files(tmp_path / "killed") == files(tmp_path / "whole")
    with pytest.raises(InputError, match="the texts have changed since"):
        weighed(tmp_path / "killed", prose=[WEIGHED["prose"][0]._replace(weights=())])
    found.check()


def test_weights_that_are_none_are_found(tmp_path: Path) -> None:
    build(tmp_path, WEIGHED, encode, tokenizer="bytes")
    place, manifest = tmp_path / "weights-00000.bin", tmp_path / "manifest.json"
    former = hashlib.sha256(place.read_bytes()).hexdigest()
    place.write_bytes(np.full(390, np.nan, "<f4").tobytes())
    with pytest.raises(InputError, match=r"weights-00000\.bin: is damaged \(its checksum"):
        TokenStore(tmp_path).check()
    now = hashlib.sha256(place.read_bytes()).hexdigest()
    manifest.write_text(manifest.read_text().replace(former, now))
    with pytest.raises(InputError, match="weights must be finite"):
        TokenStore(tmp_path).check()
    place.write_bytes(b"")
    with pytest.raises(InputError, match="its size is not the one"):
        TokenStore(tmp_path)


def test_texts_without_the_weights_that_were_asked_for_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no text of the corpus has weights"):
        build(tmp_path, documents(), encode, tokenizer="bytes", weighted=True)


def test_what_is_finished_is_not_tokenised_again(tmp_path: Path) -> None:
    built(tmp_path)
    before = files(tmp_path)

    def never(texts: Sequence[str]) -> list[list[int]]:
        raise AssertionError(texts)

    build(tmp_path, documents(), never, tokenizer="bytes", shard=200)
    assert files(tmp_path) == before


@pytest.mark.parametrize(
    "changed",
    [
        {**TEXTS, "prose": [*TEXTS["prose"], "more"]},
        {**TEXTS, "prose": TEXTS["prose"][:1]},
        {**TEXTS, "code": ["x", *TEXTS["code"][1:]]},
    ],
)
def test_other_texts_are_not_taken_for_those_of_the_store(
    changed: Mapping[str, Sequence[str]], tmp_path: Path
) -> None:
    built(tmp_path)
    with pytest.raises(InputError, match="the texts have changed since"):
        built(tmp_path, changed)
    with pytest.raises(InputError, match=r"tokenizer_sha256 was .bytes., now .other"):
        build(tmp_path, documents(), encode, tokenizer="other", shard=200)
    TokenStore(tmp_path).check()


def test_damage_is_found_and_named(tmp_path: Path) -> None:
    found = built(tmp_path)
    whole = files(tmp_path)
    place = tmp_path / "tokens-00001.bin"
    content = bytearray(place.read_bytes())
    content[-4] ^= 1
    place.write_bytes(content)
    with pytest.raises(InputError, match=r"tokens-00001\.bin: is damaged \(its checksum"):
        found.check()
    built(tmp_path).check()  # the same command repairs it
    assert files(tmp_path) == whole
    place.write_bytes(content[:-8])
    with pytest.raises(InputError, match=r"tokens-00001\.bin: is damaged \(its size"):
        TokenStore(tmp_path)
    place.unlink()
    with pytest.raises(InputError, match=r"tokens-00001\.bin: is damaged \(there is no"):
        TokenStore(tmp_path)
    built(tmp_path)
    assert files(tmp_path) == whole


def rewritten(folder: Path, **changes: object) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, **changes}))


def test_a_manifest_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    shards = [shard.to_json() for shard in built(tmp_path).shards]
    for changes, message in (
        ({"shards": [{**shards[0], "tokens": shards[0]["tokens"] + 1}]}, "its size is not"),  # type: ignore[operator]
        ({"shards": [{**shards[0], "documents": 0}]}, "its size is not"),
        ({"shards": []}, "states 0 shards"),
        ({"domains": []}, "0 domains"),
        ({"domains": ["a", "a"]}, "must be a different name"),
        ({"domains": ["a", {}]}, "must be a different name"),
        ({"domains": ["a", "x" * 1000]}, "must be a different name"),
        ({"domains": ["code"]}, "lengths or domains do not fit"),
        ({"format": "other"}, "is of format 'other'"),
    ):
        rewritten(tmp_path, **{"format": store.FORMAT, "domains": list(TEXTS), **changes})
        with pytest.raises(InputError, match=message):
            TokenStore(tmp_path)
        rewritten(tmp_path, shards=shards)


def test_lengths_that_only_add_up_are_refused(tmp_path: Path) -> None:
    built(tmp_path)
    place = tmp_path / "documents-00000.bin"
    table = np.fromfile(place, store.FIELD).reshape(-1, 2)
    for change in (-1000, 2**62):
        wrong = table.copy()
        wrong[0, 0] += change
        wrong[1, 0] -= change
        place.write_bytes(wrong.tobytes())
        with pytest.raises(InputError, match="lengths or domains do not fit"):
            TokenStore(tmp_path)


def test_more_shards_than_are_mapped_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "MAPPED", 2)
    found = built(tmp_path)
    flat = [text.encode() for own in TEXTS.values() for text in own]
    for i in [*range(len(flat)), *reversed(range(len(flat)))]:
        assert bytes(found.tokens(i).tolist()) == flat[i]
        assert len(found._maps) <= 2
    again = pickle.loads(pickle.dumps(found))
    assert len(pickle.dumps(found)) < 500
    assert again.lengths.tolist() == found.lengths.tolist()


def test_text_that_no_tokenizer_takes_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a document of a is not valid Unicode"):
        built(tmp_path / "store", {"a": ["good", "\ud800"]})
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("texts", [{"a": []}, {"a": ["", ""]}])
def test_texts_without_a_token_are_refused(
    texts: Mapping[str, Sequence[str]], tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="the corpus contains no tokens"):
        built(tmp_path / "store", texts)
    assert not (tmp_path / "store").exists()


def test_documents_are_read_as_they_are_needed(tmp_path: Path) -> None:
    """A corpus may be larger than memory: a batch of it is asked for, then the next one."""
    given = 0

    def stream() -> Iterator[Document]:
        nonlocal given
        for i in range(500):
            given += 1
            yield Document(str(i), "x" * 40)

    encoded = 0

    def seen(texts: Sequence[str]) -> list[list[int]]:
        nonlocal encoded
        encoded += len(texts)
        assert given == encoded
        return encode(texts)

    build(tmp_path, {"a": stream()}, seen, tokenizer="bytes", shard=200)
    assert encoded == 500


def test_documents_in_another_order_are_told_by_the_checksum(tmp_path: Path) -> None:
    built(tmp_path)
    path = tmp_path / "documents-00000.bin"
    content = path.read_bytes()
    path.write_bytes(content[16:] + content[:16])
    with pytest.raises(InputError, match="its checksum is not the one in the manifest"):
        TokenStore(tmp_path).check()


def test_an_edited_manifest_is_not_built_upon(tmp_path: Path) -> None:
    built(tmp_path / "store")
    path = tmp_path / "store" / "manifest.json"
    kept = path.read_text()
    for edited in (kept.replace('"bytes"', '"words"'), kept.replace('"prose"', '"verse"'), "\xff"):
        assert edited != kept
        path.write_text(edited, encoding="latin-1")
        refusal = r"manifest\.json: has been edited since it was written"
        with pytest.raises(InputError, match=refusal):
            built(tmp_path / "store")
    path.unlink()
    os.mkfifo(path)  # which is not waited for
    built(tmp_path / "store")
    assert path.read_text() == kept
    path.unlink()
    path.mkdir()
    with pytest.raises(InputError, match=r"manifest\.json: cannot be written"):
        built(tmp_path / "store")


def test_a_shard_that_is_sealed_twice_is_named(tmp_path: Path) -> None:
    """Not the texts, which are the same."""
    built(tmp_path / "store")
    path = tmp_path / "store" / store.SHARDS
    records = read_journal(path)
    path.unlink()
    journal = Journal(path)
    journal.append([*records, records[-1]])
    journal.close()
    with pytest.raises(InputError, match=r"shards\.jsonl: lists a shard twice"):
        built(tmp_path / "store")
