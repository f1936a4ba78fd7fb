"""Does `ropewalk train` help at the target length? Measured on the three bundled models.

    python -m studies.training.measure            runs what is missing: some ten minutes of a core
    python -m studies.training.measure --report   runs nothing

Each model is trained at four times its window with the recipe `anchor`, on documents of the text
and the kinds of questions that it was first trained with, and evaluated on the held-out text: as
it is, under the recipe's plan and under YaRN without training, and trained. What the evaluation
reads was read by no training. Differences are paired by sample, with the intervals of `ropewalk
compare`; models are draws of one recipe, and three are too few for an interval over models.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

import ropewalk as rw
from benchmarks.machine import machine, measured_on
from docs.figures import Sentence
from ropewalk.models.load import load
from ropewalk.outputs import write_atomically
from ropewalk.records import PERPLEXITY
from studies.bundled_model.corpus import read_corpus
from studies.bundled_model.model import STAGES
from studies.bundled_model.train import words_of
from studies.bundled_model.windows import TextStream, WindowMix

RESULTS = Path(__file__).with_name("results.json")
MODELS = ("bundled", "bundled:2", "bundled:3")
TARGET, WINDOW = 2048, 512
STEPS, BATCH, LEARNING_RATE = 60, 1, 1e-3
SAMPLES = 30
YARN = "yarn, untrained"
TASKS = ("passkey", "needle", "kv", "perplexity")
SHARES = STAGES[1].shares
"""What the models saw last while they were first trained, so that only the length is new."""
ROOM = 40
"""Tokens that a document stays below the window: text to tokens and back may add some."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=Path, default=Path("runs/training"))
    parser.add_argument("--models", nargs="+", default=MODELS, choices=MODELS)
    parser.add_argument("--report", action="store_true", help="run nothing")
    arguments = parser.parse_args()
    if not arguments.report:
        torch.set_num_threads(1)
        found = {}
        for name in arguments.models:
            found[name] = measured(name, arguments.runs)
            kept = {"machine": {**machine(), "torch": torch.__version__}, "models": found}
            write_atomically(RESULTS, json.dumps(kept, indent=1) + "\n")
    print(_page(json.loads(RESULTS.read_text())))


def documents(name: str, count: int, seed: int) -> list[str]:
    """Text with facts and questions about them, nearly as long as a window."""
    tokenizer = load(name).tokenizer
    texts = list(read_corpus().training.values())
    mix = WindowMix(tokenizer, TextStream(tokenizer, texts), words_of(texts), TARGET - ROOM, SHARES)
    rng = np.random.default_rng([seed, TARGET])
    drawn = (mix.draw(rng, TARGET - ROOM) for _ in range(count))
    return [tokenizer.decode(each.tokens.tolist(), skip_special_tokens=True) for each in drawn]


def measured(name: str, runs: Path) -> dict[str, Any]:
    own = runs / name.replace(":", "-")
    seed = MODELS.index(name)
    trained = rw.train(
        name,
        corpus=documents(name, STEPS * BATCH, seed),
        to=TARGET,
        recipe="anchor",
        steps=STEPS,
        batch=BATCH,
        learning_rate=LEARNING_RATE,
        warmup=10,
        seed=seed,
        run=own / "train",
    )
    arms: dict[str, dict[str, Any]] = {
        "as it is": {"model": name, "methods": ["none"]},
        "its plan, untrained": {"model": name, "plans": [trained.plan]},
        YARN: {"model": name, "methods": ["yarn"], "to": TARGET},
        "trained": {"model": str(own / "train" / "model"), "methods": ["none"]},
    }
    results = {}
    for label, arm in arms.items():
        place = own / label.replace(",", "").replace(" ", "-")
        results[label] = rw.evaluate(
            arm.pop("model"),
            lengths=[WINDOW, TARGET],
            tasks=TASKS,
            samples=SAMPLES,
            run=place,
            **arm,
        )
    differences = {}
    for label in list(arms)[:-1]:
        compared = rw.compare_runs(own / "trained", own / label.replace(",", "").replace(" ", "-"))
        differences[label] = [each.to_json() for each in compared.comparisons]
    return {
        "loss_first": trained.stages[0].loss_first,
        "loss_last": trained.stages[0].loss_last,
        "base": trained.plan.longest().geometric_base,
        "tokens": trained.tokens,
        "results": {
            label: [row.to_json() for row in (*found.results, *found.means)]
            for label, found in results.items()
        },
        "differences": differences,
    }


def recorded() -> dict[str, Any] | None:
    found: dict[str, Any] | None = json.loads(RESULTS.read_text()) if RESULTS.exists() else None
    return found


def blocks() -> dict[str, str]:
    kept = recorded()
    return {} if kept is None else {"docs/training.md": _page(kept)}


def sentences() -> list[Sentence]:
    kept = recorded()
    if kept is None:
        return []
    own = kept["models"]["bundled"]

    def right(label: str) -> dict[str, float]:
        """By task, and their mean, at the target."""
        rows = [row for row in own["results"][label] if row["length"] == TARGET]
        names = (*TASKS[:-1], "retrieval")
        return {row["task"]: row["value"] for row in rows if row["task"] in names}

    yarn, trained = right(YARN), right("trained")
    page = "docs/training.md"
    return [
        Sentence(
            page,
            "gives as many right answers to `needle` as YaRN does",
            holds=trained["needle"] == yarn["needle"],
        ),
        Sentence(
            page,
            "one less to `kv`",
            holds=round(SAMPLES * (yarn["kv"] - trained["kv"])) == 1,
        ),
        Sentence(page, "On `passkey` it answers nothing", holds=trained["passkey"] == 0),
        Sentence(page, "Untrained YaRN was right {} of the time", (f"{yarn['retrieval']:.0%}",)),
    ]


def _page(kept: Mapping[str, Any]) -> str:
    """Retrieval and perplexity at the window and at the target, by model and arm."""
    lines = [
        "| model | | retrieved at 512 | at 2k | perplexity at 512 | at 2k |",
        "|---|---|---|---|---|---|",
    ]
    for name, own in kept["models"].items():
        for label, rows in own["results"].items():
            cells = [
                _cell(rows, length, is_loss) for is_loss in (False, True) for length in (512, 2048)
            ]
            lines.append(f"| `{name}` | {label} | {' | '.join(cells)} |")
    lines += ["", *_by_task(kept), "", *_differences(kept), ""]
    lines.append(measured_on(kept["machine"], "python -m studies.training.measure") + ".")
    return "\n".join(lines)


def _by_task(kept: Mapping[str, Any]) -> list[str]:
    """The answers behind the means, at the target: right ones of those asked."""
    lines = [
        f"Right answers at 2k, of {SAMPLES} each, and each task's difference from YaRN without "
        "training (95% intervals over samples):",
        "",
        f"| model | | {' | '.join(TASKS[:-1])} |",
        "|---|---|---|---|---|",
    ]
    for name, own in kept["models"].items():
        for label, rows in own["results"].items():
            found = {r["task"]: r for r in rows if _is_answer(r)}
            cells = [f"{found[task]['value'] * found[task]['samples']:.0f}" for task in TASKS[:-1]]
            lines.append(f"| `{name}` | {label} | {' | '.join(cells)} |")
        compared = {r["task"]: r for r in own["differences"][YARN] if _is_answer(r)}
        cells = [_ends(compared[task]["comparison"]) for task in TASKS[:-1]]
        lines.append(f"| `{name}` | trained less yarn, untrained | {' | '.join(cells)} |")
    return lines


def _is_answer(row: Mapping[str, Any]) -> bool:
    return bool(row["length"] == TARGET and row["metric"] == "exact_match")


def _cell(rows: list[dict[str, Any]], length: int, is_loss: bool) -> str:
    wanted = PERPLEXITY.name if is_loss else None
    for row in rows:
        if row["length"] != length:
            continue
        if is_loss and row["metric"] == wanted and row["task"] == "perplexity":
            return _interval(row, "{:.1f}")
        if not is_loss and row["task"] == "retrieval":
            return _interval(row, "{:.0%}")
    return "–"


def _interval(row: Mapping[str, Any], form: str) -> str:
    told = form.format(row["value"])
    if row["low"] is None:
        return told
    return f"{told} ({form.format(row['low'])} to {form.format(row['high'])})"


def _differences(kept: Mapping[str, Any]) -> list[str]:
    """Trained less untrained, at the target, paired by sample."""
    lines = [
        "Trained less untrained, at 2k on the same samples (share of answers; nats per token), "
        "with 95% intervals over samples:",
        "",
    ]
    for name, own in kept["models"].items():
        for label, rows in own["differences"].items():
            told = ", ".join(
                _difference(row)
                for row in rows
                if row["length"] == TARGET and row["task"] in ("retrieval", "perplexity")
            )
            lines.append(f"- `{name}`, {label}: {told}")
    return lines


def _difference(row: Mapping[str, Any]) -> str:
    found = row["comparison"]
    return f"{row['task']} {_ends(found)}"


def _ends(found: Mapping[str, Any]) -> str:
    told = f"{found['difference']:+.2f}"
    if found["low"] is None:
        return told
    return f"{told} ({found['low']:+.2f} to {found['high']:+.2f})"


if __name__ == "__main__":
    main()
