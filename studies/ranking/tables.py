"""The study's tables and its picture, made from results.json."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.machine import measured_on
from docs.figures import Picture, paragraph
from studies.ranking.cells import FACTORS, SUBJECTS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RESULTS = Path(__file__).with_name("results.json")
PAGE = "studies/ranking/README.md"
PICTURE = "studies/ranking/retrieved.png"
FITTED, LEFT_OUT = "C0", "C1"


def recorded() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))
    return found


def blocks() -> dict[str, str]:
    value = recorded()
    return {PAGE: page(value), "docs/theory.md": in_short(value)}


def pictures() -> dict[str, Picture]:
    return {PICTURE: Picture(drawn(recorded()))}


def page(value: Mapping[str, Any]) -> str:
    parts = []
    for name, rule in value["rules"].items():
        if rule is None:
            parts.append(f"### The rule {name}\n\nNot measured yet.")
            continue
        parts += [
            f"### The rule {name}",
            paragraph(
                f"Fitted on {rule['pairs_of_the_fit']} pairs that measurement separates, of the "
                f"models {', '.join(rule['models_of_the_fit'])}. With each of them left out of the "
                f"fit in turn, {rule['each_left_out_in_turn']:.1%} of its pairs are ordered "
                f"rightly, the best of {rule['rules_tried']} rules that were tried. Badness = "
                + " + ".join(
                    f"{weight:g} · {key.replace('_', ' ')}"
                    for key, weight in rule["weights"].items()
                )
                + "."
            ),
            "Pairs ordered rightly by one quantity alone, on the same models:",
            _table(
                ("quantity", "share"),
                [
                    (key.replace("_", " "), f"{share:.0%}")
                    for key, share in sorted(rule["alone"].items(), key=lambda item: -item[1])
                ],
            ),
            "On the models that were left out:",
            check_table(rule["check"]),
        ]
    parts += [f"![What each method retrieved]({Path(PICTURE).name})", retrieved_tables(value)]
    if value["unfinished"]:
        parts.append(paragraph(f"Not finished, and left out above: {_named(value['unfinished'])}."))
    parts.append(
        f"{value['cells']} cells. "
        + "; ".join(
            measured_on(each, "python -m studies.ranking.measure") for each in value["machines"]
        )
        + "."
    )
    return "\n\n".join(parts)


def check_table(rows: Sequence[Mapping[str, Any]]) -> str:
    shown = [
        (
            row["subject"],
            f"{row['factor']}×",
            str(row["steps"]),
            f"{row['right']:g} of {row['pairs']}",
            f"{row['right_by_names']:g}",
            "" if row["correlation"] is None else f"{row['correlation']:.2f}",
            "" if row["ceiling"] is None else f"{row['ceiling']:.2f}",
            row["first"],
            _points(row),
        )
        for row in rows
    ]
    right, pairs = sum(row["right"] for row in rows), sum(row["pairs"] for row in rows)
    if pairs:
        total = f"{right:g} of {pairs} ({right / pairs:.0%})"
        by_names = sum(row["right_by_names"] for row in rows)
        listed = f"{by_names:g} ({by_names / pairs:.0%})"
        shown.append(("all", "", "", total, listed, "", "", "", ""))
    return _table(
        (
            *("model", "length", "steps", "ordered rightly", "by a list of names"),
            *("rank correlation", "at most", "first", "points behind the best"),
        ),
        shown,
    )


def _points(row: Mapping[str, Any]) -> str:
    gap = f"{100 * row['behind']:.1f}"
    if row["interval"] is None:
        return gap
    low, high = (100 * end for end in row["interval"])
    return f"{gap} ({low:.1f} to {high:.1f})"


def retrieved_tables(value: Mapping[str, Any]) -> str:
    """Percent retrieved, a table for each count of steps."""
    parts = []
    rows = value["retrieved"]
    methods = list(dict.fromkeys(method for row in rows for method in row["methods"]))
    mean = {
        method: np.mean([row["methods"][method] for row in rows if method in row["methods"]])
        for method in methods
    }
    methods.sort(key=lambda method: -mean[method])
    for steps in sorted({row["steps"] for row in rows}):
        title = f"after {steps} steps" if steps else "without training"
        parts += [
            f"Percent of facts retrieved, {title}:",
            _table(
                ("model", "length", *methods),
                [
                    (
                        row["subject"],
                        f"{row['factor']}×",
                        *(_percent(row["methods"].get(method)) for method in methods),
                    )
                    for row in sorted(
                        (row for row in rows if row["steps"] == steps),
                        key=lambda row: (row["factor"], [*SUBJECTS].index(row["subject"])),
                    )
                ],
            ),
        ]
    return "\n\n".join(parts)


def in_short(value: Mapping[str, Any]) -> str:
    """For the page on theory: how well each rule did on models that it was not fitted on."""
    lines = []
    for name, rule in value["rules"].items():
        if rule is None:
            lines.append(f"The rule {name} has not been checked yet.")
            continue
        rows = rule["check"]
        right, pairs = sum(row["right"] for row in rows), sum(row["pairs"] for row in rows)
        worst = max(rows, key=lambda row: row["behind"])
        by_names = sum(row["right_by_names"] for row in rows)
        models = {row["subject"] for row in rows}
        shapes = len({SUBJECTS[name].size for name in models})
        lines.append(
            f"Used {name}, the rule orders {right:g} of {pairs} pairs rightly "
            f"({right / pairs:.0%}) on {len(models)} models of {shapes} shapes that it was not "
            "fitted on (a fixed list of methods, by their mean in the fit: "
            f"{by_names:g}). Its first method lies furthest behind the best on {worst['subject']} "
            f"at {worst['factor']} times the length{after(worst['steps'])}: by {_points(worst)} "
            "points of retrieval."
        )
    alone = value["rules"]["without training"]["alone"]
    listed = ", ".join(f"{key.replace('_', ' ')} {share:.0%}" for key, share in alone.items())
    lines.append(f"No single quantity orders many of the untrained pairs rightly: {listed}.")
    return paragraph(" ".join(lines))


def after(steps: int) -> str:
    return f" after {steps} steps" if steps else ""


def drawn(value: Mapping[str, Any]) -> Figure:
    """A row for each count of steps, a column for each length; a dot is a model."""
    from matplotlib.figure import Figure

    rows = value["retrieved"]
    steps = sorted({row["steps"] for row in rows})
    untrained = [row for row in rows if row["steps"] == 0]
    methods = list(dict.fromkeys(method for row in untrained for method in row["methods"]))
    methods.sort(key=lambda m: np.mean([r["methods"][m] for r in untrained if m in r["methods"]]))
    figure = Figure(figsize=(9, 0.7 + 2.6 * len(steps)), layout="constrained")
    panels = figure.subplots(len(steps), len(FACTORS), squeeze=False, sharex=True, sharey=True)
    for line, count in zip(panels, steps, strict=True):
        for axes, factor in zip(line, FACTORS, strict=True):
            own = [row for row in rows if (row["steps"], row["factor"]) == (count, factor)]
            for row in own:
                left_out = SUBJECTS[row["subject"]].left_out
                known = [method for method in methods if method in row["methods"]]
                axes.plot(
                    [100 * row["methods"][method] for method in known],
                    [methods.index(method) + (0.15 if left_out else -0.15) for method in known],
                    "o",
                    markersize=4,
                    color=LEFT_OUT if left_out else FITTED,
                    markerfacecolor="none" if left_out else FITTED,
                )
            axes.set_yticks(range(len(methods)), methods)
            axes.set_xlim(-3, 103)
            axes.grid(axis="x", linewidth=0.4)
            told = f"after {count} steps" if count else "without training"
            axes.set_title(f"{factor} times the length, {told}", fontsize=9)
            if not own:
                axes.text(50, len(methods) / 2, "not measured yet", ha="center", fontsize=8)
    for axes in panels[-1]:
        axes.set_xlabel("facts retrieved, %")
    for label, colour, face in (
        ("models of the fit", FITTED, FITTED),
        ("models left out", LEFT_OUT, "none"),
    ):
        panels[0][-1].plot([], [], "o", color=colour, markerfacecolor=face, label=label)
    panels[0][-1].legend(fontsize=8, loc="lower right")
    return figure


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.0f}"


def _named(groups: Sequence[Sequence[object]]) -> str:
    return "; ".join(
        f"{subject} at {factor}× after {steps} steps" for subject, factor, steps in groups
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])
