"""The BFloat16 article's claims on a pretrained model, which has a sink by nature.

    make real                                 the model, once
    python -m studies.smollm2.precision       runs what is missing: about two hours of one core
    python -m studies.smollm2.precision --report

Each part is a run directory under runs/smollm2/precision, which goes on where it was stopped. What
counts as seen was written down in README.md before the first run.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.machine import machine
from ropewalk.data.corpora import HELD_OUT, read_documents
from ropewalk.models.load import LoadedModel, load
from ropewalk.number_formats.measurement import LENGTHS, MEASUREMENTS, SHIFTS
from ropewalk.number_formats.results import SequenceMean, estimate
from ropewalk.run_directory import RunDirectory
from studies.precision.findings import GIVEN, ArmResult, Findings, ratio
from studies.precision.measure import computed_here
from studies.precision.measurement import Measurement, StudySettings
from studies.precision.variants import attention_to_first
from studies.smollm2.model import PLACE, ready

HERE = Path(__file__).parent
RESULTS = HERE / "precision.json"
PAGE = "studies/smollm2/README.md"
THREADS = 2
ONE = StudySettings(
    2048,
    arms=("bf16",),
    weights=(GIVEN,),
    shifts=(0,),
    lengths=tuple(n for n in LENGTHS if n <= 2048),
    sequences=8,
    anchored=False,
)
PARTS = {
    "first token": replace(ONE, arms=("bf16", "fp32")),
    "random weights": replace(ONE, weights=("kaiming", "initial"), sequences=5),
    "shifts": replace(
        ONE, length=1024, shifts=SHIFTS, lengths=(256, 512, 1024), sequences=5, anchored=True
    ),
    "4k": replace(
        ONE,
        length=4096,
        lengths=tuple(n for n in LENGTHS if n <= 4096),
        arms=("bf16", "fp32", "bf16_positions"),
        sequences=5,
    ),
    "all arms": replace(ONE, arms=computed_here()[0], sequences=5),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", default=",".join(PARTS), help="in this order")
    parser.add_argument("--report", action="store_true", help="run nothing")
    asked = parser.parse_args()
    if not asked.report:
        run(asked.parts.split(","))
    print(blocks()[PAGE])


def run(names: Sequence[str]) -> None:
    """These parts; results are written after each."""
    torch.set_num_threads(THREADS)
    loaded = load(str(ready()), dtype="float32", device="cpu")
    documents = list(read_documents(HELD_OUT))
    kept: dict[str, Any] = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
    kept = {"machine": machine(), "parts": {}, **kept}
    for name in names:
        measurement = Measurement(loaded, documents, PARTS[name])
        folder = PLACE / "precision" / name.replace(" ", "-")
        with RunDirectory(folder, "precision study", measurement.identity()) as directory:
            found = measurement.run(directory.journal(MEASUREMENTS), _say(name))
        kept["parts"][name] = told_of(found)
        if name == "first token":
            kept["sink"] = sink(loaded, measurement.sequences, found)
        RESULTS.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def _say(name: str) -> Any:
    return lambda done, total: print(f"{name}: {done} of {total}", flush=True)


def told_of(found: Findings) -> dict[str, Any]:
    """The values of a part that the claims need."""
    told = {
        f"{arm.arm}, {arm.weights}": {
            "strays": arm.strays,
            "rank": arm.first_token_rank,
            "ratio": arm.first_token_ratio,
            "flow": arm.first_token_flow,
            "growth": arm.growth,
            "loss": arm.loss,
            "loss_change": arm.loss_change,
            "logit_by_length": [[length, value.mean] for length, value in arm.logit_by_length],
            **({"predicted": predicted(arm)} if len(arm.curve) > 2 else {}),
        }
        for arm in found.arms
    }
    ours, theirs = found.arm("bf16", GIVEN), found.arm("fp32", GIVEN)
    over = ratio(ours, theirs) if ours is not None and theirs is not None else None
    return {
        "length": found.length,
        "sequences": found.sequences,
        "arms": told,
        **({} if over is None else {"bf16 over fp32": over}),
    }


def predicted(arm: ArmResult) -> SequenceMean:
    """The share of a sequence's differences over Δ₁ that the mean curve of the others explains.

    1: a curve is known before its sequence is measured; 0: no better than one number for all Δ₁.
    Where the two shifts are equal, the difference is zero by definition, and not counted.
    """
    own = [i for i, point in enumerate(arm.curve) if point.first != point.second]
    curves = np.array(arm.sample_curves)[:, own]
    shares = []
    for i, curve in enumerate(curves):
        others = np.delete(curves, i, axis=0).mean(0)
        left = np.square(curve - others).sum()
        shares.append(float(1 - left / np.square(curve - curve.mean()).sum()))
    return estimate(shares)


def sink(loaded: LoadedModel, sequences: Sequence[Tensor], found: Findings) -> dict[str, Any]:
    """Attention to the first token and its massive activations, next to its part of D."""
    attention = attention_to_first(loaded.model, sequences)
    arm = found.arm("bf16", GIVEN)
    assert arm is not None
    part = _means(arm.by_layer_and_head.first_token)
    whole = _means(arm.by_layer_and_head.attention)
    by_head = attention.mean(0).double().numpy()
    largest, median = activations(loaded, sequences)
    return {
        "attention": estimate(attention.mean((1, 2)).tolist()),
        "heads": int(by_head.size),
        "heads_with_half": int((by_head > 0.5).sum()),
        "rank_correlation": spearman(by_head.ravel(), (part / whole).ravel()),
        "largest_activation": [round(float(value), 1) for value in largest[:, 0]],
        "over_median": [round(float(value)) for value in largest[:, 0] / median],
        "elsewhere_over_median": [round(float(value)) for value in largest[:, 1:].max(1) / median],
    }


def _means(table: Sequence[Sequence[SequenceMean]]) -> NDArray[np.float64]:
    return np.array([[value.mean for value in row] for row in table])


@torch.no_grad()
def activations(
    loaded: LoadedModel, sequences: Sequence[Tensor]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """By layer, for its output: the largest magnitude of each token, and the median of all.

    Over the sequences, the mean of either.
    """
    largest, median = [], []
    for tokens in sequences:
        out = loaded.model(
            tokens[None], use_cache=False, output_hidden_states=True, logits_to_keep=1
        )
        states = torch.stack([state[0].abs() for state in out.hidden_states[1:-1]])
        largest.append(states.amax(2).double().numpy())
        median.append(states.flatten(1).median(1).values.double().numpy())
    return np.mean(largest, axis=0), np.mean(median, axis=0)


def spearman(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """The rank correlation; there are no ties among measured values."""
    ranks = [np.argsort(np.argsort(values)) for values in (one, other)]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


UNSHOWN = (
    ("shifts", "bf16, given"),
    ("random weights", "bf16, initial"),
    *(
        ("all arms", f"{arm}, given")
        for arm in ("fp64", "fp32", "bf16", "bf16_tables", "bf16_frequencies", "bf16_rotation")
    ),
)
"""Rows that repeat others; results.json has them."""


def blocks() -> dict[str, str]:
    if not RESULTS.exists():
        return {PAGE: "Nothing is measured yet.\n"}
    kept = json.loads(RESULTS.read_text("utf-8"))
    missing = [name for name in PARTS if name not in kept["parts"]]
    lines = [f"Not yet measured: {', '.join(missing)}.", ""] if missing else []
    lines += [
        "| part | arm, weights | D(0, 16) | rank of the first token | over the median token "
        "| growth | loss moves by |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, part in kept["parts"].items():
        for arm, told in part["arms"].items():
            if (name, arm) in UNSHOWN:
                continue
            rank, highest, lowest, _ = told["rank"]
            cells = [
                f"{name}, {part['sequences']} × {part['length']:,}",
                arm,
                _shown(told["strays"]),
                f"{rank} ({highest} to {lowest})",
                *(_shown(told[key]) for key in ("ratio", "growth", "loss_change")),
            ]
            lines.append(f"| {' | '.join(cells)} |")
    lines += ["", *_sentences(kept), *verdicts(kept)]
    return {PAGE: "\n".join(lines) + "\n"}


def _sentences(kept: dict[str, Any]) -> list[str]:
    parts, said = kept["parts"], []
    over = parts.get("first token", {}).get("bf16 over fp32")
    if over is not None:
        said.append(f"- D under `bf16` over D under `fp32`, 2k: {_shown(over)} times.")
    if "sink" in kept:
        own = kept["sink"]
        largest = max(own["over_median"])
        layer = own["over_median"].index(largest) + 1
        said.append(
            f"- The first token gets {100 * own['attention'][0]:.0f}% of all attention, more than "
            f"half in {own['heads_with_half']} of {own['heads']} heads. Its largest activation is "
            f"{largest:,} times the median (after layer {layer}; of every other token at most "
            f"{max(own['elsewhere_over_median']):,} times). Over heads, the attention that it gets "
            f"and its part of D have a rank correlation of {own['rank_correlation']:.2f}."
        )
    for arm, told in parts.get("shifts", {}).get("arms", {}).items():
        if "predicted" in told:
            said.append(
                f"- {arm}: of a sequence's differences over Δ₁, the mean curve of the other "
                f"sequences explains {_shown(told['predicted'])} (1: all; below 0: worse than one "
                "number for all Δ₁)."
            )
    return said


def verdicts(kept: dict[str, Any]) -> list[str]:
    """The verdicts on the claims, by the rules that were written down."""
    part = kept["parts"].get("first token")
    if part is None:
        return []
    own, over = part["arms"]["bf16, given"], SequenceMean(*part["bf16 over fp32"])
    ratio, growth = SequenceMean(*own["ratio"]), SequenceMean(*own["growth"])
    rank = own["rank"][:3]
    said = {"Broken": _verdict(over, seen=10), "Grows with length": _verdict(growth, 0.1, 0.1)}
    first = _verdict(ratio, seen=10, contradicted=1)
    said["The first token dominates"] = first if first != "seen" or rank == [1] * 3 else "undecided"
    curves = kept["parts"].get("shifts", {}).get("arms", {}).get("bf16, given", {})
    if "predicted" in curves:
        said["Predictable"] = _verdict(SequenceMean(*curves["predicted"]), 0.9, 0.5)
    if "sink" in kept:
        sink = kept["sink"]
        alone = max(sink["over_median"]) > 1000 >= max(sink["elsewhere_over_median"])
        said["Massive activations"] = "seen" if alone else "not seen"
    return ["", "; ".join(f"*{claim}*: {word}" for claim, word in said.items()) + "."]


def _verdict(value: SequenceMean, seen: float, contradicted: float | None = None) -> str:
    if value.low is None or value.high is None:
        return "undecided"
    if value.low > seen:
        return "seen"
    return "contradicted" if contradicted is not None and value.high < contradicted else "undecided"


def _shown(value: Any) -> str:
    return "–" if value is None else str(SequenceMean(*value))


if __name__ == "__main__":
    main()
