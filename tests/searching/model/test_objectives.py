"""What a measurement says of a model, against the model's own logits; and how one fails."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from ropewalk.context_plan import FULL_ATTENTION, ContextPlan, PlanStep
from ropewalk.evaluation.encoding import Encoder
from ropewalk.evaluation.planted import split_corpus
from ropewalk.models.config import present_plan
from ropewalk.models.install import applied
from ropewalk.planning.extension import extend
from ropewalk.schedule import RotarySchedule
from ropewalk.searching.model.measure import ANSWERS, ENTRIES, RETRIEVED, TEXT, LocalMeasure
from ropewalk.searching.model.objectives import ModelObjective, loss_of
from ropewalk.searching.objective import Kind
from tests.evaluation import tiny

LENGTH = 2 * tiny.WINDOW
DOCUMENTS = split_corpus(tiny.documents(), Encoder(tiny.tokenizer()), LENGTH, (3, 1, 1), seed=0).all
PLAIN = present_plan(tiny.model().config).longest()
SCHEDULES = [extend(PLAIN, LENGTH, method) for method in ("linear", "yarn")]


def plan_of(schedule: RotarySchedule) -> ContextPlan:
    return ContextPlan("tiny", {FULL_ATTENTION: (PlanStep(LENGTH, schedule),)})


def measure(told: list[str] | None = None, model: Any = None) -> LocalMeasure:
    told = [] if told is None else told
    return LocalMeasure(model or tiny.model(), DOCUMENTS, plan_of, told.append)


@pytest.mark.parametrize("kept", [0, 16])
def test_a_measurement_is_what_the_models_own_logits_say(kept: int) -> None:
    schedule = replace(SCHEDULES[1], kept_initial_positions=kept)
    document = DOCUMENTS[2]
    tokens = torch.from_numpy(document.tokens)
    with applied(tiny.model(), plan_of(schedule)), torch.inference_mode():
        logits = tiny.model()(tokens[None]).logits[0, :-1].double()
    losses = np.zeros(LENGTH)
    losses[1:] = torch.nn.functional.cross_entropy(logits, tokens[1:], reduction="none").numpy()
    right = np.append([False], (logits.argmax(-1) == tokens[1:]).numpy())
    found = measure()([schedule], [2])[0, 0]
    answers = np.concatenate([losses[a] for a in document.answers])
    assert found[TEXT] == pytest.approx(losses[document.text].mean(), abs=1e-5)
    assert found[ANSWERS] == pytest.approx(answers.mean(), abs=1e-5)
    assert found[RETRIEVED] == np.mean([right[a].all() for a in document.answers])


def test_a_schedule_is_measured_alone_whatever_stands_beside_it() -> None:
    found = measure()
    whole = found(SCHEDULES, range(len(DOCUMENTS)))
    assert whole.shape == (2, len(DOCUMENTS), len(ENTRIES))
    for i, schedule in enumerate(SCHEDULES):
        for d in reversed(range(len(DOCUMENTS))):
            np.testing.assert_array_equal(found([schedule], [d])[0, 0], whole[i, d])
    assert not np.array_equal(whole[0], whole[1])


def test_the_model_is_as_before_when_a_measurement_is_over() -> None:
    before = tiny.model().model.rotary_emb
    frequencies = before.inv_freq.clone()
    measure()([replace(SCHEDULES[0], kept_initial_positions=4)], [0])
    assert tiny.model().model.rotary_emb is before
    assert torch.equal(before.inv_freq, frequencies)


def test_an_objective_is_a_choice_among_what_is_measured() -> None:
    measured = measure()(SCHEDULES, [1, 2])
    for kind, expected in {
        "perplexity": measured[..., TEXT],
        "needle": measured[..., ANSWERS],
        "mixed": measured[..., TEXT] + measured[..., ANSWERS],
    }.items():
        chosen: Any = kind
        objective = ModelObjective(measure(), chosen, [1, 2], LENGTH)
        np.testing.assert_array_equal(objective.losses(SCHEDULES, [0, 1]), expected)


def test_the_loss_of_short_text_is_added_document_by_document() -> None:
    measured = measure()(SCHEDULES, range(len(DOCUMENTS)))
    objective = ModelObjective(measure(), "needle", [0], LENGTH, short=[2])
    expected = measured[:, :1, ANSWERS] + measured[:, 2:3, TEXT]
    np.testing.assert_array_equal(objective.losses(SCHEDULES, [0]), expected)


def test_a_schedule_under_which_logits_are_no_numbers_fails_and_the_others_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[str] = []
    found = measure(told)
    sane = found(SCHEDULES, [0, 1])
    score = found._scorer.score

    def broken(sequences: Any, starts: Any) -> Any:
        scaling = tiny.model().model.rotary_emb.attention_scaling
        scores = score(sequences, starts)
        first = sequences[0] is DOCUMENTS[1].tokens
        return (
            [s._replace(losses=s.losses * np.nan) for s in scores]
            if (scaling > 1 and first)
            else scores
        )

    monkeypatch.setattr(found._scorer, "score", broken)
    losses = loss_of(found(SCHEDULES, [0, 1]), "mixed")
    np.testing.assert_array_equal(losses[0], loss_of(sane[0], "mixed"))
    assert np.isnan(losses[1]).all()


@pytest.mark.parametrize(("fitting", "fails"), [(50, False), (0, True)])
def test_out_of_memory_halves_the_chunk_once_and_then_fails_the_schedule(
    fitting: int, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    found = measure(told)
    sane = found(SCHEDULES[:1], [0])
    scorer = found._scorer
    scorer.logits_at_once = 100 * len(tiny.tokenizer())
    head = scorer._head.projection.forward

    def short_of_memory(rows: torch.Tensor) -> torch.Tensor:
        if len(rows) > fitting:
            raise torch.OutOfMemoryError("CUDA out of memory")
        result: torch.Tensor = head(rows)
        return result

    monkeypatch.setattr(scorer._head.projection, "forward", short_of_memory)
    kind: Kind = "mixed"
    losses = loss_of(found(SCHEDULES[:1], [0]), kind)
    assert scorer.logits_at_once == 50 * len(tiny.tokenizer())
    assert "out of memory" in told[0]
    assert np.isnan(losses).all() == fails
    if not fails:
        np.testing.assert_allclose(losses, loss_of(sane, kind), rtol=1e-6)


def test_an_error_that_is_not_about_memory_is_not_swallowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = measure()

    def broken(*arguments: Any) -> Any:
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    monkeypatch.setattr(found._scorer, "score", broken)
    with pytest.raises(RuntimeError, match="mat1"):
        found(SCHEDULES[:1], [0])
