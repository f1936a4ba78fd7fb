"""The verdict of a run: its samples, its words, and what a killed run makes of them."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from ropewalk.evaluation.verdict import LOOKS, Look
from ropewalk.pipeline.extend import Extended
from ropewalk.pipeline.results import Difference, Judged, ShortText
from ropewalk.pipeline.stages.short import CheckShort
from ropewalk.pipeline.stages.verdict import MORE, Judge
from ropewalk.run_directory import read_journal
from tests.api.conformance import check_result
from tests.pipeline.conftest import TARGET, extended

LOOK = Look(240, 0.94, 0.90, 0.97)


def of_perplexity(difference: float, low: float | None, high: float | None) -> ShortText:
    return ShortText("yarn", (Difference("perplexity", "nll", 512, difference, low, high, 0.01),))


@pytest.mark.parametrize(
    ("looks", "told"),
    [
        ((LOOK,), "works at 4k: retrieval 94% (90 to 97%, threshold 85%, 240 samples)"),
        (
            (Look(60, 0.5, 0.3, 0.7),),
            "does not work at 4k: retrieval 50% (30 to 70%, threshold 85%, 60 samples)",
        ),
        (
            (LOOK, Look(960, 0.85, 0.82, 0.88)),
            "undecided at 4k: retrieval 85% (82 to 88%, threshold 85%, 960 samples); no number of "
            "samples in reach would tell, so close is the threshold",
        ),
        (
            (Look(60, 0.9, 0.76, 0.96),),
            "undecided at 4k: retrieval 90% (76 to 96%, threshold 85%, 60 samples); about 420 more "
            "samples would tell",
        ),
        (
            (Look(3, 1.0, None, None),),
            "undecided at 4k: retrieval 100% (too few samples for an interval, threshold 85%, 3 "
            "samples); about 93 more samples would tell",
        ),
        ((), "undecided at 4k: retrieval not measured"),
    ],
)
def test_the_verdict_in_words(looks: tuple[Look, ...], told: str) -> None:
    judged = Judged("yarn", 4096, looks)
    assert judged.summary() == told
    check_result(judged)


@pytest.mark.parametrize(
    ("short", "told"),
    [
        (of_perplexity(0.06, 0.05, 0.07), "it costs 6.2% (5.1 to 7.3%) of perplexity up to 512"),
        (
            of_perplexity(-0.06, -0.07, -0.05),
            "it lowers perplexity by 5.8% (4.9 to 6.8%) up to 512",
        ),
        (of_perplexity(0.01, -0.01, 0.03), "it costs at most 3.0% of perplexity up to 512"),
        (
            of_perplexity(0.01, None, None),
            "it changes perplexity by +1.0% up to 512 (too few samples for an interval)",
        ),
        (ShortText("yarn", ()), "what it costs on short text was not measured"),
    ],
)
def test_the_price_in_words(short: ShortText, told: str) -> None:
    assert short.price.startswith(told)


@pytest.mark.parametrize(
    ("look", "advice"),
    [
        (LOOK, "Use {}; it costs 6.2% (5.1 to 7.3%) of perplexity up to 512."),
        (Look(60, 0.5, 0.3, 0.7), "Do not use {} at this length; train under it, or extend less"),
        (Look(60, 0.9, 0.76, 0.96), "Run again with more samples before you rely on {}; it costs"),
    ],
)
def test_the_last_line_advises(done: Extended, look: Look, advice: str) -> None:
    judged = replace(done.result(Judge), looks=(look,))
    results = {
        **done.results,
        Judge.name: judged,
        CheckShort.name: of_perplexity(0.06, 0.05, 0.07),
    }
    told = replace(done, results=results)
    assert advice.format(done.method) in told.verdict
    assert told.summary().endswith(told.verdict)
    assert told.to_json()["verdict"] == judged.verdict


def test_more_samples_are_asked_of_the_chosen_schedule_until_they_tell(
    done: Extended, run: Path
) -> None:
    judged = done.result(Judge)
    assert judged.verdict == "does not work"  # the model's weights are random
    assert [each.verdict for each in judged.looks[:-1]] == ["undecided"] * (len(judged.looks) - 1)
    assert len(judged.looks) < LOOKS
    kept = read_journal(run / MORE)
    assert {record["method"] for record in kept} <= {done.method}
    assert {record["length"] for record in kept} <= {TARGET}
    # Those that the evaluation has are not asked again.
    assert not {r["sample"] for r in kept} & {
        r["sample"] for r in read_journal(run / "records.jsonl")
    }


def test_a_run_that_was_killed_in_its_verdict_ends_with_the_same_bytes(
    folder: Path, tmp_path: Path
) -> None:
    """One sample of a task is too few for an interval, so a second look is needed."""
    run = tmp_path / "run"
    whole = extended(folder, run, samples=1)
    assert len(whole.result(Judge).looks) > 1
    lines = (run / MORE).read_bytes().splitlines(keepends=True)
    assert len(lines) > 2
    for left in (0, 1, len(lines) - 1):
        cut = Path(shutil.copytree(run, tmp_path / f"cut{left}"))
        (cut / MORE).write_bytes(b"".join(lines[:left]) + lines[left][:20])
        for name in ("verdict", "verify"):
            (cut / f"{name}.json").unlink()
        with pytest.warns(match="torn|cut|incomplete"):
            again = extended(folder, cut, samples=1)
        assert (cut / MORE).read_bytes() == (run / MORE).read_bytes()
        assert (cut / "verdict.json").read_bytes() == (run / "verdict.json").read_bytes()
        assert again.result(Judge) == whole.result(Judge)
