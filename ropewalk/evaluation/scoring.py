"""Log-probabilities of given tokens, without the logits of a whole text ever existing.

The logits of 131,072 positions over a vocabulary of 128,256 take 63 GiB. So the model runs without
its head, and the head is applied to the rows that are asked for, some at a time. No mask is passed:
attention is causal by the flag of the kernel, and rows of a batch are padded on the right, where a
causal model cannot see it. Peak memory so grows with the length and not with its square. A long
text is read in chunks besides (chunks.py), where that is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ropewalk.errors import Unsupported
from ropewalk.evaluation.answering import TokenScores
from ropewalk.evaluation.chunks import Reader, branch
from ropewalk.evaluation.encoding import IntArray
from ropewalk.models.logits import Head, name_of, not_numbers

# Numbers of logits that exist at once: 128 MiB in float32.
LOGITS_AT_ONCE = 32 * 2**20


# Whether what a model wrote so far is all that counts.
Ended = Callable[[IntArray], bool]


class Scorer:
    """A causal model of transformers, read through its hidden states.

    Without gradients, but not in inference mode: a sharded model (sharding.py) that was first put
    together there could not be outside it.
    """

    def __init__(self, model: Any, *, in_chunks: bool = False) -> None:
        """`in_chunks`: read texts of more than 4,096 tokens so. Ranks that share a model must not,
        since the number of forwards would depend on the length."""
        self.model = model
        self.logits_at_once = LOGITS_AT_ONCE
        """Lower this if memory is short."""
        self._in_chunks = in_chunks
        self._reader = Reader(model)
        self._head = Head(model)
        self._head.check()

    @torch.no_grad()
    def score(self, sequences: Sequence[IntArray], starts: Sequence[int]) -> list[TokenScores]:
        """The tokens of each sequence from its start on, each given all tokens before it.

        The sequences are one batch; they should be about equally long, since short ones are padded.
        """
        assert all(0 < start < len(row) for row, start in zip(sequences, starts, strict=True))
        losses, chosen = [], []
        for rows, targets in self._rows(sequences, starts):
            for logits, target in self._logits(rows, targets):
                loss = torch.nn.functional.cross_entropy(logits, target, reduction="none")
                losses.append(loss)
                chosen.append(logits.argmax(-1))
        # Copied once: a copy of each part would make the host wait for it.
        all_losses = torch.cat(losses).cpu().double().numpy()
        if np.isnan(all_losses).any():
            raise not_numbers(self.model, max(map(len, sequences)))
        all_chosen = torch.cat(chosen).cpu().numpy()
        ends = np.cumsum([len(row) - start for row, start in zip(sequences, starts, strict=True)])
        return [
            TokenScores(*both)
            for both in zip(
                np.split(all_losses, ends[:-1]), np.split(all_chosen, ends[:-1]), strict=True
            )
        ]

    @torch.no_grad()
    def log_probabilities(
        self, sequence: IntArray, ends: Sequence[int]
    ) -> Iterator[NDArray[np.float64]]:
        """The distribution after each of these beginnings of a sequence, in order of rising ends.

        One row over the vocabulary each.
        """
        return self.distributions(self.after(sequence, ends), max(ends))

    @torch.no_grad()
    def distributions(self, hidden: Tensor, longest: int) -> Iterator[NDArray[np.float64]]:
        """The distributions of some hidden states, of sequences up to a length; as many at once as
        memory has room for, since each call of the head reads all of its weights."""
        size = max(1, self.logits_at_once // self._head.vocabulary // 2)  # in float64
        for part in torch.split(hidden, size):
            for logits in self._head.logits(part).double():
                if not logits.isfinite().any():
                    raise not_numbers(self.model, longest)
                row: NDArray[np.float64] = logits.log_softmax(-1).cpu().numpy()
                yield row

    @torch.no_grad()
    def after(self, sequence: IntArray, ends: Sequence[int]) -> Tensor:
        """The hidden states after these beginnings of a sequence, in order of rising ends."""
        assert list(ends) == sorted(ends)
        assert all(0 < end <= len(sequence) for end in ends)
        return torch.cat(list(self._after(torch.from_numpy(sequence[: max(ends)])[None], ends)))

    @torch.no_grad()
    def last(self, sequences: Sequence[IntArray]) -> Tensor:
        """The hidden states after short sequences, which are read as one batch."""
        padded = pad_sequence([torch.from_numpy(row) for row in sequences], batch_first=True)
        hidden = self._reader.whole(padded)
        return torch.stack([hidden[i, len(row) - 1] for i, row in enumerate(sequences)])

    def _after(self, tokens_BL: Tensor, ends: Sequence[int]) -> Iterator[Tensor]:
        """The hidden states of the last tokens of these beginnings, one row each."""
        length = tokens_BL.shape[1]
        if self._in_chunks and self._reader.splits(length):
            parts = self._reader.chunks(tokens_BL, self._reader.cache(length))
        else:
            parts = iter([(0, self._reader.whole(tokens_BL))])
        for begin, hidden in parts:
            for end in ends:
                if begin < end <= begin + hidden.shape[1]:
                    yield hidden[0, end - 1 - begin][None]

    def _rows(
        self, sequences: Sequence[IntArray], starts: Sequence[int]
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """The hidden states that predict the scored tokens, and these tokens, in order."""
        both = list(zip(sequences, starts, strict=True))
        if self._in_chunks and self._reader.splits(max(map(len, sequences))):
            for row, start in both:
                tokens = torch.from_numpy(row)
                cache = self._reader.cache(len(row) - 1)
                for begin, hidden in self._reader.chunks(tokens[None, :-1], cache):
                    part = hidden[0, max(0, start - 1 - begin) :]
                    end = begin + hidden.shape[1]
                    if len(part):
                        yield part, tokens[end + 1 - len(part) : end + 1].to(part.device)
            return
        padded = pad_sequence([torch.from_numpy(row) for row in sequences], batch_first=True)
        hidden = self._reader.whole(padded[:, :-1])
        rows = torch.cat([hidden[i, s - 1 : len(row) - 1] for i, (row, s) in enumerate(both)])
        del hidden
        targets = torch.from_numpy(np.concatenate([row[start:] for row, start in both]))
        yield rows, targets.to(rows.device)

    @torch.no_grad()
    def write(
        self, prompts: Sequence[IntArray], count: int, ended: Ended = lambda tokens: False
    ) -> list[IntArray]:
        """The tokens that the model goes on with, the most likely one each time.

        The prompts are one batch and equally long. `ended` says after each token of a row whether
        that was its last; what a row holds does not depend on the others.
        """
        tokens = torch.from_numpy(np.stack(prompts))
        cache = self._reader.cache(tokens.shape[1] + count)
        return self._written(*self._reader.last(tokens, cache), count, ended)

    @torch.no_grad()
    def write_on(
        self, shared: int, prompts: Sequence[IntArray], count: int, ended: Ended
    ) -> list[IntArray]:
        """The same for prompts that begin with the same `shared` tokens, which are read once."""
        longest = max(map(len, prompts))
        assert shared < min(map(len, prompts)), "a prompt needs a token of its own"
        cache = self._reader.cache(longest + count)
        if cache is None:
            raise Unsupported(
                f"{name_of(self.model)} cannot go back to the end of a shared context, as mode "
                "shared_context needs; use mode generate"
            )
        rows = [torch.from_numpy(prompt)[None] for prompt in prompts]
        if shared:
            self._reader.last(rows[0][:, :shared], cache)
        written = []
        for row in rows:
            state = self._reader.last(row[:, shared:], branch(cache))
            written += self._written(*state, count, ended)
        return written

    def _written(self, hidden: Tensor, cache: Any, count: int, ended: Ended) -> list[IntArray]:
        rows = np.zeros((len(hidden), 0), dtype=np.int64)
        done: dict[int, IntArray] = {}
        while True:
            logits = self._head.logits(hidden)
            if logits.isnan().any():  # argmax would take one for the most likely token
                raise not_numbers(self.model, cache.get_seq_length())
            chosen = logits.argmax(-1)
            rows = np.concatenate([rows, chosen.cpu().numpy()], axis=1)
            for i, row in enumerate(rows):
                if i not in done and (len(row) == count or ended(row)):
                    done[i] = row
            if len(done) == len(rows):
                return [done[i] for i in range(len(rows))]
            hidden = self._reader.step(chosen, cache).last_hidden_state

    def _logits(self, rows: Tensor, targets: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """The logits of some rows at a time, in float32, with their targets."""
        size = max(1, self.logits_at_once // self._head.vocabulary)
        for part, target in zip(torch.split(rows, size), torch.split(targets, size), strict=True):
            yield self._head.logits(part).float(), target


def end_tokens(model: Any) -> list[int]:
    """The tokens with which a model ends what it writes: chat models have several."""
    generation = getattr(model, "generation_config", None)
    for config in (generation, model.config.get_text_config()):
        ends = getattr(config, "eos_token_id", None)
        if ends is not None:
            return [int(end) for end in (ends if isinstance(ends, list | tuple) else [ends])]
    return []
