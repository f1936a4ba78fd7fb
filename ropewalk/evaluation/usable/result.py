"""The result of `howlong`: the usable length with its interval, the curve, and what limits it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from ropewalk.blocks import Block, Cell, Code, Paragraph, Table, Title, cells
from ropewalk.chart import Axis, Chart, Guide, Mark, Series
from ropewalk.evaluation.served.fingerprint import Cause
from ropewalk.evaluation.served.server import ServerInfo
from ropewalk.evaluation.tables import gain
from ropewalk.evaluation.usable.search import Bracket, bounds
from ropewalk.evaluation.verdict import JUDGED_FROM, MARGIN, Look
from ropewalk.interval import Interval
from ropewalk.lengths import format_length
from ropewalk.records import EXACT_MATCH
from ropewalk.values import Charts, Drawn, Value, check_member

Need = Literal["met", "not met", "undecided", "not asked"]
STATUS = {"met": 0, "not asked": 0, "not met": 1, "undecided": 3}


@dataclass(frozen=True, eq=False)
class LengthRead(Value):
    """The documents of one length."""

    length: int
    documents: int
    tokens: int
    """The mean number that was read of a document."""
    rate: Interval
    """The share of facts that were found."""
    difference: Interval | None
    """The rate minus that of the short length, at the confidence of a look; None of that itself."""
    verdict: str


@dataclass(frozen=True, eq=False)
class DegreeTried(Value):
    """Questions of one degree at the short length, on documents that count for nothing else."""

    name: str
    told: str
    rate: Interval


@dataclass(frozen=True, eq=False)
class UsableLength(Drawn):
    """Up to which length a model answers as well as at its own short length."""

    rows_in = "readings"
    never_empty = ("readings", "tried")

    model: str
    runs: str
    """The way it runs."""
    claimed: int
    serves: int | None
    """The length that a server has room for, if that is less."""
    readings: tuple[LengthRead, ...]
    """By length; the first is the short one that others are compared with."""
    tried: tuple[DegreeTried, ...]
    asked: str
    """The degree of the questions that were asked."""
    facts: int
    """The facts in a document."""
    causes: tuple[Cause, ...]
    need: int | None
    tokens: int
    """The tokens of all documents."""
    sweep: int
    """Those of the most documents of every length."""
    server: ServerInfo | None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_member(self.asked, [each.name for each in self.tried], "asked")

    def derived(self) -> dict[str, object]:
        return {"usable": self.usable, "status": self.status}

    @property
    def reference(self) -> LengthRead:
        return self.readings[0]

    @property
    def is_judged(self) -> bool:
        """True if the model finds enough at the short length for a comparison."""
        return self.reference.rate.value >= JUDGED_FROM

    @cached_property
    def bounds(self) -> Bracket:
        rate = self.reference.rate.value
        looks = {
            each.length: Look(each.documents, each.rate.value, rate, each.difference, None)
            for each in self.readings
            if each.difference is not None
        }
        return bounds(self.reference.length, looks)

    @property
    def longest(self) -> int:
        """The longest length that was of interest."""
        return self.need or self.serves or self.claimed

    @property
    def usable(self) -> Interval | None:
        """The usable length, from the longest that works to the shortest that does not."""
        if not self.is_judged:
            return None
        low, value, high = self.bounds
        return Interval.of(value, (low, high or self.longest), "tokens", "documents")

    @property
    def status(self) -> Need:
        """The answer to whether the model reaches the length that is needed."""
        if not self.is_judged:
            return "undecided"
        if self.need is None:
            return "not asked"
        low, _, high = self.bounds
        if low >= self.need:
            return "met"
        return "undecided" if high is None else "not met"

    @property
    def verdict(self) -> str:
        """The usable length in a few words."""
        short, usable = format_length(self.reference.length), self.usable
        if usable is None:
            return (
                f"cannot be judged: at {short} it finds {self.reference.rate} of the facts it is "
                f"asked for, and {JUDGED_FROM:.0%} are needed for a comparison"
            )
        low, value, high = self.bounds
        if low >= self.longest:
            whole = format_length(low)
            whole = f"the {whole} that it claims" if low == self.claimed else whole
            return f"answers as well as at {short} at every length up to {whole}"
        if high is not None and value <= self.reference.length:
            return f"answers worse than at {short} from {format_length(high)} on"
        return f"answers as well as at {short} up to {usable}"

    def summary(self) -> str:
        text = f"{self.model}: claims {format_length(self.claimed)}; {self.verdict}"
        if self.causes:
            _, value, high = self.bounds
            is_said = high is None or value <= self.reference.length
            since = "" if is_said else f"from {format_length(high or 0)} on: "
            text += f"; {since}{'; '.join(cause.told for cause in self.causes)}"
        if self.need is not None:
            text += f". The {format_length(self.need)} needed: {self.status}"
        return f"{text}."

    def blocks(self) -> Iterator[Block]:
        yield Paragraph(self.summary(), "verdict")
        yield Title(self.model, f", {self.runs}")
        yield Table(
            "",
            ("length", "facts found", f"minus that at {self.reference.length:,}", "documents", ""),
            tuple(self._row(each) for each in self.readings),
            f"95% intervals of rates, {self._level:.0%} of differences. A length works if it is at "
            f"most {100 * MARGIN:.0f} points worse than {self.reference.length:,}.",
        )
        yield from self.charts()
        yield Paragraph(f"{self._questions} {self._read}", "quiet")
        yield Code("For a model card; the folder of a kept run has badge.svg", self.card())

    @property
    def figure_title(self) -> str:
        return f"{self.model}: facts found by context length"

    def charts(self) -> Charts:
        one = Series(self.asked, tuple(Mark.of(r.length, r.rate) for r in self.readings), main=True)
        limit = Guide(max(0.0, self.reference.rate.value - MARGIN), "works above")
        x, y = Axis("context length", "log2", "length"), Axis("facts found", shown="percent")
        return [Chart("", x, y, (one,), horizontals=(limit,))]

    def card(self) -> str:
        """Two lines for a model card: the badge, and what it means."""
        return (
            f"![Usable context: {self.badge_text}](badge.svg)\n"
            f"Measured with `ropewalk howlong`: {self.verdict} ({self._degree}, "
            f"{sum(r.documents for r in self.readings):,} documents)."
        )

    @property
    def badge_text(self) -> str:
        claimed = format_length(self.claimed)
        if self.usable is None:
            return f"not judged of {claimed}"
        more = (self.need or self.claimed) < self.claimed and self.status == "met"
        return f"{'at least ' * more}{self.usable.number()} of {claimed}"

    def badge(self) -> str:
        """An SVG that stands alone: the usable length of the claimed one."""
        label, value = "usable context", self.badge_text
        left, right = (round(6.6 * len(text)) + 12 for text in (label, value))
        whole = self.usable is not None and self.bounds.works >= (self.need or self.claimed)
        colour = "#2f7d32" if whole else "#8a5a00" if self.usable else "#555555"
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" '
            f'role="img" aria-label="{label}: {value}"><title>{label}: {value}</title>'
            f'<rect width="{left + right}" height="20" rx="3" fill="{colour}"/>'
            f'<path d="M3 0h{left - 3}v20h-{left - 3}a3 3 0 0 1-3-3v-14a3 3 0 0 1 3-3z" '
            'fill="#444444"/><g fill="#ffffff" text-anchor="middle" '
            'font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">'
            f'<text x="{left / 2:g}" y="14">{label}</text>'
            f'<text x="{left + right / 2:g}" y="14">{value}</text></g></svg>\n'
        )

    @property
    def _level(self) -> float:
        return next((r.difference.level for r in self.readings if r.difference is not None), 0.99)

    @property
    def _degree(self) -> str:
        return next(each.told for each in self.tried if each.name == self.asked)

    @property
    def _questions(self) -> str:
        tried = "; ".join(f"{t.name} {t.rate} found" for t in self.tried)
        return (
            f"Asked for {self._degree}, {self.facts} in each document ({self.asked}; tried at "
            f"{self.reference.length:,}: {tried})."
        )

    @property
    def _read(self) -> str:
        part = self.tokens / self.sweep
        return f"Read {self.tokens:,} tokens, {part:.0%} of a sweep over all lengths."

    @staticmethod
    def _row(read: LengthRead) -> tuple[Cell, ...]:
        gained = read.difference
        difference = "–" if gained is None else gain(EXACT_MATCH.name, gained).text
        return cells(
            f"{read.length:,}", str(read.rate), difference, f"{read.documents}", read.verdict
        )
