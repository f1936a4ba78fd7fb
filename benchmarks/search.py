"""LongRoPE's evolutionary search beside the adaptive one: held-out score against tokens.

    python -m benchmarks.search                 hours of two cores; started again, it goes on
    python -m benchmarks.search --report        what is there so far, as results/search.json

Three small models, five seeds each, in the same space, with the attention scaling m held at 1, held
at YaRN's, and searched: so the share of m and the share of the search are told apart. The adaptive
search has a tenth of Algorithm 1's tokens, on four times the documents. Controls, with three seeds
and m searched: the same on just the documents of Algorithm 1 (`same`), random search and plain
CMA-ES (`covariance`), both for a quarter of Algorithm 1's evaluations. Each run is a journal under
--runs, one thread each; a seed draws the documents too.

Only documents that no search saw are reported on. What is compared, for every model and m:

- the tokens after which the adaptive search holds a candidate no worse than the one that the
  evolution ends with, as a share of the evolution's tokens (the aim: a median of at most 10%);
- how the candidates that both hold after as many tokens differ on the held-out documents, with the
  95% interval of a bootstrap over documents.

The models other than the bundled one are trained by the study of the bundled model:

    python -m studies.bundled_model.train --size narrow --seeds 2
    python -m studies.bundled_model.train --size slim --seeds 1
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.machine import machine
from benchmarks.search_controls import CONTROLS
from ropewalk.context_plan import FULL_ATTENTION, ContextPlan, PlanStep
from ropewalk.data.corpora import HELD_OUT, read_documents
from ropewalk.evaluation.encoding import Encoder
from ropewalk.models.config import BUNDLED
from ropewalk.models.load import LoadedModel, load
from ropewalk.outputs import write_atomically
from ropewalk.planning.extension import extend
from ropewalk.planning.hand_designed import HAND_DESIGNED
from ropewalk.reports.figures import save
from ropewalk.run_directory import Journal
from ropewalk.schedule import RotarySchedule
from ropewalk.searching.adaptive import EVALUATIONS
from ropewalk.searching.driver import Progress, search
from ropewalk.searching.model.objectives import LocalMeasure, ModelObjective, loss_of
from ropewalk.searching.model.planted import Planted, split_corpus
from ropewalk.searching.space import Candidate, Space
from ropewalk.searching.strategies import STRATEGIES
from studies.bundled_model.train import finished

REPOSITORY = Path(__file__).parents[1]
RESULTS = Path(__file__).with_name("results") / "search.json"
FINISHED = RESULTS.with_name("search_runs.jsonl")
"""What every finished run came to: none of them is run again."""
PICTURE = REPOSITORY / "docs" / "images" / "search.png"
PAGE = REPOSITORY / "docs" / "search.md"
BEGIN, END = "<!-- written by benchmarks/search.py -->", "<!-- until here -->"
CANDIDATES = REPOSITORY / "runs" / "bundled_model"


class Subject(NamedTuple):
    """A model and how far it is extended."""

    seed: int | None  # of its training; None for the model that ships
    target: int
    documents: int  # to search on


SUBJECTS = {
    "narrow": Subject(2, 512, 6),
    "slim": Subject(1, 512, 6),
    "bundled": Subject(None, 1024, 3),
}
SPREAD = 4
"""The adaptive search is given so many times the documents of Algorithm 1."""
SCALINGS = ("one", "yarn", "free")
COMPARED = ("evolution", "adaptive")
SAID = {"one": "held at 1", "yarn": "held at YaRN's", "free": "searched"}
SEEDS, CONTROL_SEEDS = 5, 3
HELD_OUT_DOCUMENTS = 96  # or as many as the text has left
# Held-out documents are looked at when a search has spent these shares of Algorithm 1's tokens.
ALGORITHM_1 = 1344
CONTROLLED = {"same": EVALUATIONS, "random": 336, "covariance": 336}
"""The controls with their evaluations: a tenth of Algorithm 1's, and a quarter."""
LOOKS = sorted({*(2.0**-k for k in np.arange(0, 7.5, 0.5)), *np.arange(0.01, 0.11, 0.01)})
RESAMPLES = 10_000


class Run(NamedTuple):
    """One search."""

    model: str
    scaling: str
    strategy: str
    seed: int

    @property
    def name(self) -> str:
        return "-".join(map(str, self))


def runs() -> list[Run]:
    """All of them, the seeds outermost: what is cut short is complete for fewer seeds."""
    found = []
    for seed in range(SEEDS):
        for model in SUBJECTS:
            for scaling in SCALINGS:
                found += [Run(model, scaling, name, seed) for name in COMPARED]
            if seed < CONTROL_SEEDS:
                found += [Run(model, "free", name, seed) for name in CONTROLLED]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=Path, default=REPOSITORY / "runs" / "search")
    parser.add_argument("--candidates", type=Path, default=CANDIDATES)
    parser.add_argument("--models", default=",".join(SUBJECTS), help="only these, by comma")
    parser.add_argument("--strategies", default="", help="only these, by comma")
    parser.add_argument("--seeds", type=int, nargs="+", default=range(SEEDS), help="only these")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--report", action="store_true", help="run nothing")
    arguments = parser.parse_args()
    models, strategies = arguments.models.split(","), arguments.strategies.split(",")
    chosen = [
        run
        for run in runs()
        if run.model in models
        and run.seed in arguments.seeds
        and (not arguments.strategies or run.strategy in strategies)
    ]
    arguments.runs.mkdir(parents=True, exist_ok=True)
    if not arguments.report:
        known = _finished_runs(arguments.runs)
        missing = [run for run in chosen if run not in known]
        with ProcessPoolExecutor(arguments.jobs, mp_context=get_context("spawn")) as pool:
            works = [
                pool.submit(work, run, arguments.runs, arguments.candidates) for run in missing
            ]
            for done, future in enumerate(as_completed(works), start=1):
                print(f"{done} of {len(works)}: {future.result()}", flush=True)
    results = _finished_runs(arguments.runs)
    lines = [json.dumps(_rounded(value), separators=(",", ":")) for value in results.values()]
    write_atomically(FINISHED, "\n".join(lines) + "\n")
    found = summary(results)
    write_atomically(RESULTS, json.dumps(found, indent=2) + "\n")
    draw(found, PICTURE)
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    write_atomically(PAGE, f"{before}{BEGIN}\n{page(found)}\n{END}{after}")
    print(table(found))
    return 0


def _finished_runs(folder: Path) -> dict[Run, dict[str, Any]]:
    """Those that were kept with the results, and those of this folder."""
    kept = FINISHED.read_text().splitlines() if FINISHED.exists() else []
    found = {_name(value): value for value in map(json.loads, kept)}
    for run in runs():
        if _result(folder, run).exists():
            found[run] = json.loads(_result(folder, run).read_text())
    return {run: found[run] for run in runs() if run in found}


def _name(value: dict[str, Any]) -> Run:
    return Run(*(value[key] for key in Run._fields))


def _rounded(value: Any) -> Any:
    """The same with five decimals: losses are no better known than that."""
    if isinstance(value, float):
        return round(value, 5)
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    return value


def _result(folder: Path, run: Run) -> Path:
    return folder / f"{run.name}.json"


def work(run: Run, folder: Path, candidates: Path) -> str:
    """One search with its looks at the held-out documents."""
    torch.set_num_threads(1)
    subject = SUBJECTS[run.model]
    loaded = load(
        BUNDLED if subject.seed is None else str(finished(candidates / run.model, subject.seed))
    )
    start = loaded.present_plan.longest()
    searched, reporting = _documents(loaded, subject, run)
    documents = (*searched, *reporting)

    def plan_of(schedule: RotarySchedule) -> ContextPlan:
        steps = (PlanStep(schedule.length, schedule),)
        return ContextPlan(loaded.present_plan.model, {FULL_ATTENTION: steps})

    measure = LocalMeasure(loaded.model, documents, plan_of)
    yarn = extend(start, subject.target, "yarn").attention_scaling
    fixed = {"one": 1.0, "yarn": yarn, "free": None}[run.scaling]
    space = Space(start, subject.target, attention_scaling=fixed, stock_runtimes=True)
    objective = ModelObjective(measure, "mixed", len(searched), subject.target)
    everything = ALGORITHM_1 * subject.documents * subject.target
    looks = [round(share * everything) for share in LOOKS]
    incumbents: dict[int, Candidate] = {}
    spent = 0

    def note(progress: Progress) -> None:
        # What is held at a look is the best of before it, until something new is found.
        nonlocal spent
        spent = progress.tokens
        for look in looks:
            if look >= progress.tokens:
                incumbents[look] = progress.best

    began = time.perf_counter()
    journal = Journal(folder / f"{run.name}.jsonl")
    result = search(
        space,
        objective,
        {**STRATEGIES, **CONTROLS}["adaptive" if run.strategy == "same" else run.strategy],
        seed=run.seed,
        evaluations=EVALUATIONS // SPREAD
        if run.strategy == "adaptive"
        else CONTROLLED.get(run.strategy),
        journal=journal,
        progress=note,
    )
    journal.close()
    held_out_documents = range(len(searched), len(documents))
    reached = {
        look: candidate
        for look, candidate in incumbents.items()
        if look <= spent or look == min(each for each in looks if each >= spent)
    }
    held_out = {
        candidate: measure([space.schedule(candidate)], held_out_documents)[0]
        for candidate in dict.fromkeys([*reached.values(), result.best])
    }
    by_hand = {
        name: measure([extend(start, subject.target, name)], held_out_documents)[0]
        for name in HAND_DESIGNED
    }
    write_atomically(
        _result(folder, run),
        json.dumps(
            {
                **run._asdict(),
                "target": subject.target,
                "search_documents": len(searched),
                "held_out_documents": len(reporting),
                "evaluations": result.evaluations,
                "tokens": result.tokens,
                "search_score": result.score,
                "best": result.best.to_json(),
                "looks": [
                    {"tokens": look, "held_out": _losses(held_out[candidate])}
                    for look, candidate in sorted(reached.items())
                ],
                "final": _shown(held_out[result.best]),
                "by_hand": {name: _shown(value) for name, value in by_hand.items()},
                "seconds": round(time.perf_counter() - began, 1),
            }
        ),
    )
    return run.name


def _documents(
    loaded: LoadedModel, subject: Subject, run: Run
) -> tuple[tuple[Planted, ...], tuple[Planted, ...]]:
    """What a run searches on, and what it is reported on: the same of a seed for all strategies."""
    corpus, encoder = list(read_documents(HELD_OUT)), Encoder(loaded.tokenizer)
    own = split_corpus(corpus, encoder, subject.target, (subject.documents, 1, 24), run.seed)
    taken = {document.source for document in own.all}
    everything = split_corpus(corpus, encoder, subject.target, (200, 1, 1), run.seed).all
    others = [document for document in everything if document.source not in taken]
    more = (SPREAD - 1) * subject.documents
    searched = (*own.search, *others[:more]) if run.strategy == "adaptive" else own.search
    return searched, (*own.reporting, *others[more:])[:HELD_OUT_DOCUMENTS]


def _losses(measured: NDArray[np.float64]) -> list[float]:
    return [float(value) for value in loss_of(measured, "mixed")]


def _shown(measured: NDArray[np.float64]) -> dict[str, object]:
    text, answers, retrieved = measured.mean(axis=0)
    return {
        "held_out": _losses(measured),
        "score": float(text + answers),
        "perplexity": float(np.exp(text)),
        "retrieval": float(retrieved),
    }


def summary(results: dict[Run, dict[str, Any]]) -> dict[str, Any]:
    """Every model and m: what each strategy reached, and the adaptive one beside the evolution."""
    rows = []
    for model, scaling in product(SUBJECTS, SCALINGS):
        own = {r: v for r, v in results.items() if (r.model, r.scaling) == (model, scaling)}
        challenged = {
            name: [
                (value, own[other])
                for run, value in own.items()
                if run.strategy == name and (other := run._replace(strategy="evolution")) in own
            ]
            for name in ("adaptive", *CONTROLLED)
        }
        if any(challenged.values()):
            rows.append(
                {
                    "model": model,
                    "scaling": scaling,
                    "against_evolution": {
                        name: _compared(pairs) for name, pairs in challenged.items() if pairs
                    },
                    **_reached(own),
                }
            )
    costs = {
        model: _median(
            cost
            for row in rows
            if row["model"] == model and "adaptive" in row["against_evolution"]
            for cost in row["against_evolution"]["adaptive"]["cost_to_reach"]
        )
        for model in dict.fromkeys(row["model"] for row in rows)
    }
    return {
        "machine": machine(),
        "torch": torch.__version__,
        "median_cost_to_reach": costs,
        "rows": rows,
    }


def _compared(pairs: Sequence[tuple[dict[str, Any], dict[str, Any]]]) -> dict[str, Any]:
    """A challenger beside the evolution of the same seed."""
    costs = [_cost_to_reach(challenger, evolution) for challenger, evolution in pairs]
    at_the_end = [_held(a, a["tokens"]) - _held(e, e["tokens"]) for a, e in pairs]
    as_many = [_held(a, a["tokens"]) - _held(e, a["tokens"]) for a, e in pairs]
    shown = [None if np.isinf(cost) else round(cost, 4) for cost in costs]
    return {
        "seeds": len(pairs),
        "cost_to_reach": shown,
        "median_cost_to_reach": _median(shown),
        "spent": round(float(np.median([a["tokens"] / e["tokens"] for a, e in pairs])), 4),
        "difference_at_equal_tokens": _interval(as_many),
        "difference_at_the_end": _interval(at_the_end),
    }


def _median(costs: Iterable[float | None]) -> float | None:
    """None where the median run never got there."""
    median = float(np.median([np.inf if cost is None else cost for cost in costs]))
    return None if np.isinf(median) else median


def _reached(own: dict[Run, dict[str, Any]]) -> dict[str, Any]:
    """What each strategy and hand-designed method came to, over the seeds that are complete."""
    seeds = [
        s
        for s in range(SEEDS)
        if all(any(r.strategy == n and r.seed == s for r in own) for n in COMPARED)
    ]

    def median(values: Iterable[dict[str, Any]]) -> dict[str, float]:
        rows = list(values)
        return {
            key: round(float(np.median([row[key] for row in rows])), 4)
            for key in ("score", "perplexity", "retrieval")
        }

    def of(strategy: str) -> list[dict[str, Any]]:
        return [v for r, v in own.items() if r.strategy == strategy and r.seed in seeds]

    if not seeds:
        return {"seeds": 0, "reached": {}, "by_hand": {}, "curves": {}}
    return {
        "seeds": len(seeds),
        "reached": {name: median(v["final"] for v in of(name)) for name in COMPARED},
        "by_hand": {
            name: median(v["by_hand"][name] for v in of("evolution"))
            for name in of("evolution")[0]["by_hand"]
        },
        "curves": {name: _curve(of(name)) for name in COMPARED},
    }


def _cost_to_reach(challenger: dict[str, Any], evolution: dict[str, Any]) -> float:
    """The share of the evolution's tokens after which the challenger is no worse held out."""
    goal = evolution["final"]["score"]
    reached = [look["tokens"] for look in challenger["looks"] if np.mean(look["held_out"]) <= goal]
    return min(reached) / evolution["tokens"] if reached else float("inf")


def _held(result: dict[str, Any], tokens: int) -> NDArray[np.float64]:
    """The held-out losses of what a search held when it had spent so many tokens."""
    if tokens >= result["tokens"]:
        return np.array(result["final"]["held_out"])
    # Between two looks the later one: it had more to spend.
    look = next(look for look in result["looks"] if look["tokens"] >= tokens)
    return np.array(look["held_out"])


def _interval(differences: Sequence[NDArray[np.float64]]) -> dict[str, float]:
    """The mean over seeds of the mean over documents; below 0 the adaptive search is better."""
    rng = np.random.default_rng(0)
    means = np.zeros(RESAMPLES)
    for difference in differences:
        drawn = rng.integers(0, len(difference), (RESAMPLES, len(difference)))
        means += difference[drawn].mean(axis=1) / len(differences)
    low, high = np.quantile(means, [0.025, 0.975])
    return {
        "mean": float(np.mean([difference.mean() for difference in differences])),
        "low": float(low),
        "high": float(high),
    }


def _curve(values: Sequence[dict[str, Any]]) -> list[list[float]]:
    """Tokens, and the median held-out score over seeds, at every look that all seeds reached."""
    by_look: dict[int, list[float]] = {}
    for value in values:
        for look in value["looks"]:
            by_look.setdefault(look["tokens"], []).append(float(np.mean(look["held_out"])))
    return [
        [tokens, float(np.median(scores))]
        for tokens, scores in sorted(by_look.items())
        if len(scores) == len(values)
    ]


def table(value: dict[str, Any]) -> str:
    lines = []
    for row in value["rows"]:
        lines.append(f"{row['model']}, m {SAID[row['scaling']]}, {row['seeds']} complete seeds")
        for name, reached in {**row["by_hand"], **row["reached"]}.items():
            lines.append(
                f"    {name:12} score {reached['score']:.4f}  perplexity "
                f"{reached['perplexity']:6.2f}  retrieval {reached['retrieval']:.3f}"
            )
        for name, found in row["against_evolution"].items():
            cost = found["median_cost_to_reach"]
            said = "not reached" if cost is None else f"reached after {cost:.1%} of its tokens"
            at_equal, at_end = (
                f"{d['mean']:+.4f} ({d['low']:+.4f} to {d['high']:+.4f})"
                for d in (found["difference_at_equal_tokens"], found["difference_at_the_end"])
            )
            lines.append(
                f"  {name} beside evolution, {found['seeds']} seeds: {said} (median); "
                f"{at_equal} at equal tokens, {at_end} at the end"
            )
    for model, cost in value["median_cost_to_reach"].items():
        said = "not reached" if cost is None else f"{cost:.1%}"
        lines.append(f"{model}, all its runs: the median cost of the adaptive search is {said}")
    return "\n".join(lines)


def page(value: dict[str, Any]) -> str:
    """The table of the documents: score and retrieval, and when Algorithm 1's score was reached."""
    lines = [
        "| model | m | seeds | best hand-designed | evolution | adaptive "
        "| reached after (runs that did) | at equal tokens | at the end |",
        "|---" * 9 + "|",
    ]
    for row in value["rows"]:
        if not row["seeds"]:
            continue
        by_hand = min(row["by_hand"], key=lambda name: row["by_hand"][name]["score"])
        shown = [row["by_hand"][by_hand], *(row["reached"][name] for name in COMPARED)]
        cells = [f"{each['score']:.3f} / {each['retrieval']:.1%}" for each in shown]
        found = row["against_evolution"]["adaptive"]
        cost, costs = found["median_cost_to_reach"], found["cost_to_reach"]
        reached = "not" if cost is None else f"{cost:.1%}"
        differences = [
            f"{d['mean']:+.3f} ({d['low']:+.3f} to {d['high']:+.3f})"
            for d in (found["difference_at_equal_tokens"], found["difference_at_the_end"])
        ]
        lines.append(
            f"| {row['model']} | {SAID[row['scaling']]} | {row['seeds']} | {by_hand} {cells[0]} | "
            f"{cells[1]} | {cells[2]} | {reached} ({len(costs) - costs.count(None)}) | "
            + " | ".join(differences)
            + " |"
        )
    return "\n".join(lines)


def draw(value: dict[str, Any], path: Path) -> None:
    """Held-out score against tokens: a row a model, a column a way to treat m."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 2.8 * len(SUBJECTS)), layout="constrained")
    grid = figure.subplots(len(SUBJECTS), len(SCALINGS), squeeze=False)
    rows = {(row["model"], row["scaling"]): row for row in value["rows"]}
    for axes, key in zip(grid.flat, product(SUBJECTS, SCALINGS), strict=True):
        model, scaling = key
        row = rows.get(key)
        if row is None:
            axes.set_axis_off()
            continue
        for i, (name, curve) in enumerate(row["curves"].items()):
            tokens, scores = zip(*curve, strict=True)
            axes.plot(tokens, scores, color=f"C{i}", label=name, linewidth=1.6)
        if not row["seeds"]:
            axes.set_axis_off()
            continue
        by_hand = min(row["by_hand"], key=lambda name: row["by_hand"][name]["score"])
        axes.axhline(row["by_hand"][by_hand]["score"], color="0.5", linestyle=":", label=by_hand)
        axes.set_xscale("log")
        axes.set_title(f"{model} to {SUBJECTS[model].target}, m {SAID[scaling]}", fontsize=9)
        axes.tick_params(labelsize=8)
        axes.grid(axis="y", color="0.92", linewidth=0.6)
    for axes in grid[-1]:
        axes.set_xlabel("tokens", fontsize=9)
    for axes in grid[:, 0]:
        axes.set_ylabel("held-out score", fontsize=9)
    grid[0, -1].legend(frameon=False, fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    save(figure, path)


if __name__ == "__main__":
    sys.exit(main())
