"""What the distances of a server's answers come to, on the fingerprint of a real model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ropewalk.errors import InputError, InvalidValue
from ropewalk.evaluation.served.fingerprint import (
    MARGIN,
    Answers,
    Fingerprint,
    Observed,
    Verdict,
    compare,
    distance,
)
from ropewalk.evaluation.served.server import ServerInfo
from ropewalk.outputs import is_ours
from tests.api.conformance import check_result
from tests.evaluation.served import made

INFO = ServerInfo("http://localhost:1", "llama.cpp", "b1", "m", 4096, {"ftype": "F16"})


@pytest.fixture(scope="module")
def own() -> Fingerprint:
    return made.fingerprint()


def seen(own: Fingerprint, answers: Answers, top: int = 20) -> list[Observed]:
    """A server that answers so."""
    return [
        Observed(
            probe.length,
            tuple(zip(answers.tokens[i][:top], answers.log_probabilities[i][:top], strict=True)),
        )
        for i, probe in enumerate(own.probes)
    ]


def names(verdict: Verdict) -> list[str]:
    return [cause.name for cause in verdict.causes]


def test_the_probes(own: Fingerprint) -> None:
    kinds = [probe.kind for probe in own.probes]
    assert kinds.count("token") == kinds.count("text") == 3
    assert 14 <= kinds.count("context") <= 15
    lengths = [probe.length for probe in own.probes if probe.kind == "context"]
    assert lengths == sorted(set(lengths))
    assert lengths[-1] == made.TARGET - 1
    assert any(abs(length - 512) < 13 for length in lengths)  # the end of the original length
    assert own.prompt(own.probes[-1]) == own.sequence[: made.TARGET - 1]
    assert own.summary().startswith("bundled under yarn: 2")


def test_a_file_and_back(own: Fingerprint, tmp_path: Path) -> None:
    path = tmp_path / "fingerprint.json"
    path.write_text(own.dumps(), "utf-8")
    assert Fingerprint.read(path) == own
    assert is_ours(path)
    assert path.stat().st_size < 2**20


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("format", "other", "is not one of the choices"),
        ("probes", [], "must not be empty"),
        ("healthy", [], "must not be empty"),
        ("sequence", [1, 2], "the text has 2 tokens"),
        ("answers", {"tokens": [[1]], "log_probabilities": [[-1.0]]}, "must be one a probe"),
        ("answers", {"tokens": [[1]], "log_probabilities": [[2.0]]}, "must be at most 0"),
        ("answers", {"tokens": [[1, 2]], "log_probabilities": [[-2.0]]}, "must be one a token"),
        ("target_length", 10**12, "must be at most"),
    ],
)
def test_damaged_files(
    own: Fingerprint, key: str, value: object, told: str, tmp_path: Path
) -> None:
    small = replace(own, candidates=())  # which take the longest to read
    damaged = {**small.to_json(), key: value}
    path = tmp_path / "f.json"
    path.write_text(json.dumps(damaged), "utf-8")
    with pytest.raises(InvalidValue, match=told):
        Fingerprint.read(path)
    with pytest.raises(InputError, match="there is no such file"):
        Fingerprint.read(tmp_path / "none.json")


def test_the_distance_of_probabilities() -> None:
    answers = Answers(((1, 2),), (tuple(np.log([0.5, 0.3]).tolist()),))
    same = [(1, float(np.log(0.5))), (2, float(np.log(0.3)))]
    assert distance(same, answers, 0) == pytest.approx(0, abs=1e-12)
    fewer = [(1, float(np.log(0.5)))]
    assert distance(fewer, answers, 0) == pytest.approx(0, abs=1e-12)  # 2 is among the others
    certain = [(1, 0.0)]
    expected = (1 - np.sqrt(0.5)) ** 2 + 0.5
    assert distance(certain, answers, 0) == pytest.approx(expected)


def test_the_plan_itself_and_its_rounding_are_healthy(own: Fingerprint) -> None:
    for answers in (own.answers, *own.healthy):
        verdict = compare(own, seen(own, answers), INFO)
        assert (verdict.status, verdict.causes) == ("same", ())
        assert verdict.distance <= verdict.threshold / (MARGIN - 1)
    check_result(verdict)


def test_every_cause_is_detected_and_named(own: Fingerprint) -> None:
    assert len(own.candidates) > 25
    told: dict[str, str] = {}
    for candidate in own.candidates:
        verdict = compare(own, seen(own, candidate.answers), INFO)
        told[candidate.told] = verdict.status
        if verdict.status == "deviates":
            (cause,) = verdict.causes
            assert cause.name == candidate.name
            assert candidate.told in cause.told
    missed = [name for name, status in told.items() if status == "same"]
    # Which move this model no farther than rounding does: its attention factor is 1.07.
    hardly = {"with a cache of float8", "with the square root of its attention factor"}
    assert set(missed) <= hardly


def test_a_cause_is_named_though_some_probes_are_not_answered(own: Fingerprint) -> None:
    """Each answer is held to those of its own probe."""
    unanswered = {0, 7, 8}
    for candidate in own.candidates:
        observed = [
            answer._replace(top=None) if i in unanswered else answer
            for i, answer in enumerate(seen(own, candidate.answers))
        ]
        verdict = compare(own, observed, INFO)
        assert sum(probe.distance is None for probe in verdict.probes) == len(unanswered)
        if verdict.status == "deviates":
            assert candidate.told in verdict.causes[0].told


def test_counts_come_before_answers(own: Fingerprint) -> None:
    well = seen(own, own.answers)

    def read(change: Sequence[int], kinds: Sequence[str] = ("token", "context")) -> list[Observed]:
        return [
            s._replace(read=c) if p.kind in kinds else s
            for p, s, c in zip(own.probes, well, change, strict=True)
        ]

    lengths = [probe.length for probe in own.probes]
    cases = {
        "truncation": [min(n, 600) for n in lengths],
        "bos": [n + 1 for n in lengths],
        "template": [n + 9 for n in lengths],
    }
    for name, change in cases.items():
        verdict = compare(own, read(change), INFO)
        assert names(verdict) == [name]
    assert "cuts prompts to 600 tokens" in compare(own, read(cases["truncation"]), INFO).summary()
    for name, change in (
        ("bos", [n - 1 for n in lengths]),
        ("bos", [n + 1 for n in lengths]),
        ("tokenizer", [n + i for i, n in enumerate(lengths)]),
    ):
        assert names(compare(own, read(change, ("text",)), INFO)) == [name]


def test_refusals_beyond_a_length(own: Fingerprint) -> None:
    well = seen(own, own.answers)
    observed = [
        Observed(None, None, "too long") if probe.length > 700 else s
        for probe, s in zip(own.probes, well, strict=True)
    ]
    (cause,) = compare(own, observed, replace(INFO, length=700)).causes
    assert cause.told == "stops at 700 tokens (too long)"
    (cause,) = compare(own, observed, replace(INFO, length=None)).causes
    assert cause.told.startswith("refuses prompts of ")


def test_a_prompt_that_is_lengthened_may_be_refused_for_it(own: Fingerprint) -> None:
    observed = [
        Observed(None, None, "too long")
        if probe.length == made.TARGET - 1
        else s._replace(read=probe.length + 3)
        for probe, s in zip(own.probes, seen(own, own.answers), strict=True)
    ]
    assert names(compare(own, observed, replace(INFO, length=made.TARGET))) == ["template"]


def test_other_tokens_of_text_by_the_same_count(own: Fingerprint) -> None:
    observed = [
        _shifted(answer) if probe.kind == "text" else answer
        for probe, answer in zip(own.probes, seen(own, own.answers), strict=True)
    ]
    assert names(compare(own, observed, INFO)) == ["tokenizer"]


def _shifted(answer: Observed) -> Observed:
    """Other tokens, as likely."""
    return answer._replace(top=tuple((token + 1, value) for token, value in answer.top or ()))


def test_weights_answer_single_tokens(own: Fingerprint) -> None:
    shuffled = [_shifted(answer) for answer in seen(own, own.answers)]
    (cause,) = compare(own, shuffled, INFO).causes
    assert cause.name == "weights"
    assert "has other weights" in cause.told


def test_an_unknown_cause_and_where_it_begins(own: Fingerprint) -> None:
    observed = [
        _shifted(answer) if probe.kind == "context" and probe.length > 700 else answer
        for probe, answer in zip(own.probes, seen(own, own.answers), strict=True)
    ]
    (cause,) = compare(own, observed, INFO).causes
    assert (cause.name, cause.certain) == ("unknown", False)
    lengths = [probe.length for probe in own.probes if probe.kind == "context"]
    before, after = max(n for n in lengths if n <= 700), min(n for n in lengths if n > 700)
    assert cause.told == f"deviates between {before:,} and {after:,} tokens, of unknown cause"


def test_a_server_without_log_probabilities_is_not_judged(own: Fingerprint) -> None:
    observed = [Observed(probe.length, None) for probe in own.probes]
    verdict = compare(own, observed, INFO)
    assert verdict.status == "unknown"
    assert "gives no log-probabilities" in verdict.summary()
