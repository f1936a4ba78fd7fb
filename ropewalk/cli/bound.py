"""`ropewalk bound`: how large the base must be for a context length."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ropewalk.cli.progress import progress_bar
from ropewalk.cli.shared import JsonOption, main_layer, print_json, table
from ropewalk.lengths import format_length, parse_lengths

if TYPE_CHECKING:
    from ropewalk.reports.theory import BoundCurve, ModelPoint
    from ropewalk.theory.bound import Infimum, SafeBase


def command(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="LENGTH…", help="Such as 8k 128k, or 1k … 1M, as without any."),
    ] = None,
    head_dim: Annotated[
        int, typer.Option(help="Dimensions of a head, all of them rotating.")
    ] = 128,
    only: Annotated[
        Literal["infimum", "safe"] | None,
        typer.Option(help="Leave the other of the two bounds out."),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the bounds, as .png or .svg.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Bound the base from below for context lengths, with proof."""
    from ropewalk.theory.published import LENGTHS

    lengths = parse_lengths(words) if words else list(LENGTHS)
    infima = _infima(head_dim, lengths) if only != "safe" else {}
    safe = _safe_bases(head_dim, lengths) if only != "infimum" else {}
    if plot is not None:
        _draw(head_dim, lengths, infima, safe, plot)
    if as_json:
        rows = [_row(head_dim, length, infima, safe) for length in lengths]
        print_json({"head_dim": head_dim, "rows": rows})
    else:
        _show(head_dim, lengths, infima, safe)
        if plot is not None:
            print(f"wrote {plot}")


def _infima(head_dim: int, lengths: list[int]) -> dict[int, Infimum]:
    from ropewalk.theory.bound import infima

    with progress_bar("infimum") as progress:
        found = infima(head_dim, lengths, progress=progress)
    return {infimum.length: infimum for infimum in found}


def _safe_bases(head_dim: int, lengths: list[int]) -> dict[int, SafeBase]:
    """From the table that ships with the package, the others computed in one pass."""
    from ropewalk.theory.bound import safe_bases
    from ropewalk.theory.table import lookup

    known = {length: row[1] for length in lengths if (row := lookup(head_dim, length))}
    missing = [length for length in lengths if length not in known]
    if missing:
        with progress_bar("safe base") as progress:
            found = safe_bases(head_dim, missing, progress=progress)
        known |= {safe.length: safe for safe in found}
    return known


def _row(
    head_dim: int, length: int, infima: dict[int, Infimum], safe: dict[int, SafeBase]
) -> dict[str, object]:
    from ropewalk.theory.asymptote import asymptotic_base
    from ropewalk.theory.published import published

    infimum, safe_base = infima.get(length), safe.get(length)
    return {
        "length": length,
        "infimum": infimum.value if infimum else None,
        "infimum_low": infimum.low if infimum else None,
        "infimum_high": infimum.high if infimum else None,
        "safe": safe_base.value if safe_base else None,
        "safe_certified": safe_base.certified if safe_base else None,
        "asymptotic": asymptotic_base(length),
        "published": published(head_dim, length),
    }


def _show(
    head_dim: int, lengths: list[int], infima: dict[int, Infimum], safe: dict[int, SafeBase]
) -> None:
    from rich.console import Console

    from ropewalk.theory.asymptote import asymptotic_base
    from ropewalk.theory.bound import SAMPLING_STEP
    from ropewalk.theory.published import published

    rows = table(
        "length", "Men 2024", "Su 2024", "infimum", "safe base", "infinite head",
        title=f"Bounds of the base, heads of {head_dim}",
    )  # fmt: skip
    for length in lengths:
        printed = published(head_dim, length)
        infimum, safe_base = infima.get(length), safe.get(length)
        mark = "" if safe_base is None or safe_base.certified else " ?"
        rows.add_row(
            format_length(length),
            *(f"{value:.1e}" if value else "" for value in printed.values()),
            f"{infimum.value:,.10g}" if infimum else "",
            f"{safe_base.value:,.7g}{mark}" if safe_base else "",
            f"{asymptotic_base(length):,.0f}",
        )
    console = Console(highlight=False)
    console.print(rows)
    if infima:
        console.print("infimum: no smaller base works, to a relative width of 1e-9, proven")
    if safe:
        console.print("safe base: every larger base works, proven")
    if not all(base.certified for base in safe.values()):
        console.print(
            f"(marked ?: estimated by trying bases {SAMPLING_STEP:.2%} apart, maybe too small)"
        )


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


def _draw(
    head_dim: int,
    lengths: list[int],
    infima: dict[int, Infimum],
    safe: dict[int, SafeBase],
    path: Path,
) -> None:
    from ropewalk.reports.theory import BoundCurve, draw_bounds
    from ropewalk.theory.asymptote import asymptotic_base
    from ropewalk.theory.published import published

    lengths = sorted(set(lengths))
    curves: list[BoundCurve] = []
    if safe:
        bases = [safe[length].value for length in lengths]
        curves.append(BoundCurve("safe base", lengths, bases, "o-", "tab:green"))
    if infima:
        bases = [infima[length].value for length in lengths]
        curves.append(BoundCurve("infimum", lengths, bases, "o-", "tab:blue"))
    men = {length: published(head_dim, length)["men2024"] for length in lengths}
    printed = {length: base for length, base in men.items() if base is not None}
    if printed:
        curves.append(
            BoundCurve("Men et al. 2024", [*printed], [*printed.values()], "x", "tab:orange")
        )
    limits = [asymptotic_base(length) for length in lengths]
    curves.append(BoundCurve("infinitely many pairs", lengths, limits, "--", "0.6"))
    draw_bounds(curves, _model_points(head_dim), path, f"Bound of the base, heads of {head_dim}")


def _model_points(head_dim: int) -> list[ModelPoint]:
    from ropewalk.models import catalogue
    from ropewalk.models.config import present_plan
    from ropewalk.reports.theory import ModelPoint

    points = []
    for name, label in _MODELS.items():
        plan = present_plan(catalogue.find(name).config, name)
        geometry = plan.longest(main_layer(plan)).geometry
        if geometry.head_dim == head_dim == geometry.rotary_dim:
            points.append(ModelPoint(label, geometry.original_length, geometry.base))
    return points
