"""A whole search on a tiny model, and what it says of itself."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ropewalk.errors import InvalidValue
from ropewalk.extension import extend_plan
from ropewalk.models.config import present_plan
from ropewalk.models.load import LoadedModel
from ropewalk.models.stock_config import with_plan
from ropewalk.plan import FULL_ATTENTION
from ropewalk.run import Journal
from ropewalk.search_run import HAND_MADE, Found, Settings, search_model
from tests.evaluation import tiny

TARGET = 2 * tiny.WINDOW
SETTINGS = Settings(TARGET, evaluations=12, documents=(3, 2, 2))


def loaded(model: object = None) -> LoadedModel:
    model = model or tiny.model()
    return LoadedModel("tiny", model, tiny.tokenizer(), present_plan(model.config))


def searched(settings: Settings = SETTINGS, **more: object) -> Found:
    found = search_model(loaded(), tiny.documents(), settings, **more)
    assert found is not None
    return found


def test_a_search_ends_in_a_plan_that_its_own_numbers_speak_for() -> None:
    found = searched()
    [leg] = found.legs
    assert found.plan.target_length == TARGET
    assert found.plan.longest() == leg.chosen.schedule
    assert set(leg.baselines) == set(HAND_MADE)
    most = max(arm.selection.retrieval for arm in leg.baselines.values())
    assert leg.chosen.selection.retrieval >= most
    by_hand = leg.baselines[leg.best_by_hand]
    assert leg.chosen.selection.score <= by_hand.selection.score
    assert leg.evaluations <= 12
    assert leg.tokens == round(leg.evaluations * 3) * TARGET
    assert [p.score for p in leg.history] == sorted((p.score for p in leg.history), reverse=True)
