"""One fact in a document against eight: whether those who are asked more answer less.

    python -m benchmarks.planted_level [MODEL …]    some minutes; writes results/planted_level.json

The verdict of `extend` reads documents of up to eight facts, which are asked for one after the
other. Here each document is read twice: as it is, and with one of its facts alone, the same text
around it, at the same depth. The fact of each document is another one in turn. Unmodified models
read documents of their window, and those that YaRN extends documents of 4 times as much. If a
window has no room for two facts, as the 128 tokens of `tall` and `wide`, the model is read at the
target alone, with as many facts as fit there. Without MODEL the three bundled ones are measured;
MODEL may be one of studies/training (`tall`), and results are kept next to the others.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.machine import PAGE, machine
from ropewalk.data.corpora import HELD_OUT, read_documents
from ropewalk.evaluation.encoding import Encoder
from ropewalk.evaluation.planted import Planted, Stretch, plant, stretches_of
from ropewalk.evaluation.scoring import Scorer
from ropewalk.evaluation.statistics import PairedComparison, compare_rates, mean_interval
from ropewalk.models.config import BUNDLED_FOLDERS
from ropewalk.models.install import applied
from ropewalk.models.load import load
from ropewalk.outputs import write_atomically
from ropewalk.planning.extension import extend_plan
from studies.training.cells import SUBJECTS

RESULTS = Path(__file__).with_name("results") / "planted_level.json"
DOCUMENTS, SEED, TIMES = 48, 66, 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=list(BUNDLED_FOLDERS), metavar="MODEL")
    torch.set_num_threads(1)
    found = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {"rows": []}
    for model in parser.parse_args().models:
        rows = measured(model)
        others = [row for row in found["rows"] if row["model"] != rows[0]["model"]]
        found = {"machine": {**machine(), "torch": torch.__version__}, "rows": others + rows}
        write_atomically(RESULTS, json.dumps(found, indent=1) + "\n")
    print(table(found))


def measured(model: str, documents: int = DOCUMENTS) -> list[dict[str, Any]]:
    """For the window and the target, one row of scores of each document."""
    loaded = load(SUBJECTS[model].path if model in SUBJECTS else model)
    present, encoder = loaded.present_plan, Encoder(loaded.tokenizer, loaded.vocabulary)
    window = present.target_length
    texts, rows, scorer = list(read_documents(HELD_OUT)), [], Scorer(loaded.model)
    for length, plan in (
        (window, present),
        (TIMES * window, extend_plan(present, TIMES * window, "yarn")),
    ):
        stretches, _ = stretches_of(texts, encoder, length, documents, SEED)
        fit = {
            most: len(plant(stretches[0], encoder, length, 0, SEED, mixed_within=most).answers)
            for most in (window, length)
        }
        if fit[length] == 1:
            continue
        within = window if fit[window] > 1 else length
        eight: list[float] = []
        one: list[float] = []
        alone: list[float] = []
        with applied(loaded.model, plan, length=length, check=False):
            for number, stretch in enumerate(stretches):
                whole = plant(stretch, encoder, length, number, SEED, mixed_within=within)
                asked = number % len(whole.answers)
                right = answered(scorer, whole)
                eight.append(sum(right) / len(right))
                one.append(float(right[asked]))
                alone += map(float, answered(scorer, with_one(whole, stretch, encoder, asked)))
        rows.append(
            {
                "model": Path(model).name,
                "length": length,
                "facts": len(whole.answers),
                "eight": eight,
                "one of eight": one,
                "alone": alone,
            }
        )
        print(f"{model} at {length:,}: {told(rows[-1])}", flush=True)
    return rows


def answered(scorer: Scorer, document: Planted) -> list[bool]:
    [scores] = scorer.score([document.tokens], [document.scored_from])
    return [document.matched(scores, answer) for answer in document.answers]


def with_one(whole: Planted, stretch: Stretch, encoder: Encoder, asked: int) -> Planted:
    """The same document with one of its facts alone, and more of its text instead of the others."""
    length, begin = len(whole.tokens), round(whole.depths[asked] * len(whole.tokens))
    line = whole.tokens[begin : _line_end(whole.tokens, encoder, begin + 1)]
    answer = whole.answers[asked]
    # The question with the line break before it, and with what ends its answer.
    asks = max(i for i in _line_ends(whole.tokens, encoder) if i <= answer.start) - 1
    question = whole.tokens[asks : _line_end(whole.tokens, encoder, answer.stop)]
    bos = np.array(encoder.bos, dtype=np.int64)
    text = stretch.tokens[: length - len(bos) - len(line) - len(question)]
    begins = begin - len(bos)
    # Where lines are rare, a fact brings its own line break.
    place = max((i for i in _line_ends(text, encoder) if i <= begins), default=begins)
    end, moved = length - len(question), length - len(question) - asks
    return replace(
        whole,
        tokens=np.concatenate([bos, text[:place], line, text[place:], question]),
        text=slice(end - 1, end),
        answers=(slice(answer.start + moved, answer.stop + moved),),
        depths=((len(bos) + place) / length,),
    )


def _line_ends(tokens: np.ndarray, encoder: Encoder) -> list[int]:
    ends = (encoder.text(tokens[i : i + 1]).endswith("\n") for i in range(len(tokens)))
    return [i for i, is_end in enumerate(ends, start=1) if is_end]


def _line_end(tokens: np.ndarray, encoder: Encoder, begin: int) -> int:
    """The first end of a line after a place, or that of all."""
    return next((end for end in _line_ends(tokens, encoder) if end > begin), len(tokens))


def compared(row: dict[str, Any]) -> PairedComparison:
    return compare_rates(row["one of eight"], row["alone"])


def together(rows: list[dict[str, Any]]) -> str:
    """The last row: means over all documents, and the interval of the difference over models."""
    rates = (
        f"{np.mean([score for row in rows for score in row[name]]):.0%}"
        for name in ("eight", "one of eight", "alone")
    )
    of_model = [
        100 * np.mean([compared(row).difference.value for row in rows if row["model"] == model])
        for model in dict.fromkeys(row["model"] for row in rows)
    ]
    low, high = mean_interval(of_model) or (math.nan, math.nan)
    told = f"{np.mean(of_model):+.0f} ({low:+.0f} to {high:+.0f}, over {len(of_model)} models)"
    return f"| all | both |  | {' | '.join(rates)} | {told} |"


def told(row: dict[str, Any]) -> str:
    return (
        f"all of {row['facts']}: {np.mean(row['eight']):.0%}; one of them "
        f"{np.mean(row['one of eight']):.0%}, alone {np.mean(row['alone']):.0%}"
    )


def table(found: dict[str, Any]) -> str:
    lines = [
        "| model | length | facts | retrieved of all | the same fact among them | alone "
        "| difference, points |",
        "|---" * 7 + "|",
    ]
    for row in found["rows"]:
        by = compared(row)
        between = by.difference.ends
        ends = f" ({100 * between[0]:+.0f} to {100 * between[1]:+.0f})" if between else ""
        rates = (f"{np.mean(row[name]):.0%}" for name in ("eight", "one of eight", "alone"))
        lines.append(
            f"| {row['model']} | {row['length']} | {row['facts']} | {' | '.join(rates)} | "
            f"{100 * by.difference.value:+.0f}{ends} |"
        )
    return "\n".join([*lines, together(found["rows"])])


def blocks() -> dict[str, str]:
    return {PAGE: table(json.loads(RESULTS.read_text("utf-8")))}


if __name__ == "__main__":
    main()
