"""What the study keeps beyond `ropewalk precision`: tokens, heads, sequences and random weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ropewalk.evaluation.statistics import FEWEST
from ropewalk.number_formats.results import (
    LengthEstimate,
    Record,
    SequenceMean,
    ShiftEstimate,
    as_list,
    by_length,
    estimate,
    geometric,
    growth,
    times,
)
from ropewalk.values import Value

GIVEN = "given"
"""The model's own weights."""


@as_list
class Rank(NamedTuple):
    """The first token's place among all tokens by their part of D: 1 has the largest."""

    overall: int
    """The rank by the mean parts over all sequences."""
    highest: int
    """The rank in the sequence where it is nearest to 1."""
    lowest: int
    """The rank in the sequence where it is farthest from 1."""
    tokens: int


ByHead = tuple[tuple[SequenceMean, ...], ...]


@dataclass(frozen=True)
class LayersAndHeads:
    """One value for every [layer][head], at the longest length."""

    attention: ByHead
    """D."""
    first_token: ByHead
    """The first token's part of D."""
    logit: ByHead
    """D_logit."""


@dataclass(frozen=True)
class ArmResult:
    """One arm on one set of weights."""

    weights: str
    arm: str
    curve: tuple[ShiftEstimate, ...]
    """D of Eq. 4 by Δ₁ against the reference shift."""
    anchored: tuple[ShiftEstimate, ...]
    """D by Δ₂ against Δ₁ = 0; empty if not asked for."""
    sample_curves: tuple[tuple[float, ...], ...]
    """The curve of every sequence."""
    by_layer_and_head: LayersAndHeads
    """The parts of all that follows, between 0 and the reference shift."""
    tokens: tuple[float, ...]
    """The parts of D by the token attended to, between 0 and the reference shift."""
    first_token_rank: Rank
    first_token_ratio: SequenceMean | None
    """Its part of D over the median token's: the geometric mean over sequences. None if half of
    the tokens have none."""
    first_token_share: SequenceMean
    """The first token's share of D. Every row of attention sums to one, so what one column gains
    the others lose: no token's share exceeds one half, whatever the model."""
    first_token_flow: SequenceMean
    """The share of all moving probability that moves to or from the first token: 0 to 1. Rows count
    alike here; D weights late columns, which few rows see, more than the first."""
    attention_by_length: tuple[LengthEstimate, ...]
    logit_by_length: tuple[LengthEstimate, ...]
    growth: SequenceMean | None
    """The exponent of first-token D_logit in length."""
    loss: SequenceMean
    """The loss at the reference shift."""
    loss_change: SequenceMean
    """Mean absolute change of a sequence's loss over all shifts."""

    @property
    def strays(self) -> SequenceMean:
        """D between 0 and the reference shift."""
        return next(p.value for p in self.curve if p.first == 0)


@dataclass(frozen=True, eq=False)
class Findings(Value):
    """All that was measured of one model."""

    model: str
    length: int
    reference: int
    sequences: int
    arms: tuple[ArmResult, ...]

    def arm(self, name: str, weights: str = GIVEN) -> ArmResult | None:
        found = (a for a in self.arms if (a.arm, a.weights) == (name, weights))
        return next(found, None)


def summarise(records: Sequence[Record], reference: int) -> tuple[ArmResult, ...]:
    """Shift records to one result an arm and set of weights, in the order they came."""
    grouped: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        grouped.setdefault((record["weights"], record["arm"]), []).append(record)
    return tuple(_arm_result(*key, own, reference) for key, own in grouped.items())


def _arm_result(weights: str, arm: str, records: Sequence[Record], reference: int) -> ArmResult:
    curve = [r for r in records if r["group"] == reference]
    anchored = [r for r in records if r["group"] != reference]
    base = [r for r in curve if r["first"] == 0]
    anchored += base if anchored else []  # Δ₁ = 0 against the reference belongs to both curves
    firsts = list(dict.fromkeys(r["first"] for r in curve))
    by_sequence = {(r["sequence"], r["first"]): r["attention"][-1] for r in curve}
    tokens = np.mean([r["tokens"] for r in base], axis=0)
    return ArmResult(
        weights=weights,
        arm=arm,
        curve=_by_shift(curve, firsts, "first"),
        anchored=_by_shift(anchored, sorted({r["second"] for r in anchored}), "second"),
        sample_curves=tuple(
            tuple(by_sequence[sequence, first] for first in firsts)
            for sequence in dict.fromkeys(r["sequence"] for r in curve)
        ),
        by_layer_and_head=LayersAndHeads(
            *(
                _by_head([r["by_layer_and_head"][key] for r in base])
                for key in LayersAndHeads.__dataclass_fields__
            )
        ),
        tokens=tuple(tokens.tolist()),
        first_token_rank=_rank(tokens.tolist(), [r["tokens"] for r in base]),
        first_token_ratio=_over_median([r["tokens"] for r in base]),
        first_token_share=estimate(
            r["tokens"][0] / sum(r["tokens"]) if any(r["tokens"]) else 0.0 for r in base
        ),
        first_token_flow=estimate(_flow(r["tokens"]) for r in base),
        attention_by_length=by_length(base, "attention"),
        logit_by_length=by_length(base, "logit"),
        growth=growth(base),
        loss=estimate(r["losses"][1] for r in base),
        loss_change=_mean_by_sequence(curve, lambda r: abs(r["losses"][0] - r["losses"][1])),
    )


def _flow(tokens: Sequence[float]) -> float:
    """The flow by the parts of D: unweighted, and against half of what all columns change."""
    changes = np.asarray(tokens) * np.arange(len(tokens), 0, -1)
    return float(2 * changes[0] / changes.sum()) if changes.any() else 0.0


def _rank(mean_parts: Sequence[float], sequences: Sequence[Sequence[float]]) -> Rank:
    def of_first(parts: Sequence[float]) -> int:
        return 1 + sum(part > parts[0] for part in parts)

    ranks = [of_first(parts) for parts in sequences]
    return Rank(of_first(mean_parts), min(ranks), max(ranks), len(mean_parts))


def _over_median(sequences: Sequence[Sequence[float]]) -> SequenceMean | None:
    pairs = [(parts[0], float(np.median(parts))) for parts in sequences]
    if not all(first > 0 and median > 0 for first, median in pairs):
        return None
    return geometric(first / median for first, median in pairs)


def _by_shift(
    records: Sequence[Record], shifts: Sequence[int], key: str
) -> tuple[ShiftEstimate, ...]:
    points = []
    for shift in shifts:
        own = [r for r in records if r[key] == shift]
        value = estimate(r["attention"][-1] for r in own)
        points.append(ShiftEstimate(own[0]["first"], own[0]["second"], value))
    return tuple(points)


def _mean_by_sequence(records: Sequence[Record], value: Callable[[Record], float]) -> SequenceMean:
    by_sequence: dict[int, list[float]] = {}
    for record in records:
        by_sequence.setdefault(record["sequence"], []).append(value(record))
    return estimate(float(np.mean(own)) for own in by_sequence.values())


def _by_head(sequences: Sequence[Sequence[Sequence[float]]]) -> ByHead:
    values = np.asarray(sequences)
    _, layers, heads = values.shape
    return tuple(
        tuple(estimate(values[:, layer, head].tolist()) for head in range(heads))
        for layer in range(layers)
    )


def ratio(ours: ArmResult, theirs: ArmResult) -> SequenceMean | None:
    """The ratio of our D to theirs between shift 0 and the reference, sequence by sequence."""
    own, other = ([curve[_at_zero(arm)] for curve in arm.sample_curves] for arm in (ours, theirs))
    return times(own, other)


def _at_zero(arm: ArmResult) -> int:
    return next(i for i, point in enumerate(arm.curve) if point.first == 0)


def first_token(arm: ArmResult) -> str:
    """The verdict on the first token's part of D, by its rank and ratio."""
    rank, over = arm.first_token_rank, arm.first_token_ratio
    if over is None or over.low is None or over.high is None:
        return f"is not judged from fewer than {FEWEST} sequences"
    if over.low > 1:
        largest = "has, on average over sequences, the largest part of D"
        return largest if rank.overall == 1 else "has more than the median token's part of D"
    if over.high < 1:
        return "has less than the median token's part of D"
    return "cannot be told from the median token by its part of D"
