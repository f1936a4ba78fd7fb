"""`ropewalk inspect --measure`, on a model that is built here."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from ropewalk.errors import InputError
from ropewalk.models.config import present_plan
from ropewalk.theory.decay import decay
from tests.cli.calling import ropewalk
from tests.evaluation import tiny


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "text.txt"
    path.write_text(tiny.documents()[1].text)
    return path


_inspect = partial(ropewalk, "inspect")


def test_the_theory_is_weighted_by_what_was_measured(model: Path, corpus: Path) -> None:
    measured = json.loads(_inspect(model, "--measure", "--corpus", corpus, "--json"))["measured"]
    schedule = present_plan(tiny.model().config).longest()
    assert len(measured["query_variances"]) == schedule.geometry.pairs
    assert np.all(np.array(measured["key_variances"]) > 0)
    weighted = decay(schedule, schedule.length, measured["query_variances"])
    assert measured["effective_length"] == weighted.effective_length
    assert measured["violations"] == weighted.violations
    assert measured["tokens"] % tiny.WINDOW == 0


def test_the_table_shows_the_variances(model: Path, corpus: Path) -> None:
    shown = _inspect(model, "--measure", "--corpus", corpus)
    assert "query variance" in shown
    assert "weighted by the variances of its queries on" in shown
    assert "query variance" not in _inspect(model)


def test_too_little_text_is_refused(model: Path, tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("short")
    with pytest.raises(InputError, match="no text to measure"):
        _inspect(model, "--measure", "--corpus", tmp_path / "short.txt")
