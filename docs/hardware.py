"""The calculated and counted figures of pages: costs, families and agreement."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import ropewalk as rw
from benchmarks.attention import layouts
from benchmarks.machine import PAGE
from docs.figures import ROOT, Picture, Sentence, paragraph
from ropewalk.api.cost import Cost, CostRow, fits, parts
from ropewalk.costs.machines import GIB, machine
from ropewalk.costs.memory_and_time import (
    COMPUTING,
    RECOMPUTING,
    Workload,
    duration,
    evaluating,
    serving,
    training,
)
from ropewalk.costs.sizes import sizes_of
from ropewalk.lengths import format_length
from ropewalk.models import catalogue

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXAMPLE = ("llama-3-8b", "128k", "h100")
MODELS = ("llama-3.1-8b", "llama-3.1-70b")
FARTHEST = "2M"
DEVICES = (8, 64)
PICTURE = "docs/images/cost.png"
PAPERS_MODEL, PAPERS_MACHINE = "llama-2-7b", "8xa100"
PAPERS_LENGTHS = tuple(2**n for n in range(13, 19))
LENGTHS = tuple(2**n for n in range(13, 22))


def table(found: Cost) -> list[str]:
    lines = ["| | peak, a device | of which, GiB | time | fits |", "|---|---|---|---|---|"]
    for row in found.rows:
        memory = f"{row.bytes / GIB:,.1f} GiB"
        cells = [row.what, memory, parts(row), duration(row.seconds), fits(row)]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def farthest() -> list[str]:
    """The cost of the longest window, by model and number of devices."""
    lines = [
        "| model | devices | what | peak, a device | time | fits |",
        "|---|---|---|---|---|---|",
    ]
    for model in MODELS:
        for count in DEVICES:
            found = rw.cost(model, FARTHEST, on=f"{count}xh100")
            for row in found.rows:
                if row.what != "extend":
                    lines.append(f"| {' | '.join([model, str(count), *_cells(row)])} |")
    return lines


def _cells(row: CostRow) -> list[str]:
    what, time = row.what, row.seconds
    if what.startswith("train"):
        what, time = "1,000 steps", None if time is None else 1000 * time
    return [what, f"{row.bytes / GIB:,.0f} GiB", duration(time), fits(row)]


def days() -> list[str]:
    """Days of a billion tokens by length and layout, for the setting of AnchorAttention's Fig. 6:
    LLaMA-2-7B on eight A100, which share each window; all is recomputed."""
    entry, eight = catalogue.find(PAPERS_MODEL), machine(PAPERS_MACHINE)
    sizes = sizes_of({**entry.config, **entry.sizes})
    assert eight.operations is not None
    speed = COMPUTING * eight.operations * eight.devices
    lines = ["| length | full | anchor | saved | intra-document |", "|---|---|---|---|---|"]
    for length in PAPERS_LENGTHS:
        laid = layouts("log-normal", length)

        def taken(pairs: int | None, length: int = length) -> float:
            windows = 1e9 / length
            return RECOMPUTING * sizes.operations(length, pairs) * windows / speed / 86400

        full, anchor, intra = (
            taken(None),
            taken(laid["anchor"].area()),
            taken(laid["intra_document"].area()),
        )
        cells = (f"{full:.1f}", f"{anchor:.1f}", f"{1 - anchor / full:.0%}", f"{intra:.1f}")
        lines.append(f"| {format_length(length)} | {' | '.join(cells)} |")
    told = paragraph(
        f"Days for a billion tokens, {PAPERS_MODEL} on {eight}, by `python -m docs.figures`: "
        f"{COMPUTING:.0%} of the data sheet, everything recomputed, documents of "
        "log-normal length (median 1k, σ 1.5). The paper's Fig. 6 is a drawing whose values its "
        "text does not give; it says that AnchorAttention saves more than half of the time."
    )
    return [*lines, "", told]


def blocks() -> dict[str, str]:
    model, length, on = EXAMPLE
    found = rw.cost(model, length, on=on)
    told = f"`ropewalk cost {model} --to {length} --on {on}` prints this, with its assumptions."
    return {
        "docs/README.md": "\n".join([*table(found), "", told]),
        PAGE: "\n".join([*farthest(), "", *days()]),
    }


def pictures() -> dict[str, Picture]:
    return {PICTURE: Picture(drawn())}


def drawn() -> Figure:
    """Memory against length, with the machines' limits as lines."""
    from matplotlib.figure import Figure

    entry = catalogue.find(MODELS[0])
    sizes, eight = sizes_of({**entry.config, **entry.sizes}), machine("8xh100")
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for label, ways, place in (
        ("serve", serving, 0),
        ("evaluate (one device)", evaluating, 0),
        ("train", training, 0),
        ("train --recompute", training, 1),
        ("train --recompute --sequence-parallel 8", training, 4),
    ):
        found = [list(ways(Workload(sizes, n, eight, 131072)))[place] for n in LENGTHS]
        axes.plot(LENGTHS, [way.bytes / GIB for way in found], label=label)
    for name in ("rtx-4090", "h100", "h200"):
        limit = machine(name).memory / GIB
        axes.axhline(limit, color="0.7", linewidth=0.8, linestyle=":")
        axes.text(LENGTHS[0], limit * 1.05, name, color="0.4", fontsize=8)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(LENGTHS, [format_length(n) for n in LENGTHS])
    axes.set_xlabel("length")
    axes.set_ylabel("GiB a device")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    return figure


def sentences() -> list[Sentence]:
    families = (ROOT / "docs/families.md").read_text(encoding="utf-8").splitlines()
    rows = sum(line.startswith("| ") for line in families) - 1
    readings = json.loads((ROOT / "tools/observatory/readings.json").read_text(encoding="utf-8"))
    agreed = {(sum(c["agrees"] for c in r["checks"]), len(r["checks"])) for r in readings.values()}
    [(agree, checks)] = agreed  # the same in each engine, as the page says
    return [
        Sentence("README.md", "[{} model families](docs/families.md)", (str(rows),)),
        Sentence("docs/verify.md", "({} of {} agree in each)", (str(agree), str(checks))),
    ]
