"""One training run: a stock Llama from nothing, at windows of 64, 128 and twice 512 tokens."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from studies.bundled_model.windows import TextStream, WindowMix

WINDOW = 512


@dataclass(frozen=True)
class Stage:
    """Steps at one window length, cosine from `learning_rate` to a twentieth of it."""

    window: int
    batch: int
    steps: int
    learning_rate: float
    first_reach: int  # how far apart question and answer are at the start; grows to the window
    reach_growth: float  # over this share of the steps
    shares: Mapping[str, float]  # of each kind of window


@dataclass(frozen=True)
class Size:
    """A model, and how many of the stages it goes through."""

    hidden: int
    layers: int
    heads: int
    head_dim: int
    intermediate: int
    stages: int
    base: float = 10_000.0

    @property
    def window(self) -> int:
        return STAGES[self.stages - 1].window


STAGES = (
    Stage(
        window=64,
        batch=16,
        steps=400,
        learning_rate=3e-3,
        first_reach=8,
        reach_growth=0.8,
        shares={"needles": 0.5, "table": 0.35, "text": 0.15},
    ),
    Stage(
        window=128,
        batch=16,
        steps=700,
        learning_rate=3e-3,
        first_reach=48,
        reach_growth=0.4,
        shares={"needles": 0.3, "table": 0.3, "passkey": 0.1, "records": 0.15, "text": 0.15},
    ),
    Stage(
        window=WINDOW,
        batch=8,
        steps=400,
        learning_rate=2e-3,
        first_reach=128,
        reach_growth=0.4,
        shares={
            "needles": 0.35,
            "table": 0.12,
            "table of alike keys": 0.08,
            "passkey": 0.15,
            "records": 0.15,
            "text": 0.15,
        },
    ),
    # What is still hard: many names in a table, and where an answer ends.
    Stage(
        window=WINDOW,
        batch=8,
        steps=300,
        learning_rate=1.5e-3,
        first_reach=256,
        reach_growth=0.2,
        shares={
            "needles": 0.15,
            "table": 0.1,
            "table of alike keys": 0.1,
            "passkey": 0.2,
            "records": 0.3,
            "text": 0.15,
        },
    ),
)
WARM_UP = 50

# The first one ships. The others are for studies that must not rest on one model.
SIZES = {
    "bundled": Size(hidden=128, layers=3, heads=4, head_dim=32, intermediate=352, stages=4),
    "narrow": Size(hidden=96, layers=3, heads=4, head_dim=24, intermediate=256, stages=2),
    "slim": Size(hidden=64, layers=3, heads=4, head_dim=16, intermediate=176, stages=2),
    "many_heads": Size(
        hidden=128, layers=3, heads=8, head_dim=16, intermediate=352, stages=2, base=30_000.0
    ),
    "high_base": Size(
        hidden=96, layers=3, heads=4, head_dim=24, intermediate=256, stages=2, base=500_000.0
    ),
    "low_base": Size(
        hidden=96, layers=4, heads=4, head_dim=24, intermediate=256, stages=2, base=3_000.0
    ),
    # Nothing is tuned on these two: benchmarks report on them.
    "wide": Size(hidden=160, layers=2, heads=5, head_dim=32, intermediate=432, stages=2),
    "tall": Size(hidden=80, layers=5, heads=5, head_dim=16, intermediate=216, stages=2),
}


def new_model(tokenizer: PreTrainedTokenizerFast, seed: int, size: Size) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=size.hidden,
            num_hidden_layers=size.layers,
            num_attention_heads=size.heads,
            num_key_value_heads=size.heads,
            head_dim=size.head_dim,
            intermediate_size=size.intermediate,
            max_position_embeddings=size.window,
            rope_parameters={"rope_type": "default", "rope_theta": size.base},
            tie_word_embeddings=True,
            # With the default of 0.02 a model this narrow does not begin to retrieve.
            initializer_range=size.hidden**-0.5,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )
    with torch.no_grad():
        _start_able_to_look_up(model)
    return model


def _start_able_to_look_up(model: LlamaForCausalLM) -> None:
    """Let attention begin as what looking up is made of, instead of waiting for it to appear.

    - Queries and keys begin equal, outputs as values transposed: a head attends to what is like
      its own token and copies it (Trockman and Kolter 2023, "Mimetic initialization").
    - The heads of the first layer begin as heads that attend 1, 2, 3 and 4 tokens back: a value is
      found by the tokens before it. Llama has no bias in its queries and keys, so all embeddings
      share one direction (a constant of the logits, which softmax ignores), and the first layer
      turns it into a query, and into a key rotated by the distance. Other layers don't see it.
    """
    config = model.config
    direction = torch.nn.functional.normalize(torch.randn(config.hidden_size), dim=0)
    model.model.embed_tokens.weight += direction
    for layer in model.model.layers:
        attention = layer.self_attn
        query = attention.q_proj.weight
        query -= torch.outer(query @ direction, direction)
        attention.k_proj.weight.copy_(query)
        # Each layer adds to the residual stream twice.
        shrunk = (2 * config.num_hidden_layers) ** -0.5
        attention.o_proj.weight.copy_(attention.v_proj.weight.T * shrunk)
        layer.mlp.down_proj.weight *= shrunk

    half = config.head_dim // 2
    frequencies = config.rope_parameters["rope_theta"] ** (-torch.arange(half) / half)
    # Slow pairs hardly tell one token back from two.
    size = 5.0 * (torch.arange(half) < half // 2)
    # After RMSNorm, half of the squared length lies in the shared direction.
    seen = direction / (config.hidden_size / 2) ** 0.5
    attention = model.model.layers[0].self_attn
    for head in range(config.num_attention_heads):
        angles = frequencies * (head + 1)
        rows = slice(head * config.head_dim, (head + 1) * config.head_dim)
        query = torch.cat([size, torch.zeros(half)])
        key = torch.cat([size * angles.cos(), size * angles.sin()])
        attention.q_proj.weight[rows] += torch.outer(query, seen)
        attention.k_proj.weight[rows] += torch.outer(key, seen)


def train(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    stream: TextStream,
    words: list[str],
    seed: int,
    number: int,
    report: Callable[[dict[str, float]], None],
) -> None:
    """One stage, in place. It begins with a fresh optimizer, so it needs nothing but the model."""
    stage = STAGES[number]
    rng = np.random.default_rng([seed, number])
    mix = WindowMix(tokenizer, stream, words, stage.window, stage.shares)
    optimizer = _optimizer(model, stage.learning_rate)
    model.train()
    began, text_loss, answer_loss = time.perf_counter(), [], []
    for step in range(stage.steps):
        for group in optimizer.param_groups:
            group["lr"] = stage.learning_rate * _learning_rate_factor(step, stage.steps)
        grown = min(1.0, step / (stage.reach_growth * stage.steps))
        reach = round(stage.first_reach + grown * (stage.window - stage.first_reach))
        drawn = [mix.draw(rng, reach) for _ in range(stage.batch)]
        tokens = torch.tensor(np.stack([window.tokens for window in drawn]))
        weights = torch.tensor(np.stack([window.weights for window in drawn]))[:, 1:].flatten()
        logits = model(tokens).logits[:, :-1].flatten(0, 1)
        losses = cross_entropy(logits, tokens[:, 1:].flatten(), reduction="none")
        model.zero_grad()
        loss = (losses * weights).sum() / weights.sum()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        text_loss.append(losses[weights == 1].mean().item())
        answer_loss.append(losses[weights > 1].mean().item())
        if (step + 1) % 100 == 0:
            report(
                {
                    "window": stage.window,
                    "step": step + 1,
                    "text_loss": round(float(np.mean(text_loss[-100:])), 4),
                    "answer_loss": round(float(np.nanmean(answer_loss[-100:])), 4),
                    "seconds": round(time.perf_counter() - began, 1),
                }
            )
    model.eval()


def _optimizer(model: LlamaForCausalLM, learning_rate: float) -> torch.optim.Optimizer:
    matrices = [each for each in model.parameters() if each.ndim == 2]
    vectors = [each for each in model.parameters() if each.ndim < 2]
    return torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
        lr=learning_rate,
        betas=(0.9, 0.95),
        fused=True,
    )


def _learning_rate_factor(step: int, steps: int) -> float:
    warm_up = min(1.0, (step + 1) / WARM_UP)
    return warm_up * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * step / steps)))
