"""The estimate: exact where the timings are, and a range where they are not."""

from __future__ import annotations

from pathlib import Path

import pytest

import ropewalk as rw
from ropewalk.evaluation.forward_time import Arithmetic, Rates
from ropewalk.pipeline import cost
from ropewalk.planning.hand_designed import HAND_DESIGNED
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
    found = check_result(
        rw.extend.preview(
            str(folder), 256, corpus=texts, budget=5, samples=2, lengths=[tiny.WINDOW]
        )
    )
    assert isinstance(found, cost.Estimate)
    rows = {row.stage: row for row in found.stages}
    # Six methods, four tasks, two samples, at 128 and 256 tokens.
    assert rows["evaluate"].tokens == (2 + len(HAND_DESIGNED)) * 4 * 2 * (128 + 256)
    # 5 evaluations on 6 documents, all methods on all 27, 4 finalists on 16, one reported on 5 and
    # on the 6 of the search.
    long = (5 * 6 + len(HAND_DESIGNED) * 27 + 4 * 16 + 5 + 6) * 256
    # At 128, all that may be chosen and the model as it is on 16, three of them on 5, and all that
    # are searched, with the hand-designed ones, on those of the search.
    short = (len(HAND_DESIGNED) + 4 + 1) * 16 + 3 * 5 + (5 + len(HAND_DESIGNED)) * 6
    assert rows["search"].tokens == long + short * 128
    for row in found.stages:
        assert 0 <= row.seconds_low <= row.seconds <= row.seconds_high
    assert rows["search"].seconds_low > 0
    # Its samples are those of the evaluation if these decide already.
    assert rows["verdict"].seconds_low == 0 < rows["verdict"].seconds_high
    # Of eight conditions two are always measured, and a range allows half as much besides.
    assert rows["evaluate"].seconds_low < rows["evaluate"].seconds / 3
    assert all(row.early for row in (rows["verdict"], rows["evaluate"], rows["search"]))
    assert not rows["export"].early
    assert rows["export"].seconds_low > 0.5  # two processes that load a model library
    assert found.total.high >= found.total.low > 0


def test_the_command_shows_the_same_rows_and_writes_nothing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = run_command("extend", folder, "--to", 1024, "--dry-run")["stages"]
    assert [row["stage"] for row in rows] == [
        *("inspect", "compare", "search", "evaluate", "short", "verdict", "export", "verify"),
    ]
    # At most four looks more, at the target: 15 times what was evaluated of three tasks.
    assert rows[5]["tokens"] == 3 * 20 * 15 * 1024
    assert rows[3]["tokens"] == (2 + len(HAND_DESIGNED)) * 4 * 20 * (128 + 256 + 512 + 1024)
    assert list(tmp_path.iterdir()) == []
