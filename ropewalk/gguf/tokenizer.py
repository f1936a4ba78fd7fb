"""A tokenizer in a GGUF file.

llama.cpp tokenizes with code of its own, which it chooses by a name. So we name only what we have
recognised piece by piece in the tokenizer that transformers runs, and refuse the rest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ropewalk.errors import Unsupported
from ropewalk.gguf import sentencepiece

_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_SINGLE_DIGITS = _WORDS + r"\p{N}" + _REST
_DIGITS_BY_THREE = _WORDS + r"\p{N}{1,3}" + _REST
_CAPITALS, _SMALL = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_BY_CASE = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_CAPITALS}*{_SMALL}+",
    rf"[^\r\n\p{{L}}\p{{N}}]?{_CAPITALS}+{_SMALL}*",
)
_REST_WITH_SLASHES = _REST.replace(r"[\r\n]*", r"[\r\n/]*")
_TEKKEN = "|".join((*_BY_CASE, r"\p{N}")) + _REST_WITH_SLASHES
_O200K = (
    "|".join((*(words + r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?" for words in _BY_CASE), r"\p{N}{1,3}"))
    + _REST_WITH_SLASHES
)
# How a text is cut into words before merging, whether words that are tokens are left whole, and
# what llama.cpp calls the two together.
_PRE_TOKENIZERS = {
    (("ByteLevel",), False): "gpt-2",
    (("Digits", "ByteLevel"), False): "smollm",
    ((_SINGLE_DIGITS,), False): "qwen2",
    ((_DIGITS_BY_THREE,), True): "llama-bpe",
    ((_DIGITS_BY_THREE,), False): "dbrx",
    ((_O200K,), False): "gpt-4o",
    ((_O200K,), True): "gpt-4o",  # which has a warning where that matters
    ((_TEKKEN,), True): "tekken",
}
_CUT_BY_CASE = ("gpt-4o", "tekken")
OTHER_CASES = (
    "llama.cpp knows neither combining marks nor the case of letters beyond A-Z: it cuts words "
    "with such marks otherwise, and words with a capital behind another letter, one of the two "
    "beyond A-Z, as in ÉCOLE and meinÖl"
)
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)  # llama.cpp's kinds of tokens
_BYTE_PIECE = re.compile("<0x[0-9A-F]{2}>")


@dataclass(frozen=True)
class GGUFTokenizer:
    """A BPE over bytes, or one in SentencePiece's manner, as llama.cpp reads it."""

    pre_tokenizer: str | None
    """llama.cpp's name of its way to cut texts into words, for a BPE over bytes; else None."""
    tokens: Sequence[str]
    kinds: Sequence[int]
    merges: Sequence[str]
    """For a BPE over bytes."""
    scores: Sequence[float]
    """For the other kind."""
    begins_with_space: bool
    """True if the other puts a space before a text."""
    bos: int | None
    eos: int | None
    pad: int | None
    unknown: int | None
    adds_bos: bool
    adds_eos: bool
    chat_template: str | None
    warnings: tuple[str, ...]

    @classmethod
    def read(cls, tokenizer: Any, vocabulary: int) -> GGUFTokenizer:
        """Read transformers' tokenizer, for a model with so many embeddings."""
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise Unsupported(
                f"{type(tokenizer).__name__}: has no tokenizer.json, which the export needs; save "
                "it as a fast tokenizer of transformers first"
            )
        stated = json.loads(backend.to_str())
        model = stated["model"]
        if model["type"] != "BPE":
            raise Unsupported(
                f"tokenizer of the kind {model['type']}: the export writes only BPE; convert "
                "this model with llama.cpp's own converter"
            )
        tokens, kinds = _vocabulary(model, stated["added_tokens"], vocabulary)
        adds_bos, adds_eos = _added(tokenizer)
        template = tokenizer.chat_template
        warnings = []
        if template is not None and not isinstance(template, str):
            warnings.append("of several chat templates none is exported")
        merges = [
            tuple(pair.split(" ") if isinstance(pair, str) else pair) for pair in model["merges"]
        ]
        # Two kinds of BPE, which llama.cpp runs by code of its own each.
        begins_with_space, scores, pre_tokenizer = False, [], None
        if model["byte_fallback"]:
            apart = {token for token, kind in enumerate(kinds) if kind != NORMAL}
            scores = sentencepiece.scores(model["vocab"], merges, apart, vocabulary)
            begins_with_space, just_so = sentencepiece.begins_with_space(stated)
            if not just_so:
                warnings.append(sentencepiece.OTHER_SPACES)
            if any(kinds[token["id"]] == NORMAL for token in stated["added_tokens"]):
                warnings.append(sentencepiece.RUNS_IN_THE_TEXT)
        else:
            pre_tokenizer = _pre_tokenizer(stated)
            warnings += _normalizer_warnings(stated["normalizer"])
            if pre_tokenizer in _CUT_BY_CASE:
                warnings.append(OTHER_CASES)
            if pre_tokenizer == "gpt-4o" and model.get("ignore_merges"):
                words = [text for text, token in model["vocab"].items() if kinds[token] == NORMAL]
                warnings += _whole_word_warnings(words, model["vocab"], merges)
        return cls(
            pre_tokenizer=pre_tokenizer,
            tokens=tokens,
            kinds=kinds,
            merges=[" ".join(pair) for pair in merges],
            scores=scores,
            begins_with_space=begins_with_space,
            bos=tokenizer.bos_token_id,
            eos=tokenizer.eos_token_id,
            pad=tokenizer.pad_token_id,
            unknown=tokenizer.unk_token_id,
            adds_bos=adds_bos,
            adds_eos=adds_eos,
            chat_template=template if isinstance(template, str) else None,
            warnings=tuple(warnings),
        )

    def write(self, writer: Any) -> None:
        if self.pre_tokenizer is None:
            writer.add_tokenizer_model("llama")
            writer.add_token_scores(self.scores)
            writer.add_add_space_prefix(self.begins_with_space)
        else:
            writer.add_tokenizer_model("gpt2")
            writer.add_tokenizer_pre(self.pre_tokenizer)
            writer.add_token_merges(self.merges)
        writer.add_token_list(self.tokens)
        writer.add_token_types(self.kinds)
        for add, token in (
            (writer.add_bos_token_id, self.bos),
            (writer.add_eos_token_id, self.eos),
            (writer.add_pad_token_id, self.pad),
            (writer.add_unk_token_id, self.unknown),
        ):
            if token is not None:
                add(token)
        writer.add_add_bos_token(self.adds_bos)
        writer.add_add_eos_token(self.adds_eos)
        if self.chat_template is not None:
            writer.add_chat_template(self.chat_template)


def _vocabulary(
    model: Mapping[str, Any], added: Sequence[Mapping[str, Any]], size: int
) -> tuple[list[str], list[int]]:
    """Every token's text and kind, by its id."""
    vocab: Mapping[str, int] = model["vocab"]
    tokens = [f"[PAD{i}]" for i in range(size)]
    kinds = [UNUSED] * size
    highest = max((*vocab.values(), *(token["id"] for token in added)))
    if highest >= size:
        raise Unsupported(
            f"the tokenizer has a token {highest} and the model only {size} embeddings: "
            "they do not belong together, or the embeddings were not resized"
        )
    for text, token in vocab.items():
        is_byte = model["byte_fallback"] and _BYTE_PIECE.fullmatch(text)
        tokens[token], kinds[token] = text, BYTE if is_byte else NORMAL
    for entry in added:
        if entry["lstrip"] or entry["rstrip"] or entry["single_word"]:
            raise Unsupported(
                f"added token {entry['content']!r} matches surrounding spaces or only whole "
                "words, which llama.cpp does not do; change it in the tokenizer"
            )
        tokens[entry["id"]] = entry["content"]
        if not (model["byte_fallback"] and sentencepiece.is_made_of_spaces(entry, vocab)):
            kinds[entry["id"]] = CONTROL if entry["special"] else USER_DEFINED
    if model["byte_fallback"] and model["unk_token"] in vocab:
        kinds[vocab[model["unk_token"]]] = UNKNOWN
    return tokens, kinds


def _added(tokenizer: Any) -> tuple[bool, bool]:
    """True if BOS is put before a text, and EOS behind it; anything else is refused."""
    plain, whole = (tokenizer("a", add_special_tokens=s)["input_ids"] for s in (False, True))
    extra = len(whole) - len(plain)
    adds_bos = bool(extra) and whole[0] == tokenizer.bos_token_id
    adds_eos = extra > adds_bos and whole[-1] == tokenizer.eos_token_id
    if extra != adds_bos + adds_eos:
        raise Unsupported(
            f"this tokenizer turns 'a' into {whole}, and llama.cpp can add at most BOS before a "
            "text and EOS after it; change the tokenizer's post-processor"
        )
    return adds_bos, adds_eos


def _pre_tokenizer(stated: Mapping[str, Any]) -> str:
    """The name by which llama.cpp knows how this tokenizer cuts a text into words."""
    steps = stated["pre_tokenizer"] or {}
    steps = steps.get("pretokenizers", [steps])
    whole_words = bool(stated["model"].get("ignore_merges"))
    name = _PRE_TOKENIZERS.get((_cuts(steps), whole_words))
    if name is None:
        kinds = ", ".join(str(step.get("type")) for step in steps)
        raise Unsupported(
            f"this tokenizer splits text into words in a way ({kinds}) that the export does not "
            f"know; it knows those of {', '.join(_PRE_TOKENIZERS.values())}; convert this model "
            "with llama.cpp's own converter"
        )
    return name


def _cuts(steps: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The steps that cut, in the words of the table above; a step of another kind as such."""
    cuts = []
    for step in steps:
        match step:
            case {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", **rest}:
                cuts.append(f"all but {regex}" if rest.get("invert") else str(regex))
            case {"type": "Digits", "individual_digits": True}:
                cuts.append("Digits")
            case {"type": "ByteLevel", "add_prefix_space": False, "use_regex": uses_regex}:
                cuts += ["ByteLevel"] if uses_regex else []
            case _:
                cuts.append(f"unknown: {step}")
    return tuple(cuts)


def _normalizer_warnings(normalizer: Mapping[str, Any] | None) -> list[str]:
    if normalizer is None:
        return []
    if normalizer["type"] != "NFC":
        raise Unsupported(
            f"this tokenizer has a normalizer of type {normalizer['type']}, which this export does "
            "not write; llama.cpp's own converter may know the tokenizer: compare its tokens"
        )
    return ["llama.cpp does not bring texts into Unicode's form NFC before it tokenizes"]


def _whole_word_warnings(
    words: Sequence[str], vocab: Mapping[str, int], merges: Sequence[tuple[str, str]]
) -> list[str]:
    """Warnings if transformers takes words whole, and llama.cpp joins them."""
    from tokenizers import models

    rules = models.BPE(vocab=dict(vocab), merges=list(merges))
    other = [word for word in words if [part.value for part in rules.tokenize(word)] != [word]]
    if not other:
        return []
    return [
        "transformers takes words that are tokens whole, and llama.cpp joins them by rules, which "
        f"make something else of {len(other)} tokens, such as {other[0]!r}"
    ]
