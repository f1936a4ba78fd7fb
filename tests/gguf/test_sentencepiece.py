"""Rules for joining become scores by which llama.cpp joins the same, or are refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given
from hypothesis import strategies as st

from ropewalk.errors import Unsupported
from ropewalk.exporting import llama_cpp
from ropewalk.exporting.llama_cpp import export
from ropewalk.gguf.llama_cpp_run import RunningLlamaCpp, running
from ropewalk.gguf.sentencepiece import (
    OTHER_SPACES,
    RUNS_IN_THE_TEXT,
    SPACE,
    begins_with_space,
    is_made_of_spaces,
    scores,
)
from ropewalk.gguf.tokenizer import BYTE, CONTROL, NORMAL, UNKNOWN, USER_DEFINED, GGUFTokenizer
from ropewalk.models.load import load_tokenizer
from tests.examples import examples
from tests.gguf import sentencepiece_tokenizer
from tests.gguf.gguf_cases import named_plan, tiny_folder, unproven
from tests.gguf.sentencepiece_tokenizer import AFTER_SPACES, METASPACE, PREPEND, RUNS

VOCABULARY = 1056


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sentencepiece_tokenizer.write(tiny_folder(tmp_path_factory.mktemp("spaces")))


@pytest.fixture(scope="module")
def both(folder: Path) -> Iterator[tuple[Any, RunningLlamaCpp]]:
    """transformers' tokenizer, and llama.cpp with the file that was made from it."""
    out = folder.parent / "spaces.gguf"
    unproven(export)(folder, named_plan("plain", folder), out)
    with running(out, length=64) as llama:
        yield load_tokenizer(folder), llama


@given(text=st.text() | st.text("the aZ é09\t\n\r .,(_)=/東я🙂▁", max_size=40))
@examples(100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_becomes_the_same_tokens(both: tuple[Any, RunningLlamaCpp], text: str) -> None:
    tokenizer, llama = both
    assert llama.tokenize(text) == tokenizer(text)["input_ids"]


@pytest.fixture(scope="module")
def gemma(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sentencepiece_tokenizer.write_gemma(tiny_folder(tmp_path_factory.mktemp("gemma")))


@pytest.fixture(scope="module")
def both_gemma(gemma: Path) -> Iterator[tuple[Any, RunningLlamaCpp]]:
    out = gemma.parent / "gemma.gguf"
    unproven(export)(gemma, named_plan("plain", gemma), out)
    with running(out, length=64) as llama:
        yield load_tokenizer(gemma), llama


@given(text=st.text() | st.text("the aZ é\n\n\t\r  .<h1>/東я🙂▁", max_size=40))
@examples(100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_becomes_the_same_tokens_of_gemma(
    both_gemma: tuple[Any, RunningLlamaCpp], text: str
) -> None:
    tokenizer, llama = both_gemma
    assume(2 * SPACE not in text)
    assert llama.tokenize(text) == tokenizer(text)["input_ids"]


@pytest.mark.parametrize(
    "text",
    [
        *(f"the{run}end".replace(SPACE, " ") for run in RUNS),
        *(f"{' ' * count}the\n{' ' * count}" for count in range(1, 10)),
        "\n" * 9,
        "<start_of_turn>the <h1> end<eos>",
    ],
)
def test_runs_of_newlines_and_of_spaces_become_the_same_tokens(
    both_gemma: tuple[Any, RunningLlamaCpp], text: str
) -> None:
    tokenizer, llama = both_gemma
    assert llama.tokenize(text) == tokenizer(text)["input_ids"]


def test_runs_that_are_warned_of_do_differ(both_gemma: tuple[Any, RunningLlamaCpp]) -> None:
    tokenizer, llama = both_gemma
    assert llama.tokenize("▁▁ the") != tokenizer("▁▁ the")["input_ids"]


def test_added_tokens_made_of_spaces_are_pieces_and_others_stand_apart(gemma: Path) -> None:
    tokenizer = load_tokenizer(gemma)
    assert type(tokenizer).__name__ == "GemmaTokenizer"
    read = GGUFTokenizer.read(tokenizer, VOCABULARY)
    kinds = dict(zip(read.tokens, read.kinds, strict=True))
    assert [kinds[run] for run in RUNS] == 3 * [USER_DEFINED] + 3 * [NORMAL]
    assert (kinds["<unk>"], kinds["<bos>"], kinds["<h1>"]) == (UNKNOWN, CONTROL, USER_DEFINED)
    assert (read.bos, read.adds_bos, read.begins_with_space) == (2, True, False)
    assert read.warnings == (RUNS_IN_THE_TEXT,)


def test_the_gate_passes_gemma(gemma: Path, tmp_path: Path) -> None:
    exported = export(gemma, named_plan("plain", gemma), tmp_path / "model.gguf")
    assert exported.agreement is not None
    assert RUNS_IN_THE_TEXT in exported.warnings


@pytest.mark.parametrize("change", [{"normalized": True}, {"content": 5 * SPACE}])
def test_added_tokens_that_spaces_may_not_become_are_refused(change: dict[str, Any]) -> None:
    entry = {"content": 2 * SPACE, "special": False, "normalized": False} | change
    with pytest.raises(Unsupported, match="added token '▁▁"):
        is_made_of_spaces(entry, {2 * SPACE: 7})


def test_pieces_bytes_and_special_tokens_are_of_their_kinds(folder: Path) -> None:
    read = GGUFTokenizer.read(load_tokenizer(folder), VOCABULARY)
    assert read.pre_tokenizer is None
    assert read.kinds[:4] == [UNKNOWN, CONTROL, CONTROL, BYTE]
    assert read.kinds.count(BYTE) == 256
    assert read.kinds[300] == NORMAL
    assert read.begins_with_space
    assert read.warnings == ()


def test_spaces_that_differ_are_warned_of_and_the_rest_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llama_cpp, "BEYOND", 40)
    folder = sentencepiece_tokenizer.write(
        tiny_folder(tmp_path / "model"), normalizer=None, pre_tokenizer=METASPACE
    )
    exported = export(folder, named_plan("searched", folder), tmp_path / "model.gguf")
    assert exported.agreement is not None
    assert OTHER_SPACES in exported.warnings


def test_earlier_rules_score_higher_and_one_piece_has_one_score() -> None:
    vocab = {"a": 0, "b": 1, "ab": 2, "aba": 3, "ba": 4}
    merges = [("a", "b"), ("b", "a"), ("a", "ba"), ("ab", "a")]
    assert scores(vocab, merges, set(), 6) == [0, 0, -1, -3, -2, 0]


@pytest.mark.parametrize(
    ("merges", "complaint"),
    [
        ([("a", "b"), ("b", "a"), ("ab", "a")], "'a' and 'ba' to 'aba'"),
        ([("a", "b"), ("ab", "a"), ("b", "a"), ("a", "ba")], "do not follow each other"),
    ],
)
def test_rules_that_no_score_says_are_refused(
    merges: list[tuple[str, str]], complaint: str
) -> None:
    vocab = {"a": 0, "b": 1, "ab": 2, "aba": 3, "ba": 4}
    with pytest.raises(Unsupported, match=complaint):
        scores(vocab, merges, set(), 5)


def test_a_piece_of_characters_that_are_none_needs_a_rule() -> None:
    with pytest.raises(Unsupported, match="'a' and 'b' to 'ab'"):
        scores({"a": 0, "ab": 1}, [], set(), 2)


def test_rules_of_tokens_that_stand_apart_do_not_count() -> None:
    vocab = {"a": 0, "b": 1, "ab": 2, "aa": 3}
    merges = [("a", "a"), ("a", "b"), ("a", "a")]
    assert scores(vocab, merges, {3}, 4) == [0, 0, -1, 0]


def test_tokens_that_stand_apart_need_no_rule() -> None:
    vocab = {"<": 0, "s": 1, "<s": 2}
    assert scores(vocab, [], {2}, 3) == [0, 0, 0]
    with pytest.raises(Unsupported, match="'<' and 's' to '<s'"):
        scores(vocab, [], set(), 3)


@pytest.mark.parametrize(
    ("normalizer", "cuts", "expected"),
    [
        (PREPEND, None, (True, True)),
        (PREPEND["normalizers"][1], None, (False, True)),
        (PREPEND["normalizers"][1], AFTER_SPACES, (False, True)),
        (None, METASPACE, (True, False)),
        (None, {**METASPACE, "prepend_scheme": "never"}, (False, True)),
    ],
)
def test_spaces_before_a_text_are_recognised(
    normalizer: Any, cuts: Any, expected: tuple[bool, bool]
) -> None:
    assert begins_with_space({"normalizer": normalizer, "pre_tokenizer": cuts}) == expected


@pytest.mark.parametrize(
    ("normalizer", "cuts"),
    [
        (None, None),
        (None, AFTER_SPACES),
        (PREPEND, METASPACE),
        (PREPEND["normalizers"][1], {**AFTER_SPACES, "invert": True}),
        (None, {**METASPACE, "split": True}),
    ],
)
def test_spaces_treated_in_another_way_are_refused(normalizer: Any, cuts: Any) -> None:
    stated = {"normalizer": normalizer, "pre_tokenizer": cuts}
    with pytest.raises(Unsupported, match="spaces in a way"):
        begins_with_space(stated)
