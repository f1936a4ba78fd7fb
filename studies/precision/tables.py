"""The tables of the study and of docs/precision.md, from what `results.json` holds.

python -m studies.precision.tables          writes them anew, without measuring
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ropewalk.number_formats.arms import ARMS, SUMMARIES
from ropewalk.number_formats.results import Estimate
from studies.precision import cost

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"
BEGIN, END = "<!-- written by studies.precision.tables -->", "<!-- until here -->"
Results = dict[str, Any]


def pages() -> dict[Path, Callable[[Results], str]]:
    """The pages that hold tables, and what makes the text between their markers."""
    return {HERE / "README.md": tables, HERE.parents[1] / "docs/precision.md": summary}


def write_tables(results: Results) -> None:
    for page in pages():
        page.write_text(with_tables(page, results), encoding="utf-8")


def with_tables(page: Path, results: Results) -> str:
    """The page's text with its tables made from the results."""
    before, rest = page.read_text(encoding="utf-8").split(BEGIN)
    after = rest.split(END)[1]
    return f"{before}{BEGIN}\n{pages()[page](results)}\n{END}{after}"


def summary(results: Results) -> str:
    """For docs/precision.md: every arm, and the first token as the sink grows."""
    part = results["parts"]["all arms"]
    sections = [
        (_titled(f"`{results['command']}`: every arm, Δ₁ = 0, Δ₂ = 16", part), _every(results)),
        ("The first token under `bf16`, as it is, without BOS and with a sink", _sinks(results)),
    ]
    return _joined(sections)


def _every(results: Results) -> str:
    """All arms that there are: those measured with weights as given, and why others are not."""
    part = results["parts"]["all arms"]
    measured = {arm["arm"]: arm for arm in part["arms"] if arm["weights"] == "given"}
    rows = []
    for name in ARMS:
        if name in measured:
            rows.append([f"`{name}`", SUMMARIES[name], *_found(measured[name])])
        else:
            why = results["refused_arms"].get(name, "no longer measured")
            rows.append([f"`{name}`", SUMMARIES[name], f"not measured: {why}", "–", "–", "–", "–"])
    for arm in part["arms"]:
        if arm["weights"] != "given":
            rows.append([f"`{arm['arm']}`", f"{arm['weights']} random weights", *_found(arm)])
    return _table(["arm", "formats", *FOUND], rows)


def _joined(sections: list[tuple[str, str]]) -> str:
    return "\n\n".join(f"{title}:\n\n{table}" for title, table in sections)


def tables(results: Results) -> str:
    parts = results["parts"]
    sections = [
        ("How many times larger D is (geometric mean over sequences)", _comparisons(results)),
        (_titled("Every arm", parts["all arms"]), _arms(parts["all arms"])),
        (_titled("Every arm, YaRN in the config", parts["reach"]), _arms(parts["reach"])),
        ("D_logit of the first token by length, YaRN in the config", _lengths(parts["reach"])),
        ("The first token, without BOS and with a sink, bf16", _sinks(results)),
        (_titled("D by Δ₁ against Δ₂ = 16", parts["all shifts"]), _shifts(parts["all shifts"])),
        ("Cost of the run that would settle it", _table(cost.COLUMNS, [*cost.rows()])),
    ]
    return _joined(sections)


def _titled(title: str, part: dict[str, Any]) -> str:
    return f"{title}, {part['sequences']} sequences of {part['length']:,} tokens"


def _comparisons(results: Results) -> str:
    rows = [[what, _shown(value)] for what, value in results["comparisons"].items()]
    return _table(["what", "times"], rows)


FOUND = ["D(0, 16)", "rank of the first token", "over the median token", "growth", "loss moves by"]


def _found(arm: dict[str, Any]) -> list[str]:
    """The columns of `FOUND`."""
    rank, highest, lowest, _ = arm["first_token_rank"]
    return [
        _shown(_at_zero(arm)),
        f"{rank} ({highest} to {lowest})",
        *(
            "–" if value is None else _shown(value)
            for value in (arm["first_token_ratio"], arm["growth"], arm["loss_change"])
        ),
    ]


def _arms(part: dict[str, Any]) -> str:
    return _table(["arm", *FOUND], [[_named(arm), *_found(arm)] for arm in part["arms"]])


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
        rank, highest, lowest, _ = arm["first_token_rank"]
        rows.append(
            [
                "as it is" if name == "all arms" else name,
                _shown(attention, percent=True),
                f"{rank} ({highest} to {lowest})",
                _shown(arm["first_token_ratio"]),
                _shown(arm["first_token_share"], percent=True),
                _shown(arm["first_token_flow"], percent=True),
                f"{arm['logit_by_length'][-1][1][0]:.2g}",
                _shown(arm["growth"]),
            ]
        )
    columns = ["model", "attention to it", "rank", "over the median token", "share of D", "flow"]
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


def _shown(value: list[Any], *, percent: bool = False) -> str:
    if not percent:
        return str(Estimate(*value))
    mean, low, high = value
    if low is None or high is None:
        return f"{mean:.2%}"
    return f"{mean:.2%} ({low:.2%} to {high:.2%})"


def _table(columns: list[str], rows: list[list[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    write_tables(json.loads(RESULTS.read_text(encoding="utf-8")))
