"""The BFloat16 article's claims, measured on the bundled model.

    python -m studies.precision.measure

A few minutes on one core. Each part is a run directory under `--runs`: a second call goes on
where the first one was. At the end, `results.json` and `drawn.json`, the values of the pictures,
are written anew from all parts; `make figures` makes the tables and pictures from them.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.machine import machine
from ropewalk.data.corpora import read_documents
from ropewalk.errors import InvalidValue
from ropewalk.evaluation.encoding import Encoder
from ropewalk.models.config import present_plan
from ropewalk.models.load import LoadedModel, load
from ropewalk.number_formats.arms import ARMS, check_device, named
from ropewalk.number_formats.measurement import LENGTHS, MEASUREMENTS, SHIFTS, cut
from ropewalk.number_formats.results import SequenceMean, estimate
from ropewalk.run_directory import RunDirectory
from studies.precision.findings import GIVEN, ArmResult, Findings, ratio
from studies.precision.measurement import Measurement, StudySettings
from studies.precision.pictures import charts
from studies.precision.tables import DRAWN, RESULTS
from studies.precision.variants import (
    attention_to_first,
    extended,
    with_logits_like,
    with_sink,
    without_bos,
)
from studies.precision.weights import WEIGHTS, with_weights

HERE = Path(__file__).parent
WINDOW, FACTOR = 512, 8
# How many sequences: of variants, whose passes are few; of all arms; at 4,096 tokens, where a pass
# takes a second; of the whole grid of shifts, a hundred passes each. Five are the fewest that give
# an interval.
SEQUENCES = 50
ARM_SEQUENCES = 20
LONG_SEQUENCES = 5
GRID_SEQUENCES = 5
SINKS = (2.0, 4.0, 6.0, 8.0)
FITTED = 4  # sequences that sinks and logits are fitted to
LOOKED_AT = 8  # sequences whose attention to the first token is averaged
FAR_ARMS = ("fp32", "bf16", "bf16_positions")


@dataclass(frozen=True)
class Part:
    """One model under one set of settings."""

    settings: StudySettings
    model: Callable[[LoadedModel], Any] = lambda loaded: loaded.model
    tokenizer: Callable[[Any], Any] = lambda tokenizer: tokenizer


def parts() -> dict[str, Part]:
    """All parts, those that take longest last."""
    window = tuple(n for n in LENGTHS if n <= WINDOW)
    one = StudySettings(
        WINDOW,
        arms=("bf16",),
        weights=(GIVEN,),
        shifts=(0, 2000),
        lengths=window,
        sequences=SEQUENCES,
        anchored=False,
    )
    return {
        "no BOS": Part(one, tokenizer=without_bos),
        **{f"sink {s:g}": Part(one, model=sunk(s)) for s in SINKS},
        "all arms": Part(
            replace(
                one, arms=computed_here()[0], weights=WEIGHTS, shifts=(0,), sequences=ARM_SEQUENCES
            )
        ),
        **{
            f"{kind}, logits as trained": Part(
                replace(one, shifts=(0,), sequences=ARM_SEQUENCES), model=matched(kind)
            )
            for kind in WEIGHTS[1:]
        },
        "reach": Part(
            replace(
                one,
                length=WINDOW * FACTOR,
                arms=FAR_ARMS,
                shifts=(0,),
                lengths=tuple(n for n in LENGTHS if n <= WINDOW * FACTOR),
                sequences=LONG_SEQUENCES,
            ),
            model=lambda loaded: extended(loaded.model, FACTOR),
        ),
        "all shifts": Part(
            replace(
                one,
                arms=("fp32", "bf16"),
                weights=WEIGHTS[:2],
                shifts=SHIFTS,
                sequences=GRID_SEQUENCES,
                anchored=True,
            )
        ),
    }


def computed_here() -> tuple[tuple[str, ...], dict[str, str]]:
    """All arms that a CPU computes, and the others with what is said of them."""
    able, refused = [], {}
    for name in ARMS:
        try:
            check_device([named(name)], torch.device("cpu"))
        except InvalidValue as error:
            refused[name] = error.rule
        else:
            able.append(name)
    return tuple(able), refused


def sunk(strength: float) -> Callable[[LoadedModel], Any]:
    return lambda loaded: with_sink(loaded.model, _fitted(loaded), strength)


def matched(kind: str) -> Callable[[LoadedModel], Any]:
    return lambda loaded: with_logits_like(
        with_weights(loaded.model, kind), loaded.model, _fitted(loaded)
    )


def _fitted(loaded: LoadedModel) -> list[torch.Tensor]:
    documents = list(read_documents("held-out"))
    return list(cut(Encoder(loaded.tokenizer), documents, WINDOW, FITTED))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--runs", type=Path, default=Path("runs/precision"))
    arguments.add_argument("--threads", type=int, default=1)
    chosen = arguments.parse_args()
    torch.set_num_threads(chosen.threads)

    loaded = load("bundled", dtype="float32", device="cpu")
    documents = list(read_documents("held-out"))
    shown = (HERE / "README.md").read_text(encoding="utf-8")
    found: dict[str, Findings] = {}
    attention: dict[str, SequenceMean] = {}
    for name, part in parts().items():
        model = part.model(loaded)
        variant = LoadedModel(
            f"bundled, {name}",
            model,
            part.tokenizer(loaded.tokenizer),
            present_plan(model.config, name),
        )
        measurement = Measurement(variant, documents, part.settings)
        folder = chosen.runs / name.replace(", ", "_").replace(" ", "_")
        with RunDirectory(folder, "precision study", measurement.identity()) as directory:
            found[name] = measurement.run(directory.journal(MEASUREMENTS), _say(name))
        if name in ("no BOS", "all arms") or name.startswith("sink"):
            rows = attention_to_first(model, measurement.sequences[:LOOKED_AT])
            attention[name] = estimate(rows.mean((1, 2)).tolist())
    drawn = {
        name.replace(" ", "_"): {
            picture: panels
            for picture, panels in charts(found[name]).items()
            if f"figures/{name.replace(' ', '_')}/{picture}.png" in shown
        }
        for name in ("reach", "all shifts")
    }
    DRAWN.write_text(json.dumps(drawn) + "\n", encoding="utf-8")
    results = {
        "command": "python -m studies.precision.measure",
        "machine": machine(),
        "refused_arms": computed_here()[1],
        "attention_to_first": attention,
        "comparisons": comparisons(found),
        "parts": {name: _kept(findings) for name, findings in found.items()},
    }
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def comparisons(found: dict[str, Findings]) -> dict[str, SequenceMean]:
    """The ratios of D between arms: the geometric mean over sequences."""

    def arm(part: str, name: str, weights: str = GIVEN) -> ArmResult:
        result = found[part].arm(name, weights)
        assert result is not None
        return result

    def over(ours: ArmResult, theirs: ArmResult) -> SequenceMean:
        times = ratio(ours, theirs)
        assert times is not None
        return times

    window, reach = arm("all arms", "bf16"), arm("reach", "bf16")
    return {
        "bf16 over fp32, 512": over(window, arm("all arms", "fp32")),
        "bf16 over fp32, 4096": over(reach, arm("reach", "fp32")),
        **{
            f"given over {kind}, 512": over(window, arm("all arms", "bf16", kind))
            for kind in WEIGHTS[1:]
        },
        **{
            f"given over {kind} with logits as trained, 512": over(
                window, arm(f"{kind}, logits as trained", "bf16")
            )
            for kind in WEIGHTS[1:]
        },
    }


def _kept(found: Findings) -> dict[str, object]:
    """The part that the results file keeps: not the number of every token and sequence."""
    kept = found.to_json()
    kept["arms"] = [
        {**asdict(arm), "tokens": _summary(arm.tokens), "sample_curves": len(arm.sample_curves)}
        for arm in found.arms
    ]
    return kept


def _summary(parts_of_d: Sequence[float]) -> dict[str, Any]:
    values = np.asarray(parts_of_d)
    return {
        "first": float(values[0]),
        "rank_of_first": int((values > values[0]).sum()) + 1,
        "median": float(np.median(values)),
        "largest": float(values.max()),
        "last": float(values[-1]),
    }


def _say(name: str) -> Callable[[int, int], None]:
    shown = -1

    def say(done: int, total: int) -> None:
        nonlocal shown
        percent = 100 * done // max(total, 1)
        if percent >= shown + 5 or (done == total and percent != shown):
            shown = percent
            print(f"{name}: {percent}%", file=sys.stderr, flush=True)

    return say


if __name__ == "__main__":
    main()
