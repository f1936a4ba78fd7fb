"""The three lengths of a model, decided from its config by one function.

- The reference length: what betas and factors count from.
- The trained length: how far its publisher says that the model works.
- The served length: how far its config lets a runtime go.

`three_lengths` takes the first of these that says anything:

1. a length that the user gives (`trained_length`), or the catalogue states for a model's name;
2. keys of the config: `original_max_position_embeddings` in the rope settings or beside them, that
   of `dual_chunk_attention_config`, a `max_sequence_length` above the stated length; and for YaRN
   factor × original length, where that exceeds the stated length;
3. known pairs of a model type and its stated length (known_lengths.json);
4. the stated length, `max_position_embeddings`.

3 is a guess, which assumptions.py states.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ropewalk.errors import InvalidValue
from ropewalk.lengths import MAX_LENGTH
from ropewalk.untrusted import counted

ALPHA = "alpha"
"""The kind of Hunyuan's scaling, which is part of the base."""
PLAIN = ("default", "proportional", ALPHA)
"""The kinds whose frequencies are those of pretraining."""
DUAL_CHUNK = "dual_chunk_attention_config"
TRAINED = "trained_length"
STATE_IT = f"state that (`{TRAINED}` of a plan, or original_max_position_embeddings in the config)"
_K = 1024


@dataclass(frozen=True)
class Stated:
    """The lengths of one setting, by a config or the header of a GGUF file."""

    model_type: str
    kind: str
    """The rope type."""
    length: int
    """`max_position_embeddings`."""
    length_key: str = "max_position_embeddings"
    original: int | None = None
    original_key: str = "original_max_position_embeddings"
    factor: float = 1.0
    alpha: float | None = None
    length_is_scaled: bool = False
    """With linear scaling, the stated length is the extended one."""
    config: Mapping[str, object] | None = None
    """The config itself, for keys that few have."""
    trained: int | None = None
    """The trained length by the user or the catalogue."""


@dataclass(frozen=True)
class Lengths:
    """The three lengths, and the guesses made for them."""

    reference: int
    trained: int
    served: int
    guess: str = ""
    """A sentence with the key that the guess rests on; empty if nothing is guessed."""
    doubt: str = ""
    """A sentence if the stated length is kept although it may be wrong."""
    conflict: str = ""
    """A sentence if keys contradict each other."""


_PAIRS = json.loads(Path(__file__).with_name("known_lengths.json").read_text(encoding="utf-8"))
"""Stated lengths that are known to be others than the trained ones, by patterns that whole model
types must match. A row holds `when` these values are stated, or else for the kinds of `PLAIN`; a
`reference` is for settings that state no original length."""


def three_lengths(stated: Stated) -> Lengths:
    """The reference, trained and served length of one rope setting."""
    lengths = _of_keys(stated)
    if stated.trained is not None:
        return _as_given(stated, lengths or _guessed(stated))
    if lengths is not None and (stated.kind in PLAIN or stated.original is None):
        return lengths
    guessed = _guessed(stated)
    if lengths is None:
        return guessed
    # The reference length is stated, and the trained one may still be a guess.
    if not guessed.guess:
        return lengths
    return replace(lengths, trained=guessed.trained, guess=guessed.guess)


def _as_given(stated: Stated, lengths: Lengths) -> Lengths:
    """The lengths with a trained length that somebody states."""
    trained = stated.trained
    assert trained is not None
    plain = stated.kind in PLAIN and stated.original is None
    reference = trained if plain else lengths.reference
    if trained < reference:
        raise InvalidValue(
            TRAINED,
            trained,
            f"is below {reference}, the length from which the scaling counts "
            f"({stated.original_key})",
            "give the length that the model was trained to under its scaling",
        )
    return Lengths(reference, trained, lengths.served, conflict=lengths.conflict)


def _of_keys(stated: Stated) -> Lengths | None:
    """The lengths that keys of the config state beyond the stated length; None if none does."""
    served, conflict = _served(stated), ""
    if stated.original is not None:
        if stated.original > stated.length and stated.kind not in PLAIN:
            conflict = (
                f"{stated.original_key} is {stated.original}, above {stated.length_key} = "
                f"{stated.length}; the original length stands first, so frequencies count from it"
            )
        trained = stated.original if stated.kind in PLAIN or stated.kind == "dynamic" else served
        longest = _longest_sequence(stated)
        if longest is not None and longest not in (stated.length, trained):
            conflict = _beyond_the_factor(stated, longest, trained)
        return Lengths(stated.original, trained, served, conflict=conflict)
    chunks = (stated.config or {}).get(DUAL_CHUNK)
    if isinstance(chunks, Mapping) and chunks.get("original_max_position_embeddings") is not None:
        key = f"{DUAL_CHUNK}.original_max_position_embeddings"
        native = counted(chunks["original_max_position_embeddings"], key, MAX_LENGTH)
        return Lengths(native, native, served)
    longest = _longest_sequence(stated)
    if longest is None or longest <= served:
        return None
    if stated.kind in PLAIN:
        return Lengths(longest, longest, served)
    if stated.kind == "dynamic":  # whose frequencies follow the text
        return Lengths(stated.length, longest, longest)
    return replace(_guessed(stated), conflict=_beyond_the_factor(stated, longest, served))


def _beyond_the_factor(stated: Stated, longest: int, reached: int) -> str:
    key, length = stated.length_key, stated.length
    if stated.original:
        key, length = stated.original_key, stated.original
    return (
        f"max_sequence_length is {longest}, while {key} = {length} and the factor "
        f"{stated.factor:g} lead to {reached}; the second is followed, since the frequencies "
        "follow it"
    )


def _longest_sequence(stated: Stated) -> int | None:
    """`max_sequence_length`, which some configs have next to the stated length."""
    value = (stated.config or {}).get("max_sequence_length")
    return None if value is None else counted(value, "max_sequence_length", MAX_LENGTH)


def _guessed(stated: Stated) -> Lengths:
    """The lengths by known pairs, or else by the stated length."""
    length, served = stated.length, _served(stated)
    for pair in _PAIRS:
        applies = re.fullmatch(pair["types"], stated.model_type) and length in pair["stated"]
        holds = stated.kind in PLAIN
        if "when" in pair:
            holds = all(getattr(stated, key) == value for key, value in pair["when"].items())
        if applies and holds:
            trained = pair["trained"]
            return Lengths(pair.get("reference", trained), trained, served, _said(stated, pair))
    if stated.length_is_scaled and stated.kind == "linear":
        return Lengths(max(1, round(length / stated.factor)), length, length)
    trained = length if stated.kind in (*PLAIN, "dynamic") else served
    doubt = ""
    if (stated.model_type, stated.kind, length) == ("qwen2", "default", 128 * _K):
        doubt = (
            f"{stated.length_key} is {length} without scaling; base models of Qwen 2 and 2.5 state "
            "that and were trained at 32768, and so do fine-tuned models that were trained at "
            f"{length}; the stated length is kept; if the model was trained at 32768, {STATE_IT}"
        )
    return Lengths(length, trained, served, doubt=doubt)


def _said(stated: Stated, pair: Mapping[str, Any]) -> str:
    guess = f"{pair['because']}, so the trained length is taken to be {pair['trained']}"
    if "reference" in pair:
        guess += f", with a reference length of {pair['reference']}"
    return (
        f"{stated.length_key} is {stated.length} in a model of type {stated.model_type}; "
        f"{guess}; if this model was trained at another length, {STATE_IT}"
    )


def _served(stated: Stated) -> int:
    """The served length of a config that states how far its frequencies reach.

    No formula of transformers depends on it. Which length a runtime accepts is another matter
    (`accepts` in runtimes/vllm.py and runtimes/sglang.py). So:

    - YaRN and linear: the longer of the stated length and original · factor. The factor says how
      far the frequencies reach; Qwen3's recipe states 40,960, four times 32,768 is served.
    - llama3, longrope: the stated length where it is longer than the original one. Llama 3.2 has
      factor 32 over 8,192 and was trained to serve the 131,072 that it states.
    - All: where only the original length is stated (Qwen2.5 with YaRN), original · factor.
    """
    original = stated.original or stated.length
    if stated.kind in (*PLAIN, "dynamic"):
        return stated.length
    if stated.length > original and stated.kind in ("llama3", "longrope"):
        return stated.length
    if stated.length_is_scaled and stated.kind == "linear" and stated.original is None:
        return stated.length
    return max(stated.length, extended(original, stated.factor))


def extended(original: int, factor: float) -> int:
    """The original length times the factor."""
    if original * factor > MAX_LENGTH:
        raise InvalidValue(
            "factor",
            factor,
            f"takes {original} tokens to more than {MAX_LENGTH}, the longest of all plans",
            "correct it",
        )
    return round(original * factor)
