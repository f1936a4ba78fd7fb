"""Effective lengths: pass, fail or undecided, and never more than the interval supports."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import pytest

from ropewalk.evaluation.effective_length import (
    OWN,
    RULER,
    EffectiveLength,
    Standing,
    effective_lengths,
)
from ropewalk.evaluation.results import means
from ropewalk.evaluation.statistics import difference_interval, mean_rate_interval
from ropewalk.evaluation.tasks import RETRIEVAL, groups, means_of
from ropewalk.interval import Interval
from ropewalk.records import EvalRecord, Subject
from tests.evaluation.scored import known, record, width

GROUPS: Mapping[str, Sequence[str]] = {"ruler-syn": ("a", "b")}
NONE, YARN = (Subject("0f" * 8, f"plan of {name}", name) for name in ("none", "yarn"))


def _answers(
    subject: Subject, length: int, right: Mapping[str, int], total: int = 40
) -> list[EvalRecord]:
    return [
        record(subject.method, f"{task} {length} {i}", float(i < count), task=task, length=length)
        for task, count in right.items()
        for i in range(total)
    ]


RECORDS = [
    *_answers(NONE, 512, {"a": 40, "b": 38}),
    *_answers(YARN, 512, {"a": 40, "b": 40}),
    *_answers(YARN, 1024, {"a": 38, "b": 32}),
    *_answers(YARN, 2048, {"a": 8, "b": 6}),
]


def _found(
    records: Sequence[EvalRecord] = RECORDS, window: int = 512
) -> dict[tuple[str, str], EffectiveLength]:
    found = effective_lengths(records, GROUPS, NONE, window)
    return {(e.method, e.criterion): e for e in found}


def test_rulers_threshold_is_passed_failed_or_undecided() -> None:
    found = _found()["yarn", "ruler"]
    assert [s.verdict for s in found.standings] == ["pass", "undecided", "fail"]
    assert (found.threshold, found.passed, found.possible) == (RULER, 512, 1024)
    told = "512 or more, undecided up to 1k (pass at 512; undecided at 1k; fail at 2k)"
    assert str(found) == told
    by_length = {r.length: r for r in means(RECORDS, GROUPS) if r.method == "yarn"}
    for s in found.standings:
        mean = by_length[s.length]
        assert s.margin == mean.estimate.mapped(lambda end: end - RULER, "difference")


def test_the_models_own_score_is_paired_where_both_answered_the_same_samples() -> None:
    found = _found()["yarn", "own"]
    assert found.threshold == pytest.approx(OWN * 0.975)
    assert [s.verdict for s in found.standings] == ["pass", "undecided", "fail"]
    rates = [
        [
            ([float(i < count) for i in range(40)], [f"{task} 512 {i}" for i in range(40)])
            for task, count in right
        ]
        for right in ([("a", 40), ("b", 40)], [("a", 40), ("b", 38)])
    ]
    assert found.standings[0].margin.ends == difference_interval(rates[0], rates[1], OWN)
    base = _found()["none", "own"].standings[0]
    unpaired = difference_interval(
        rates[1], [(s, [f"other {c}" for c in k]) for s, k in rates[1]], OWN
    )
    assert known(base.margin.low) > known(unpaired)[0] + 0.01, (
        "the same samples, so the ratio is known better"
    )


def test_without_the_model_itself_at_its_window_there_is_no_threshold_of_its_own() -> None:
    assert {e.criterion for e in effective_lengths(RECORDS, GROUPS, NONE, 256)} == {"ruler"}
    assert {e.criterion for e in effective_lengths(RECORDS, GROUPS, None, 512)} == {"ruler"}
    own = {"other": ("a", "b")}
    assert {e.criterion for e in effective_lengths(RECORDS, own, NONE, 512)} == {"own"}
    assert effective_lengths(RECORDS, {"three": ("a", "b", "c")}, NONE, 512) == []


def test_a_model_that_scores_nothing_makes_nothing_pass() -> None:
    """85% of nothing is reached by everything."""
    records = [*_answers(NONE, 512, {"a": 0, "b": 0}), *_answers(YARN, 1024, {"a": 0, "b": 1})]
    assert [s.verdict for s in _found(records)["yarn", "own"].standings] == ["undecided"]


def test_too_few_samples_are_undecided() -> None:
    records = _answers(YARN, 512, {"a": 2, "b": 2}, total=2)
    found = _found(records)["yarn", "ruler"]
    assert found.standings == (Standing(512, Interval(1 - RULER, None, None, "difference")),)
    assert str(found) == "undecided up to 512 (undecided at 512)"


def test_nineteen_of_twenty_are_no_pass() -> None:
    records = _answers(YARN, 512, {"a": 10, "b": 9}, total=10)
    assert _found(records)["yarn", "ruler"].standings[0].verdict == "undecided"


def test_the_json_has_the_verdicts_and_comes_back() -> None:
    found = _found()["yarn", "ruler"]
    content = json.loads(json.dumps(found.to_json()))
    assert content["verdicts"] == {"512": "pass", "1024": "undecided", "2048": "fail"}
    assert EffectiveLength.from_json(content) == found


@pytest.mark.parametrize(
    ("verdicts", "told"),
    [
        ("ppp", "4k or more"),
        ("ppf", "2k"),
        ("fff", "below 1k"),
        ("puf", "1k or more, undecided up to 2k"),
        ("uff", "undecided up to 1k"),
        ("pfp", "1k"),
        ("fpp", "below 1k"),
        ("upp", "undecided up to 4k"),
        ("pup", "1k or more, undecided up to 4k"),
    ],
)
def test_it_is_said_in_words(verdicts: str, told: str) -> None:
    ends = {"p": (0.0, 0.1), "u": (-0.1, 0.1), "f": (-0.2, -0.1)}
    standings = tuple(
        Standing(1024 * 2**i, Interval(0.0, *ends[verdict], "difference"))
        for i, verdict in enumerate(verdicts)
    )
    found = EffectiveLength(
        *("yarn", "plan", "weights", "ruler-syn", "generate", "ruler"), RULER, standings
    )
    assert str(found).startswith(f"{told} (")


def test_tasks_that_differ_make_a_mean_no_less_sure() -> None:
    """The tasks were chosen: only their samples were drawn."""
    unlike = [
        ([float(i < right) for i in range(40)], [(t, i) for i in range(40)])
        for t, right in enumerate((40, 40, 4, 4))
    ]
    alike = [([float(i < 22) for i in range(40)], [(t, i) for i in range(40)]) for t in range(4)]
    assert width(mean_rate_interval(unlike)) < 0.75 * width(mean_rate_interval(alike))
    certain = [([1.0] * 20, [(t, i) for i in range(20)]) for t in range(13)]
    found = known(mean_rate_interval(certain))
    assert 0.95 < found[0] < found[1] == 1


def test_the_same_text_in_all_tasks_makes_a_mean_less_sure() -> None:
    scores = [float(i % 4 != 0) for i in range(20)]
    own = [(scores, [(t, i) for i in range(20)]) for t in range(6)]
    shared = [(scores, list(range(20))) for _ in range(6)]
    assert width(mean_rate_interval(shared)) > 2 * width(mean_rate_interval(own))


def test_all_retrieval_tasks_have_a_mean_unless_they_are_a_group() -> None:
    assert means_of(["perplexity", "needle", "kv"])[RETRIEVAL] == ("needle", "kv")
    assert RETRIEVAL not in means_of(["perplexity", "kv"])
    assert RETRIEVAL not in means_of([*groups()["ruler-syn"], "perplexity"])
