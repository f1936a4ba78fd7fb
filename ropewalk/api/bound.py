"""`bound`: how large the base must be for a context length, with proof."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Literal, NamedTuple

from ropewalk.api.common import Length, as_lengths
from ropewalk.errors import InvalidValue
from ropewalk.extras import required_by
from ropewalk.lengths import format_length
from ropewalk.progress import Progress, share, silent
from ropewalk.theory.asymptote import asymptotic_base
from ropewalk.theory.bound import Infimum, SafeBase, check_question, infima, safe_bases
from ropewalk.theory.published import HEAD_DIM, LENGTHS, published
from ropewalk.theory.table import lookup
from ropewalk.untrusted import one_of, whole_number
from ropewalk.values import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ropewalk.reports.theory import BoundCurve, ModelPoint

Only = Literal["infimum", "safe"]


class Bound(NamedTuple):
    """The bounds of the base at one context length."""

    length: int
    infimum: float | None
    """No smaller base works. None if `only` left it out."""
    infimum_low: float | None
    infimum_high: float | None
    """This base works; the infimum lies between `infimum_low` and it."""
    safe: float | None
    """Every larger base works. None if `only` left it out."""
    safe_certified: bool | None
    """False where `safe` is an estimate, which may be too small."""
    asymptotic: float
    """The bound of a head with infinitely many pairs."""
    published: Mapping[str, float | None]
    """The published values by paper; None where a paper has none."""


@dataclass(frozen=True, eq=False)
class Bounds(Result):
    """Bounds of the base at several context lengths, for heads whose dimensions all rotate."""

    head_dim: int
    rows: tuple[Bound, ...]

    def summary(self) -> str:
        shown = self.rows if len(self.rows) <= 2 else (self.rows[0], self.rows[-1])
        told = " ".join(_in_words(row) for row in shown)
        count = len(self.rows) - len(shown)
        between = f" {count} length{'s lie' if count > 1 else ' lies'} between." if count else ""
        return f"Bounds of the base for heads of {self.head_dim}. {told}{between}"

    def figure(self) -> Figure:
        """The bounds against length, with the bases of well-known models."""
        from ropewalk.reports.theory import bounds_figure

        title = f"Bound of the base, heads of {self.head_dim}"
        return bounds_figure([*self._curves()], [*_model_points(self.head_dim)], title)

    def _curves(self) -> Iterator[BoundCurve]:
        from ropewalk.reports.theory import BoundCurve

        for label, style, color, bases in (
            ("safe base", "o-", "tab:green", [row.safe for row in self.rows]),
            ("infimum", "o-", "tab:blue", [row.infimum for row in self.rows]),
            ("Men et al. 2024", "x", "tab:orange", [r.published["men2024"] for r in self.rows]),
            ("infinitely many pairs", "--", "0.6", [row.asymptotic for row in self.rows]),
        ):
            known = {r.length: b for r, b in zip(self.rows, bases, strict=True) if b is not None}
            if known:
                yield BoundCurve(label, [*known], [*known.values()], style, color)


@required_by("bound")
def bound(
    lengths: Length | Iterable[Length] | None = None,
    *,
    head_dim: int = HEAD_DIM,
    only: Only | None = None,
    progress: Progress = silent,
) -> Bounds:
    """Compute lower bounds of the base for context lengths, by default 1k, 2k, … 1M.

    `only` selects one of the two bounds, infimum or safe base, and omits the other.
    """
    if lengths is None:
        lengths = LENGTHS
    wanted = as_lengths([lengths] if isinstance(lengths, int | Integral | str) else lengths)
    if not wanted:
        raise InvalidValue("lengths", [], "must contain at least one length", "write 8192 or '8k'")
    if only is not None:
        one_of(only, ("infimum", "safe"), "only")
    check_question(whole_number(head_dim, "head_dim"), wanted)
    lowest: dict[int, Infimum] = {}
    if only != "safe":
        found = infima(head_dim, wanted, progress=share(progress, "infimum"))
        lowest = {infimum.length: infimum for infimum in found}
    safe = {} if only == "infimum" else _safe_bases(head_dim, wanted, progress)
    return Bounds(head_dim, tuple(_row(head_dim, length, lowest, safe) for length in wanted))


def _safe_bases(head_dim: int, lengths: tuple[int, ...], progress: Progress) -> dict[int, SafeBase]:
    """From the table that ships with the package, the others computed in one pass."""
    known = {length: row[1] for length in lengths if (row := lookup(head_dim, length))}
    missing = [length for length in lengths if length not in known]
    if missing:
        found = safe_bases(head_dim, missing, progress=share(progress, "safe base"))
        known |= {safe.length: safe for safe in found}
    return known


def _row(
    head_dim: int, length: int, infima: Mapping[int, Infimum], safe: Mapping[int, SafeBase]
) -> Bound:
    infimum, safe_base = infima.get(length), safe.get(length)
    return Bound(
        length=length,
        infimum=infimum.value if infimum else None,
        infimum_low=infimum.low if infimum else None,
        infimum_high=infimum.high if infimum else None,
        safe=safe_base.value if safe_base else None,
        safe_certified=safe_base.certified if safe_base else None,
        asymptotic=asymptotic_base(length),
        published=published(head_dim, length),
    )


def _in_words(row: Bound) -> str:
    facts = []
    if row.infimum is not None:
        facts.append(f"no base below {row.infimum:,.10g} works")
    if row.safe is not None:
        known = "" if row.safe_certified else " (an estimate)"
        facts.append(f"every base above {row.safe:,.7g} works{known}")
    return f"At {format_length(row.length)}, {', and '.join(facts)}."


# What a picture shows beside the bounds; the catalogue names each one's source.
_MODELS = {
    "llama-7b": "Llama",
    "llama-2-7b": "Llama 2, Baichuan 2",
    "llama-3-8b": "Llama 3",
    "mistral-7b-v0.2": "Mistral v0.2",
    "qwen3-8b": "Qwen3",
    "qwen2.5-7b": "Qwen2.5",
    "qwen2.5-7b-1m": "Qwen2.5-1M",
    "granite-3.1-8b": "Granite 3.1",
    "smollm2-1.7b": "SmolLM2",
    "gpt-oss-20b": "gpt-oss",
    "gemma-2-9b": "Gemma 2",
}


def _model_points(head_dim: int) -> Iterator[ModelPoint]:
    """The models whose heads are of this size and rotate as a whole."""
    from ropewalk.models import catalogue
    from ropewalk.models.config import present_plan
    from ropewalk.reports.theory import ModelPoint

    for name, label in _MODELS.items():
        plan = present_plan(catalogue.find(name).config, name)
        geometry = plan.longest(plan.main_layer).geometry
        if geometry.head_dim == head_dim == geometry.rotary_dim:
            yield ModelPoint(label, geometry.original_length, geometry.base)
