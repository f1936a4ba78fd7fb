"""`bound`: how large the base must be for a context length, with proof."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from ropewalk.arguments import Length, as_lengths
from ropewalk.blocks import Block, Cell, Paragraph, Table, cells
from ropewalk.chart import Mark, Series
from ropewalk.errors import InvalidValue
from ropewalk.lengths import format_length
from ropewalk.models.source import resolve
from ropewalk.options import Argument, Option, called, command
from ropewalk.progress import Progress, share, shown
from ropewalk.theory import charts
from ropewalk.theory.asymptote import asymptotic_base
from ropewalk.theory.bound import (
    ASSUMPTIONS,
    SAMPLING_STEP,
    Infimum,
    SafeBase,
    check_islands_length,
    infima,
    rotary_dim_of,
    safe_bases,
)
from ropewalk.theory.bound import islands as find_islands
from ropewalk.theory.published import HEAD_DIM, LENGTHS, published
from ropewalk.theory.table import lookup
from ropewalk.untrusted import one_of, whole_number
from ropewalk.values import Charts, Drawn

Only = Literal["infimum", "safe"]


class Island(NamedTuple):
    """Bases that work, between bases that do not."""

    low: float
    high: float


class Bound(NamedTuple):
    """The bounds of the base at one context length."""

    length: int
    infimum: float | None
    """No base from 1 to this one works. None if `only` left it out."""
    infimum_low: float | None
    infimum_high: float | None
    """This base works; the infimum lies between `infimum_low` and it."""
    safe: float | None
    """Every larger base works. None if `only` left it out."""
    safe_certified: bool | None
    """False if `safe` is an estimate, which may be too small."""
    asymptotic: float | None
    """The bound of a head with infinitely many pairs; None if some dimensions do not rotate."""
    published: Mapping[str, float | None]
    """The published values by paper; None if a paper has none."""
    islands: tuple[Island, ...] | None = None
    """All that work between infimum and safe base, ascending. None if not asked for."""


@dataclass(frozen=True, eq=False)
class Bounds(Drawn):
    """Bounds of the base, among bases of at least 1, at several context lengths."""

    rows_in = "rows"

    head_dim: int
    rotary_dim: int
    rows: tuple[Bound, ...]

    def derived(self) -> dict[str, object]:
        return {"domain": "base >= 1", "proven_assuming": list(ASSUMPTIONS)}

    @property
    def heads(self) -> str:
        """Such as `heads of 128`, or `heads of 128 that rotate 32 dimensions`."""
        partial = "" if self.rotary_dim == self.head_dim else f" that rotate {self.rotary_dim}"
        return f"heads of {self.head_dim}{partial and partial + ' dimensions'}"

    def summary(self) -> str:
        shown = self.rows if len(self.rows) <= 2 else (self.rows[0], self.rows[-1])
        words = " ".join(_in_words(row) for row in shown)
        count = len(self.rows) - len(shown)
        between = f" {count} length{'s lie' if count > 1 else ' lies'} between." if count else ""
        return f"Bounds of the base, among bases of at least 1, for {self.heads}. {words}{between}"

    def blocks(self) -> Iterator[Block]:
        yield Table(
            f"Bounds of the base, {self.heads}",
            ("length", "Men 2024", "Su 2024", "infimum", "safe base", "infinite head"),
            tuple(map(_cells, self.rows)),
        )
        if any(row.infimum is not None for row in self.rows):
            # The widest interval of all rows; rounding may have widened one.
            widths = [
                row.infimum_high / row.infimum_low - 1
                for row in self.rows
                if row.infimum_low is not None and row.infimum_high is not None
            ]
            yield Paragraph(
                "infimum: no base from 1 to it works, and one within a relative "
                f"{max([1e-9, *widths]):.0e} of it does, proven"
            )
        if any(row.safe is not None for row in self.rows):
            yield Paragraph("safe base: every larger base works, proven")
        if any(row.safe_certified is False for row in self.rows):
            step = f"{SAMPLING_STEP:.2%}"
            yield Paragraph(f"(marked ?: estimated by trying bases {step} apart, maybe too small)")
        if any(row.infimum == 1 for row in self.rows):
            yield Paragraph("(infimum 1: every base from 1 on works)")
        yield Paragraph(f"proven, assuming: {'; '.join(ASSUMPTIONS)}")
        for row in self.rows:
            yield from _islands(row)
        yield from self.charts()

    def charts(self) -> Charts:
        """The bounds against length, with the bases of well-known models; or the islands."""
        strips = [
            (row.length, row.islands, row.safe)
            for row in self.rows
            if row.islands is not None and row.safe is not None
        ]
        if strips:
            return [charts.islands(strips, f"Bases that work, {self.heads}")]
        models = _models(self.head_dim, self.rotary_dim)
        return [charts.bounds([*self._curves()], models, f"Bound of the base, {self.heads}")]

    def _curves(self) -> Iterator[Series]:
        for label, look, bases in (
            ("safe base", charts.GREEN, [row.safe for row in self.rows]),
            ("infimum", charts.BLUE, [row.infimum for row in self.rows]),
            ("Men et al. 2024", charts.ORANGE, [r.published["men2024"] for r in self.rows]),
            ("infinitely many pairs", charts.GREY, [row.asymptotic for row in self.rows]),
        ):
            base_of = {r.length: b for r, b in zip(self.rows, bases, strict=True) if b is not None}
            marks = tuple(Mark(length, base) for length, base in sorted(base_of.items()))
            if marks:
                yield Series(
                    label, marks, look=look, drawn="points" if look == charts.ORANGE else "line"
                )


def _cells(row: Bound) -> tuple[Cell, ...]:
    mark = "" if row.safe_certified else " ?"
    return cells(
        format_length(row.length),
        *(f"{value:.1e}" if value else "" for value in row.published.values()),
        "" if row.infimum is None else f"{row.infimum:,.10g}",
        "" if row.safe is None else f"{row.safe:,.7g}{mark}",
        "" if row.asymptotic is None else f"{row.asymptotic:,.0f}",
    )


def _islands(row: Bound) -> Iterator[Block]:
    length = format_length(row.length)
    if row.islands:
        yield Table(
            f"Islands of bases that work for {length}",
            ("from", "to", "highest / lowest"),
            tuple(
                cells(f"{low:,.10g}", f"{high:,.10g}", f"1 + {high / low - 1:.2g}")
                for low, high in row.islands
            ),
            "every base on an island works, and none between islands does, proven alike",
        )
    elif row.islands is not None:
        yield Paragraph(f"no island of bases works for {length} below the safe base")


@command(
    "bound",
    "From a config alone",
    example="ropewalk bound 8k 32k 128k",
    plot="the bounds, or the islands",
)
def bound(
    lengths: Annotated[
        Length | Sequence[Length] | None,
        Argument("Context lengths, such as 8k 128k (default: 1k to 1M).", "LENGTH…"),
    ] = None,
    *,
    head_dim: Annotated[int, Option("Dimensions of a head.")] = HEAD_DIM,
    rotary_dim: Annotated[
        int | None, Option("Dimensions of a head that rotate (default: all).")
    ] = None,
    only: Annotated[Only | None, Option("Compute only this bound (default: both).")] = None,
    islands: Annotated[
        bool, Option("List the intervals of bases that work below the safe base.")
    ] = False,
    progress: Progress | None = shown,
) -> Bounds:
    """Compute how large the base must be for a context length, with proof.

    Only bases of at least 1 are considered. `rotary_dim` is the number of dimensions that rotate,
    by default all of `head_dim`. `only` selects one of the two bounds, infimum or safe base, and
    omits the other. `islands` lists the bases that work between the two.
    """
    with called("bound", bound, locals()) as (_, progress):
        wanted = _wanted(lengths)
        if only is not None:
            one_of(only, ("infimum", "safe"), "only")
        if only is not None and islands:
            rule = "a list of islands (`islands`) needs both bounds"
            raise InvalidValue("only", only, rule, "leave out `only` or `islands`")
        if rotary_dim is not None:
            whole_number(rotary_dim, "rotary_dim")
        turning = rotary_dim_of(whole_number(head_dim, "head_dim"), wanted, rotary_dim)
        if islands:
            check_islands_length(wanted)
        lowest: dict[int, Infimum] = {}
        if only != "safe":
            report = share(progress, "infimum")
            results = infima(head_dim, wanted, rotary_dim=turning, progress=report)
            lowest = {infimum.length: infimum for infimum in results}
        safe = {} if only == "infimum" else _safe_bases(head_dim, turning, wanted, progress)
        rows = [_row(head_dim, turning, length, lowest, safe) for length in wanted]
        if islands:
            report = share(progress, "islands")
            rows = [_with_islands(row, head_dim, turning, safe[row.length], report) for row in rows]
        return Bounds(head_dim, turning, tuple(rows))


def _wanted(lengths: Length | Sequence[Length] | None) -> tuple[int, ...]:
    listed = LENGTHS if lengths is None else lengths
    wanted = as_lengths([listed] if isinstance(listed, int | Integral | str) else listed)
    if not wanted:
        raise InvalidValue("lengths", [], "must contain at least one length", "write 8192 or '8k'")
    return wanted


def _with_islands(
    row: Bound, head_dim: int, rotary_dim: int, safe: SafeBase, report: Callable[[float], None]
) -> Bound:
    islands = find_islands(head_dim, row.length, rotary_dim=rotary_dim, safe=safe, progress=report)
    return row._replace(islands=tuple(Island(low, high) for low, high in islands.edges))


def _safe_bases(
    head_dim: int, rotary_dim: int, lengths: tuple[int, ...], progress: Progress
) -> dict[int, SafeBase]:
    """Safe bases from the table that ships with the package, the others computed in one pass."""
    bases: dict[int, SafeBase] = {}
    if rotary_dim == head_dim:
        bases = {length: row[1] for length in lengths if (row := lookup(head_dim, length))}
    missing = [length for length in lengths if length not in bases]
    if missing:
        report = share(progress, "safe base")
        results = safe_bases(head_dim, missing, rotary_dim=rotary_dim, progress=report)
        bases |= {safe.length: safe for safe in results}
    return bases


def _row(
    head_dim: int,
    rotary_dim: int,
    length: int,
    infima: Mapping[int, Infimum],
    safe: Mapping[int, SafeBase],
) -> Bound:
    infimum, safe_base = infima.get(length), safe.get(length)
    whole = rotary_dim == head_dim
    return Bound(
        length=length,
        infimum=infimum.value if infimum else None,
        infimum_low=infimum.low if infimum else None,
        infimum_high=infimum.high if infimum else None,
        safe=safe_base.value if safe_base else None,
        safe_certified=safe_base.certified if safe_base else None,
        asymptotic=asymptotic_base(length) if whole else None,
        published=published(head_dim if whole else None, length),
    )


def _in_words(row: Bound) -> str:
    facts = []
    if row.infimum is not None and row.infimum > 1:
        facts.append(f"no base below {row.infimum:,.10g} works")
    if row.islands:
        facts.append(f"{len(row.islands)} islands of bases above it do")
    if row.safe is not None:
        certainty = "" if row.safe_certified else " (an estimate)"
        facts.append(f"every base above {row.safe:,.7g} works{certainty}")
    return f"At {format_length(row.length)}, {', and '.join(facts) or 'every base works'}."


_MODELS = json.loads(Path(__file__).with_name("bound_models.json").read_text(encoding="utf-8"))
"""What a picture shows beside the bounds; the catalogue names each one's source."""


def _models(head_dim: int, rotary_dim: int) -> Iterator[tuple[str, int, float]]:
    """The models whose heads are of this size and rotate as much."""
    for name, label in _MODELS.items():
        plan = resolve(name).present_plan
        geometry = plan.longest(plan.main_layer).geometry
        if (geometry.head_dim, geometry.rotary_dim) == (head_dim, rotary_dim):
            yield label, geometry.original_length, geometry.base
