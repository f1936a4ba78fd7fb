"""The tables of the study, and the comparisons in words of docs/precision.md, from `results.json`.

`make figures` writes them.
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

from docs.figures import Picture, Sentence
from ropewalk.number_formats.arms import ARMS
from ropewalk.number_formats.results import SequenceMean
from studies.precision import cost
from studies.precision.pictures import drawn_figure

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"
DRAWN = HERE / "drawn.json"
"""The values of the pictures, which are too many for the results."""
STUDY, PAGE = "studies/precision/README.md", "docs/precision.md"
Results = dict[str, Any]


def read_results() -> Results:
    results: Results = json.loads(RESULTS.read_text(encoding="utf-8"))
    return results


def blocks() -> dict[str, str]:
    return {STUDY: tables(read_results())}


def pictures() -> dict[str, Picture]:
    if not DRAWN.exists():
        return {}
    drawn = json.loads(DRAWN.read_text(encoding="utf-8"))
    return {
        f"studies/precision/figures/{folder}/{name}.png": Picture(drawn_figure(panels))
        for folder, figures in drawn.items()
        for name, panels in figures.items()
    }


def sentences() -> list[Sentence]:
    """The comparisons in words, with the verdicts of their intervals."""
    results = read_results()
    parts, ratios = results["parts"], results["comparisons"]
    arms = {a["arm"]: a for a in parts["all arms"]["arms"] if a["weights"] == "given"}
    far = {a["arm"]: a for a in parts["reach"]["arms"] if a["weights"] == "given"}
    sinks = [_bf16(parts[f"sink {strength}"]) for strength in (2, 4, 6, 8)]
    plain, without = _bf16(parts["all arms"]), _bf16(parts["no BOS"])
    # Only q and k are cast in these, or the angles are as good as exact.
    cast = ("bf16", "bf16_rotation", "bf16_tables", "bf16_frequencies", "bf16_model", "fp16")
    flat = [*(arms[name] for name in cast), far["bf16"], *sinks]
    level = all(arm["growth"][1] <= 0 and arm["growth"][2] < 0.02 for arm in flat)
    grows = [arms["bf16_positions"], far["bf16_positions"], arms["fp32"], far["fp32"]]
    leads = sinks[-1]["first_token_rank"][0] == 1
    rises = all(
        _above(b["first_token_ratio"], a["first_token_ratio"]) for a, b in pairwise([plain, *sinks])
    )
    more = {name: ratio for name, ratio in ratios.items() if name.startswith("given")}
    amplified = all(
        ratio[1] > 1 for name, ratio in more.items() if not name.endswith("as trained, 512")
    )
    stray = all(ratio[2] < 1 for name, ratio in more.items() if name.endswith("as trained, 512"))
    return [
        Sentence(
            PAGE,
            "Under bfloat16 a shift changes attention far more than under float32, and still "
            "hardly moves the loss",
            holds=ratios["bf16 over fp32, 512"][1] > 100
            and arms["bf16"]["loss_change"][2] < 0.001 * arms["bf16"]["loss"][0],
        ),
        Sentence(
            PAGE,
            "D_logit grows with length if positions have few bits, not if only q and k are cast",
            holds=level and all(arm["growth"][1] > 0 for arm in grows),
        ),
        Sentence(
            PAGE,
            "The first token has the largest part of D only in a model with an attention sink",
            holds=leads and rises and plain["first_token_rank"][1] > 1,
        ),
        Sentence(
            STUDY,
            "two to three orders of magnitude more than under `fp32`",
            holds=ratios["bf16 over fp32, 4096"][1] > 10**1.5
            and ratios["bf16 over fp32, 512"][2] < 10**3.5,
        ),
        Sentence(
            STUDY,
            "less so at 4,096 tokens",
            holds=_above(ratios["bf16 over fp32, 512"], ratios["bf16 over fp32, 4096"]),
        ),
        Sentence(
            STUDY,
            "D is larger than with `kaiming` weights and than with the model's own start",
            holds=amplified,
        ),
        Sentence(STUDY, "the random model strays *more* than the trained one", holds=stray),
        Sentence(
            STUDY,
            "without BOS its part is smaller still",
            holds=_above(plain["first_token_share"], without["first_token_share"]),
        ),
        Sentence(
            STUDY,
            "its part grows step by step until it is the largest of all tokens",
            holds=leads
            and all(
                _above(b["first_token_share"], a["first_token_share"])
                for a, b in pairwise([plain, *sinks])
            ),
        ),
        Sentence(
            STUDY,
            "A sink makes D_logit larger, and does not make it grow.",
            holds=all(
                _above(arm["logit_by_length"][-1][1], plain["logit_by_length"][-1][1])
                and arm["growth"][1] <= 0
                for arm in sinks
            ),
        ),
        Sentence(
            STUDY,
            "With random weights whose logits are as large as trained ones it grows, though "
            "slowly: as length to the power 0.09",
            holds=all(
                arm["growth"][1] > 0 and round(arm["growth"][0], 2) == 0.09
                for start in ("kaiming", "initial")
                for arm in parts[f"{start}, logits as trained"]["arms"]
            ),
        ),
    ]


def _bf16(part: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(
        arm for arm in part["arms"] if (arm["arm"], arm["weights"]) == ("bf16", "given")
    )
    return found


def _above(higher: list[float], lower: list[float]) -> bool:
    """True if the interval of the higher estimate lies above that of the lower."""
    return higher[1] > lower[2]


def _every(results: Results) -> str:
    """All arms that there are: those measured with weights as given, and why others are not."""
    part = results["parts"]["all arms"]
    measured = {arm["arm"]: arm for arm in part["arms"] if arm["weights"] == "given"}
    rows = []
    for name in ARMS:
        if name in measured:
            rows.append([f"`{name}`", *_found(measured[name])])
        else:
            why = results["refused_arms"].get(name, "no longer measured")
            rows.append([f"`{name}`", f"not measured: {why}", "–", "–", "–", "–"])
    for arm in part["arms"]:
        if arm["weights"] != "given":
            rows.append([f"`{arm['arm']}`, {arm['weights']} random weights", *_found(arm)])
    return _table(["arm", *FOUND], rows)


def tables(results: Results) -> str:
    parts = results["parts"]
    sections = [
        ("How many times larger D is (geometric mean over sequences)", _comparisons(results)),
        (_titled("Every arm", parts["all arms"]), _every(results)),
        (_titled("Every arm, YaRN in the config", parts["reach"]), _arms(parts["reach"])),
        ("D_logit of the first token by length, YaRN in the config", _lengths(parts["reach"])),
        ("The first token, without BOS and with a sink, bf16", _sinks(results)),
        (_titled("D by Δ₁ against Δ₂ = 16", parts["all shifts"]), _shifts(parts["all shifts"])),
        ("Cost of the run that would settle it", _table(cost.COLUMNS, [*cost.rows()])),
    ]
    return "\n\n".join(f"{title}:\n\n{table}" for title, table in sections)


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
                _shown(arm["growth"]),
            ]
        )
    columns = ["model", "attention to it", "rank", "over the median token", "share of D", "growth"]
    return _table(columns, rows)


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
        return str(SequenceMean(*value))
    mean, low, high = value
    if low is None or high is None:
        return f"{mean:.2%}"
    return f"{mean:.2%} ({low:.2%} to {high:.2%})"


def _table(columns: list[str], rows: list[list[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
