"""Searches compared: LongRoPE's as published, the same in ropewalk's space, ours, and controls.

    python -m benchmarks.search                 prints an estimate, then runs what is missing
    python -m benchmarks.search --seeds 8       searches per row; more can be added at any time
    python -m benchmarks.search --report        runs nothing: results/search.json from what is there

Two models of the study of the bundled model, with a window of 128, are extended to four times
that. Neither they nor the text (benchmarks/text.py, the part for reporting) were used to choose
anything in a strategy. A seed draws the documents and the search; all strategies of a seed are
reported on the same held-out documents. Rows are in benchmarks/searches.py.

The unit is the search: a difference is taken in each seed, and the interval is Student's t over
seeds. "ahead" and "behind" are words for an interval without 0, all else is "undecided". A model
can tell searches apart when random search with a quarter of the tokens is behind the evolution.

Finished runs are kept in results/search_runs.jsonl with everything that decides them, the weights
and the code of the strategy among it, and are not run again; an interrupted run goes on from its
journal under --runs. The seeds are outermost, so what is cut short is complete for fewer seeds.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.searches import (
    BY_HAND,
    DOCUMENTS,
    LOOKS,
    REPORTED,
    STRATEGIES,
    SUBJECTS,
    UNSEEN,
    Run,
    decides,
    forward_seconds,
    tokens_of,
    weights_of,
    work,
)
from docs.figures import Picture, paragraph
from ropewalk.evaluation.statistics import (
    compare_means,
    holm,
    is_significant,
    mixed_mean_interval,
    t_interval,
)
from ropewalk.outputs import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REPOSITORY = Path(__file__).parents[1]
RESULTS = Path(__file__).with_name("results") / "search.json"
SEEDS = 5
REFERENCES = ("as published", "evolution", "adaptive")
CONTROL, CONTROLLED = "random", "evolution"
UNSHOWN = tuple(
    f"{one} against {other}"
    for one, other in (
        ("random", "as published"),
        ("covariance", "as published"),
        ("covariance", "evolution"),
        ("random", "adaptive"),
        ("random", "yarn"),
        ("covariance", "yarn"),
    )
)
"""Comparisons that are counted, and that a reader decides nothing by."""
"""If the first is not behind the second, a model cannot tell searches apart."""

Finished = dict[Run, dict[str, Any]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--subjects", nargs="+", default=REPORTED, choices=SUBJECTS)
    parser.add_argument("--strategies", nargs="+", default=list(STRATEGIES), choices=STRATEGIES)
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many (default 5)")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--report", action="store_true", help="run nothing")
    parser.add_argument("--runs", type=Path, default=REPOSITORY / "runs" / "search")
    parser.add_argument("--candidates", type=Path, default=REPOSITORY / "runs" / "bundled_model")
    parser.add_argument("--results", type=Path, default=RESULTS, help="for trying this out")
    arguments = parser.parse_args()
    kept = arguments.results.with_name("search_runs.jsonl")
    wanted = [
        Run(subject, strategy, seed)
        for seed in range(arguments.seeds)
        for subject in arguments.subjects
        for strategy in arguments.strategies
    ]
    if arguments.report:
        report(_of_one_kind(_lines(kept)), arguments.results)
        return 0

    weights = {
        name: weights_of(SUBJECTS[name], arguments.candidates) for name in arguments.subjects
    }
    known = [_key(line) for line in _lines(kept)]
    missing = [run for run in wanted if _key(decides(run, weights[run.subject])) not in known]
    _estimate(missing, arguments.candidates, arguments.jobs)
    arguments.runs.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(arguments.jobs, mp_context=get_context("spawn")) as pool:
        one = partial(work, candidates=arguments.candidates, folder=arguments.runs)
        works = {pool.submit(one, run): run for run in missing}
        for done, future in enumerate(as_completed(works), start=1):
            line = future.result()
            with kept.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line, separators=(",", ":")) + "\n")
            run = works[future]
            print(
                f"{done} of {len(works)}: {', '.join(map(str, run))}, {line['seconds']:.0f} s",
                flush=True,
            )
    current = [_key(decides(run, weights[run.subject])) for run in wanted]
    report(_by_run([line for line in _lines(kept) if _key(line) in current]), arguments.results)
    return 0


def _estimate(missing: Sequence[Run], candidates: Path, jobs: int) -> None:
    seconds = {
        name: forward_seconds(SUBJECTS[name], candidates) for name in {r.subject for r in missing}
    }
    total = sum(tokens_of(run) * seconds[run.subject] for run in missing)
    print(
        f"{len(missing)} searches, {sum(map(tokens_of, missing)):,} tokens: about "
        f"{total / jobs / 60:.0f} minutes with {jobs} processes of one thread on an idle machine",
        flush=True,
    )


def _lines(kept: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []


DECIDING = (
    *("version", "subject", "strategy", "seed", "target", "evaluations", "weights", "text"),
    *("code", "share", "documents", "held_out", "looks_at", "torch"),
)


def _key(line: dict[str, Any]) -> str:
    return json.dumps([line[name] for name in DECIDING])


def _by_run(lines: Sequence[dict[str, Any]]) -> Finished:
    return {Run(*(line[name] for name in Run._fields)): line for line in lines}


def _of_one_kind(lines: Sequence[dict[str, Any]]) -> Finished:
    """The finished runs: of each model those of its latest weights, of each row the latest code.

    A model that is trained again on another machine has other weights, and is another model.
    """
    models = {line["subject"]: _model(line) for line in lines}
    own = [line for line in lines if models[line["subject"]] == _model(line)]
    rows = {(line["subject"], line["strategy"]): line["code"] for line in own}
    return _by_run(
        [line for line in own if rows[line["subject"], line["strategy"]] == line["code"]]
    )


def _model(line: dict[str, Any]) -> list[Any]:
    return [line[name] for name in ("weights", "text", "version")]


def report(found: Finished, results: Path) -> None:
    """The results as JSON, and shown; `make figures` writes the page from them."""
    value = summary(found)
    write_atomically(results, json.dumps(value, indent=2) + "\n")
    print(page(value))


def summary(found: Finished) -> dict[str, Any]:
    """The results of every strategy on every model, and each challenger against each reference."""
    rows = []
    for subject in dict.fromkeys(run.subject for run in found):
        own = {run: line for run, line in found.items() if run.subject == subject}
        by_strategy = {
            name: {run.seed: line for run, line in own.items() if run.strategy == name}
            for name in STRATEGIES
        }
        present = {name: lines for name, lines in by_strategy.items() if lines}
        lines = list(own.values())
        compared = {
            f"{name} against {reference}": against(present[name], present[reference])
            for reference in REFERENCES
            for name in present
            if reference in present and name not in REFERENCES[: REFERENCES.index(reference) + 1]
        }
        by_hand = _by_hand(lines)
        best = min(by_hand, key=lambda name: by_hand[name]["score"]["mean"], default=None)
        if best is not None:
            lines_by_hand = {
                run.seed: _line_by_hand(line, best) for run, line in own.items() if line["by_hand"]
            }
            for name in present:
                compared[f"{name} against {best}"] = against(present[name], lines_by_hand)
        control = compared.get(f"{CONTROL} against {CONTROLLED}")
        rows.append(
            {
                "subject": subject,
                "target": lines[0]["target"],
                "weights": sorted({line["weights"] for line in lines}),
                "text": sorted({line["text"] for line in lines}),
                "machines": [
                    dict(items)
                    for items in dict.fromkeys(tuple(line["machine"].items()) for line in lines)
                ],
                "held_out_documents": lines[0]["held_out"],
                "seeds": {name: sorted(value) for name, value in present.items()},
                "incomplete": incomplete(present) if subject in REPORTED else {},
                "tells_searches_apart": None
                if control is None or control["at_the_end"]["interval"] is None
                else control["at_the_end"]["verdict"] == "behind",
                "by_hand": by_hand,
                "spent": {name: _spent(value.values()) for name, value in present.items()},
                "reached": {name: _reached(value) for name, value in present.items()},
                "compared": compared,
                "curves": {name: _curve(value) for name, value in present.items()},
            }
        )
    return {"rows": rows}


def incomplete(present: dict[str, dict[int, Any]]) -> dict[str, list[int]]:
    """The seeds that a strategy lacks and another one has."""
    seeds = {seed for lines in present.values() for seed in lines}
    lacking = {name: sorted(seeds - set(present.get(name, {}))) for name in STRATEGIES}
    return {name: missing for name, missing in lacking.items() if missing}


def against(challenger: dict[int, Any], reference: dict[int, Any]) -> dict[str, Any]:
    """Over the seeds that both have finished; below 0 the challenger is better."""
    pairs = [
        (challenger[seed], reference[seed]) for seed in sorted(challenger) if seed in reference
    ]
    ends = [(_held(a), _held(b)) for a, b in pairs]
    share = min(pairs[0][0]["share"], pairs[0][1]["share"]) if pairs else 0.0
    as_many = [(_held(a, share), _held(b, share)) for a, b in pairs]
    reached = [sustained(a, b) for a, b in pairs]
    return {
        "seeds": len(pairs),
        "share": share,
        "at_equal_tokens": difference(as_many, "score"),
        "at_the_end": difference(ends, "score"),
        "retrieval_at_the_end": difference(ends, "retrieval"),
        "perplexity_at_the_end": difference(ends, "perplexity"),
        "sustained_reach": reached,
        "median_sustained_reach": _median(reached),
    }


def difference(
    pairs: Sequence[tuple[dict[str, float], dict[str, float]]], of: str
) -> dict[str, Any]:
    """The mean over searches of first minus second, with its interval, and that in a word."""
    values = [a[of] - b[of] for a, b in pairs]
    interval = t_interval(values)
    better = 1 if of == "retrieval" else -1
    verdict = "undecided"
    if interval is not None and not interval[0] <= 0 <= interval[1]:
        verdict = "ahead" if interval[0] * better > 0 else "behind"
    return {
        "mean": round(float(np.mean(values)), 5) if values else None,
        "interval": interval and [round(end, 5) for end in interval],
        "verdict": verdict,
        "by_seed": [round(value, 5) for value in values],
    }


def sustained(challenger: dict[str, Any], reference: dict[str, Any]) -> float | None:
    """The share of Algorithm 1's tokens after which every look is at least as good as its end."""
    goal = _held(reference)["score"]
    reached = None
    for look, shown in sorted(challenger["looks"].items(), reverse=True):
        if not shown["score"] <= goal:  # neither does a search that failed (NaN)
            break
        reached = float(look)
    return reached


def _held(line: dict[str, Any], share: float | None = None) -> dict[str, float]:
    """The scores of a search after a share of Algorithm 1's tokens, or at its end."""
    found: dict[str, float] = line["looks"][f"{line['share'] if share is None else share:.4f}"]
    return found


def _median(reached: Sequence[float | None]) -> float | None:
    """None if the median search never got there."""
    if not reached:
        return None
    median = float(np.median([np.inf if share is None else share for share in reached]))
    return None if np.isinf(median) else median


def _spent(lines: Iterable[dict[str, Any]]) -> float:
    """The share of Algorithm 1's tokens, on average."""
    shares = [line["tokens"] / (line["evaluations"] * DOCUMENTS * line["target"]) for line in lines]
    return round(float(np.mean(shares)), 5)


def _reached(lines: dict[int, Any]) -> dict[str, Any]:
    ends = [_held(line) for line in lines.values()]
    return {name: _mean([end[name] for end in ends]) for name in ends[0]}


def _by_hand(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The hand-designed methods on the held-out documents, as each seed has them."""
    each = [*{line["seed"]: line["by_hand"] for line in lines if line["by_hand"]}.values()]
    return {
        method: {of: _mean([one[method][of] for one in each]) for of in each[0][method]}
        for method in (each[0] if each else ())
    }


def _line_by_hand(line: dict[str, Any], method: str) -> dict[str, Any]:
    """A method as if a search held it from the first token on."""
    looks = {f"{look:.4f}": line["by_hand"][method] for look in LOOKS}
    return {"share": LOOKS[-1], "looks": looks}


def _mean(values: Sequence[float]) -> dict[str, Any]:
    interval = t_interval(values)
    return {
        "mean": round(float(np.mean(values)), 5),
        "interval": interval and [round(end, 5) for end in interval],
    }


def _curve(lines: dict[int, Any]) -> list[list[float]]:
    """Shares of Algorithm 1's tokens and mean held-out scores, where all searches held one."""
    looks = [f"{share:.4f}" for share in LOOKS]
    return [
        [
            float(look),
            round(float(np.mean([line["looks"][look]["score"] for line in lines.values()])), 5),
        ]
        for look in looks
        if all(look in line["looks"] for line in lines.values())
    ]


def page(value: dict[str, Any]) -> str:
    """The results of each strategy on each model, and the comparisons."""
    if not value["rows"]:
        return "No run is finished yet."
    lines = ["| model, target | | tokens | score | perplexity | retrieval |", "|---" * 6 + "|"]
    lines += [line for row in value["rows"] for line in _of_subject(row)]
    lines += ["", "| model | comparison | score | retrieval, points |", "|---" * 4 + "|"]
    for row in value["rows"]:
        lines += [
            f"| {row['subject']} | {name} | {in_words(found['at_the_end'], 3)} | "
            f"{in_words(found['retrieval_at_the_end'], 1, percent=True)} |"
            for name, found in row["compared"].items()
            if name not in UNSHOWN
        ]
    remarks = [remark for row in value["rows"] for remark in _remarks(row)]
    picture = "![Held-out score against tokens, by model](../../docs/images/search.png)"
    return "\n\n".join(["\n".join(lines), *remarks, *on_unseen(value), several(value), picture])


def on_unseen(value: dict[str, Any]) -> list[str]:
    """The joint results on the unseen models, with the searches of one model as a group."""
    rows = [row for row in value["rows"] if row["subject"] in UNSEEN]
    told = []
    for name in STRATEGIES:
        differences, models = [], []
        for row in rows:
            for other, found in row["compared"].items():
                own, _, reference = other.partition(" against ")
                if own == name and reference in BY_HAND:
                    by_seed = found["at_the_end"]["by_seed"]
                    differences += by_seed
                    models += [row["subject"]] * len(by_seed)
        interval = mixed_mean_interval(differences, models) if differences else None
        if interval is not None:
            low, high = interval
            told.append(f"{name} {np.mean(differences):+.3f} ({low:+.3f} to {high:+.3f})")
    if not told:
        return []
    return [
        paragraph(
            f"On {' and '.join(row['subject'] for row in rows)}, which chose nothing, the score "
            "less that of the best method by hand (the best on these documents, which favours it), "
            f"with the models as groups: {'; '.join(told)}."
        )
    ]


def several(value: dict[str, Any]) -> str:
    """Say how many of the final differences remain when all of them are counted as tests."""
    names, ends = [], []
    for row in value["rows"]:
        for name, found in row["compared"].items():
            names.append(f"{row['subject']}: {name}")
            ends.append(found["at_the_end"])
    p_values = [_p_value(each["by_seed"]) for each in ends]
    kept = [name for name, p in zip(names, holm(p_values), strict=True) if is_significant(p)]
    alone = sum(map(is_significant, p_values))
    return paragraph(
        f"Of these {len(names)} comparisons by score at the end, {alone} are significant alone "
        f"(p < 0.05, Student's t over searches), and {len(kept)} after Holm's adjustment for all "
        f"{len(names)}: {'; '.join(kept) or 'none'}."
    )


def _p_value(differences: Sequence[float]) -> float | None:
    count = len(differences)
    return compare_means(differences, [0.0] * count, [1.0] * count).p_value if count else None


def _of_subject(row: dict[str, Any]) -> Iterator[str]:
    best = min(row["by_hand"], key=lambda name: row["by_hand"][name]["score"]["mean"], default=None)
    shown = {} if best is None else {best: (row["by_hand"][best], None)}
    shown |= {name: (reached, row["spent"][name]) for name, reached in row["reached"].items()}
    for name, (reached, share) in shown.items():
        spent = "" if share is None else f"{share:.0%}"
        yield (
            f"| {row['subject']}, {row['target']} | {name} | {spent} | "
            f"{_cell(reached['score'], 3)} | {_cell(reached['perplexity'], 2)} | "
            f"{_cell(reached['retrieval'], 1, percent=True)} |"
        )


def _remarks(row: dict[str, Any]) -> Iterator[str]:
    if row["tells_searches_apart"] is False:
        yield paragraph(
            f"This model was not shown to tell searches apart: {CONTROL} search with a quarter of "
            f"the tokens is not clearly behind {CONTROLLED} on {row['subject']}."
        )
    for name, seeds in row["incomplete"].items():
        given = ", ".join(map(str, seeds))
        yield f"Not finished on {row['subject']}: {name}, seeds {given}."


def _cell(value: dict[str, Any], digits: int, *, percent: bool = False) -> str:
    scale = 100 if percent else 1
    unit = "%" if percent else ""
    mean = f"{scale * value['mean']:.{digits}f}{unit}"
    if value["interval"] is None:
        return f"{mean} (too few for an interval)"
    low, high = (scale * end for end in value["interval"])
    return f"{mean} ({low:.{digits}f} to {high:.{digits}f})"


def in_words(value: dict[str, Any], digits: int, *, percent: bool = False) -> str:
    if value["mean"] is None:
        return "no search finished"
    scale = 100 if percent else 1
    mean = f"{scale * value['mean'] + 0.0:+.{digits}f}"  # + 0: never -0.000 for none
    if value["interval"] is None:
        return f"{mean} (too few for an interval)"
    low, high = (f"{scale * end:+.{digits}f}" for end in value["interval"])
    return f"**{value['verdict']}** {mean} ({low} to {high})"


def recorded() -> dict[str, Any]:
    """The recorded results."""
    value: dict[str, Any] = json.loads(RESULTS.read_text())
    return value


def blocks() -> dict[str, str]:
    return {"studies/searches/README.md": page(recorded())}


def pictures() -> dict[str, Picture]:
    value = recorded()
    return {"docs/images/search.png": Picture(drawn(value))} if value["rows"] else {}


def drawn(value: dict[str, Any]) -> Figure:
    """Mean held-out score against tokens, a panel a model."""
    from matplotlib.figure import Figure

    rows = value["rows"]
    columns, lines = min(2, len(rows)), -(-len(rows) // 2)
    figure = Figure(figsize=(4.6 * columns, 3.6 * lines), layout="constrained")
    for axes, row in zip(
        figure.subplots(lines, columns, squeeze=False).flat, rows, strict=len(rows) % 2 == 0
    ):
        for name, curve in row["curves"].items():
            if curve:
                i = list(STRATEGIES).index(name)
                shares, scores = zip(*curve, strict=True)
                axes.plot(
                    shares, scores, "o-", color=f"C{i}", label=name, linewidth=1.6, markersize=3
                )
        if row["by_hand"]:
            best = min(row["by_hand"], key=lambda name: row["by_hand"][name]["score"]["mean"])
            level = row["by_hand"][best]["score"]["mean"]
            axes.axhline(level, color="0.5", linestyle=":", label=best)
            lowest = min(score for curve in row["curves"].values() for _, score in curve)
            axes.set_ylim(lowest - 0.02, level + 0.5 * (level - lowest) + 0.05)
        axes.set_xscale("log")
        axes.set_title(f"{row['subject']} to {row['target']}", fontsize=10)
        axes.set_xlabel("share of Algorithm 1's tokens", fontsize=9)
        axes.set_ylabel("held-out score, mean of searches", fontsize=9)
        axes.grid(axis="y", color="0.92", linewidth=0.6)
        axes.legend(frameon=False, fontsize=8)
    return figure


if __name__ == "__main__":
    sys.exit(main())
