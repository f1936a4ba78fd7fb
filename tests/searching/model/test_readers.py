"""Whoever reads documents: llama.cpp tells of a GGUF file what the folder tells in process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ropewalk.budget import as_budget
from ropewalk.context_plan import ContextPlan, PlanStep
from ropewalk.data.documents import as_documents
from ropewalk.errors import InvalidValue, Unsupported
from ropewalk.evaluation.encoding import Encoder
from ropewalk.evaluation.forward_time import Timed
from ropewalk.evaluation.in_llama_cpp import SCORED, FileInLlamaCpp
from ropewalk.evaluation.planted import Planted, plant, stretches_of
from ropewalk.gguf.llama_cpp_run import Engine
from ropewalk.models.config import BUNDLED
from ropewalk.models.load import load
from ropewalk.models.source import resolve
from ropewalk.pipeline.cost import within
from ropewalk.pipeline.settings import EVALUATIONS, ExtendSettings
from ropewalk.planning.extension import extend
from ropewalk.progress import unheard
from ropewalk.schedule import RotarySchedule
from ropewalk.searching.model.measure import ANSWERS, MATCHED, TEXT
from ropewalk.searching.model.readers import LlamaCppReader, ModelReader
from ropewalk.torchrun import Ranks
from tests.evaluation.served import made

TARGET = 1024


@pytest.fixture(scope="module")
def by_llama_cpp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaCppReader]:
    path = made.gguf(tmp_path_factory.mktemp("gguf") / "plain.gguf", made.plain(), length=512)
    with FileInLlamaCpp(resolve(path), Engine()) as file:
        yield LlamaCppReader(file, TARGET, "f32")


def _planted(encoder: Encoder, count: int) -> list[Planted]:
    texts = as_documents("held-out", "text", unheard)
    stretches, _ = stretches_of(texts, encoder, TARGET, count, 0)
    return [
        plant(each, encoder, TARGET, i, 0, mixed_within=512).with_scored(SCORED)
        for i, each in enumerate(stretches)
    ]


def test_both_measure_the_same(by_llama_cpp: LlamaCppReader) -> None:
    here = ModelReader(load(BUNDLED, dtype="float32", device="cpu"))
    assert by_llama_cpp.encoder.pieces("a b").tolist() == here.encoder.pieces("a b").tolist()
    planted = _planted(here.encoder, 2)

    def plan_of(schedule: RotarySchedule) -> ContextPlan:
        step = PlanStep(TARGET, schedule)
        return here.present_plan.with_steps(here.present_plan.extended_layer, (step,))

    plain = made.plain()
    schedules = [plain, extend(plain, TARGET, "yarn"), extend(plain, TARGET, "ntk")]
    own = here.measure(planted, plan_of, unheard, Ranks())(schedules, range(2))
    with by_llama_cpp.counting() as read:
        found = by_llama_cpp.measure(planted, plan_of, unheard, Ranks())(schedules, range(2))
    # Each document is read once under each schedule, and nothing of it again for its questions.
    assert read() == pytest.approx(len(schedules) * 2 * TARGET, rel=0.05)
    np.testing.assert_array_equal(found[..., MATCHED], own[..., MATCHED])
    # Flash attention rounds; the schedules differ by tenths of a nat.
    for entry in (TEXT, ANSWERS):
        np.testing.assert_allclose(found[..., entry], own[..., entry], atol=0.02)
    assert np.ptp(own[..., ANSWERS].mean(axis=1)) > 0.2


def test_what_llama_cpp_cannot_follow_is_told_apart(by_llama_cpp: LlamaCppReader) -> None:
    present = by_llama_cpp.present_plan

    def planned(method: str) -> ContextPlan:
        step = PlanStep(TARGET, extend(made.plain(), TARGET, method))
        return present.with_steps(present.extended_layer, (step,))

    assert by_llama_cpp.follows(planned("linear"))
    assert not by_llama_cpp.follows(planned("llama3"))
    with pytest.raises(Unsupported, match=r"llama\.cpp runs this GGUF file, and does not train it"):
        by_llama_cpp.model  # noqa: B018


def test_its_time_is_predicted_from_forwards_in_llama_cpp(by_llama_cpp: LlamaCppReader) -> None:
    """Only lengths are checked: how long a machine takes depends on what else it does."""
    timed = Timed.of(by_llama_cpp.clock, 64, 256)
    assert timed.at == (64, 256)
    three, six = (timed.range([(TARGET, count)]) for count in (3, 6))
    assert 0 < three.low <= three.high
    assert six.high == pytest.approx(2 * three.high)


def test_a_run_is_planned_to_fit_a_time_by_these_forwards(
    by_llama_cpp: LlamaCppReader, tmp_path: Path
) -> None:
    settings, said = ExtendSettings(TARGET), list[str]()
    found = within(as_budget("40h"), settings, by_llama_cpp, tmp_path, said.append)
    assert (found.evaluations, found.documents) == (EVALUATIONS, settings.documents)
    assert said[-1].startswith("within 2400m: up to 64 documents for a verdict, a search of")
    with pytest.raises(InvalidValue, match=r"too small for any decision; give [\d.]+[smh] or more"):
        within(as_budget("1s"), settings, by_llama_cpp, tmp_path, said.append)
