"""The coverage of the intervals that ropewalk prints, by simulation.

    python -m benchmarks.coverage    five minutes; writes results/coverage.json

`make figures` puts the tables into benchmarks/README.md.

Each row draws samples with a known truth many times, as correlated as samples of a text are, and
counts the intervals that contain it. An interval of 95% is as good as its coverage is near to 95%.
`tests/evaluation/test_coverage.py` holds each row to its limit.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from benchmarks.machine import PAGE
from docs.figures import Sentence
from ropewalk.evaluation.select import Losses, choose
from ropewalk.evaluation.statistics import (
    compare_means,
    compare_rates,
    difference_interval,
    mean_interval,
    mean_rate_interval,
    rate_interval,
    t_interval,
)
from ropewalk.interval import Ends
from ropewalk.outputs import write_atomically

RESULTS = Path(__file__).with_name("results") / "coverage.json"
TIMES = 10_000

Random = np.random.Generator
Draw = Callable[[Random], tuple[Ends | None, float]]
"""One interval, and the value that it should contain."""


class Row(NamedTuple):
    kind: str
    case: str
    clusters: int
    least: float
    """The coverage that the tests require."""
    draw: Draw

    @property
    def name(self) -> str:
        return f"{self.kind}: {self.case}, {self.clusters}"


def rate(count: int, chance: float) -> Draw:
    def draw(random: Random) -> tuple[Ends | None, float]:
        return rate_interval((random.random(count) < chance).tolist()), chance

    return draw


def clustered_rate(count: int, chance: float, answers: int = 8, alike: float = 0.3) -> Draw:
    """Answers of one document are correlated by `alike`: a beta-binomial."""
    strength = 1 / alike - 1

    def draw(random: Random) -> tuple[Ends | None, float]:
        own = random.beta(chance * strength, (1 - chance) * strength, size=count)
        right = random.random((count, answers)) < own[:, None]
        documents = np.repeat(np.arange(count), answers).tolist()
        return rate_interval(right.ravel().tolist(), documents), chance

    return draw


def mean(count: int, values: Callable[[Random, int], np.ndarray], truth: float) -> Draw:
    def draw(random: Random) -> tuple[Ends | None, float]:
        return t_interval(values(random, count)), truth

    return draw


def _uneven(random: Random, count: int, alike: float) -> tuple[np.ndarray, list[int]]:
    """Clusters of 1 to 12 values around 0, and the cluster of each value."""
    sizes = random.integers(1, 13, size=count)
    clusters = np.repeat(np.arange(count), sizes)
    shared = math.sqrt(alike) * random.normal(size=count)
    return shared[clusters] + math.sqrt(1 - alike) * random.normal(size=len(clusters)), (
        clusters.tolist()
    )


def clustered_mean(count: int, alike: float) -> Draw:
    def draw(random: Random) -> tuple[Ends | None, float]:
        values, clusters = _uneven(random, count, alike)
        weights = random.integers(1, 257, size=len(values))
        return mean_interval(values, weights, clusters), 0.0

    return draw


def _text(random: Random, places: int, near: float = 0.9) -> np.ndarray:
    """Losses along a text, around 3: those of neighbouring places are alike."""
    memory = near ** np.arange(100)
    steps = random.normal(size=places + len(memory) - 1) * math.sqrt(1 - near**2)
    losses = np.convolve(steps, memory, mode="valid")
    return 3 + 0.5 * losses + 0.3 * random.normal(size=places)


def perplexity(count: int, *, of_language: bool) -> Draw:
    """Windows of 4k drawn from a text of 400k tokens, 256 of them scored, that keep apart."""

    def draw(random: Random) -> tuple[Ends | None, float]:
        text = _text(random, 1600)
        windows = text[15::17]
        drawn = random.choice(len(windows), size=count, replace=False)
        low, high = mean_interval(windows[drawn]) or (math.nan, math.nan)
        return (math.exp(low), math.exp(high)), math.exp(3 if of_language else text.mean())

    return draw


def overlapping(count: int) -> Draw:
    """Windows that slide over documents of 1 to 12 windows, clustered by document."""

    def draw(random: Random) -> tuple[Ends | None, float]:
        losses, documents = _uneven(random, count, 0.5)
        low, high = mean_interval(3 + losses, clusters=documents) or (math.nan, math.nan)
        return (math.exp(low), math.exp(high)), math.exp(3)

    return draw


def paired_rates(count: int, answers: int) -> Draw:
    """Two methods of 80% and 70%, mostly right and wrong about the same; by document if several."""

    def draw(random: Random) -> tuple[Ends | None, float]:
        easy = random.normal(size=(count, 1)) if answers > 1 else 0.0
        shared = easy + random.normal(size=(count, answers))
        spread = math.sqrt(2.0 if answers == 1 else 3.0)
        methods = [
            shared + random.normal(size=(count, answers)) < spread * at
            for at in (0.8416212, 0.5244005)
        ]
        first, second = (right.ravel().tolist() for right in methods)
        documents = np.repeat(np.arange(count), answers).tolist()
        found = compare_rates(first, second, documents)
        return found.difference.ends, 0.1

    return draw


def paired_means(count: int) -> Draw:
    """Losses of two methods: a difference that grows where the text is hard, so it is skewed."""

    def draw(random: Random) -> tuple[Ends | None, float]:
        hard = random.exponential(size=count)
        second = 2 + hard + 0.1 * random.normal(size=count)
        first = second + 0.05 * hard + 0.05 * random.normal(size=count)
        found = compare_means(first.tolist(), second.tolist(), [1.0] * count)
        return found.difference.ends, 0.05

    return draw


def searches(count: int, documents: int = 24) -> Draw:
    """Differences of two strategies: searches vary by 0.04 nats, and each sees own documents."""

    def draw(random: Random) -> tuple[Ends | None, float]:
        of_search = 0.04 * random.normal(size=count)
        of_documents = 0.05 * random.normal(size=(count, documents))
        return t_interval(0.02 + of_search + of_documents.mean(axis=1)), 0.02

    return draw


def _tasks(
    random: Random, chances: Sequence[float], count: int, easy: np.ndarray
) -> list[tuple[list[float], list[int]]]:
    """Answers of several tasks; those of one number are as correlated as `easy` makes them."""
    normal = NormalDist()
    return [
        (
            (
                math.sqrt(ALIKE) * easy + math.sqrt(1 - ALIKE) * random.normal(size=count)
                < normal.inv_cdf(chance)
            )
            .astype(float)
            .tolist(),
            list(range(count)),
        )
        for chance in chances
    ]


ALIKE = 0.5
UNLIKE_TASKS = tuple(np.linspace(0.1, 0.99, 13).tolist())


def mean_over_tasks(chances: Sequence[float], count: int, *, shared: bool = False) -> Draw:
    """A mean over tasks, with samples of their own or the same documents in all of them."""

    def draw(random: Random) -> tuple[Ends | None, float]:
        if shared:
            tasks = _tasks(random, chances, count, random.normal(size=count))
        else:
            tasks = [
                (own, [i * count + n for n in clusters])
                for i, chance in enumerate(chances)
                for own, clusters in _tasks(random, [chance], count, random.normal(size=count))
            ]
        return mean_rate_interval(tasks), float(np.mean(chances))

    return draw


def two_means(count: int, times: float) -> Draw:
    """A mean over tasks minus a multiple of another, on the same samples."""
    others = [0.9 * chance for chance in UNLIKE_TASKS]

    def draw(random: Random) -> tuple[Ends | None, float]:
        first: list[tuple[list[float], list[tuple[int, int]]]] = []
        second: list[tuple[list[float], list[tuple[int, int]]]] = []
        for i, pair in enumerate(zip(UNLIKE_TASKS, others, strict=True)):
            own, other = _tasks(random, pair, count, random.normal(size=count))
            for found, (scores, clusters) in ((first, own), (second, other)):
                found.append((scores, [(i, n) for n in clusters]))
        truth = float(np.mean(UNLIKE_TASKS)) - times * float(np.mean(others))
        return difference_interval(first, second, times), truth

    return draw


def _normal(random: Random, count: int) -> np.ndarray:
    return random.normal(size=count)


def _exponential(random: Random, count: int) -> np.ndarray:
    return random.exponential(size=count)


ROWS = (
    *(Row("rate", "truth 50%", n, 0.93, rate(n, 0.5)) for n in (10, 20, 100)),
    *(Row("rate", "truth 90%", n, 0.91, rate(n, 0.9)) for n in (10, 20, 100)),
    *(
        Row("rate", "truth 80%, 8 correlated answers a document", n, least, clustered_rate(n, 0.8))
        for n, least in ((5, 0.93), (10, 0.93), (20, 0.92))
    ),
    *(Row("mean", "normal", n, 0.93, mean(n, _normal, 0.0)) for n in (5, 10, 20)),
    *(
        Row("mean", "skewed (exponential)", n, least, mean(n, _exponential, 1.0))
        for n, least in ((5, 0.86), (10, 0.88), (20, 0.90))
    ),
    *(
        Row("mean", f"clusters of 1 to 12, correlation {alike}", n, 0.93, clustered_mean(n, alike))
        for alike in (0.1, 0.5)
        for n in (5, 10, 20)
    ),
    *(
        Row(
            "perplexity",
            "windows of 4k in a text of 400k",
            n,
            0.93,
            perplexity(n, of_language=False),
        )
        for n in (10, 20, 50)
    ),
    *(
        Row("perplexity", "the same, of the language", n, least, perplexity(n, of_language=True))
        for n, least in ((10, 0.93), (20, 0.93), (50, 0.91))
    ),
    *(
        Row("perplexity", "overlapping windows of documents", n, 0.93, overlapping(n))
        for n in (5, 10, 20)
    ),
    *(
        Row("paired difference of rates", "independent samples", n, 0.93, paired_rates(n, 1))
        for n in (10, 20, 100)
    ),
    *(
        Row(
            "paired difference of rates",
            "8 correlated answers a document",
            n,
            0.93,
            paired_rates(n, 8),
        )
        for n in (5, 10, 20)
    ),
    *(
        Row("mean over 13 tasks", case, n, 0.93, mean_over_tasks(chances, n, shared=shared))
        for case, chances, shared, counts in (
            ("of 10% to 99%", UNLIKE_TASKS, False, (5, 20, 100)),
            ("all of 98%", (0.98,) * 13, False, (5, 20, 100)),
            ("the same documents in all of them", UNLIKE_TASKS, True, (5, 20)),
        )
        for n in counts
    ),
    *(
        Row("difference of two such means", case, n, 0.93, two_means(n, times))
        for case, times in (("paired", 1.0), ("one less 85% of the other", 0.85))
        for n in (5, 20)
    ),
    *(
        Row("paired difference of losses", "skewed", n, least, paired_means(n))
        for n, least in ((5, 0.93), (10, 0.93), (20, 0.92))
    ),
    *(
        Row("difference of two searches", "t over searches", n, 0.93, searches(n))
        for n in (5, 8, 10)
    ),
)


def coverage(row: Row, times: int, seed: int = 0) -> float:
    """The share of intervals that contain their true value."""
    random = np.random.default_rng([seed, *row.name.encode()])
    inside = 0
    for _ in range(times):
        interval, truth = row.draw(random)
        inside += interval is not None and interval[0] <= truth <= interval[1]
    return inside / times


DIFFERENCES: dict[str, Callable[[Random, tuple[int, int]], np.ndarray]] = {
    "normal": lambda random, shape: random.normal(size=shape),
    "skewed, mostly better": lambda random, shape: random.exponential(size=shape) - 1,
    "skewed, mostly worse": lambda random, shape: 1 - random.exponential(size=shape),
    "very skewed, mostly better": lambda random, shape: (
        random.lognormal(size=shape) - math.exp(0.5)
    ),
}
"""Draw the differences, by document, of searched schedules that equal the baseline on average."""
FINALISTS = 4


def false_alarms(case: str, documents: int, times: int, seed: int = 0) -> float:
    """The rate at which `choose` takes a schedule although none is better than the baseline."""
    random = np.random.default_rng([seed, documents, *case.encode()])
    none, chosen = np.zeros(documents), 0
    for _ in range(times):
        drawn = DIFFERENCES[case](random, (FINALISTS, documents))
        pool = {"baseline": none, **{str(i): own for i, own in enumerate(drawn)}}
        losses = {name: Losses(own, none, none) for name, own in pool.items()}
        chosen += choose(losses, ["baseline"]).chosen != "baseline"
    return chosen / times


def main() -> int:
    """With `choice` as an argument, only the false alarms of the choice."""
    content: dict[str, object] = {"times": TIMES, "confidence": 0.95}
    if sys.argv[1:] == ["choice"]:
        content |= {"coverage": json.loads(RESULTS.read_text())["coverage"]}
    else:
        content |= {"coverage": {row.name: coverage(row, TIMES) for row in ROWS}}
    content |= {
        "false_alarms": {
            case: {str(n): false_alarms(case, n, TIMES) for n in (8, 16, 32, 64)}
            for case in DIFFERENCES
        }
    }
    write_atomically(RESULTS, json.dumps(content, indent=2) + "\n")
    print("\n\n".join(blocks().values()))
    return 0


def blocks() -> dict[str, str]:
    content = json.loads(RESULTS.read_text())
    return {PAGE: f"{table(content['coverage'])}\n\n{alarms_table(content['false_alarms'])}"}


def alarms_table(found: dict[str, dict[str, float]]) -> str:
    counts = list(next(iter(found.values())))
    lines = [f"| differences | {' | '.join(f'{n} documents' for n in counts)} |"]
    lines.append("|---" * (1 + len(counts)) + "|")
    for case, rates in found.items():
        lines.append(f"| {case} | {' | '.join(f'{rate:.1%}' for rate in rates.values())} |")
    return "\n".join(lines)


def sentences() -> list[Sentence]:
    content = json.loads(RESULTS.read_text())
    found, margin = content["coverage"], 1.96 * math.sqrt(0.95 * 0.05 / content["times"])

    def of(beginning: str) -> list[float]:
        return [value for name, value in found.items() if name.startswith(beginning)]

    return [
        Sentence(
            PAGE,
            "`python -m benchmarks.coverage`, {} simulations for each number",
            (f"{content['times']:,}",),
        ),
        Sentence(
            PAGE,
            "intervals of the means of skewed values contain it less often than in 95%",
            holds=max(of("mean: skewed")) < 0.95 - margin,
        ),
        Sentence(
            PAGE,
            "with clusters of uneven size, more often",
            holds=min(of("mean: clusters")) > 0.95 + margin,
        ),
    ]


def table(found: dict[str, float]) -> str:
    """The least and the most covered case of each kind of interval."""
    lines = ["| interval | cases | lowest coverage | highest |", "|---|---|---|---|"]
    for kind in dict.fromkeys(row.kind for row in ROWS):
        own = sorted((row for row in ROWS if row.kind == kind), key=lambda row: found[row.name])
        ends = (f"{found[r.name]:.1%} ({r.case}, {r.clusters})" for r in (own[0], own[-1]))
        lines.append(f"| {kind} | {len(own)} | {' | '.join(ends)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
