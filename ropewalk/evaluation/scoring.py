"""How likely a model finds given tokens, without its logits of a whole text ever existing.

The logits of 131,072 positions over a vocabulary of 128,256 take 63 GiB. So the model runs without
its head, and the head is applied to the rows that are asked for, some at a time. No mask is passed:
attention is causal by the flag of the kernel, and rows of a batch are padded on the right, where a
causal model cannot see it. Peak memory so grows with the length and not with its square.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ropewalk.errors import InvalidValue, RopewalkError, Unsupported
from ropewalk.evaluation.encoding import IntArray

# Numbers of logits that exist at once: 128 MiB in float32.
LOGITS_AT_ONCE = 32 * 2**20


class TokenScores(NamedTuple):
    """Of some tokens in a row: the loss of each in nats, and the first choice in its place."""

    losses: NDArray[np.float64]
    chosen: IntArray


class Scorer:
    """A causal model of transformers, read through its hidden states.

    Without gradients, but not in inference mode: a sharded model (sharding.py) that was first put
    together there could not be outside it.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.logits_at_once = LOGITS_AT_ONCE
        """To be lowered where memory is short."""
        self._body = model.base_model
        self._head = model.get_output_embeddings()
        self._finish = _finishing(model.config)
        if self._body is model or self._head is None:
            raise Unsupported(
                f"{_name(model)} has no language-model head apart from its layers, and scoring "
                "needs the two apart; load a causal language model"
            )
        self._verify()

    @torch.no_grad()
    def score(self, sequences: Sequence[IntArray], starts: Sequence[int]) -> list[TokenScores]:
        """The tokens of each sequence from its start on, each given all tokens before it.

        The sequences are one batch; they should be about equally long, since short ones are padded.
        """
        assert all(0 < start < len(row) for row, start in zip(sequences, starts, strict=True))
        hidden = self._run(_padded(sequences)[:, :-1])
        rows = torch.cat(
            [
                hidden[i, start - 1 : len(row) - 1]
                for i, (row, start) in enumerate(zip(sequences, starts, strict=True))
            ]
        )
        del hidden
        targets = torch.from_numpy(
            np.concatenate([row[start:] for row, start in zip(sequences, starts, strict=True)])
        ).to(rows.device)
        losses, chosen = [], []
        for logits, target in self._logits(rows, targets):
            losses.append(torch.nn.functional.cross_entropy(logits, target, reduction="none").cpu())
            chosen.append(logits.argmax(-1).cpu())
        all_losses = torch.cat(losses).double().numpy()
        if np.isnan(all_losses).any():
            raise self._not_numbers(max(map(len, sequences)))
        all_chosen = torch.cat(chosen).numpy()
        ends = np.cumsum([len(row) - start for row, start in zip(sequences, starts, strict=True)])
        return [
            TokenScores(*both)
            for both in zip(
                np.split(all_losses, ends[:-1]), np.split(all_chosen, ends[:-1]), strict=True
            )
        ]

    def loss(self, sequence: IntArray, start: int, weights: NDArray[np.float64]) -> Tensor:
        """The weighted sum of the losses of a sequence's tokens from the start on, with its graph.

        Logits are computed again in the backward pass, so that few of them exist at once.
        """
        hidden = self._run(_padded([sequence])[:, :-1])[0, start - 1 :]
        targets = torch.from_numpy(sequence[start:]).to(hidden.device)
        weighing = torch.from_numpy(weights).to(hidden.device, torch.float32)
        size = max(1, self.logits_at_once // self._head.weight.shape[0])
        parts = (torch.split(each, size) for each in (hidden, targets, weighing))
        losses = [
            checkpoint(self._weighted, *part, use_reentrant=False)
            for part in zip(*parts, strict=True)
        ]
        total: Tensor = torch.stack(losses).sum()
        return total

    def _weighted(self, rows: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        logits = self._finish(self._head(rows)).float()
        losses = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
        return (losses * weights).sum()

    @torch.no_grad()
    def write(self, prompts: Sequence[IntArray], count: int) -> list[IntArray]:
        """The tokens that the model goes on with, the most likely one each time.

        The prompts are one batch and equally long.
        """
        tokens = torch.from_numpy(np.stack(prompts)).to(self.model.device)
        state = self._body(input_ids=tokens, use_cache=True)
        written = []
        for step in range(count):
            logits = self._finish(self._head(state.last_hidden_state[:, -1:]))
            chosen = logits.argmax(-1)
            written.append(chosen.cpu())
            if step + 1 < count:
                state = self._body(
                    input_ids=chosen, past_key_values=state.past_key_values, use_cache=True
                )
        return list(torch.cat(written, dim=1).numpy())

    def _run(self, tokens: Tensor) -> Tensor:
        hidden: Tensor = self._body(
            input_ids=tokens.to(self.model.device), use_cache=False
        ).last_hidden_state
        return hidden

    def _logits(self, rows: Tensor, targets: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """The logits of some rows at a time, in float32, with their targets."""
        size = max(1, self.logits_at_once // self._head.weight.shape[0])
        for part, target in zip(torch.split(rows, size), torch.split(targets, size), strict=True):
            yield self._finish(self._head(part)).float(), target

    @torch.no_grad()
    def _verify(self) -> None:
        """Whether body and head together give what the model itself gives."""
        tokens = torch.arange(8).remainder(self._head.weight.shape[0]).unsqueeze(0)
        whole = self.model(input_ids=tokens.to(self.model.device), use_cache=False).logits
        if not whole.isfinite().all():
            raise self._not_numbers(tokens.shape[1])
        parts = self._finish(self._head(self._run(tokens)))
        tolerance = 16 * torch.finfo(parts.dtype).eps
        if whole.shape != parts.shape or not torch.allclose(
            whole, parts, rtol=tolerance, atol=tolerance * float(whole.abs().max())
        ):
            raise Unsupported(
                f"{_name(self.model)} changes its logits after the head in a way that ropewalk "
                "does not know, so scores would be wrong; this model cannot be scored yet"
            )

    def _not_numbers(self, length: int) -> RopewalkError:
        return RopewalkError(
            f"{_name(self.model)}: its logits are not numbers (NaN or infinite) at a length of "
            f"{length}; try float32 (`dtype`), and check its weights and its plan"
        )


def check_memory(model: Any, length: int, key: str) -> None:
    """Refuse a text whose hidden states do not fit: input, normed, queries, output."""
    width, size = model.config.get_text_config().hidden_size, model.dtype.itemsize
    needed, there = 4 * length * width * size, memory_of(model.device)
    if there is not None and needed > there:
        raise InvalidValue(
            key,
            length,
            f"the hidden states of one forward take at least {needed / 2**30:.3g} GiB, and "
            f"{model.device} has {there / 2**30:.3g} GiB",
            "give a shorter length",
        )


def memory_of(device: torch.device) -> int | None:
    """The bytes of a device, where they are known."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not on every system
        return None


def _finishing(config: Any) -> Callable[[Tensor], Tensor]:
    """What a family does to its logits after the head, as its config says."""
    config = config.get_text_config()
    factor = getattr(config, "logit_scale", None) or 1.0  # Cohere
    factor *= getattr(config, "lm_head_multiplier", None) or 1.0  # Falcon-H1
    factor /= getattr(config, "logits_scaling", None) or 1.0  # Granite
    cap = getattr(config, "final_logit_softcapping", None)  # Gemma

    def finish(logits: Tensor) -> Tensor:
        if factor != 1.0:
            logits = logits * factor
        return torch.tanh(logits / cap) * cap if cap else logits

    return finish


def _padded(sequences: Sequence[IntArray]) -> Tensor:
    longest = max(len(row) for row in sequences)
    tokens = np.zeros((len(sequences), longest), dtype=np.int64)
    for row, sequence in zip(tokens, sequences, strict=True):
        row[: len(sequence)] = sequence
    return torch.from_numpy(tokens)


def _name(model: Any) -> str:
    return f"{type(model).__name__} (model type {model.config.model_type!r})"
