"""A store of tokens: what goes in comes out, whatever killed it, and damage is named."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from ropewalk.data import store
from ropewalk.data.corpora import Document
from ropewalk.data.store import TokenStore, build
from ropewalk.errors import InputError

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
            TokenStore.open(folder)
        built(folder)
        assert files(folder) == files(tmp_path / "whole")


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
    TokenStore.open(tmp_path).check()


def test_damage_is_found_and_named(tmp_path: Path) -> None:
    found = built(tmp_path)
    place = tmp_path / "tokens-00001.npy"
    content = bytearray(place.read_bytes())
    content[-4] ^= 1
    place.write_bytes(content)
    with pytest.raises(InputError, match=r"tokens-00001\.npy: is damaged"):
        found.check()
    place.write_bytes(content[:-8])
    with pytest.raises(InputError, match=r"tokens-00001\.npy: cannot be read"):
        TokenStore.open(tmp_path)
    place.unlink()
    with pytest.raises(InputError, match=r"tokens-00001\.npy: cannot be read"):
        TokenStore.open(tmp_path)


def test_a_pickle_in_a_shard_is_not_opened(tmp_path: Path) -> None:
    built(tmp_path)
    np.save(tmp_path / "tokens-00000.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match=r"tokens-00000\.npy: cannot be read"):
        TokenStore.open(tmp_path)


def test_a_manifest_that_says_otherwise_is_refused(tmp_path: Path) -> None:
    built(tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    manifest["shards"][0]["tokens"] += 1
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match="shard 0 is not as its manifest says"):
        TokenStore.open(tmp_path)


@pytest.mark.parametrize("texts", [{"a": []}, {"a": ["", ""]}])
def test_texts_without_a_token_are_refused(
    texts: Mapping[str, Sequence[str]], tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="the texts hold no token"):
        built(tmp_path / "store", texts)


def test_documents_are_read_one_after_the_other(tmp_path: Path) -> None:
    """A corpus may be larger than memory: no more of it is asked for than a batch and a shard."""
    alive = 0

    def stream() -> Iterator[Document]:
        nonlocal alive
        for i in range(500):
            alive = i
            yield Document(str(i), "x" * 40)

    def seen(texts: Sequence[str]) -> list[list[int]]:
        assert len(texts) <= 2
        return encode(texts)

    build(tmp_path, {"a": stream()}, seen, tokenizer="bytes", shard=200)
    assert alive == 499
