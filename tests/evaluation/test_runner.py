from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from ropewalk.errors import InvalidValue, UnknownName
from ropewalk.evaluation import samples, tasks
from ropewalk.evaluation.conditions import Condition
from ropewalk.evaluation.haystack import Haystack
from ropewalk.evaluation.identity import weights_fingerprint
from ropewalk.evaluation.results import summarise
from ropewalk.evaluation.runner import Evaluation, Questions
from ropewalk.evaluation.samples import MARGIN, Sample
from ropewalk.evaluation.scoring import TokenScores
from ropewalk.evaluation.settings import Settings, task_names
from ropewalk.models.config import present_plan
from ropewalk.planning.extension import extend_plan
from ropewalk.records import Mode, Subject
from ropewalk.run_directory import Journal
from tests.evaluation import tiny

PRESENT = present_plan(tiny.model().config, "tiny")
EXTENDED = extend_plan(PRESENT, 1024, "linear")
CONDITIONS = [Condition("none", PRESENT.id, None), Condition("linear", EXTENDED.id, EXTENDED)]
TASKS = ("perplexity", "kv", "passkey")


def _evaluation(*, names: tuple[str, ...] = TASKS) -> Evaluation:
    return Evaluation(tiny.loaded(), tiny.documents(), Settings(names, (128, 512), 4))


def test_every_condition_sees_the_same_samples_and_is_scored_once() -> None:
    records = _evaluation().run(CONDITIONS)
    by_method = {
        method: [
            (r.task, r.length, r.metric, r.sample, r.positions)
            for r in records
            if r.method == method
        ]
        for method in ("none", "linear")
    }
    assert by_method["none"] == by_method["linear"]
    assert len({record.key for record in records}) == len(records)


def test_a_plan_changes_the_scores_and_is_gone_afterwards() -> None:
    before = _evaluation(names=("perplexity",)).run(CONDITIONS[:1])
    none, linear = (
        {
            r.sample: r.score
            for r in _evaluation(names=("perplexity",)).run([condition])
            if r.length == 512 and r.metric == "nll" and r.positions is None
        }
        for condition in CONDITIONS
    )
    assert none.keys() == linear.keys()
    assert none != linear
    assert _evaluation(names=("perplexity",)).run(CONDITIONS[:1]) == before


def test_a_task_that_does_not_fit_is_left_out_and_said_so() -> None:
    notices: list[str] = []
    evaluation = _evaluation()
    evaluation.notice = notices.append
    lengths = {r.length for r in evaluation.run(CONDITIONS[:1]) if r.task == "passkey"}
    assert lengths == {512}
    assert len(notices) == 1
    assert "passkey does not fit in 128 tokens" in notices[0]


def _bytes(path: Path, evaluation: Evaluation) -> bytes:
    journal = Journal(path)
    evaluation.run(CONDITIONS, journal)
    journal.close()
    return path.read_bytes()


class Interrupted(BaseException):
    pass


def test_a_run_interrupted_after_any_batch_ends_with_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ropewalk.evaluation.runner.TOKENS_PER_BATCH", 1024)
    whole = _bytes(tmp_path / "whole.jsonl", _evaluation())
    append = Journal.append
    for survivors in range(1, 12, 3):
        calls = 0

        def interrupted(self: Journal, records: Any, survivors: int = survivors) -> None:
            nonlocal calls
            calls += 1
            if calls > survivors:
                raise Interrupted
            append(self, records)

        path = tmp_path / f"{survivors}.jsonl"
        with monkeypatch.context() as patch:
            patch.setattr(Journal, "append", interrupted)
            with pytest.raises(Interrupted):
                _bytes(path, _evaluation())
        assert 0 < path.stat().st_size < len(whole)
        assert _bytes(path, _evaluation()) == whole


def test_a_run_torn_inside_a_batch_ends_with_the_same_bytes(tmp_path: Path) -> None:
    whole = _bytes(tmp_path / "whole.jsonl", _evaluation())
    lines = whole.splitlines(keepends=True)
    for kept in (1, len(lines) // 2, len(lines) - 1):
        path = tmp_path / f"{kept}.jsonl"
        path.write_bytes(b"".join(lines[:kept]) + lines[kept][:40])
        with pytest.warns(UserWarning, match="torn off"):
            assert _bytes(path, _evaluation()) == whole


def test_what_is_recorded_is_not_scored_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "records.jsonl"
    before = _bytes(path, _evaluation())

    def refuse(*_: object) -> None:
        raise AssertionError("scored again")

    monkeypatch.setattr("ropewalk.evaluation.scoring.Scorer.score", refuse)
    assert _bytes(path, _evaluation()) == before


def test_batches_do_not_change_what_is_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    together = _evaluation().run(CONDITIONS)
    monkeypatch.setattr("ropewalk.evaluation.runner.TOKENS_PER_BATCH", 1)
    alone = _evaluation().run(CONDITIONS)
    assert [record.key for record in together] == [record.key for record in alone]
    for a, b in zip(together, alone, strict=True):
        assert a.score == pytest.approx(b.score, abs=1e-4)


class Oracle:
    """Stands in for a scorer: knows the answer of every other sample, and half of the others."""

    def __init__(self, asked: list[Sample], end: int) -> None:
        self.end = end  # written after an answer
        self.answers = {sample.prompt.tobytes(): sample.answer for sample in asked}
        self.known = {sample.prompt.tobytes() for sample in asked[::2]}

    def score(self, sequences: Any, starts: Any) -> list[TokenScores]:
        return [
            TokenScores(
                np.zeros(len(row) - start),
                np.arange(len(row) - start) < (9 if row[:start].tobytes() in self.known else 2),
            )
            for row, start in zip(sequences, starts, strict=True)
        ]

    def write(self, prompts: Any, count: int) -> list[Any]:
        return [
            np.pad(self.answers[prompt.tobytes()], (0, MARGIN), constant_values=self.end)
            if prompt.tobytes() in self.known
            else np.zeros(count, dtype=np.int64)
            for prompt in prompts
        ]


@pytest.mark.parametrize("mode", get_args(Mode))
def test_a_sample_is_right_when_its_whole_answer_is(mode: Mode) -> None:
    evaluation = _evaluation()
    task = tasks.named("kv")
    asked = list(samples.generate(task, evaluation.encoder, Haystack(tiny.documents()), 512, 6, 0))
    oracle: Any = Oracle(asked, end=int(evaluation.encoder.pieces("\n")[0]))
    for batch in [Questions(oracle, evaluation.encoder, task, mode, [sample]) for sample in asked]:
        [record] = batch.score(Subject("weights", PRESENT.id, "none"))
        [sample] = batch.samples
        assert record.score == (sample.prompt.tobytes() in oracle.known)
        assert record.mode == mode
        assert record.task == "kv"
        assert record.length == 512
        assert (record.answer is not None) == (mode == "generate")


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"tasks": ("neddle",)}, UnknownName),
        ({"tasks": ()}, InvalidValue),
        ({"lengths": ()}, InvalidValue),
        ({"lengths": (1,)}, InvalidValue),
        ({"samples": 0}, InvalidValue),
        ({"samples": 2.5}, InvalidValue),
        ({"seed": "0"}, InvalidValue),
        ({"mode": "guessed"}, InvalidValue),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    changes: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        Settings(**{"tasks": ("kv",), "lengths": (128,), "samples": 5, **changes})


def test_records_name_the_weights_that_were_scored() -> None:
    evaluation = _evaluation(names=("perplexity",))
    weights = {record.weights for record in evaluation.run(CONDITIONS)}
    assert weights == {weights_fingerprint(tiny.model())[:16]}


def test_results_speak_of_all_that_was_asked_for() -> None:
    results = summarise(_evaluation().run(CONDITIONS))
    assert {result.task for result in results} == set(TASKS)
    assert {result.metric for result in results} == {
        "perplexity",
        "next_token_accuracy",
        "exact_match",
    }


def test_tasks_are_listed() -> None:
    assert {"perplexity", "repetition", "passkey", "needle", "lines", "kv"} <= set(task_names())
