"""The fingerprint of a planned model, and the verdict on a server's answers by it. No torch.

Answers are compared as probabilities of the tokens that the server names, with all others as one:
the squared distance of two answers is that of the roots of their probabilities (Hellinger's). It is
at most 2 a probe, and adds up over probes. How far healthy servers are off by rounding is part of a
fingerprint, measured on the same model and the same probes; a server deviates where it is `MARGIN`
times as far off. A deviation has a cause where the model under that cause answers as the server.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ropewalk.blocks import Block, Paragraph, Table, cells
from ropewalk.errors import InputError, InvalidValue
from ropewalk.evaluation.served.causes import AND, FORGOTTEN
from ropewalk.evaluation.served.probes import MOST, SHORTEST, Probe
from ropewalk.evaluation.served.server import FEWER, TOP, ServerInfo
from ropewalk.lengths import MAX_LENGTH, MAX_MEASURED_LENGTH
from ropewalk.outputs import UNSIGNED, is_signed, signed
from ropewalk.untrusted import parse_json, read_text
from ropewalk.values import RESTORE, Result, Value

FORMAT: Final = "ropewalk-fingerprint-2"
MAX_BYTES = 64 * 2**20
KEPT = 64
"""The number of an answer's likeliest tokens that are kept."""
LEAST = -1000.0
"""No log-probability is lower: the probability is zero in float64 long before."""
MOST_VOCABULARY = 2**31 - 1
"""Servers keep token ids in 32 bits."""
_MOST_CANDIDATES = 1000
_MOST_SPREAD = 0.1
"""Squared distance a probe, on average, beyond which rounding would excuse every deviation: two
answers that have nothing in common are 2 apart, and a threshold is `MARGIN` times this."""
MARGIN = 4.0
"""The squared distance allowed to a healthy server, as a multiple of that by rounding in process.
Healthy ones are about as far off (`benchmarks.fingerprint`, on models, plans and prompts other than
those that it reports), and a margin is left for servers that round in another order."""
_FLOOR = 1e-6
"""The floor of a probe's squared distance: sums in another order."""
_LESS_LIKELY = 0.7
"""The nats by which a token that is not kept counts as less likely than the last one kept."""
_EXPLAINED = 0.75
"""The share of a deviation that a cause must explain to be named at all."""
_NEAREST = 10.0
"""The thresholds that the nearest cause may leave over: answers that have nothing in common with
the plan's resemble each other."""
_MISSING = 0.25
"""The share of the longer probes that may go without an answer to compare."""
_CERTAIN = -1e-6
"""A log-probability above this is that of a token without alternatives."""
_OTHER = 0.02
"""Squared distance of a short probe beyond which weights or tokens differ, beyond rounding."""

Status = Literal["same", "deviates", "unknown"]


@dataclass(frozen=True, eq=False)
class Answers(Value):
    """The likeliest tokens after each probe, and how likely they are."""

    tokens: tuple[tuple[int, ...], ...]
    log_probabilities: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        counts = [len(row) for row in self.log_probabilities]
        equal = [len(ids) for ids in self.tokens] == counts
        _check(equal, "log_probabilities", counts, "must be one for each token")
        for i, (ids, row) in enumerate(zip(self.tokens, self.log_probabilities, strict=True)):
            key = f"tokens[{i}]"
            _check(1 <= len(ids) <= KEPT, key, len(ids), f"must be from 1 to {KEPT} tokens")
            _check(len(set(ids)) == len(ids), key, ids[:4], "must name no token twice")
            key = f"log_probabilities[{i}]"
            inside = all(LEAST <= value <= 0.001 for value in row)
            _check(inside, key, row[:4], f"must lie between {LEAST:,.0f} and 0")
            total = sum(map(math.exp, row))
            _check(total <= 1.001, key, total, "is the sum of probabilities, and must be at most 1")


@dataclass(frozen=True, eq=False)
class PossibleCause(Value):
    """A possible cause, and the model's answers under it."""

    name: str
    """The kind of cause, of which there may be several candidates."""
    told: str
    """Goes on after "answers like the plan "."""
    answers: Answers


@dataclass(frozen=True, eq=False)
class Fingerprint(Result):
    """A planned model's answers to the probes: right, rounded, and under each cause."""

    rows_in = "probes"

    format: Literal["ropewalk-fingerprint-2"]
    model: str
    plan_id: str
    method: str
    original_length: int
    target_length: int
    tokenizer_sha256: str
    vocabulary: int
    """The number of tokens that the model has embeddings for."""
    bos: tuple[int, ...]
    sequence: tuple[int, ...]
    """The text whose beginnings are the longer probes."""
    probes: tuple[Probe, ...]
    answers: Answers
    healthy: tuple[Answers, ...]
    """The same model as healthy servers round it: weights of 8 bits, and bfloat16."""
    candidates: tuple[PossibleCause, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        for key, value, least, most in (
            ("target_length", self.target_length, 2 * SHORTEST + 1, MAX_MEASURED_LENGTH),
            ("original_length", self.original_length, 1, MAX_LENGTH),
            ("vocabulary", self.vocabulary, 1, MOST_VOCABULARY),
            ("probes", len(self.probes), 1, MOST),
            ("healthy", len(self.healthy), 1, _MOST_CANDIDATES),
            ("candidates", len(self.candidates), 0, _MOST_CANDIDATES),
        ):
            _check(least <= value <= most, key, value, f"must be from {least:,} to {most:,}")
        self._check_probes()
        # A file may come from anywhere: all answers must be about all probes.
        every = [("answers", self.answers)]
        every += [(f"healthy[{i}]", each) for i, each in enumerate(self.healthy)]
        every += [(f"candidates[{i}].answers", c.answers) for i, c in enumerate(self.candidates)]
        for key, answers in every:
            count = len(answers.tokens)
            _check(count == len(self.probes), key, count, "must be one for each probe")
            for i, ids in enumerate(answers.tokens):
                self._check_ids(ids, f"{key}.tokens[{i}]")
        spread = float(_spreads(self).mean())
        _check(
            spread <= _MOST_SPREAD,
            "healthy",
            round(spread, 3),
            "is the mean squared distance of healthy answers, which must be at most "
            f"{_MOST_SPREAD}: otherwise no server would deviate",
        )

    def _check_probes(self) -> None:
        self._check_ids(self.bos, "bos")
        self._check_ids(self.sequence, "sequence")
        seen = set()
        for i, probe in enumerate(self.probes):
            key = f"probes[{i}]"
            self._check_ids(probe.tokens, f"{key}.tokens")
            longest = self.target_length - 1
            if probe.kind == "context":
                longest = min(longest, len(self.sequence))
            _check(
                probe.length <= longest, f"{key}.length", probe.length, f"must be at most {longest}"
            )
            prompt = probe.text or self.prompt(probe)
            _check(prompt not in seen, key, probe.length, "must not repeat an earlier probe")
            seen.add(prompt)
        kinds = [probe.kind for probe in self.probes]
        _check("context" in kinds, "probes", kinds, "must hold a beginning of the text")

    def _check_ids(self, ids: tuple[int, ...], key: str) -> None:
        wrong = next((token for token in ids if not 0 <= token < self.vocabulary), None)
        _check(wrong is None, key, wrong, f"must be from 0 to {self.vocabulary - 1}")

    def summary(self) -> str:
        longest = max(probe.length for probe in self.probes)
        return (
            f"{self.model} under {self.method}: {len(self.probes)} probes of up to {longest:,} "
            f"tokens, with reference answers for {len(self.candidates)} known faults."
        )

    def prompt(self, probe: Probe) -> tuple[int, ...]:
        """The tokens of a probe."""
        return self.sequence[: probe.length] if probe.kind == "context" else probe.tokens

    def dumps(self) -> str:
        """The fingerprint as a file, with a checksum of its own content."""
        value = {**self.to_json(), "checksum": UNSIGNED}
        return signed((json.dumps(value, separators=(",", ":")) + "\n").encode()).decode()

    @classmethod
    def read(cls, path: str | Path) -> Fingerprint:
        """The fingerprint in a file, unless somebody changed the file since it was made."""
        text = read_text(path, max_bytes=MAX_BYTES)
        value = parse_json(text, source=str(path))
        if not isinstance(value, dict) or not isinstance(value.pop("checksum", None), str):
            raise InputError(
                f"{path}: has no checksum of its own, so it is not a fingerprint that ropewalk "
                "made; make it with `ropewalk fingerprint MODEL -o FILE`"
            )
        if not is_signed(text.encode()):
            raise InputError(
                f"{path}: its content does not match the checksum in it, so it has been changed or "
                "damaged since it was made; restore the file, or create it again"
            )
        return cls.from_json(value, f"{path}: ")


def _check(holds: bool, key: str, value: object, rule: str) -> None:
    if not holds:
        raise InvalidValue(key, value, rule, RESTORE)


class Observed(NamedTuple):
    """A server's answer to a probe."""

    read: int | None
    """The tokens that it read; None if it refused the probe."""
    top: tuple[tuple[int, float], ...] | None
    refused: str = ""


@dataclass(frozen=True, eq=False)
class Cause(Value):
    """The cause of a server's deviation, as far as it is known."""

    name: str
    told: str
    """Goes on after the server: "stops at 1,024 tokens"."""
    certain: bool = True
    """The answers are those of this cause; else it is the nearest of those known."""


@dataclass(frozen=True, eq=False)
class ProbeResult(Value):
    """One probe, compared with the plan."""

    kind: str
    length: int
    read: int | None
    distance: float | None
    """The squared distance from the plan; None if there is no answer to compare."""
    spread: float
    """The largest of the healthy answers in process."""


@dataclass(frozen=True, eq=False)
class Verdict(Result):
    """The verdict on a server: whether it answers as the planned model, and if not, why."""

    rows_in = "probes"

    server: ServerInfo
    model: str
    plan_id: str
    method: str
    target_length: int
    """The longest sequence of the plan, which may be more than any probe has."""
    status: Status
    causes: tuple[Cause, ...]
    distance: float
    """The sum over all probes that could be compared."""
    threshold: float
    """Above it, a server deviates."""
    probes: tuple[ProbeResult, ...]

    def summary(self) -> str:
        model = f"{self.model} under {self.method}"
        if self.status == "unknown":
            return f"{self.server}: {'; '.join(c.told for c in self.causes)}."
        if self.status == "same":
            compared = [p for p in self.probes if p.distance is not None]
            longest = max((p.length for p in compared), default=0)
            text = f"answers like {model} in {len(compared)} probes up to {longest:,} tokens"
            if longest + 1 < self.target_length:  # the longest possible leaves one to answer
                text += (
                    f"; beyond these nothing was compared, and the plan serves "
                    f"{self.target_length:,}: make a fingerprint of that length"
                )
            return f"{self.server}: {text}."
        causes = "; ".join(c.told for c in self.causes)
        return f"{self.server}: does not answer like {model}: it {causes}."

    def blocks(self) -> Iterator[Block]:
        rows = []
        for probe in self.probes:
            read = "refused" if probe.read is None else f"{probe.read:,}"
            distance = "–" if probe.distance is None else f"{probe.distance:.2g}"
            spread = f"{probe.spread:.2g}"
            rows.append(cells(probe.kind, f"{probe.length:,}", read, distance, spread))
        yield Table(
            "",
            ("probe", "tokens", "read", "distance", "by rounding"),
            tuple(rows),
            f"total distance {self.distance:.3g} (threshold {self.threshold:.3g})",
        )
        yield Paragraph(self.summary(), "verdict")


class _Compared(NamedTuple):
    """The distances of a server from the plan, if there are answers."""

    indices: NDArray[np.int64]
    """Into the probes."""
    distances: NDArray[np.float64]
    spread: NDArray[np.float64]
    others: list[NDArray[np.float64]]
    """By candidate."""

    def part(self, chosen: NDArray[np.bool_]) -> _Compared:
        others = [each[chosen] for each in self.others]
        return _Compared(self.indices[chosen], self.distances[chosen], self.spread[chosen], others)

    @property
    def distance(self) -> float:
        return float(self.distances.sum())

    @property
    def threshold(self) -> float:
        return MARGIN * float(self.spread.sum()) + _FLOOR * len(self.distances)

    @property
    def deviates(self) -> bool:
        return self.distance > self.threshold


def judged(fingerprint: Fingerprint, observed: Sequence[Observed], info: ServerInfo) -> Verdict:
    """The verdict on a server's answers to the probes of a fingerprint."""
    kinds = np.array([probe.kind for probe in fingerprint.probes])
    # Where every likeliest token is certain, the numbers are of what was sampled.
    if all(max(value for _, value in seen.top) > _CERTAIN for seen in observed if seen.top):
        observed = [seen._replace(top=None) for seen in observed]
    compared = _compared(fingerprint, observed)
    tokens = compared.part(kinds[compared.indices] != "text")
    causes = [*_counts(fingerprint, observed), *_refusals(fingerprint, observed, info)]
    if tokens.deviates:
        causes.append(_cause(fingerprint, tokens))
    texts = compared.part(kinds[compared.indices] == "text")
    # Few and short: only other tokens move them far.
    if not causes and texts.distance > max(texts.threshold, _OTHER * len(texts.distances)):
        causes.append(
            Cause("tokenizer", "reads text as other tokens, as many as the plan's tokenizer makes")
        )
    status: Status = "deviates" if causes else "same"
    # Single tokens alone show no rotation, and a model that ends its text gives no alternatives.
    every = int((kinds == "context").sum())
    several = [i for i in compared.indices if len(observed[i].top or ()) >= FEWER]
    missing = every - int((kinds[several] == "context").sum())
    if not causes and missing > _MISSING * every:
        status = "unknown"
        words = (
            f"gives no log-probabilities of {FEWER} tokens after {missing} of {every} beginnings "
            "of the text, so it cannot be compared"
        )
        causes = [Cause("nothing to compare", words, certain=False)]
    distances = dict(zip(compared.indices.tolist(), compared.distances.tolist(), strict=True))
    spreads = _spreads(fingerprint)
    return Verdict(
        server=info,
        model=fingerprint.model,
        plan_id=fingerprint.plan_id,
        method=fingerprint.method,
        target_length=fingerprint.target_length,
        status=status,
        causes=tuple(causes),
        distance=tokens.distance,
        threshold=tokens.threshold,
        probes=tuple(
            ProbeResult(probe.kind, probe.length, seen.read, distances.get(i), float(spreads[i]))
            for i, (probe, seen) in enumerate(zip(fingerprint.probes, observed, strict=True))
        ),
    )


def _refusals(
    fingerprint: Fingerprint, observed: Sequence[Observed], info: ServerInfo
) -> list[Cause]:
    both = list(zip(fingerprint.probes, observed, strict=True))
    more = max(
        (seen.read - probe.length for probe, seen in both if seen.read is not None), default=0
    )
    room = info.length if more > 0 and info.length is not None else 0
    # What a prompt is lengthened by may itself be what is too much.
    refused = [p.length for p, s in both if s.refused and not 0 < room <= p.length + more]
    answered = [probe.length for probe, seen in both if not seen.refused]
    if not refused:
        return []
    longest = max((n for n in answered if n < min(refused)), default=0)
    if info.length is not None and longest <= info.length <= min(refused):
        words = f"stops at {info.length:,} tokens"
    else:
        words = f"refuses prompts of {min(refused):,} tokens and takes {longest:,}"
    said = next(seen.refused for _, seen in both if seen.refused)
    return [Cause("context", f"{words} ({said})" if said else words)]


def _counts(fingerprint: Fingerprint, observed: Sequence[Observed]) -> list[Cause]:
    """The causes that token counts reveal: a prompt cut, or more than was sent."""
    both = list(zip(fingerprint.probes, observed, strict=True))
    causes = []
    sent = [(p.length, s.read) for p, s in both if p.kind != "text" and s.read is not None]
    cut = [read for length, read in sent if read < length]
    if cut:
        causes.append(Cause("truncation", f"cuts prompts to {max(cut):,} tokens"))
    elif more := {read - length for length, read in sent} - {0}:
        causes.append(_added(more, "prompts of tokens"))
    text = [s.read - p.length for p, s in both if p.kind == "text" and s.read is not None]
    if any(text) and not causes:
        if set(text) == {-1} and fingerprint.bos:
            causes.append(Cause("bos", "puts no BOS before text"))
        else:
            causes.append(_added(set(text), "text"))
    return causes


def _added(more: set[int], what: str) -> Cause:
    if more == {1}:
        return Cause("bos", f"adds a token to {what}, as a BOS that nobody asked for")
    if len(more) == 1 and min(more) > 1:
        return Cause("template", f"adds {min(more)} tokens to {what}, as a template does")
    return Cause("tokenizer", f"has another tokenizer: it counts other tokens in {what}")


def _cause(fingerprint: Fingerprint, seen: _Compared) -> Cause:
    """The cause whose answers the server's are, or the nearest.

    A pair of causes is named only if it leaves less than half of what any single cause leaves.
    """
    # The squared distance that each candidate leaves. A pair of causes has more freedom to fit, so
    # it ranks as if it left twice as much.
    left = [float(each.sum()) for each in seen.others]
    pairs = [AND in each.name for each in fingerprint.candidates]
    ranked = [2 * x + _FLOOR if pair else x for x, pair in zip(left, pairs, strict=True)]
    order = np.argsort(ranked, kind="stable")
    explained = 0.0
    if len(order):
        best, least = fingerprint.candidates[order[0]], left[order[0]]
        explained = 1 - least / seen.distance
        # Within rounding of one candidate: it is the cause, with all that lie as near.
        if least <= seen.threshold and explained >= _EXPLAINED:
            likely = [f"answers like the plan {best.told}"]
            names = {best.name}
            for i in order[1:]:
                other = fingerprint.candidates[i]
                near = left[i] <= min(seen.threshold, 4 * least + _FLOOR * len(seen.distances))
                if near and pairs[i] <= pairs[order[0]] and other.name not in names:
                    names.add(other.name)
                    likely.append(other.told)
            return Cause(best.name, ", or ".join(likely), certain=len(likely) == 1)
    # No rotation reaches a single token at position 0, so a deviation there is one of weights.
    single = np.array([fingerprint.probes[i].kind == "token" for i in seen.indices], dtype=bool)
    alone = seen.part(single)
    if len(alone.distances) and alone.deviates:
        if alone.distance / len(alone.distances) > _OTHER:
            words = "has other weights: single tokens, which no rotation reaches, answer otherwise"
            return Cause("weights", words)
        words = (
            "answers single tokens, which no rotation reaches, slightly otherwise: its weights or "
            "its cache are rounded to fewer than 8 bits, or its weights are slightly others"
        )
        return Cause("weights", words, certain=False)
    # Else the weights are right. The nearest candidate is named if it explains most.
    where = _begins(fingerprint, seen.part(~single))
    if explained >= _EXPLAINED and least <= _NEAREST * seen.threshold:
        words = f"deviates{where}; the nearest known cause, the plan {best.told}, explains "
        return Cause(best.name, f"{words}{explained:.0%} of the deviation", certain=False)
    words = f"deviates{where}, of unknown cause"
    if any(each.name == FORGOTTEN for each in fingerprint.candidates):
        words += (
            "; this fingerprint is of the unmodified model: if the server follows a plan, make it "
            "with that (`plan`)"
        )
    return Cause("unknown", words, certain=False)


def _begins(fingerprint: Fingerprint, seen: _Compared) -> str:
    """The length from which on a server deviates, if not from the shortest on."""
    mean = seen.spread.mean() if len(seen.spread) else 0
    allowed = MARGIN * np.maximum(seen.spread, mean) + _FLOOR
    off = seen.distances > allowed
    if not off.any() or off[0]:
        return ""
    first = int(np.argmax(off))
    before, at = (fingerprint.probes[seen.indices[i]].length for i in (first - 1, first))
    return f" between {before:,} and {at:,} tokens"


def _compared(fingerprint: Fingerprint, observed: Sequence[Observed]) -> _Compared:
    index, distances, others = [], [], []
    for i, (probe, seen) in enumerate(zip(fingerprint.probes, observed, strict=True)):
        if seen.top is None or seen.read != probe.length:
            continue
        index.append(i)
        distances.append(distance(seen.top, fingerprint.answers, i))
        others.append([distance(seen.top, c.answers, i) for c in fingerprint.candidates])
    # Over as many tokens as the server names: over fewer, healthy answers are nearer, too.
    named = [TOP if seen.top is None else len(seen.top) for seen in observed]
    spreads = _spreads(fingerprint, named)[index] if index else np.zeros(0)
    columns = np.array(others).reshape(len(index), len(fingerprint.candidates)).T
    return _Compared(np.array(index, dtype=np.int64), np.array(distances), spreads, list(columns))


def _spreads(fingerprint: Fingerprint, named: Sequence[int] = ()) -> NDArray[np.float64]:
    """By probe, the distance of the healthy answers that are off farthest on the whole, over so
    many `named` tokens."""
    counts = named or [TOP] * len(fingerprint.probes)
    each = [
        np.array([distance(_top(h, i)[:n], fingerprint.answers, i) for i, n in enumerate(counts)])
        for h in fingerprint.healthy
    ]
    return max(each, key=lambda distances: float(distances.sum()))


def _top(answers: Answers, i: int) -> list[tuple[int, float]]:
    """As many of the likeliest as a server names."""
    return list(zip(answers.tokens[i][:TOP], answers.log_probabilities[i][:TOP], strict=True))


def distance(top: Sequence[tuple[int, float]], answers: Answers, i: int) -> float:
    """The squared distance of an answer from the i-th of a model, over the tokens it names."""
    expected = dict(zip(answers.tokens[i], answers.log_probabilities[i], strict=True))
    least = min(expected.values()) - _LESS_LIKELY
    observed = _roots([value for _, value in top])
    roots = _roots([expected.get(token, least) for token, _ in top])
    return float(((observed - roots) ** 2).sum())


def _roots(log_probabilities: Sequence[float]) -> NDArray[np.float64]:
    """The roots of probabilities, and of that of all other tokens."""
    each = np.exp(np.minimum(log_probabilities, 0))
    roots: NDArray[np.float64] = np.sqrt(np.append(each, max(0.0, 1.0 - float(each.sum()))))
    return roots
