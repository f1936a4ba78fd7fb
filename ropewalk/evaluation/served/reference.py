"""The fingerprint of a planned model in process: its answers to the probes, under every cause.

All probes but a few tokens are beginnings of one text, so that each cause costs one forward over
the longest. Copies of the model on several ranks share the causes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ropewalk.context_plan import ContextPlan
from ropewalk.costs.refusals import check_memory
from ropewalk.data.corpora import Document
from ropewalk.errors import InvalidValue, Unsupported
from ropewalk.evaluation.encoding import Encoder, IntArray
from ropewalk.evaluation.forward_time import announce
from ropewalk.evaluation.haystack import Haystack
from ropewalk.evaluation.identity import run_identity
from ropewalk.evaluation.scoring import Scorer, end_tokens
from ropewalk.evaluation.served import rounding
from ropewalk.evaluation.served.causes import AND, ROUNDED, causes
from ropewalk.evaluation.served.fingerprint import (
    FORMAT,
    KEPT,
    LEAST,
    Answers,
    Fingerprint,
    PossibleCause,
)
from ropewalk.evaluation.served.probes import SHORTEST, SINGLE, TEXTS, Probe, ProbeText, draft
from ropewalk.models.install import applied
from ropewalk.models.load import LoadedModel
from ropewalk.progress import Notice
from ropewalk.torchrun import Ranks
from ropewalk.values import encode


class _Way(NamedTuple):
    """One way of answering: a plan, and how the model is rounded meanwhile."""

    name: str
    words: str
    plan: ContextPlan
    rounded: Callable[[], AbstractContextManager[None]] = nullcontext
    more_bos: int = 0


def fingerprint(
    loaded: LoadedModel,
    plan: ContextPlan | None,
    documents: Sequence[Document],
    seed: int = 0,
    length: int | None = None,
    progress: Callable[[float], None] = lambda done: None,
    notice: Notice = lambda words: None,
    ranks: Ranks | None = None,
) -> Fingerprint:
    """The answers of a model under a plan, or unmodified, and under all that may go wrong.

    `length` is the longest probe, where that is not the plan's target. Of several `ranks`, all
    return the same.
    """
    present = loaded.present_plan
    planned = plan or present
    longest = planned.target_length
    if length is not None and length > longest:
        raise InvalidValue(
            "length", length, f"the plan ends at {longest:,} tokens", "give at most its target"
        )
    longest = length or longest
    ranks = ranks or Ranks()
    key, parts = "plan" if length is None else "length", ranks.per_copy
    check_memory(loaded.model, longest, key, in_chunks=True, ranks=parts)
    rounding.check_blocks(loaded.model, parts)
    encoder = Encoder(loaded.tokenizer, loaded.vocabulary, end_tokens(loaded.model))
    drafted = draft(encoder, Haystack(documents), present.original_length, longest, seed)
    asking = _Asking(loaded, encoder)
    ways = _ways(loaded.model, planned, present, encoder)
    if ranks.size == 1:  # each rank would time its own
        _announce(loaded, present.target_length, longest, len(ways) + 1, notice)
    else:
        of_run = {"plan": planned.id, "seed": seed, "length": longest}
        ranks.check_same({**run_identity(loaded, documents), **of_run})
    for step in planned.steps(planned.extended_layer):
        with applied(loaded.model, planned, length=min(step.up_to_length, longest)):
            pass  # a plan that has no effect, here or on one rank, is refused
        if step.up_to_length >= longest:
            break
    probes = asking.chosen(drafted, planned)
    # Among tokens that are as likely, another rank might choose others.
    probes = list(map(Probe.from_json, ranks.broadcast(encode(probes))))
    # Copies of the model share the ways of answering.
    for i in range(ranks.copy, len(ways), ranks.copies):
        answered = asking.answers(ways[i], drafted.tokens, probes)
        ranks.send(f"answers/{i}", answered.to_json())
        progress((i + 1) / len(ways))
    answers = [Answers.from_json(ranks.received(f"answers/{i}")) for i in range(len(ways))]
    ranks.broadcast(None)  # all have read: rank 0 may hold the store, so it leaves last
    as_planned, healthy, others = answers[0], answers[1:3], answers[3:]
    return Fingerprint(
        format=FORMAT,
        model=loaded.name,
        plan_id=planned.id,
        method=planned.methods,
        original_length=planned.original_length,
        target_length=planned.target_length,
        tokenizer_sha256=encoder.sha256,
        vocabulary=loaded.vocabulary,
        bos=encoder.bos,
        sequence=drafted.tokens,
        probes=tuple(probes),
        answers=as_planned,
        healthy=tuple(healthy),
        candidates=tuple(
            PossibleCause(way.name, way.words, each)
            for way, each in zip(ways[3:], others, strict=True)
        ),
    )


def _announce(
    loaded: LoadedModel, window: int, longest: int, forwards: int, notice: Notice
) -> None:
    halves = [longest >> i for i in range(1, longest.bit_length()) if longest >> i >= 4 * SHORTEST]
    announce(
        loaded.model,
        window,
        [(longest, forwards)],
        notice,
        begun=None,
        what="this fingerprint",
        smaller=[(f"`length` {half}", [(half, forwards)]) for half in halves],
        otherwise="a faster machine may make it, for a server anywhere",
    )


def _ways(model: Any, planned: ContextPlan, present: ContextPlan, encoder: Encoder) -> list[_Way]:
    """The plan itself, as healthy servers round it, and as it may go wrong."""
    rotated = causes(planned, present)
    weights = partial(rounding.rounded_weights, model)
    cache = partial(rounding.rounded_cache, model)
    # Roundings that change answers. The cache is rounded in sdpa, which gets keys and values whole.
    words = "with its weights rounded to 4 bits"
    coarse = [_Way("weights", words, planned, partial(weights, rounding.four_bits))]
    if model.config.get_text_config()._attn_implementation == "sdpa":
        kinds = {
            "4 bits": rounding.four_bits,
            "5 bits": rounding.five_bits,
            "float8": rounding.float8,
        }
        for kind, rounded in kinds.items():
            way = _Way("cache", f"with a cache of {kind}", planned, partial(cache, rounded))
            coarse.append(way)
    # A wrong rotation and a coarse rounding together, for rotations whose effect is that small.
    pairs = [
        _Way(f"{one.name}{AND}{two.name}", f"{one.words}{AND}{two.words}", one.plan, two.rounded)
        for one in rotated
        if one.words in ROUNDED
        for two in coarse[:2]
    ]
    bos = [_Way("bos", "with one BOS more", planned, more_bos=1)] if encoder.bos else []
    # Roundings of healthy servers: their distance is what a server may deviate by.
    healthy = (
        partial(weights, rounding.eight_bits, rounding.eight_bits),
        partial(weights, rounding.bfloat16, outputs=rounding.bfloat16),
    )
    return [
        *(_Way("", "", planned, rounded) for rounded in (nullcontext, *healthy)),
        *(_Way(*cause) for cause in rotated),
        *coarse,
        *pairs,
        *bos,
    ]


def _by_step(plan: ContextPlan, lengths: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
    """The lengths that share a schedule, by their places, and the longest that the plan serves."""
    left, longest = dict(enumerate(lengths)), plan.target_length
    for step in plan.steps(plan.extended_layer):
        upto = step.up_to_length
        group = [i for i, length in left.items() if length <= upto or upto == longest]
        left = {i: length for i, length in left.items() if i not in group}
        if group:
            yield min(max(lengths[i] for i in group), longest), group


def _likeliest(row: NDArray[np.float64]) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """The tokens that are kept of a distribution, and how likely they are."""
    least = np.partition(row, -KEPT)[-KEPT] if len(row) > KEPT else -np.inf
    some = np.flatnonzero(row >= least)  # a vocabulary of 262,144 is slow to sort
    top = some[np.argsort(-row[some], kind="stable")[:KEPT]]
    return tuple(top.tolist()), tuple(np.round(np.maximum(row[top], LEAST), 6).tolist())


class _Asking:
    """A model that answers probes."""

    def __init__(self, loaded: LoadedModel, encoder: Encoder) -> None:
        self._loaded, self._encoder = loaded, encoder
        self._scorer = Scorer(loaded.model, in_chunks=True)

    def chosen(self, drafted: ProbeText, planned: ContextPlan) -> list[Probe]:
        """The drafted probes that the planned model answers with whole characters."""
        # Single tokens, then short texts, then ends of the long text.
        probes: list[Probe] = []
        with self._under(planned, 1):
            for token in drafted.single:
                if len(probes) < SINGLE and self._is_text(self._row((token,))):
                    probes.append(Probe("token", 1, (token,)))
        count = len(probes)
        for text, tokens in drafted.texts:
            if len(probes) < count + TEXTS and len(tokens) <= len(drafted.tokens):
                with self._under(planned, len(tokens)):
                    suits = self._is_text(self._row(tokens))
                if suits:
                    probes.append(Probe("text", len(tokens), tokens, text))
        # All ends are read at once; each probe takes the first of its ends that suits.
        ends = sorted({end for choice in drafted.ends for end in choice})
        hidden = self._along(planned, drafted.tokens, ends)
        rows = zip(ends, self._scorer.distributions(hidden, ends[-1]), strict=True)
        textual = {end for end, row in rows if self._is_text(row)}
        taken = set()
        for choice in drafted.ends:
            end = next((e for e in choice if e not in taken and e in textual), None)
            if end is not None:
                taken.add(end)
                probes.append(Probe("context", end))
        if len(taken) < len(drafted.ends) // 2:
            raise Unsupported(
                f"{self._loaded.name} continues most probes with the end of the text or with parts "
                "of characters; give another text (`corpus`)"
            )
        return probes

    def answers(self, way: _Way, sequence: tuple[int, ...], probes: Sequence[Probe]) -> Answers:
        bos = self._encoder.bos * way.more_bos
        short = [i for i, probe in enumerate(probes) if probe.kind != "context"]
        context = [i for i, probe in enumerate(probes) if probe.kind == "context"]
        context.sort(key=lambda i: probes[i].length)
        with way.rounded():
            ends = [probes[i].length + len(bos) for i in context]
            prompts = [np.array((*bos, *probes[i].tokens), dtype=np.int64) for i in short]
            along = self._along(way.plan, (*bos, *sequence), ends)
            hidden = torch.stack([*self._short(way.plan, prompts), *along])
            # All at once: a head that is rounded is rounded anew for each call.
            rows = map(_likeliest, self._scorer.distributions(hidden, ends[-1]))
            kept = dict(zip((*short, *context), rows, strict=True))
        return Answers(*zip(*(kept[i] for i in range(len(probes))), strict=True))

    def _short(self, plan: ContextPlan, prompts: Sequence[IntArray]) -> list[Tensor]:
        """Hidden states after short prompts, each under the schedule of its own length."""
        states = dict[int, Tensor]()
        for length, batch in _by_step(plan, list(map(len, prompts))):
            with self._under(plan, length):
                states |= zip(batch, self._scorer.last([prompts[i] for i in batch]), strict=True)
        return [states[i] for i in range(len(prompts))]

    def _along(self, plan: ContextPlan, sequence: tuple[int, ...], ends: Sequence[int]) -> Tensor:
        """Hidden states after beginnings of a sequence, each under that of its own length."""
        tokens, states = np.array(sequence, dtype=np.int64), []
        for length, batch in _by_step(plan, ends):
            with self._under(plan, length):
                states.append(self._scorer.after(tokens, [ends[i] for i in batch]))
        return torch.cat(states)

    def _row(self, tokens: tuple[int, ...]) -> NDArray[np.float64]:
        (row,) = self._scorer.log_probabilities(np.array(tokens, dtype=np.int64), [len(tokens)])
        return row

    def _is_text(self, row: NDArray[np.float64]) -> bool:
        """True if the likeliest token ends nothing and holds whole characters."""
        token = int(row.argmax())
        text = self._encoder.text(np.array([token]))
        return bool(text) and "\ufffd" not in text and not self._encoder.is_end(token)

    def _under(self, plan: ContextPlan, length: int) -> AbstractContextManager[None]:
        return applied(self._loaded.model, plan, length=max(1, length), check=False)
