"""Fine-tuning at the target length: a plain loop that says when it has taken so many steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from ropewalk.context_plan import ContextPlan
from ropewalk.models.install import applied
from ropewalk.models.load import LoadedModel
from studies.bundled_model.corpus import read_corpus
from studies.bundled_model.model import STAGES
from studies.bundled_model.train import words_of
from studies.bundled_model.windows import TextStream, WindowMix

TOKENS_A_STEP = 2048
LEARNING_RATE, WARM_UP = 1e-3, 10
# What the model saw last while it was trained, so that only the length is new.
SHARES = STAGES[1].shares


def tuned(
    loaded: LoadedModel, plan: ContextPlan, after: tuple[int, ...], seed: int
) -> Iterator[int]:
    """Train the model in place under the plan, and yield at each of the step counts.

    The learning rate stays what it is after a short warm-up, so a longer run begins as a shorter
    one does. All methods of one model and length see the same windows.
    """
    model, length, taken = loaded.model, plan.target_length, 0
    if after[-1] > 0:
        mix = WindowMix(loaded.tokenizer, *_text(loaded.tokenizer), length, SHARES)
        rng = np.random.default_rng([seed, length])
        optimizer = torch.optim.AdamW(
            model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.0, fused=True
        )
    for stop in after:
        if stop > taken:
            model.train()
            with applied(model, plan, check=False):
                while taken < stop:
                    optimizer.param_groups[0]["lr"] = LEARNING_RATE * min(
                        1.0, (taken + 1) / WARM_UP
                    )
                    _step(model, optimizer, mix, rng, length)
                    taken += 1
            model.eval()
        yield taken


def _step(
    model: Any,
    optimizer: torch.optim.Optimizer,
    mix: WindowMix,
    rng: np.random.Generator,
    length: int,
) -> None:
    drawn = [mix.draw(rng, length) for _ in range(max(1, TOKENS_A_STEP // length))]
    tokens = torch.tensor(np.stack([window.tokens for window in drawn]))
    weights = torch.tensor(np.stack([window.weights for window in drawn]))[:, 1:].flatten()
    logits = model(tokens).logits[:, :-1].flatten(0, 1)
    losses = cross_entropy(logits, tokens[:, 1:].flatten(), reduction="none")
    model.zero_grad()
    loss = (losses * weights).sum() / weights.sum()
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def _text(tokenizer: Any) -> tuple[TextStream, list[str]]:
    """The text of training, which shares nothing with that of the evaluation."""
    spelled = tokenizer.backend_tokenizer.to_str()
    if spelled not in _KNOWN:
        texts = list(read_corpus().training.values())
        _KNOWN[spelled] = TextStream(tokenizer, texts), words_of(texts)
    return _KNOWN[spelled]


_KNOWN: dict[str, tuple[TextStream, list[str]]] = {}
"""By tokenizer: the models of the study share one, and encoding takes seconds."""
