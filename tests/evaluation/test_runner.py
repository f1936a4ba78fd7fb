from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from ropewalk.data.corpora import HELD_OUT, read_documents
from ropewalk.errors import InvalidValue
from ropewalk.evaluation import samples, tasks
from ropewalk.evaluation.answering import TokenScores
from ropewalk.evaluation.conditions import Condition, at_length
from ropewalk.evaluation.haystack import Haystack
from ropewalk.evaluation.in_process import InProcess
from ropewalk.evaluation.runner import Evaluation, Questions
from ropewalk.evaluation.settings import EvaluationSettings, task_names
from ropewalk.models.config import present_plan
from ropewalk.models.install import applied
from ropewalk.models.load import LoadedModel, load
from ropewalk.planning.extension import extend_plan
from ropewalk.records import WRITTEN, Mode, Subject
from ropewalk.run_directory import Journal
from ropewalk.schedule import LogN
from tests.evaluation import tiny

PRESENT = present_plan(tiny.model().config, "tiny")
EXTENDED = extend_plan(PRESENT, 1024, "linear")
CONDITIONS = [Condition("none", PRESENT.id, None), Condition("linear", EXTENDED.id, EXTENDED)]
TASKS = ("perplexity", "kv", "passkey")


def _evaluation(
    conditions: Sequence[Condition] = CONDITIONS, *, names: tuple[str, ...] = TASKS
) -> Evaluation:
    answerer = InProcess(tiny.loaded(), conditions)
    return Evaluation(answerer, tiny.documents(), EvaluationSettings(names, (128, 512), 4))


def _dynamic() -> LoadedModel:
    """A model that scales with the length, which no other test shares."""
    config = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 1e4}
    own = tiny.model.__wrapped__(rope_parameters=config)
    return LoadedModel("dynamic", own, tiny.tokenizer(), present_plan(own.config, "dynamic"))


def test_every_condition_sees_the_same_samples_and_is_scored_once() -> None:
    records = _evaluation().run()
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
    before = _evaluation(CONDITIONS[:1], names=("perplexity",)).run()
    none, linear = (
        {
            r.sample: r.score
            for r in _evaluation([condition], names=("perplexity",)).run()
            if r.length == 512 and r.metric == "nll" and r.positions is None
        }
        for condition in CONDITIONS
    )
    assert none.keys() == linear.keys()
    assert none != linear
    assert _evaluation(CONDITIONS[:1], names=("perplexity",)).run() == before


def test_a_task_that_does_not_fit_is_left_out_and_said_so() -> None:
    notices: list[str] = []
    evaluation = _evaluation(CONDITIONS[:1])
    evaluation.notice = notices.append
    lengths = {r.length for r in evaluation.run() if r.task == "passkey"}
    assert lengths == {512}
    assert len(notices) == 1
    assert "passkey does not fit in 128 tokens" in notices[0]


def _bytes(path: Path, evaluation: Evaluation) -> bytes:
    journal = Journal(path)
    evaluation.run(journal)
    journal.close()
    return path.read_bytes()


class Interrupted(BaseException):
    pass


def test_a_run_interrupted_after_any_batch_ends_with_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ropewalk.evaluation.answering.TOKENS_PER_BATCH", 1024)
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


@pytest.mark.parametrize("mode", get_args(Mode))
def test_a_run_torn_inside_a_batch_ends_with_the_same_bytes(
    mode: Mode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ropewalk.evaluation.answering.TOKENS_PER_BATCH", 256)

    def run(name: str) -> bytes:
        settings = EvaluationSettings(("perplexity", "kv", "lines"), (128,), 6, mode=mode)
        answerer = InProcess(tiny.loaded(), CONDITIONS)
        return _bytes(tmp_path / name, Evaluation(answerer, tiny.documents(), settings))

    whole = run("whole")
    lines = whole.splitlines(keepends=True)
    for kept in (1, len(lines) // 2, len(lines) - 1):
        (tmp_path / "torn").write_bytes(b"".join(lines[:kept]) + lines[kept][:40])
        with pytest.warns(UserWarning, match="torn off"):
            assert run("torn") == whole


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
    together = _evaluation().run()
    monkeypatch.setattr("ropewalk.evaluation.answering.TOKENS_PER_BATCH", 1)
    alone = _evaluation().run()
    assert [record.key for record in together] == [record.key for record in alone]
    for a, b in zip(together, alone, strict=True):
        assert a.score == pytest.approx(b.score, abs=1e-4)


def test_samples_that_are_made_again_for_the_next_condition_are_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept, again = _evaluation(names=("kv",)), _evaluation(names=("kv",))
    again._room = 600  # those of the shorter length
    made: list[int] = []
    generate = samples.generate

    def counted(*arguments: Any, **more: Any) -> Any:
        made.append(arguments[3])
        return generate(*arguments, **more)

    monkeypatch.setattr(samples, "generate", counted)
    first = kept.run()
    assert made == [128, 512]
    assert again.run() == first
    assert made == [128, 512, 128, 512, 512]


class Oracle:
    """Stands in for a scorer: makes the same choices in both modes, by what a sample is asked."""

    def __init__(self, written: dict[bytes, NDArray[np.int64]]) -> None:
        self.written = written

    def score(self, sequences: Any, starts: Any) -> list[TokenScores]:
        return [
            TokenScores(
                np.zeros(len(row) - start), self.written[row[:start].tobytes()][: len(row) - start]
            )
            for row, start in zip(sequences, starts, strict=True)
        ]

    def write(self, prompts: Any, count: int, ended: Any) -> list[Any]:
        rows = [self.written[prompt.tobytes()][:count] for prompt in prompts]
        ends = (next((i for i in range(1, len(row)) if ended(row[:i])), None) for row in rows)
        return [row[:end] for row, end in zip(rows, ends, strict=True)]

    def write_on(self, shared: int, *arguments: Any) -> list[Any]:
        return self.write(*arguments)


@pytest.mark.parametrize("mode", get_args(Mode))
@pytest.mark.parametrize("task", ["kv", "needle", "passkey", "lines"])
@pytest.mark.parametrize(
    ("written", "exact", "prefix", "by_the_task"),
    [
        (lambda answer: f"{answer}\nand so on", 1, 1, 1),
        (lambda answer: f"{answer}!", 1, 1, 1),
        (lambda answer: f"{answer} 7 of them", 1, 1, None),
        (lambda answer: f"{answer}7 and so on", 0, 1, 0),  # another number
        (lambda answer: f"{answer[:-1]}x\nand so on", 0, 0, 0),
        (lambda answer: f"\n{answer}\nand so on", 0, 0, None),  # another wording
    ],
)
def test_an_answer_is_exact_only_where_it_also_ends(
    mode: Mode,
    task: str,
    written: Callable[[str], str],
    exact: float,
    prefix: float,
    by_the_task: float | None,
) -> None:
    """`92633` begins `926333`: with the end unscored, a model that wrote that would be right."""
    evaluation = _evaluation()
    [sample] = samples.generate(
        tasks.named(task), evaluation.encoder, Haystack(tiny.documents()), 512, 1, 0
    )
    chosen = evaluation.encoder.pieces(written(sample.answer_text) + " and so on" * 9)
    answerer, subject = evaluation.answerer, Subject("weights", PRESENT.id, "none")
    vars(answerer)["_scorer"] = Oracle({sample.prompt.tobytes(): chosen})
    part = Questions(tasks.named(task), evaluation.encoder, mode, [[sample]])
    [(_, records)] = part.scored(answerer, subject, set())
    assert list(part.scored(answerer, subject, {record.key for record in records})) == []
    scores = {record.metric: record.score for record in records}
    assert (scores["exact_match"], scores["prefix_match"]) == (exact, prefix)
    assert ("task_score" in scores) == (mode in WRITTEN)
    if mode in WRITTEN and by_the_task is not None:
        assert scores["task_score"] == by_the_task
    for record in records:
        assert (record.mode, record.task, record.length) == (mode, task, 512)
        assert (record.answer is not None) == (mode in WRITTEN)


def test_greedy_writing_and_teacher_forcing_agree() -> None:
    """On the model that ships: what is chosen under teacher forcing is what it writes."""
    loaded = load("bundled")
    extended = extend_plan(loaded.present_plan, 1024, "ntk")
    under = [Condition("ntk", extended.id, extended)]
    scores = []
    for mode in ("teacher_forced", "generate"):
        settings = EvaluationSettings(("passkey", "needle", "lines"), (1024,), 3, mode=mode)
        records = Evaluation(
            InProcess(loaded, under), list(read_documents(HELD_OUT)), settings
        ).run()
        asked = [r for r in records if r.metric != "task_score"]
        scores.append({(r.task, r.sample, r.metric): r.score for r in asked})
    assert scores[0] == scores[1]
    assert set(scores[0].values()) == {0, 1}


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"tasks": ()}, InvalidValue),
        ({"lengths": ()}, InvalidValue),
        ({"lengths": (1,)}, InvalidValue),
        ({"samples": 2.5}, InvalidValue),
        ({"seed": "0"}, InvalidValue),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    changes: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        EvaluationSettings(**{"tasks": ("kv",), "lengths": (128,), "samples": 5, **changes})


def _shared(
    *names: str, under: Sequence[Condition] = CONDITIONS[1:], lengths: tuple[int, ...] = (256,)
) -> Evaluation:
    settings = EvaluationSettings(names, lengths, 6, mode="shared_context")
    return Evaluation(InProcess(tiny.loaded(), under), tiny.documents(), settings)


def test_questions_on_one_context_are_answered_as_each_alone_and_share_a_layout() -> None:
    """Also on a last context from which fewer samples are taken than it has questions."""
    names = ("kv", "lines", "niah-multikey-1-syn", "niah-multikey-2-syn")
    records = _shared(*names).run()
    assert {record.mode for record in records} == {"shared_context"}
    assert {record.task for record in records} == set(names)
    evaluation = _shared(*names)
    with applied(tiny.model(), EXTENDED, length=256):
        for name in names:
            task, answers = tasks.named(name), {r.sample: r for r in records if r.task == name}
            haystack = Haystack(tiny.documents())
            drawn = list(
                samples.generate(task, evaluation.encoder, haystack, 256, 6, 0, shared=True)
            )
            assert [sample.id for sample in drawn] == list(answers)
            assert len({sample.context for sample in drawn}) == 2
            for context in {sample.context for sample in drawn}:
                own = [sample for sample in drawn if sample.context == context]
                assert len({sample.layout for sample in own}) == 1
                assert len({sample.prompt.tobytes() for sample in own}) == len(own)
            for sample in drawn:
                assert sample.prompt.size + sample.allowance <= 256
                part = Questions(task, evaluation.encoder, "generate", [[sample]])
                subject = answers[sample.id].subject
                [(_, [*_, alone])] = part.scored(evaluation.answerer, subject, set())
                assert alone.answer == answers[sample.id].answer


def test_a_task_with_one_question_is_left_out_of_shared_contexts() -> None:
    notices: list[str] = []
    evaluation = _shared("passkey", "kv", "perplexity", under=CONDITIONS[:1], lengths=(128, 256))
    evaluation.notice = notices.append
    records = evaluation.run()
    assert {(r.task, r.mode) for r in records} == {
        ("kv", "shared_context"),
        ("perplexity", "teacher_forced"),
    }
    assert ["passkey has only one question" in notice for notice in notices] == [True]
    with pytest.raises(InvalidValue, match=r"none of these has several questions.*kv, lines"):
        _shared("passkey", "perplexity")


def test_a_model_with_steps_follows_the_one_of_the_length_in_every_forward() -> None:
    """A stock module chooses by the tokens so far: by the prompt, and then anew while it writes."""
    loaded = _dynamic()
    plan = loaded.present_plan
    assert len(plan.steps()) > 1
    found = []
    for mode in ("teacher_forced", "generate"):
        settings = EvaluationSettings(("kv", "lines"), (256,), 4, mode=mode)
        records, planned = (
            Evaluation(InProcess(loaded, [condition]), tiny.documents(), settings).run()
            for condition in (Condition("none", plan.id, None), Condition("none", plan.id, plan))
        )
        assert planned == records
        found.append([r.score for r in records if r.metric == "prefix_match"])
    assert found[0] == found[1]


@pytest.mark.parametrize("length", [100, 192, 300, 600])
def test_unmodified_dynamic_ntk_turns_as_stock_does_at_each_length(length: int) -> None:
    """The present plan has the doublings of 128 only, up to 512."""
    loaded = _dynamic()
    tokens = torch.randint(0, 64, (1, length), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = _dynamic().model(tokens, use_cache=False).logits
        answerer = InProcess(loaded, [Condition("none", loaded.present_plan.id, None)])
        with answerer.under(answerer.subjects[0], length):
            torch.testing.assert_close(
                loaded.model(tokens, use_cache=False).logits, expected, rtol=1e-3, atol=1e-4
            )


def test_a_length_between_rungs_keeps_log_n() -> None:
    plan = _dynamic().present_plan
    steps = [
        replace(step, schedule=replace(step.schedule, log_n=LogN("beyond", tiny.WINDOW)))
        for step in plan.steps()
    ]
    own = at_length(plan.with_steps(plan.main_layer, tuple(steps)), 192)
    assert own.schedule(192).log_n == steps[0].schedule.log_n
    assert own.target_length == 192


def test_tasks_are_listed() -> None:
    assert {"perplexity", "repetition", "passkey", "needle", "lines", "kv"} <= set(task_names())
