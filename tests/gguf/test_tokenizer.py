"""Texts become the same tokens in llama.cpp; where they would not, the tokenizer is refused."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given
from hypothesis import strategies as st
from tokenizers import Regex, normalizers, pre_tokenizers

from ropewalk.errors import Unsupported
from ropewalk.exporting.llama_cpp import export
from ropewalk.gguf.llama_cpp_run import RunningLlamaCpp, running
from ropewalk.gguf.tokenizer import OTHER_CASES, GGUFTokenizer
from ropewalk.models.config import BUNDLED_FOLDER
from ropewalk.models.load import load_tokenizer
from tests.examples import examples
from tests.gguf.gguf_cases import bundled_folder, edit_json, named_plan, unproven

STATED: dict[str, Any] = json.loads((BUNDLED_FOLDER / "tokenizer.json").read_text("utf-8"))
VOCABULARY = 1024
SPLIT = STATED["pre_tokenizer"]["pretokenizers"][0]
BYTE_LEVEL = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


# As published with gpt-oss and Apertus.
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def cut_by(regex: str) -> dict[str, Any]:
    """The pre-tokenizer of the bundled model, with another regex."""
    steps: dict[str, Any] = copy.deepcopy(STATED["pre_tokenizer"])
    steps["pretokenizers"][0]["pattern"]["Regex"] = regex
    return steps


def splitting(digits: str) -> dict[str, Any]:
    """The same, with digits cut in another way."""
    return cut_by(SPLIT["pattern"]["Regex"].replace(r"|\p{N}|", f"|{digits}|"))


THREE_DIGITS = splitting(r"\p{N}{1,3}")
WHOLE_WORDS = {**STATED["model"], "ignore_merges": True}
CASES = "aZ é É ß ж Ж ǅ ʰ 東 \u0301 's't 09 \t\n\r . ( / \u0085 ª"


def joining(characters: str) -> dict[str, Any]:
    """A BPE that joins any two of these, so that every cut between them is seen."""
    spelled = [BYTE_LEVEL.pre_tokenize_str(one)[0][0] for one in sorted(set(characters))]
    steps = [(one[:at], one[at]) for one in spelled for at in range(1, len(one))]
    merges = [*steps, *product(spelled, spelled)]
    pieces = [*sorted(BYTE_LEVEL.alphabet()), *(left + right for left, right in merges)]
    vocab = {piece: at for at, piece in enumerate(dict.fromkeys(("<|begin|>", "<|end|>", *pieces)))}
    assert len(vocab) <= VOCABULARY
    return {**STATED["model"], "vocab": vocab, "merges": merges, "ignore_merges": True}


KINDS: dict[str, dict[str, Any]] = {
    "qwen2": {},
    "gpt-2": {"pre_tokenizer": BYTES},
    "smollm": {
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, BYTES],
        }
    },
    "llama-bpe": {"pre_tokenizer": THREE_DIGITS, "model": WHOLE_WORDS},
    "dbrx": {"pre_tokenizer": THREE_DIGITS},
    "gpt-4o": {"pre_tokenizer": cut_by(O200K), "model": joining(CASES)},
    "tekken": {"pre_tokenizer": cut_by(TEKKEN), "model": joining(CASES)},
}
# What OTHER_CASES says, for the regexes that transformers runs; and ſ, which is an s to them.
_CAPITAL_BEYOND, _CASED_BEYOND = r"[\p{Lu}\p{Lt}&&[^A-Z]]", r"[\p{Lu}\p{Lt}\p{Ll}&&[^A-Za-z]]"
OTHER = normalizers.Replace(
    Regex(
        rf"\p{{M}}|[\p{{Ll}}\p{{Lm}}\p{{Lo}}]\p{{L}}*{_CAPITAL_BEYOND}"
        rf"|{_CASED_BEYOND}\p{{L}}*[A-Z]|'ſ"
    ),
    "",
)


def warned_of(text: str, warnings: Sequence[str]) -> bool:
    return OTHER_CASES in warnings and OTHER.normalize_str(text) != text


# Letters, digits, marks and spaces of many scripts, and what English and code are made of.
TEXTS = (
    st.text()
    | st.text("aZ é's't LL 09\t\n\r .,(_)=/東я🙂", max_size=40)
    | st.text(CASES, max_size=12)
)


@pytest.fixture(scope="module", params=KINDS)
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Any, RunningLlamaCpp]]:
    """transformers' tokenizer, and llama.cpp with the file that was made from it."""
    room = tmp_path_factory.mktemp("tokenizer")
    folder = bundled_folder(room / "model", **KINDS[request.param])
    tokenizer = load_tokenizer(folder)
    assert GGUFTokenizer.read(tokenizer, VOCABULARY).pre_tokenizer == request.param
    unproven(export)(folder, named_plan("plain"), room / "model.gguf")
    with running(room / "model.gguf", length=64) as llama:
        yield tokenizer, llama


@given(text=TEXTS)
@examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_becomes_the_same_tokens(both: tuple[Any, RunningLlamaCpp], text: str) -> None:
    tokenizer, llama = both
    assume(not warned_of(text, GGUFTokenizer.read(tokenizer, VOCABULARY).warnings))
    assert llama.tokenize(text) == tokenizer(text)["input_ids"]


@pytest.mark.parametrize("text", ["ÉZ", "aÉ", "a\u0301"])
def test_what_is_warned_of_does_differ_and_nothing_else_is_warned_of(
    both: tuple[Any, RunningLlamaCpp], text: str
) -> None:
    tokenizer, llama = both
    warned = warned_of(text, GGUFTokenizer.read(tokenizer, VOCABULARY).warnings)
    assert warned == (llama.tokenize(text) != tokenizer(text)["input_ids"])


def test_special_tokens_in_a_text_are_those_tokens(both: tuple[Any, RunningLlamaCpp]) -> None:
    tokenizer, llama = both
    tokens = llama.tokenize("one<|end|> two <|begin|>")
    assert tokens == tokenizer("one<|end|> two <|begin|>")["input_ids"]
    assert tokens.count(tokenizer.eos_token_id) == 1
    assert tokens[0] == tokens[-1] == tokenizer.bos_token_id


def changed(change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    stated = copy.deepcopy(STATED)
    change(stated)
    return stated


def read(path: Path, change: Callable[[dict[str, Any]], None]) -> GGUFTokenizer:
    folder = bundled_folder(path / "model", **changed(change))
    return GGUFTokenizer.read(load_tokenizer(folder), VOCABULARY)


def test_flags_say_what_the_tokenizer_adds(tmp_path: Path) -> None:
    whole = GGUFTokenizer.read(load_tokenizer(BUNDLED_FOLDER), VOCABULARY)
    assert (whole.bos, whole.eos, whole.adds_bos, whole.adds_eos) == (0, 1, True, False)
    folder = bundled_folder(tmp_path / "none", post_processor=None)
    edit_json(folder / "tokenizer_config.json", add_bos_token=False)
    bare = GGUFTokenizer.read(load_tokenizer(folder), VOCABULARY)
    assert (bare.adds_bos, bare.adds_eos) == (False, False)


def test_tokens_beyond_the_vocabulary_are_unused() -> None:
    padded = GGUFTokenizer.read(load_tokenizer(BUNDLED_FOLDER), VOCABULARY + 2)
    assert padded.tokens[-2:] == ["[PAD1024]", "[PAD1025]"]
    assert padded.kinds[:3] == [3, 3, 1]
    assert padded.kinds[-2:] == [5, 5]


def test_a_chat_template_goes_along(tmp_path: Path) -> None:
    folder = bundled_folder(tmp_path / "model")
    (folder / "chat_template.jinja").write_text("{{ messages }}", encoding="utf-8")
    assert GGUFTokenizer.read(load_tokenizer(folder), VOCABULARY).chat_template == "{{ messages }}"


def test_unicode_normalization_is_warned_of(tmp_path: Path) -> None:
    kept = read(tmp_path, lambda stated: stated.update(normalizer={"type": "NFC"}))
    assert any("NFC" in warning for warning in kept.warnings)


@pytest.mark.parametrize("whole", [False, True])
def test_words_that_only_transformers_takes_whole_are_warned_of(
    tmp_path: Path, whole: bool
) -> None:
    def change(stated: dict[str, Any]) -> None:
        stated["pre_tokenizer"] = cut_by(O200K)
        stated["model"]["ignore_merges"] = whole
        stated["model"]["vocab"]["Ġxylograph"] = VOCABULARY

    folder = bundled_folder(tmp_path / "model", **changed(change))
    warnings = GGUFTokenizer.read(load_tokenizer(folder), VOCABULARY + 1).warnings
    assert any("1 tokens, such as 'Ġxylograph'" in warning for warning in warnings) == whole


def reach_for_spaces(stated: dict[str, Any]) -> None:
    stated["added_tokens"][1]["lstrip"] = True


def add_two_tokens(stated: dict[str, Any]) -> None:
    end = {"SpecialToken": {"id": "<|end|>", "type_id": 0}}
    stated["post_processor"]["single"] += [end, end]
    stated["post_processor"]["special_tokens"]["<|end|>"] = {
        "id": "<|end|>",
        "ids": [1],
        "tokens": ["<|end|>"],
    }


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda s: s["model"].update(byte_fallback=True), "SentencePiece-style tokenizer"),
        (lambda s: s.update(pre_tokenizer=splitting(r"\p{N}+")), r"know.*qwen2"),
        (lambda s: s.update(pre_tokenizer={**BYTES, "add_prefix_space": True}), "ByteLevel"),
        (lambda s: s.update(pre_tokenizer=None), "words"),
        (lambda s: s["model"].update(ignore_merges=True), "know"),
        (lambda s: s.update(normalizer={"type": "Lowercase"}), "Lowercase"),
        (reach_for_spaces, "'<|end|>' matches surrounding spaces"),
        (add_two_tokens, "at most BOS before"),
    ],
)
def test_what_llama_cpp_would_read_otherwise_is_refused(
    change: Callable[[dict[str, Any]], None], complaint: str, tmp_path: Path
) -> None:
    with pytest.raises(Unsupported, match=complaint.replace("|", r"\|")):
        read(tmp_path, change)


def test_more_tokens_than_embeddings_are_refused() -> None:
    with pytest.raises(Unsupported, match=r"token 1023 .* only 1000 embeddings"):
        GGUFTokenizer.read(load_tokenizer(BUNDLED_FOLDER), 1000)


def test_a_tokenizer_without_a_tokenizer_json_is_refused() -> None:
    with pytest.raises(Unsupported, match=r"no tokenizer\.json"):
        GGUFTokenizer.read(object(), VOCABULARY)
