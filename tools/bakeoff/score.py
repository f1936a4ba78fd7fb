"""Who noticed which fault: rules fixed before any tool had seen a fault, the same for all.

A fault counts if it changes something for the model: its logits, the tables of an engine, the
length that is accepted, the tokens. A stock tool reports it by an error, a refusal of the length,
or a warning that names the setting; ropewalk by a verdict that fails (exit code 1 or 2) with a
finding. What a tool says of the intended set-up too is no report. A fault is named if the report
has one of the words that were written down with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tools.bakeoff.bases import BASES
from tools.bakeoff.folders import LENGTH
from tools.bakeoff.planted import JUDGED, STOCK, Case, cases
from tools.bakeoff.reference import Rotation, rotations

MOVED = 1e-3
"""A change of logits, in standard deviations of the intended ones, from which a fault counts."""
REPORTED, WARNED, SILENT, NOT_RUN = "reported", "another warning", "silent", "not run"


@dataclass(frozen=True)
class Row:
    """One fault and what each tool made of it."""

    group: str
    place: str
    name: str
    base: str
    story: str
    effect: str
    """Empty if it changes nothing: then it is no fault."""
    stock: dict[str, str]
    ropewalk: dict[str, tuple[str, bool]]
    """By way of asking: reported, unclear or silent; and whether it was named."""

    @property
    def by_stock(self) -> bool:
        return REPORTED in self.stock.values()

    @property
    def by_ropewalk(self) -> bool:
        return any(outcome == REPORTED for outcome, _ in self.ropewalk.values())

    @property
    def named(self) -> bool:
        return any(named for _, named in self.ropewalk.values())


def mentions(text: str, words: Sequence[str]) -> bool:
    return any(word.lower() in text.lower() for word in words)


def stock_outcome(
    tool: str, base: dict[str, Any], found: dict[str, Any], words: Sequence[str]
) -> str:
    """What a stock tool makes of a folder with a fault."""
    if base["error"]:
        return NOT_RUN
    if found["error"]:
        return REPORTED
    limit, before = found.get("length"), base.get("length")
    if tool in ("vllm", "sglang") and limit and before and limit < LENGTH <= before:
        return REPORTED
    fresh = [line for line in found["warnings"] if line not in base["warnings"]]
    if any(mentions(line, words) for line in fresh):
        return REPORTED
    return WARNED if fresh else SILENT


def ropewalk_outcome(
    base: dict[str, Any], found: dict[str, Any], words: Sequence[str]
) -> tuple[str, bool]:
    """What ropewalk makes of it."""
    if found["exit"] == 2 and base["exit"] != 2:
        return REPORTED, mentions(found["error"], words)
    known = {(trap, tuple(runtimes)) for trap, runtimes, *_ in base["findings"]}
    fresh = [
        text
        for trap, runtimes, text, wrong in found["findings"]
        if wrong and (trap, tuple(runtimes)) not in known
    ]
    if found["exit"] == 1 and fresh:
        return REPORTED, any(mentions(text, words) for text in fresh)
    if found["exit"] == 70:
        return "fails", False
    return ("unclear" if found["exit"] == 3 != base["exit"] else SILENT), False


def effect(case: Case, base: dict[str, Any], found: dict[str, Any]) -> str:
    """How a fault of a folder changes the model, in words; empty if it does not.

    `base` and `found` are the answers of the stock tools, by tool.
    """
    here, there = base["transformers"], found["transformers"]
    if there["error"] and not here["error"]:
        return "does not load in transformers, or does not run"
    told = []
    if here.get("logits") and there.get("logits"):
        one, other = np.array(here["logits"]), np.array(there["logits"])
        moved = float(np.abs(one - other).max() / one.std())
        if moved > MOVED:
            told.append(f"logits differ by {moved:.2g} of their standard deviation")
    if off := turned(case, there):
        told.append(off)
    if there.get("tokens") != here.get("tokens"):
        told.append(f"{there['tokens']:,} of {here['tokens']:,} tokens are kept")
    for engine in ("vllm", "sglang"):
        one, other = base[engine], found[engine]
        if one["error"]:
            continue
        if other["error"]:
            told.append(f"does not load in {engine}")
        elif other.get("tables") != one.get("tables"):
            told.append(f"tables of {engine} differ")
        if (a := one.get("length")) != (b := other.get("length")):
            told.append(f"{engine} accepts {b or 0:,} tokens in place of {a or 0:,}")
    return "; ".join(told)


def turned(case: Case, there: dict[str, Any]) -> str:
    """How far transformers' rotation is from the float64 formulas of the intended set-up."""
    if case.base not in BASES or "rotations" not in there:
        return ""
    off = 0.0
    for layer, right in rotations(BASES[case.base], LENGTH).items():
        got = there["rotations"].get(layer) or next(iter(there["rotations"].values()))
        off = max(off, right.distance(Rotation(np.array(got[0]), got[1]), LENGTH - 1))
    if off < MOVED:
        return ""
    return (
        "another number of pairs"
        if off >= 9
        else f"cos and sin are off by up to {off:.2g} at the last position"
    )


def folder_rows(said: dict[str, dict[str, Any]]) -> Iterator[Row]:
    """The faults of folders."""
    for case in cases():
        key, intended = f"{case.group} {case.name}", f"intended {case.base}"
        if any(key not in said.get(tool, {}) for tool in (*STOCK, *JUDGED)):
            continue
        base = {tool: said[tool][intended] for tool in STOCK}
        found = {tool: said[tool][key] for tool in STOCK}
        judged = {}
        for way in JUDGED:
            outcome = ropewalk_outcome(said[way][intended], said[way][key], case.words)
            run = said.get(f"{way}, run", {})
            if outcome[0] != REPORTED and key in run:
                before = run.get(intended, said[way][intended])
                outcome = ropewalk_outcome(before, run[key], case.words)
            judged[way] = outcome
        stock = {tool: stock_outcome(tool, base[tool], found[tool], case.words) for tool in STOCK}
        yield Row(
            case.group,
            "folder",
            case.name,
            case.base,
            case.story,
            effect(case, base, found),
            stock,
            judged,
        )


def live_outcome(base: dict[str, Any], found: dict[str, Any], words: Sequence[str]) -> str:
    if found["error"]:
        return REPORTED
    fresh = [line for line in found["warnings"] if line not in base["warnings"]]
    if any(mentions(line, words) for line in fresh):
        return REPORTED
    return WARNED if fresh else SILENT
