"""A run planned to fit its budget."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import ropewalk as rw
from ropewalk.budget import Budget
from ropewalk.data.corpora import HELD_OUT
from ropewalk.data.documents import as_documents
from ropewalk.errors import InputError, InvalidValue
from ropewalk.evaluation.verdict import TO_WORK
from ropewalk.pipeline import cost
from ropewalk.pipeline.request import characters_for, standard_library
from ropewalk.pipeline.settings import SHIPPED_UP_TO, ExtendSettings, parted, settings_for
from ropewalk.progress import unheard
from tests.evaluation import tiny
from tests.pipeline.conftest import TARGET, extended

SETTINGS = settings_for(tiny.loaded().present_plan, 4 * tiny.WINDOW, search=True)


def tokens_of(settings: ExtendSettings) -> int:
    return cost.tokens_of(settings, tiny.WINDOW)


def within(tokens: float) -> ExtendSettings:
    return cost.fitted(SETTINGS, Budget(tokens, "tokens"), tokens_of)


def test_what_fits_is_left_as_it_is() -> None:
    assert within(tokens_of(SETTINGS)) == SETTINGS
    assert within(1e15) == SETTINGS


def test_the_search_goes_first_then_documents_then_the_race() -> None:
    whole = tokens_of(SETTINGS)
    assert within(whole - 1) == replace(SETTINGS, evaluations=10)
    race = replace(SETTINGS, evaluations=0)
    assert within(tokens_of(race)) == race
    assert within(tokens_of(race) - 1) == replace(race, documents=48)
    smallest = replace(race, documents=32)
    assert within(tokens_of(smallest)) == smallest
    assert within(tokens_of(smallest) - 1).evaluations is None
    for tokens in (whole // 2, whole // 3, whole // 5):
        assert tokens_of(within(tokens)) <= tokens


def test_too_small_a_budget_names_the_least_that_would_do() -> None:
    with pytest.raises(InvalidValue, match=r"budget = '1e\+03tok': is too small .* give ") as told:
        within(1000)
    least = str(told.value).split("give ")[1].split(" or more")[0]
    assert within(float(least.removesuffix("tok")))


def test_a_budget_in_tokens_is_said_and_resumes_to_the_same_run(
    folder: Path, tmp_path: Path
) -> None:
    told: list[str] = []
    small = tokens_of(settings_for(tiny.loaded().present_plan, TARGET, documents=6))
    given = {"budget": f"{small}tok", "search": False}
    first = extended(folder, tmp_path / "run", **given, notice=told.append)
    assert tokens_of(first.settings) <= small
    assert any(f"at most {tokens_of(first.settings):,} tokens" in line for line in told)
    (tmp_path / "run" / "verify.json").unlink()
    assert extended(folder, tmp_path / "run", **given).settings == first.settings
    # A time keeps the plan of a run that has begun, however fast the machine is now.
    again = extended(folder, tmp_path / "run", **{**given, "budget": "90h"})
    assert again.settings == first.settings


def test_a_time_that_is_too_short_is_refused_before_anything_is_written(
    folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=r"budget = '1s': is too small .* give \d+m or more"):
        rw.extend(str(folder), "64k", budget="0.1s", corpus=tiny.documents(8), run=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_default_text_holds_enough_documents_of_the_longest_usual_target() -> None:
    shipped = as_documents(HELD_OUT, "text", unheard)
    usual = {n: [standard_library(characters_for(n))] for n in (32_768, 131_072)}
    for target, documents in {SHIPPED_UP_TO: shipped, **usual}.items():
        _, verdict = parted(documents)
        characters = sum(len(each.text) for each in verdict)
        # A token of Llama 3's tokenizer has 4.7 characters of this text.
        assert characters / 4.8 / target >= TO_WORK


def test_text_is_read_for_the_documents_that_a_budget_allows() -> None:
    assert characters_for(40_960, 6) == pytest.approx(characters_for(40_960) * 6 / 64)
