"""The results of a precision run: estimates with intervals, and a diagnosis in words. No torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeVar, get_type_hints

import numpy as np

from ropewalk.evaluation.statistics import FEWEST, Interval, t_interval, wilson
from ropewalk.lengths import format_length
from ropewalk.values import Value, decode, encode

Mode = Literal["forward", "frozen"]
"""True if each shift is a full forward, or each layer sees the hidden states of no shift."""
T = TypeVar("T", bound=tuple[Any, ...])
Record = Mapping[str, Any]
TOGETHER = "all together"
GIVEN = "given"
"""The model's own weights."""
# An exponent of length below this moves a difference by less than 1.25 over a tenfold length.
FLAT = 0.1


def _as_list(kind: type[T]) -> type[T]:
    """Make a NamedTuple a list in JSON: a run has thousands of them."""
    hint: Any = tuple.__class_getitem__(tuple(get_type_hints(kind).values()))
    named: Any = kind
    named.to_json = lambda self: [encode(item) for item in self]
    named.from_json = lambda value, path: kind(*decode(hint, value, path))
    return kind


@_as_list
class Estimate(NamedTuple):
    """A mean over sequences with its 95% interval; None for fewer than five sequences."""

    mean: float
    low: float | None
    high: float | None

    def __str__(self) -> str:
        return self.shown(_short)

    def shown(self, number: Callable[[float], str]) -> str:
        if self.low is None or self.high is None:
            return number(self.mean)
        return f"{number(self.mean)} ({number(self.low)} to {number(self.high)})"


@_as_list
class Rank(NamedTuple):
    """The first token's place among all tokens by their part of D: 1 has the largest."""

    overall: int
    """The rank by the mean parts over all sequences."""
    highest: int
    """The rank in the sequence where it is nearest to 1."""
    lowest: int
    """The rank in the sequence where it is farthest from 1."""
    tokens: int


@_as_list
class ShiftEstimate(NamedTuple):
    first: int
    second: int
    value: Estimate


@_as_list
class LengthEstimate(NamedTuple):
    length: int
    value: Estimate


@dataclass(frozen=True)
class StepError:
    """The error of one step of an arm alone, against float64 angles."""

    arm: str
    step: str
    shift: int
    logit_error: float
    """Root mean square over all logits, with the model's own scaling."""
    pair_errors: tuple[float, ...]
    """[pair] root mean square of a rotated pair's displacement over its length."""


ByHead = tuple[tuple[Estimate, ...], ...]


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
    first_token_ratio: Estimate | None
    """Its part of D over the median token's: the geometric mean over sequences. None if half of
    the tokens have none."""
    first_token_share: Estimate
    """The first token's share of D. Every row of attention sums to one, so what one column gains
    the others lose: no token's share exceeds one half, whatever the model."""
    first_token_flow: Estimate
    """The share of all moving probability that moves to or from the first token: 0 to 1. Rows count
    alike here; D weights late columns, which few rows see, more than the first."""
    attention_by_length: tuple[LengthEstimate, ...]
    logit_by_length: tuple[LengthEstimate, ...]
    growth: Estimate | None
    """The exponent of first-token D_logit in length."""
    loss: Estimate | None
    """The loss at the reference shift."""
    loss_change: Estimate | None
    """Mean absolute change of a sequence's loss over all shifts."""

    @property
    def strays(self) -> Estimate:
        """D between 0 and the reference shift."""
        return next(p.value for p in self.curve if p.first == 0)


@_as_list
class Retrieval(NamedTuple):
    """Right answers under one arm with all positions shifted."""

    arm: str
    shift: int
    right: int
    total: int
    changed: int
    """Answers that turned right or wrong against the first arm at no shift."""

    @property
    def interval(self) -> Interval:
        return wilson(self.right, self.total)


@dataclass(frozen=True)
class Gain:
    """A trap of one way of loading the model, its remedy, and the measured gain."""

    path: str
    trap: str
    remedy: str
    table_error: float
    logit_error_before: float
    logit_error_after: float
    loss_before: float
    loss_after: float


@dataclass(frozen=True, eq=False)
class Findings(Value):
    """All that was measured of one model."""

    model: str
    length: int
    reference: int
    sequences: int
    mode: Mode
    device: str
    arms: tuple[ArmResult, ...]
    budget: tuple[StepError, ...] = ()
    traps: tuple[Gain, ...] = ()
    retrieval: tuple[Retrieval, ...] = ()
    notes: tuple[str, ...] = field(
        default=(
            "logits carry the model's own scaling",
            "columns are weighted by 1/(L-j+1), as in Eq. 4",
        )
    )

    def arm(self, name: str, weights: str = GIVEN) -> ArmResult | None:
        found = (a for a in self.arms if (a.arm, a.weights) == (name, weights))
        return next(found, None)

    @property
    def diagnosis(self) -> list[str]:
        """The findings that a practitioner needs, one sentence per line, each with its number."""
        parts = (_straying, _first_token, _growing, _trained, _costliest, _broken, _advice)
        return [line for part in parts for line in part(self)]

    def derived(self) -> dict[str, object]:
        return {"diagnosis": self.diagnosis}


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
    with_loss = [r for r in curve if r["losses"] is not None]
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
        attention_by_length=_by_length(base, "attention"),
        logit_by_length=_by_length(base, "logit"),
        growth=_growth(base),
        loss=estimate(r["losses"][1] for r in with_loss if r["first"] == 0) if with_loss else None,
        loss_change=_mean_by_sequence(with_loss, lambda r: abs(r["losses"][0] - r["losses"][1])),
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


def _over_median(sequences: Sequence[Sequence[float]]) -> Estimate | None:
    pairs = [(parts[0], float(np.median(parts))) for parts in sequences]
    if not all(first > 0 and median > 0 for first, median in pairs):
        return None
    return geometric(first / median for first, median in pairs)


def estimate(values: Iterable[float]) -> Estimate:
    """The mean of independent values, with Student's interval."""
    known = list(values)
    return Estimate(float(np.mean(known)), *(t_interval(known) or (None, None)))


def geometric(values: Iterable[float]) -> Estimate:
    """The geometric mean of positive values: mean and interval are those of their logarithms."""
    mean, low, high = estimate(math.log(value) for value in values)
    return Estimate(
        math.exp(mean),
        None if low is None else math.exp(low),
        None if high is None else math.exp(high),
    )


def times(ours: ArmResult, theirs: ArmResult) -> Estimate | None:
    """The ratio of our D to theirs between shift 0 and the reference, sequence by sequence.

    None if some sequence has no D to divide by.
    """
    own, other = ([curve[_at_zero(arm)] for curve in arm.sample_curves] for arm in (ours, theirs))
    if not all(value > 0 for value in (*own, *other)):
        return None
    return geometric(a / b for a, b in zip(own, other, strict=True))


def _at_zero(arm: ArmResult) -> int:
    return next(i for i, point in enumerate(arm.curve) if point.first == 0)


def _by_shift(
    records: Sequence[Record], shifts: Sequence[int], key: str
) -> tuple[ShiftEstimate, ...]:
    points = []
    for shift in shifts:
        own = [r for r in records if r[key] == shift]
        value = estimate(r["attention"][-1] for r in own)
        points.append(ShiftEstimate(own[0]["first"], own[0]["second"], value))
    return tuple(points)


def _by_length(records: Sequence[Record], key: str) -> tuple[LengthEstimate, ...]:
    return tuple(
        LengthEstimate(length, estimate(r[key][i] for r in records))
        for i, length in enumerate(records[0]["lengths"])
    )


def _growth(records: Sequence[Record]) -> Estimate | None:
    """The slope of log D_logit over log length, fitted to each sequence."""
    lengths = records[0]["lengths"]
    if len(lengths) < 3:
        return None
    curves = [r["logit"] for r in records if min(r["logit"]) > 0]
    if not curves:
        return None
    return estimate(float(np.polyfit(np.log(lengths), np.log(curve), 1)[0]) for curve in curves)


def _mean_by_sequence(
    records: Sequence[Record], value: Callable[[Record], float]
) -> Estimate | None:
    by_sequence: dict[int, list[float]] = {}
    for record in records:
        by_sequence.setdefault(record["sequence"], []).append(value(record))
    return estimate(float(np.mean(own)) for own in by_sequence.values()) if by_sequence else None


def _by_head(sequences: Sequence[Sequence[Sequence[float]]]) -> ByHead:
    values = np.asarray(sequences)
    _, layers, heads = values.shape
    return tuple(
        tuple(estimate(values[:, layer, head].tolist()) for head in range(heads))
        for layer in range(layers)
    )


def verdict(found: Findings) -> list[str]:
    """The effect of a shift, and the precision that loading costs, a sentence a line."""
    as_given = [line for line in _advice(found) if "as given" in line]
    elsewhere = [gain.path for gain in found.traps if gain.path != "as given"]
    if elsewhere:
        as_given.append(f"traps elsewhere: {', '.join(elsewhere)}")
    return [*_straying(found), *_broken(found)[:1], *as_given]


def _straying(found: Findings) -> list[str]:
    exact, arm = found.arm("fp32"), _main_arm(found)
    if arm is None:
        return []
    line = (
        f"{arm.arm}: a shift by {found.reference} changes attention by D = {arm.strays} at "
        f"{format_length(found.length)} tokens"
    )
    if exact is not None and (ratio := times(arm, exact)) is not None:
        line += f", {ratio} times fp32"
    return [line]


def _main_arm(found: Findings) -> ArmResult | None:
    """The arm that the sentences about the effect speak of: bf16 as it is commonly run."""
    given = [a for a in found.arms if a.weights == GIVEN]
    for name in ("bf16", "bf16_model"):
        if (arm := found.arm(name)) is not None:
            return arm
    return next((a for a in given if a.arm not in ("fp32", "fp64")), None)


def _first_token(found: Findings) -> list[str]:
    """By rank and ratio: the flow cannot judge, since a token that leads all others by far may
    still have less than half of it."""
    arm = _main_arm(found)
    if arm is None or (ratio := arm.first_token_ratio) is None:
        return []
    rank = arm.first_token_rank
    if ratio.low is None or ratio.high is None:
        word = f"is not judged from fewer than {FEWEST} sequences"
    elif ratio.low > 1:
        largest = "has, on average over sequences, the largest part of D"
        word = largest if rank.overall == 1 else "has more than the median token's part of D"
    elif ratio.high < 1:
        word = "has less than the median token's part of D"
    else:
        word = "cannot be told from the median token by its part of D"
    flow = arm.first_token_flow.shown("{:.2%}".format)
    return [
        f"{arm.arm}: the first token {word}: rank {rank.overall} of {rank.tokens} "
        f"({rank.highest} to {rank.lowest} in single sequences), {ratio} times the median token's "
        f"part; {flow} of the probability that moves, moves to or from it"
    ]


def _growing(found: Findings) -> list[str]:
    arm = _main_arm(found)
    if arm is None or arm.growth is None:
        return []
    _, low, high = arm.growth
    if low is None or high is None:
        word = f"is not judged from fewer than {FEWEST} sequences; it goes"
    elif -FLAT < low <= high < FLAT:
        word = "hardly changes"
    elif low > 0:
        word = "grows"
    elif high < 0:
        word = "falls"
    else:
        word = "neither grows nor falls for certain"
    return [
        f"{arm.arm}: the first token's logit difference {word} with length, "
        f"as length to the power {arm.growth}"
    ]


def _trained(found: Findings) -> list[str]:
    lines = []
    for random in (a for a in found.arms if a.weights != GIVEN):
        given = found.arm(random.arm)
        if given is None or random.arm in ("fp32", "fp64"):
            continue
        if (ratio := times(given, random)) is not None:
            lines.append(
                f"{given.arm}: D with the model's weights is {ratio} times that with "
                f"{random.weights} random weights"
            )
    return lines


def _costliest(found: Findings) -> list[str]:
    """For every arm, the step that costs most at no shift, and at the largest if it differs."""
    lines = []
    for arm in dict.fromkeys(e.arm for e in found.budget):
        alone = [e for e in found.budget if e.arm == arm and e.step != TOGETHER]
        if not alone:
            continue
        near = max((e for e in alone if e.shift == 0), key=lambda e: e.logit_error)
        far = max(alone, key=lambda e: (e.shift, e.logit_error))
        line = f"{arm}: the {near.step} cost most, {_short(near.logit_error)} rms of a logit"
        if far.step != near.step or far.logit_error > 2 * near.logit_error:
            line += f"; after {far.shift} positions, the {far.step}, {_short(far.logit_error)}"
        lines.append(line)
    return lines


def _broken(found: Findings) -> list[str]:
    lines = []
    exact = found.arm("fp32")
    given = [a for a in found.arms if a.weights == GIVEN and a.loss is not None]
    worst = max(given, key=lambda a: a.loss_change.mean if a.loss_change else 0.0, default=None)
    for arm in dict.fromkeys(a for a in (_main_arm(found), worst) if a is not None):
        if arm.loss is None or arm.loss_change is None:
            continue
        line = f"{arm.arm}: a shift changes the next-token loss of {arm.loss.mean:.4f} by "
        line += str(arm.loss_change)
        if exact is not None and exact.loss is not None and arm is not exact:
            line += f"; without a shift it is {arm.loss.mean - exact.loss.mean:+.4f} against fp32"
        lines.append(line)
    changed = [r for r in found.retrieval if r.changed]
    lines += [
        f"{r.arm}, shifted by {r.shift}: {r.changed} of {r.total} answers change, {r.right} right "
        f"({r.interval[0]:.0%} to {r.interval[1]:.0%})"
        for r in changed
    ]
    if found.retrieval and len(changed) < len(found.retrieval):
        r = found.retrieval[0]
        others = "no" if not changed else "no other"
        lines.append(
            f"{others} arm and shift changes an answer of {r.total} ({r.right} right under {r.arm})"
        )
    return lines


def _advice(found: Findings) -> list[str]:
    lines = [
        f"TRAP, {gain.path}: {gain.trap}. Remedy: {gain.remedy}. Measured: logit error "
        f"{_short(gain.logit_error_before)} to {_short(gain.logit_error_after)}, loss "
        f"{gain.loss_before:.4f} to {gain.loss_after:.4f}"
        for gain in found.traps
    ]
    if not any(gain.path == "as given" for gain in found.traps):
        lines.insert(0, "as given: no trap; cos and sin are those of the config")
    exact, arm = found.arm("fp32"), found.arm("bf16")
    if exact is not None and arm is not None:
        lines.append(
            "the cast of q and k to bf16, with all else in float32, leaves D = "
            f"{_short(arm.strays.mean)}; float32 q and k leave {_short(exact.strays.mean)}; "
            "documents that each begin at position 0 meet no shift"
        )
    return lines


def _short(value: float) -> str:
    if value == 0:
        return "0"
    if not math.isfinite(value):
        return "∞"
    return f"{value:.2e}" if abs(value) < 1e-3 or abs(value) >= 1e5 else f"{value:.3g}"
