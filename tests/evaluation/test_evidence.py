"""The bundled model shows what large models show: perplexity alone does not tell methods apart."""

from __future__ import annotations

import pytest

from ropewalk.data.corpora import HELD_OUT, read_documents
from ropewalk.evaluation.conditions import Condition
from ropewalk.evaluation.in_process import InProcess
from ropewalk.evaluation.results import compare_methods, summarise
from ropewalk.evaluation.runner import Evaluation
from ropewalk.evaluation.settings import EvaluationSettings
from ropewalk.models.config import BUNDLED
from ropewalk.models.load import load
from ropewalk.planning.extension import extend_plan


@pytest.mark.slow
def test_at_four_times_the_window_yarn_retrieves_and_interpolation_only_predicts() -> None:
    loaded = load(BUNDLED)
    present = loaded.present_plan
    length = 4 * present.target_length
    plans = {m: extend_plan(present, length, m) for m in ("ntk_mixed", "yarn")}
    under = [
        Condition("none", present.id, None),
        *(Condition(name, plan.id, plan) for name, plan in plans.items()),
    ]
    settings = EvaluationSettings(("perplexity", "kv"), (length,), 20)
    texts = list(read_documents(HELD_OUT))
    records = Evaluation(InProcess(loaded, under), texts, settings).run()
    values = {(r.method, r.metric): r for r in summarise(records)}
    # A better perplexity than the untouched model, and none of its retrieval.
    assert values["ntk_mixed", "perplexity"].value < values["none", "perplexity"].value
    apart = {
        (c.first.method, c.second.method): c.comparison.difference.value
        for c in compare_methods(r for r in records if r.metric == "exact_match")
        if c.adjusted_p is not None and c.adjusted_p < 0.05
    }
    assert apart["none", "yarn"] < 0
    assert apart["ntk_mixed", "yarn"] < 0
