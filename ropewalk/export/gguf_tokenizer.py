"""What of a tokenizer stands in a GGUF file.

llama.cpp tokenizes with code of its own, which it chooses by a name. So we name only what we have
recognised piece by piece in the tokenizer that transformers runs, and refuse the rest.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ropewalk.errors import Unsupported

_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_SINGLE_DIGITS = _WORDS + r"\p{N}" + _REST
_DIGITS_BY_THREE = _WORDS + r"\p{N}{1,3}" + _REST
# How a text is cut into words before merging, whether words that are tokens are left whole, and
# what llama.cpp calls the two together.
_PRE_TOKENIZERS = {
    (("ByteLevel",), False): "gpt-2",
    (("Digits", "ByteLevel"), False): "smollm",
    ((_SINGLE_DIGITS,), False): "qwen2",
    ((_DIGITS_BY_THREE,), True): "llama-bpe",
    ((_DIGITS_BY_THREE,), False): "dbrx",
}
NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5  # llama.cpp's kinds of tokens


@dataclass(frozen=True)
class GGUFTokenizer:
    """A byte-level BPE, as llama.cpp reads one."""

    pre_tokenizer: str
    tokens: Sequence[str]
    kinds: Sequence[int]
    merges: Sequence[str]
    bos: int | None
    eos: int | None
    pad: int | None
    adds_bos: bool
    adds_eos: bool
    chat_template: str | None
    warnings: tuple[str, ...]

    @classmethod
    def read(cls, tokenizer: Any, vocabulary: int) -> GGUFTokenizer:
        """What transformers' tokenizer does, for a model with so many embeddings."""
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise Unsupported(
                f"{type(tokenizer).__name__}: has no tokenizer.json, from which the export reads; "
                "save the tokenizer in the fast form of transformers first"
            )
        stated = json.loads(backend.to_str())
        model = stated["model"]
        if model["type"] != "BPE" or model.get("byte_fallback"):
            kind = "SentencePiece-style BPE" if model.get("byte_fallback") else model["type"]
            raise Unsupported(
                f"tokenizer of the kind {kind}: the export writes byte-level BPE alone; convert "
                "this model with llama.cpp's own converter"
            )
        tokens, kinds = _vocabulary(model["vocab"], stated["added_tokens"], vocabulary)
        bos, eos = tokenizer.bos_token_id, tokenizer.eos_token_id
        plain, whole = (tokenizer("a", add_special_tokens=s)["input_ids"] for s in (False, True))
        extra = len(whole) - len(plain)
        adds_bos = bool(extra) and whole[0] == bos
        adds_eos = extra > adds_bos and whole[-1] == eos
        if extra != adds_bos + adds_eos:
            raise Unsupported(
                f"this tokenizer makes {whole} of 'a', and llama.cpp can put at most BOS before "
                "and EOS behind a text; change its post-processor"
            )
        template = tokenizer.chat_template
        return cls(
            pre_tokenizer=_pre_tokenizer(stated),
            tokens=tokens,
            kinds=kinds,
            merges=[
                merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]
            ],
            bos=bos,
            eos=eos,
            pad=tokenizer.pad_token_id,
            adds_bos=adds_bos,
            adds_eos=adds_eos,
            chat_template=template if isinstance(template, str) else None,
            warnings=_warnings(stated, template),
        )

    def write(self, writer: Any) -> None:
        writer.add_tokenizer_model("gpt2")  # llama.cpp's name for every byte-level BPE
        writer.add_tokenizer_pre(self.pre_tokenizer)
        writer.add_token_list(self.tokens)
        writer.add_token_types(self.kinds)
        writer.add_token_merges(self.merges)
        for add, token in (
            (writer.add_bos_token_id, self.bos),
            (writer.add_eos_token_id, self.eos),
            (writer.add_pad_token_id, self.pad),
        ):
            if token is not None:
                add(token)
        writer.add_add_bos_token(self.adds_bos)
        writer.add_add_eos_token(self.adds_eos)
        if self.chat_template is not None:
            writer.add_chat_template(self.chat_template)


def _vocabulary(
    vocab: Mapping[str, int], added: Sequence[Mapping[str, Any]], size: int
) -> tuple[list[str], list[int]]:
    """Every token's text and kind, by its id."""
    tokens = [f"[PAD{i}]" for i in range(size)]
    kinds = [UNUSED] * size
    highest = max((*vocab.values(), *(token["id"] for token in added)))
    if highest >= size:
        raise Unsupported(
            f"the tokenizer has a token {highest} and the model only {size} embeddings: "
            "they do not belong together, or the embeddings were not resized"
        )
    for text, token in vocab.items():
        tokens[token], kinds[token] = text, NORMAL
    for entry in added:
        if entry["lstrip"] or entry["rstrip"] or entry["single_word"]:
            raise Unsupported(
                f"added token {entry['content']!r} takes in the spaces around it or only whole "
                "words, which llama.cpp does not do; change it in the tokenizer"
            )
        tokens[entry["id"]] = entry["content"]
        kinds[entry["id"]] = CONTROL if entry["special"] else USER_DEFINED
    return tokens, kinds


def _pre_tokenizer(stated: Mapping[str, Any]) -> str:
    """The name by which llama.cpp knows how this tokenizer cuts a text into words."""
    steps = stated["pre_tokenizer"] or {}
    steps = steps.get("pretokenizers", [steps])
    whole_words = bool(stated["model"].get("ignore_merges"))
    known = _PRE_TOKENIZERS.get((_cuts(steps), whole_words))
    if known is None:
        kinds = ", ".join(str(step.get("type")) for step in steps)
        raise Unsupported(
            f"this tokenizer cuts texts into words in a way ({kinds}) that the export does not "
            f"know; it knows those of {', '.join(_PRE_TOKENIZERS.values())}; convert this model "
            "with llama.cpp's own converter"
        )
    return known


def _cuts(steps: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """What cuts, step by step, in the words of the table above; a step of another kind as such."""
    found = []
    for step in steps:
        match step:
            case {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", **rest}:
                found.append(f"all but {regex}" if rest.get("invert") else str(regex))
            case {"type": "Digits", "individual_digits": True}:
                found.append("Digits")
            case {"type": "ByteLevel", "add_prefix_space": False, "use_regex": uses_regex}:
                found += ["ByteLevel"] if uses_regex else []
            case _:
                found.append(f"unknown: {step}")
    return tuple(found)


def _warnings(stated: Mapping[str, Any], template: object) -> tuple[str, ...]:
    found = []
    normalizer = stated["normalizer"]
    if normalizer is not None:
        if normalizer["type"] != "NFC":
            raise Unsupported(
                f"this tokenizer changes texts by {normalizer['type']} first, which llama.cpp does "
                "not do; convert this model with llama.cpp's own converter"
            )
        found.append("llama.cpp does not bring texts into Unicode's form NFC before it tokenizes")
    if template is not None and not isinstance(template, str):
        found.append("of several chat templates none is exported")
    return tuple(found)
