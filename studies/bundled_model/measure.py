"""The abilities of the model: the gate inside its window, and a first look beyond it.

Retrieval is scored by teacher forcing: every token of the answer must be the most likely one, and
the most likely one after it no further digit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from studies.bundled_model.prompts import key_question, passkey_prompt, record_question
from studies.bundled_model.windows import TextStream, random_keys

TOKENS_PER_FORWARD = 8192
SCORED_TOKENS = 256  # perplexity is of the last tokens, the same ones at every context length


@dataclass(frozen=True)
class Sample:
    tokens: npt.NDArray[np.int64]
    answer: int  # how many of the last tokens are the answer


class Questions:
    """Draws samples of `length` tokens, BOS and answer included, with depths spread evenly."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerFast, text: str, words: list[str], length: int
    ) -> None:
        self._tokenizer, self._words, self._length = tokenizer, words, length
        self._stream = TextStream(tokenizer, [text])

    def needle(self, count: int, seed: int, *, distractors: int) -> Iterator[Sample]:
        """One key of several, hidden in held-out text, asked for at the end."""
        for index in range(count):
            rng = np.random.default_rng([seed, index])
            keys = random_keys(rng, 1 + distractors)
            values = [f"{rng.integers(10_000):04d}" for _ in keys]
            lines = [
                self._ids(f"{key_question(key)}{value}\n")
                for key, value in zip(keys, values, strict=True)
            ]
            asked = self._ids(key_question(keys[0]) + values[0])
            room = self._length - 1 - len(asked) - sum(map(len, lines))
            text, places = self._stream.crop(rng, room)
            depth = (index + rng.random()) / count
            chosen = [min(int(depth * len(places)), len(places) - 1)]
            chosen += list(rng.integers(0, len(places), distractors))
            parts, done = [np.array([self._tokenizer.bos_token_id])], 0
            for line in np.argsort(chosen, kind="stable"):
                place = int(places[chosen[line]])
                parts += [text[done:place], np.array(lines[line])]
                done = place
            yield Sample(np.concatenate([*parts, text[done:], asked]), len(values[0]))

    def passkey(self, count: int, seed: int) -> Iterator[Sample]:
        """LongRoPE's prompt with as much filler as fits."""
        answer = len(self._ids(" 10000"))
        with_one, with_two = (
            1 + answer + len(self._ids(passkey_prompt(10_000, before, 0))) for before in (1, 2)
        )
        fillers = 1 + (self._length - with_one) // (with_two - with_one)
        for index in range(count):
            rng = np.random.default_rng([seed, index])
            passkey = int(rng.integers(10_000, 100_000))
            before = min(int((index + rng.random()) / count * (fillers + 1)), fillers)
            prompt = passkey_prompt(passkey, before, fillers - before)
            yield self._sample(prompt, f" {passkey}")

    def table(self, count: int, seed: int) -> Iterator[Sample]:
        """Key-value retrieval: nothing but pairs."""
        line = len(self._ids(f"{key_question('QX')}4821\n"))
        pairs = (self._length - line) // line
        for index in range(count):
            rng = np.random.default_rng([seed, index])
            values = {key: f"{rng.integers(10_000):04d}" for key in random_keys(rng, pairs)}
            asked = str(rng.choice(list(values)))
            lines = "".join(f"{key_question(key)}{value}\n" for key, value in values.items())
            yield self._sample(lines + key_question(asked), values[asked])

    def records(self, count: int, seed: int) -> Iterator[Sample]:
        """Lines of Long-eval with names that training never saw."""
        for index in range(count):
            rng = np.random.default_rng([seed, index])
            lines: dict[str, str] = {}
            while True:
                name = "-".join(rng.choice(self._words, 2))
                grown = lines | {name: str(rng.integers(1, 50_001))}
                text = "".join(f"{record_question(n)}{v}>\n" for n, v in grown.items())
                if len(self._ids(text)) > self._length - 30:
                    break
                lines, body = grown, text
            asked = str(rng.choice(list(lines)))
            yield self._sample(body + record_question(asked), lines[asked])

    def _sample(self, prompt: str, answer: str) -> Sample:
        asked, whole = self._ids(prompt), self._ids(prompt + answer)
        tokens = np.array([self._tokenizer.bos_token_id, *whole])
        return Sample(tokens, len(whole) - len(asked))

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids


@torch.inference_mode()
def exact_match(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, samples: Iterator[Sample]
) -> float:
    digits = torch.tensor(tokenizer.convert_tokens_to_ids(list("0123456789")))
    right: list[bool] = []
    for batch in _batches(list(samples)):
        tokens = torch.tensor(np.stack([sample.tokens for sample in batch]))
        answer = batch[0].answer
        chosen = model(tokens, logits_to_keep=answer + 1).logits.argmax(-1)
        matched = (chosen[:, :-1] == tokens[:, -answer:]).all(-1)
        right += (matched & ~torch.isin(chosen[:, -1], digits)).tolist()
    return float(np.mean(right))


def _batches(samples: list[Sample]) -> Iterator[list[Sample]]:
    """Samples of one shape together; their order does not matter to a mean."""
    shapes = sorted({(len(sample.tokens), sample.answer) for sample in samples})
    for length, answer in shapes:
        alike = [each for each in samples if (len(each.tokens), each.answer) == (length, answer)]
        size = max(1, TOKENS_PER_FORWARD // length)
        for start in range(0, len(alike), size):
            yield alike[start : start + size]


@torch.inference_mode()
def perplexity(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    text: str,
    length: int,
    *,
    longest: int,
    documents: int,
) -> float:
    """The perplexity of the last tokens of windows that end where those of `longest` tokens end."""
    ids = np.array(tokenizer(text, add_special_tokens=False)["input_ids"])
    losses = []
    for end in np.linspace(longest, len(ids), documents).astype(int):
        window = [tokenizer.bos_token_id, *ids[end - length + 1 : end]]
        tokens = torch.tensor([window])
        logits = model(tokens, logits_to_keep=SCORED_TOKENS + 1).logits[0, :-1]
        losses.append(torch.nn.functional.cross_entropy(logits, tokens[0, -SCORED_TOKENS:]))
    return math.exp(torch.stack(losses).mean())


# Rescale factors by method: the pretrained inverse frequencies are divided by them. This study
# stays below the package's own methods, so that the package can be tested on what it produces.
PairIndex = npt.NDArray[np.float64]


def _ntk(pair: PairIndex, scale: float) -> PairIndex:
    return scale ** (pair / (len(pair) - 1))


def _ntk_mixed(pair: PairIndex, scale: float) -> PairIndex:
    exponent = 0.625
    return np.exp(math.log(scale) * ((pair + 1) / len(pair)) ** exponent)


def _yarn(pair: PairIndex, base: float, scale: float, window: int) -> PairIndex:
    def pair_that_turns(times: float) -> float:
        return len(pair) * math.log(window / (2 * math.pi * times)) / math.log(base)

    low, high = math.floor(pair_that_turns(32)), math.ceil(pair_that_turns(1))
    interpolated = np.clip((pair - max(low, 0)) / (high - max(low, 0)), 0, 1)
    return 1 / (interpolated / scale + 1 - interpolated)


def rescale_factors(method: str, pairs: int, base: float, scale: float, window: int) -> PairIndex:
    pair = np.arange(pairs, dtype=np.float64)
    by_method: dict[str, Callable[[], PairIndex]] = {
        "none": lambda: np.ones(pairs),
        "linear": lambda: np.full(pairs, scale),
        "NTK": lambda: _ntk(pair, scale),
        "NTK-mixed": lambda: _ntk_mixed(pair, scale),
        "YaRN": lambda: _yarn(pair, base, scale, window),
        "YaRN without attention factor": lambda: _yarn(pair, base, scale, window),
    }
    return by_method[method]()


METHODS = ("none", "linear", "NTK", "NTK-mixed", "YaRN without attention factor", "YaRN")


def put(model: LlamaForCausalLM, method: str, scale: float) -> None:
    """Put a method into the rotary module of a model."""
    config, rotary = model.config, model.model.rotary_emb
    base, head_dim = config.rope_parameters["rope_theta"], config.head_dim
    pairs = head_dim // 2
    factors = rescale_factors(method, pairs, base, scale, config.max_position_embeddings)
    plain = base ** (-2 * np.arange(pairs) / head_dim)
    rotary.inv_freq.copy_(torch.tensor(plain / factors))
    rotary.attention_scaling = 0.1 * math.log(scale) + 1 if method == "YaRN" else 1.0
