"""The study's tables and its picture, made from results.json."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.machine import measured_on
from docs.figures import Picture, Sentence, paragraph
from studies.ranking.cells import FACTORS, SUBJECTS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RESULTS = Path(__file__).with_name("results.json")
PAGE = "studies/ranking/README.md"
PICTURE = "studies/ranking/retrieved.png"
FITTED, LEFT_OUT = "C0", "C1"
ALL = ("right", "right_by_rule", "pairs")
ABOVE = ("right_above_floor", "right_by_rule_above_floor", "pairs_above_floor")


def recorded() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))
    return found


def blocks() -> dict[str, str]:
    value = recorded()
    return {
        PAGE: page(value),
        "studies/searches/README.md": other_methods(value),
        "studies/training/README.md": trained(value),
    }


def sentences() -> list[Sentence]:
    """The log's finding on the list without training, and the share of right pairs of each list."""
    rules = [recorded()["rules"][name] for name in ("without training", "after training")]
    (listed, own, pairs), (after, _, of) = (
        [_sum(rule["check"], key) for key in ABOVE] for rule in rules
    )
    words = "study of the ranking: {} separated pairs of which both methods retrieve at least 5%"
    shares = (f"{listed / pairs:.0%}", f"{after / of:.0%}")
    told = "the lists correctly order {} (without training) and {} (after it) of the pairs"
    return [
        Sentence("docs/log.md", words, (f"{listed:g} against {own:g} of {pairs}",)),
        Sentence("docs/theory.md", told, shares),
    ]


def pictures() -> dict[str, Picture]:
    return {PICTURE: Picture(drawn(recorded()))}


def page(value: Mapping[str, Any]) -> str:
    parts = []
    for name, rule in value["rules"].items():
        if rule is None:
            parts.append(f"### {name.capitalize()}\n\nNot measured yet.")
            continue
        parts += [
            f"### {name.capitalize()}",
            paragraph(
                f"The list, by the mean over these models: {', '.join(rule['list_of_names'])}."
            ),
            paragraph(
                f"The rule: fitted on {rule['pairs_of_the_fit']} pairs that measurement separates, "
                f"of the models {', '.join(rule['models_of_the_fit'])}. With each of them left out "
                f"of the fit in turn, {rule['each_left_out_in_turn']:.1%} of its pairs are ordered "
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
            *_counts(row, ABOVE),
            *_counts(row, ALL),
            "" if row["correlation"] is None else f"{row['correlation']:.2f}",
            "" if row["ceiling"] is None else f"{row['ceiling']:.2f}",
            row["first"],
            _points(row),
        )
        for row in rows
    ]
    totals = {key: _sum(rows, key) for key in (*ABOVE, *ALL)}
    shown.append(("all", "", "", *_counts(totals, ABOVE), *_counts(totals, ALL), "", "", "", ""))
    return _table(
        (
            *("model", "length", "steps", "ordered rightly by the list, both at 5% or more"),
            *("by the rule", "all separated pairs, by the list", "by the rule"),
            *("rank correlation", "at most", "first", "points behind the best"),
        ),
        shown,
    )


def _counts(row: Mapping[str, Any], keys: tuple[str, str, str]) -> tuple[str, str]:
    right, by_rule, pairs = (row[key] for key in keys)
    if not pairs:
        return "no pair", ""
    return f"{right:g} of {pairs} ({right / pairs:.0%})", f"{by_rule:g} ({by_rule / pairs:.0%})"


def _sum(rows: Sequence[Mapping[str, Any]], key: str) -> Any:
    return sum(row[key] for row in rows)


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


def other_methods(value: Mapping[str, Any]) -> str:
    """For the page on searches: a method that it did not compare, and another training seed."""
    told = {row["subject"]: _signed(row) for row in value["llama3_less_yarn"]}
    return paragraph(
        "In the [study of the ranking](../ranking/README.md), on other documents, `llama3` "
        f"minus YaRN at 4 times the window is {told['wide']} points of retrieval on `wide`. It is "
        f"{told['tall']} on `tall` and {told['tall, seed 2']} on the same model trained from "
        "another seed (intervals over texts): the seed of a model's training, which is in none of "
        "the intervals on this page, can change the sign of a difference."
    )


def trained(value: Mapping[str, Any]) -> str:
    """For the page on training: base change after training, next to YaRN without any."""
    found = value["trained_less_yarn"]
    each = ", ".join(f"{name} {gain:+.2f}" for name, gain in found["by_subject"].items())
    low, high = found["interval"]
    return paragraph(
        "The [study of the ranking](../ranking/README.md) measured the base change too: "
        f"retrieval after {found['steps']} steps minus that under YaRN without training, at "
        f"{found['factor']} times the window, is {found['mean']:+.3f} "
        f"({low:+.3f} to {high:+.3f}) over {len(found['by_subject'])} models ({each}). The models "
        "were not drawn at random, and each was trained once. YaRN trained as long is in the "
        "study's tables, where it is finished."
    )


def _signed(row: Mapping[str, Any]) -> str:
    low, high = (100 * end for end in row["interval"])
    return f"{100 * row['difference']:+.1f} ({low:+.1f} to {high:+.1f})"


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
