"""The longest sequence that vLLM and SGLang accept of a config, each by its own rule.

Both refuse more, unless an environment variable allows it. Read in their released wheels
(`_get_and_verify_max_len` of vLLM 0.33, `get_context_length` of SGLang 0.5.23):

- vLLM takes the shortest length that the config states, or `model_max_length` in its place, and
  multiplies it by the factor of every rope type but llama3, longrope and YaRN. Gemma 3 states its
  scaled length, so no factor counts there. The tokenizer's limit counts only for models that pool
  over absolute positions.
- SGLang takes the first stated length, times the factor, where the setting states no original
  length and is not llama3; transformers fills that length in for YaRN and longrope.

So for YaRN both take the stated length. Qwen3's recipe states 40,960, and its frequencies reach
4 · 32,768: to be served so far, it needs `max_position_embeddings` raised too. vLLM of 2025 took
original · factor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ropewalk.models.config import ORIGINAL_LENGTH, Config, ConfigReader, rope_type
from ropewalk.schedule import MAX_FACTOR

_VLLM_LENGTHS = ("max_seq_len", "seq_length", "max_sequence_length", "max_seq_length", "seq_len")
_SGLANG_LENGTHS = ("max_sequence_length", "seq_length", "max_seq_len", "model_max_length")
_STATED_SCALED = ("su", "longrope", "llama3", "yarn")
_ONE_LENGTH = ("dbrx",)
"""Model types whose config class keeps their own name and max_position_embeddings as one value."""


def by_vllm(config: Config) -> int | None:
    reader = _reader(config)
    stated = [_whole(reader.get("max_position_embeddings"))]
    stated += [_whole(reader.config.get(key)) for key in _VLLM_LENGTHS]
    lengths = [length for length in stated if length is not None]
    length = _whole(reader.config.get("model_max_length")) or min(lengths, default=None)
    if length is None or "gemma3" in reader.model_type:
        return length
    factor = 1.0
    for rope in reader.layer_settings().values():
        if rope_type(rope) not in _STATED_SCALED:
            factor = _number(rope.get("factor")) or factor
    return _times(length, factor)


def by_sglang(config: Config) -> int | None:
    reader = _reader(config)
    stated = (_whole(reader.config.get(key)) for key in _SGLANG_LENGTHS)
    length = next((each for each in stated if each is not None), None)
    if length is None:
        length = _whole(reader.get("max_position_embeddings"))
    ropes = reader.layer_settings()
    factor = 1.0
    if len(ropes) == 1:  # it does not look into settings by layer type
        (rope,) = ropes.values()
        if rope_type(rope) not in _STATED_SCALED and rope.get(ORIGINAL_LENGTH) is None:
            factor = _number(rope.get("factor")) or factor
    return None if length is None else _times(length, factor)


BY_ENGINE: Mapping[str, Callable[[Config], int | None]] = {"vllm": by_vllm, "sglang": by_sglang}


def _reader(config: Config) -> ConfigReader:
    """The config as its class has it: of two names of one value, max_position_embeddings wins."""
    reader = ConfigReader(config)
    own, key = reader.family.names.get("max_position_embeddings"), "max_position_embeddings"
    if reader.model_type in _ONE_LENGTH and own and reader.config.get(key) is not None:
        return ConfigReader({**reader.config, own: reader.config[key]})
    return reader


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _number(value: object) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _times(length: int, factor: float) -> int | None:
    """None for a factor that no length can be multiplied by; reading the setting names it."""
    return int(length * factor) if abs(factor) <= MAX_FACTOR else None
