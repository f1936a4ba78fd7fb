"""Who noticed which fault: rules fixed before any tool had seen a fault, the same for all.

A fault counts if it changes something for the model: its logits, the tables of an engine, the
length that is accepted, the tokens. A stock tool reports it by an error, a refusal of the length,
or a warning that names the setting; ropewalk by a verdict that fails (exit code 1 or 2) with a
finding. What a tool says of the intended set-up too is no report. A fault is named if the report
has one of the words that were written down with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks import fingerprint
from tests.rotation.planted import FAULTS
from tools.bakeoff.bases import BASES
from tools.bakeoff.fault import LiveFault
from tools.bakeoff.folders import LENGTH
from tools.bakeoff.new_faults import LIVE, SERVER, TRAINING
from tools.bakeoff.planted import JUDGED, RUN, STOCK, Case, cases
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
            run = said.get(RUN, {}) if way != "verify" else {}
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


def live_rows(said: dict[str, dict[str, Any]]) -> Iterator[Row]:
    """Faults in memory and in trainings: known ones of tests/rotation, and new ones."""
    faults: list[tuple[str, str, LiveFault]] = [
        ("known", "planted", LiveFault(name, "a llama under YaRN", "tests/rotation", (cause,)))
        for name, (_, cause) in FAULTS.items()
    ]
    faults += [("new", "live", fault) for fault in LIVE]
    faults += [("new", "training", fault) for fault in TRAINING]
    for group, place, fault in faults:
        if f"{place} {fault.name}" not in said:
            continue
        base, found = said[f"{place} intended"], said[f"{place} {fault.name}"]
        report = found["ropewalk"]
        reported = report.startswith(("GateFailed", "Unsupported"))
        cause = report.partition("likely cause: ")[2] or report
        named = reported and any(re.search(word, cause) for word in fault.words)
        moved = f"logits differ by {found['moved']:.2g} of their standard deviation"
        effect = "it does not run" if found["error"] else moved
        yield Row(
            group,
            "training" if place == "training" else "live model",
            fault.name,
            fault.base,
            fault.story,
            effect if found["error"] or found["moved"] > MOVED else "",
            {"transformers": live_outcome(base, found, fault.words)},
            {"assert_rotation": (REPORTED if reported else SILENT, named)},
        )


def server_rows(said: dict[str, dict[str, Any]]) -> Iterator[Row]:
    """Faults of a server: known ones as `python -m benchmarks.fingerprint` recorded them."""
    recorded = fingerprint._results()
    judge = fingerprint._Judged(recorded)
    logs = [row["log"] for key, row in said.items() if _sound(key)]
    healthy = {_words(line) for log in logs for line in log}
    for part in ("faults", "new"):
        for row in recorded[part]:
            key = f"{part} {row['model']} {row['setup']}"
            if key not in said:
                continue
            fault = LiveFault(
                f"{row['setup']} ({row['model']})",
                "a llama.cpp server",
                "benchmarks/fingerprint.py",
                (row["right"],),
            )
            named = judge.named(row) == "right"
            yield _served("known", fault, row, named, said[key].get("log", ()), healthy)
    for fault in SERVER:
        found = said[f"server {fault.name}"]
        row = found["row"]
        named = mentions(f"{row['told']} {row['causes']}", fault.words)
        yield _served("new", fault, row, named, found["log"], healthy)


def _sound(key: str) -> bool:
    return key.startswith("healthy ") or key == "server intended"


def _words(line: str) -> str:
    """A line of llama.cpp's log without its time."""
    return re.sub(r"^[\d.]+ ", "", line)


def _served(
    group: str,
    fault: LiveFault,
    row: dict[str, Any],
    named: bool,
    log: Sequence[str],
    healthy: set[str],
) -> Row:
    fresh = [line for line in map(_words, log) if line not in healthy]
    loud = any(line.startswith("E ") or mentions(line, fault.words) for line in fresh)
    distance = f"answers are {row['ratio']:,.3g} times as far off as rounding alone"
    told = "another count of tokens" if row["miscounted"] else distance
    reported = row["status"] == "deviates"
    return Row(
        group,
        "server",
        fault.name,
        fault.base,
        fault.story,
        told if fingerprint._Judged(fingerprint._results()).moved(row) else "",
        {"llama.cpp": REPORTED if loud else WARNED if fresh else SILENT},
        {"fingerprint": (REPORTED if reported else SILENT, reported and named)},
    )
