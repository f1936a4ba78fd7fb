"""The estimate: exact where the timings are, and a range where they are not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ropewalk as rw
from ropewalk.api.cost import Cost
from ropewalk.evaluation.forward_time import Arithmetic, Rates
from ropewalk.pipeline import cost
from ropewalk.pipeline.extend import USED, Extended
from ropewalk.pipeline.stages import stages
from ropewalk.planning.extension import HAND_DESIGNED
from ropewalk.run_directory import EVENTS, read_journal
from tests.api.conformance import check_result, run_command
from tests.evaluation import tiny


@pytest.fixture(autouse=True)
def without_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that is timed waits instead of importing, which keeps no core busy."""
    monkeypatch.setattr(cost, "_IMPORTS", "import time; time.sleep(0.3)")


SMALL = Arithmetic(weights=1000, attention=64)


def test_what_a_forward_multiplies() -> None:
    model = tiny.model()
    own = Arithmetic.of(model)
    embedding = model.get_input_embeddings().weight.numel()
    total = sum(weight.numel() for weight in model.parameters())
    assert own.weights == total - embedding  # looked up, not multiplied; the head is its own here
    assert own.attention == 2 * 2 * 16  # layers, heads, dimensions of a head


def test_rates_are_found_again() -> None:
    rates = Rates((2e-9, 3e-9), (5e-9, 4e-9))
    timed = [(length, SMALL.seconds(length, rates)) for length in (512, 4096)]
    found = SMALL.fitted(timed)
    assert found.by_weight == pytest.approx(rates.by_weight)
    assert found.by_position == pytest.approx(rates.by_position)
    assert SMALL.seconds(65536, found) == pytest.approx(SMALL.seconds(65536, rates))


def test_lengths_that_cannot_tell_attention_give_one_rate_for_both() -> None:
    seconds = [SMALL.by_weight(length) * 1e-9 for length in (512, 4096)]
    found = SMALL.fitted([(512, seconds[:1]), (4096, seconds[1:])])
    assert found.by_position == found.by_weight
    # Attention still grows with the square.
    short, long = (SMALL.seconds(length, found)[0] for length in (65536, 131072))
    assert long > 3 * short


def test_the_estimate_counts_what_the_stages_read(folder: Path) -> None:
    texts = tiny.documents(8)
    found = check_result(rw.extend.preview(str(folder), 256, corpus=texts, budget=6, search=True))
    assert isinstance(found, cost.Estimate)
    rows = {row.stage: row for row in found.stages}
    # Six documents of the target, five by the unmodified model, and an example by both; as many of
    # the window by both.
    assert rows["first"].tokens == (6 + 5 + 2) * 256 + 2 * 6 * 128
    assert rows["first"].least == rows["first"].tokens
    # Of another schedule, the unmodified model is known; and it may not be needed.
    assert rows["verdict"].tokens == 6 * (256 + 128)
    assert rows["verdict"].least == 0
    # 20 evaluations on 5 documents, and all methods with 4 finalists on 16: nothing else decides.
    long = (20 * 5 + (len(HAND_DESIGNED) + 4) * 16) * 256
    # At 128, all that may be chosen and the model as it is on 16, and all that are searched.
    short = (len(HAND_DESIGNED) + 4 + 1) * 16 + 20 * 5
    assert rows["search"].tokens == long + short * 128
    # The first look may leave one of the methods.
    assert rows["search"].least == (len(HAND_DESIGNED) * 6 + 10) * 256
    for row in found.stages:
        assert 0 <= row.seconds_low <= row.seconds <= row.seconds_high
    assert rows["search"].seconds_low > 0
    assert rows["verdict"].seconds_low == 0 < rows["verdict"].seconds_high
    assert all(row.early for row in (rows["first"], rows["verdict"], rows["search"]))
    assert not rows["export"].early
    assert rows["export"].seconds_low > 0.5  # two processes that load a model library
    assert found.total.high >= found.total.low > 0


def test_a_run_reads_what_was_counted(done: Extended, run: Path) -> None:
    """Nothing ends the first stage early: six documents are the most that it may read."""
    counted = {each.name: each.needs(tiny.WINDOW) for each in stages(done.settings)}
    events = [each for each in read_journal(run / EVENTS) if each["event"] == USED]
    used = {each["stage"]: int(str(each["tokens"])) for each in events}
    # Besides, some tokens prove that the schedule took effect.
    assert 0 <= used["first"] - counted["first"].tokens < tiny.WINDOW
    assert counted["search"].fewest <= used["search"] <= counted["search"].tokens


def test_on_another_machine_each_stage_has_its_least_and_its_most(folder: Path) -> None:
    given: dict[str, Any] = {"to": 1024, "train_steps": 8}
    found = rw.extend.preview(str(folder), on="h100", **given)
    assert isinstance(found, Cost)
    assert [row.what.partition(",")[0] for row in found.rows] == [
        *("first", "search", "verdict", "train", "trained"),
    ]
    told = [each for each in found.assumptions if "as early as it can" in each]
    # What else comes after the first stage may not be needed.
    [least] = [re.findall(r"(\w+) [\d.e-]+ s", each) for each in told]
    assert least == ["first", "train"]
    assert "figures for h100 were compared with runs of ours (docs/cost.md)" in found.assumptions
    elsewhere = rw.extend.preview(str(folder), on="a100", **given)
    assert isinstance(elsewhere, Cost)
    assert any("ropewalk was never run on 1xa100" in each for each in elsewhere.assumptions)


def test_race_search_and_verdict_of_a_large_model_take_an_afternoon_at_most() -> None:
    found = rw.extend.preview("qwen3-8b", "128k", search=True, on="h100")
    assert isinstance(found, Cost)
    hours = {row.what.partition(",")[0]: (row.seconds or np.inf) / 3600 for row in found.rows}
    assert hours["first"] < 0.5
    assert sum(hours.values()) < 2.4


def test_the_command_shows_the_same_rows_and_writes_nothing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = run_command("extend", folder, "--to", 1024, "--dry-run")["stages"]
    assert [row["stage"] for row in rows] == [
        *("inspect", "first", "search", "verdict", "export", "verify"),
    ]
    # At most 64 documents; at least six, if they decide, and then no methods race.
    between = 5 * (256 + 512) + 5 * 256
    assert rows[1]["tokens"] == (64 + 5 + 2) * 1024 + 2 * 48 * 128 + between
    assert rows[1]["least"] == (6 + 5 + 2) * 1024 + 2 * 48 * 128 + between
    assert rows[2]["least"] == 0
    assert rows[2]["tokens"] == 6 * 16 * 1024 + 7 * 16 * 128
    assert list(tmp_path.iterdir()) == []
