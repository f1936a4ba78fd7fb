"""What the comparison of searches says of finished runs: verdicts by intervals alone."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import search
from benchmarks.searches import LOOKS, REPORTED, STRATEGIES, SUBJECTS, Run, _code, tokens_of
from benchmarks.text import PACKAGES, read_text
from studies.bundled_model.corpus import read_corpus, shingles

NOISE = (0.01, -0.02, 0.015, 0.0, -0.005)


def line(strategy: str, seed: int, scores: float | dict[float, float]) -> dict[str, Any]:
    """A finished run that holds these scores from these looks on."""
    share = STRATEGIES[strategy].share
    changes = {LOOKS[0]: scores} if isinstance(scores, float) else scores
    looks = {}
    for look in (each for each in LOOKS if each <= share):
        score = [value for at, value in sorted(changes.items()) if at <= look][-1]
        looks[f"{look:.4f}"] = {"score": score, "perplexity": 30.0, "retrieval": 0.9}
    return {
        **Run("wide", strategy, seed)._asdict(),
        "share": share,
        "evaluations": 10,
        "tokens": 10 * 5 * 512 * share,
        "looks": looks,
        "by_hand": {},
        "target": 512,
        "held_out": 24,
        "weights": "w",
        "text": "t",
        "machine": {"cores": 2},
    }


def runs(strategy: str, scores: float, seeds: int = 5) -> dict[int, Any]:
    return {seed: line(strategy, seed, scores + NOISE[seed]) for seed in range(seeds)}


@pytest.mark.parametrize(
    ("difference", "verdict"), [(-0.1, "ahead"), (0.1, "behind"), (-0.005, "undecided")]
)
def test_the_interval_alone_decides(difference: float, verdict: str) -> None:
    reference = {seed: line("evolution", seed, 4.0) for seed in range(5)}
    found = search.against(runs("adaptive", 4.0 + difference), reference)
    assert found["at_the_end"]["verdict"] == verdict
    assert found["at_the_end"]["mean"] == pytest.approx(difference)
    assert found["share"] == 0.1
    few = search.against(runs("adaptive", 4.0 + difference, seeds=4), reference)
    assert few["seeds"] == 4
    assert (few["at_the_end"]["interval"], few["at_the_end"]["verdict"]) == (None, "undecided")


def test_verdicts_are_counted_again_when_all_of_them_are_tests() -> None:
    reference = {seed: line("evolution", seed, 4.0) for seed in range(5)}
    clear, weak = runs("adaptive", 3.0), runs("adaptive", 3.98)
    compared = {
        name: search.against(one, reference)
        for name, one in {"clear": clear, "weak": weak, "none": runs("adaptive", 4.0)}.items()
    }
    assert compared["weak"]["at_the_end"]["verdict"] == "ahead"
    told = search.several({"rows": [{"subject": "wide", "compared": compared}]})
    assert "Of these 3 comparisons" in told
    assert "2 are significant alone" in told
    many = {f"none {i}": compared["none"] for i in range(9)} | compared
    told = search.several({"rows": [{"subject": "wide", "compared": many}]})
    assert " ".join(told.split()).endswith("1 after Holm's adjustment for all 12: wide: clear.")


def test_equal_tokens_are_the_reference_when_it_had_spent_as_many() -> None:
    reference = {s: line("evolution", s, {1 / 128: 5.0, 0.25: 4.5, 1.0: 4.0}) for s in range(5)}
    found = search.against(runs("adaptive", 4.2), reference)
    assert found["at_equal_tokens"]["mean"] == pytest.approx(-0.8)
    assert found["at_the_end"]["mean"] == pytest.approx(0.2)


def test_a_first_passage_is_not_a_reach() -> None:
    goal = line("evolution", 0, 4.0)
    passes = line("random", 0, {1 / 128: 4.5, 1 / 32: 3.9, 1 / 16: 4.1, 0.25: 4.0})
    assert search.sustained(passes, goal) == 0.25
    assert search.sustained(line("random", 0, 3.9), goal) == pytest.approx(1 / 128, abs=1e-4)
    leaves = line("random", 0, {1 / 128: 3.9, 0.25: 4.1})
    assert search.sustained(leaves, goal) is None


def test_every_row_has_a_look_where_it_ends() -> None:
    assert all(row.share in LOOKS for row in STRATEGIES.values())
    assert all(tokens_of(Run(name, "random", 0)) > 0 for name in SUBJECTS)
    assert set(REPORTED) <= set(SUBJECTS)


@pytest.mark.slow
def test_the_text_is_in_no_text_of_training_and_in_one_part_alone() -> None:
    text, corpus = read_text(), read_corpus()
    trained = shingles([*corpus.training.values(), *corpus.held_out.values()])
    parts = {part: shingles(d.text for d in getattr(text, part)) for part in PACKAGES}
    assert trained.isdisjoint(parts["tuning"] | parts["reporting"])
    assert parts["tuning"].isdisjoint(parts["reporting"])
    for part in PACKAGES:
        each = [shingles([document.text]) for document in getattr(text, part)]
        assert sum(map(len, each)) == len(parts[part]), "no two files share a shingle"
        assert 1_500_000 < sum(len(d.text) for d in getattr(text, part)) < 3_000_000


def test_a_run_is_known_by_code_and_not_by_what_is_said_of_it(tmp_path: Path) -> None:
    def digest(source: str) -> str:
        path = tmp_path / "module.py"
        path.write_text(source)
        return _code((SimpleNamespace(__file__=str(path)),))

    plain = digest('"""One."""\nx = 1\n"""Of x."""\n')
    assert digest('"""Two."""\nx = 1  # one\n') == plain
    assert digest("x = 2\n") != plain


def test_rows_of_one_model_are_of_the_same_weights() -> None:
    """A model that was trained anew is another one: its rows are not compared with the old ones."""
    kept = {"text": "t", "version": 2, "subject": "wide", "seed": 0}
    old = [
        {**kept, "strategy": name, "weights": "a", "code": "1"} for name in ("adaptive", "random")
    ]
    again = {**old[0], "code": "2"}
    assert search._of_one_kind([*old, again]) == {
        Run("wide", "adaptive", 0): again,
        Run("wide", "random", 0): old[1],
    }
    new = {**kept, "strategy": "evolution", "weights": "b", "code": "1"}
    assert search._of_one_kind([*old, again, new]) == {Run("wide", "evolution", 0): new}
