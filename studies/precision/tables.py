"""The tables of README.md, from what `results.json` holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ropewalk.number_formats.results import Estimate

BEGIN, END = "<!-- written by measure.py -->", "<!-- until here -->"
Results = dict[str, Any]


def write_tables(results: Results, readme: Path) -> None:
    """Put the tables where the README's markers stand."""
    text = readme.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    readme.write_text(f"{before}{BEGIN}\n{tables(results)}\n{END}{after}", encoding="utf-8")


def tables(results: Results) -> str:
    parts = results["parts"]
    sections = [
        ("How many times larger D is (geometric mean over sequences)", _comparisons(results)),
        (_titled("Every arm", parts["all arms"]), _arms(parts["all arms"])),
        (_titled("Every arm, YaRN in the config", parts["reach"]), _arms(parts["reach"])),
        ("D_logit of the first token by length, YaRN in the config", _lengths(parts["reach"])),
        ("The first token, without BOS and with a sink, bf16", _sinks(results)),
        (_titled("D by Δ₁ against Δ₂ = 16", parts["all shifts"]), _shifts(parts["all shifts"])),
    ]
    return "\n\n".join(f"{title}:\n\n{table}" for title, table in sections)


def _titled(title: str, part: dict[str, Any]) -> str:
    return f"{title}, {part['sequences']} sequences of {part['length']:,} tokens"


def _comparisons(results: Results) -> str:
    rows = [[what, _shown(value)] for what, value in results["comparisons"].items()]
    return _table(["what", "times"], rows)


def _arms(part: dict[str, Any]) -> str:
    rows = [
        [
            _named(arm),
            _shown(_at_zero(arm)),
            _shown(arm["first_token_flow"], percent=True),
            f"{arm['tokens']['rank_of_first']}",
            "–" if arm["growth"] is None else _shown(arm["growth"]),
            "–" if arm["loss_change"] is None else _shown(arm["loss_change"]),
        ]
        for arm in part["arms"]
    ]
    columns = ["arm", "D(0, 16)", "flow of the first token", "its rank", "growth", "loss moves by"]
    return _table(columns, rows)


def _lengths(part: dict[str, Any]) -> str:
    lengths = [length for length, _ in part["arms"][0]["logit_by_length"]]
    rows = [
        [_named(arm), *(f"{value[0]:.2g}" for _, value in arm["logit_by_length"])]
        for arm in part["arms"]
    ]
    return _table(["arm", *map(str, lengths)], rows)


def _sinks(results: Results) -> str:
    rows = []
    for name, attention in results["attention_to_first"].items():
        arms = results["parts"][name]["arms"]
        arm = next(a for a in arms if (a["arm"], a["weights"]) == ("bf16", "given"))
        rows.append(
            [
                "as it is" if name == "all arms" else name,
                _shown(attention, percent=True),
                _shown(arm["first_token_share"], percent=True),
                _shown(arm["first_token_flow"], percent=True),
                f"{arm['tokens']['rank_of_first']}",
                f"{arm['tokens']['first'] / arm['tokens']['median']:.1f}",
                f"{arm['logit_by_length'][-1][1][0]:.2g}",
                _shown(arm["growth"]),
            ]
        )
    columns = ["model", "attention to it", "share of D", "flow", "rank", "over the median token"]
    return _table([*columns, "D_logit", "growth"], rows)


def _shifts(part: dict[str, Any]) -> str:
    shifts = [first for first, _, _ in part["arms"][0]["curve"]]
    rows = [
        [str(shift), *(f"{arm['curve'][i][2][0]:.2g}" for arm in part["arms"])]
        for i, shift in enumerate(shifts)
    ]
    return _table(["Δ₁", *(_named(arm) for arm in part["arms"])], rows)


def _at_zero(arm: dict[str, Any]) -> list[float]:
    value: list[float] = next(value for first, _, value in arm["curve"] if first == 0)
    return value


def _named(arm: dict[str, Any]) -> str:
    return str(arm["arm"] if arm["weights"] == "given" else f"{arm['arm']}, {arm['weights']}")


def _shown(value: list[float], *, percent: bool = False) -> str:
    if not percent:
        return str(Estimate(*value))
    mean, low, high = (f"{part:.2%}" for part in value)
    return f"{mean} ({low} to {high})"


def _table(columns: list[str], rows: list[list[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
