"""Studies of claims: the rule of verdicts, what is kept, and what a cell gives when run again."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Literal

import pytest

import ropewalk as rw
from ropewalk.evaluation.statistics import t_interval
from ropewalk.models.load import load
from ropewalk.searching.strategies.evolution import Evolution
from studies import claims
from studies.base import measure as base
from studies.bundled_model import model
from studies.chain import measure as chain
from studies.claims import MODELS, REPEATED, RETRIEVAL, TEXT, Arm, Cell, Claim, Measure, verdict
from studies.log_n import measure as log_n
from studies.power import ENOUGH, Effect, Power
from studies.ranking.cells import sampled_fingerprint
from studies.second_step import measure as second_step
from studies.superficial import measure as superficial
from studies.training.cells import SUBJECTS, WARM_UP, kept
from studies.training.measure import Difference
from studies.two_stages import measure as two_stages
from studies.verdicts import STUDIES

FIVE = MODELS[:5]
ACCURACY: Literal["next_token_accuracy"] = "next_token_accuracy"


def found(*differences: float) -> Difference:
    return Difference(dict(zip(FIVE, differences, strict=False)))


PRECISE = found(0.01, 0.011, 0.012, 0.01, 0.011)
NOISE = found(0.01, -0.011, 0.012, -0.01, 0.001)


@pytest.mark.parametrize(
    ("own", "planted", "said"),
    [
        (PRECISE, None, "seen"),
        (found(*(-each for each in PRECISE.by_model.values())), None, "contradicted"),
        (found(0.01, 0.011, 0.012), None, "undecided"),
        (found(), PRECISE, "undecided"),
        (NOISE, None, "undecided"),
        (NOISE, PRECISE, "not seen"),
        (NOISE, NOISE, "undecided"),
        (NOISE, found(*(9 * each for each in PRECISE.by_model.values())), "undecided"),
    ],
)
def test_a_verdict_needs_models_an_interval_and_a_control(
    own: Difference, planted: Difference | None, said: str
) -> None:
    assert verdict(own, planted, 0.02) == said


def test_an_interval_that_holds_the_papers_effect_decides_nothing() -> None:
    assert NOISE.interval is not None
    assert PRECISE.mean < 0.012 < NOISE.interval[1] < 0.02
    assert verdict(NOISE, PRECISE, 0.012) == "undecided"


def test_a_margin_is_what_may_be_lost() -> None:
    claim = Claim("", "", 1, Arm("one"), Arm("other"), Measure(TEXT, "nats"), margin=0.03)
    known = {
        Cell(name, 1, arm): {claim.measure: 4.0 + 0.02 * (arm == claim.better)}
        for name in FIVE
        for arm in (claim.better, claim.worse)
    }
    found = claims.finding(known, claim)
    assert list(found.by_model.values()) == pytest.approx([0.01] * 5)
    assert verdict(found, None, claim.size) == "seen"
    assert verdict(NOISE, PRECISE, claim.size) == "undecided"  # the paper gives no size


def test_a_model_that_does_not_retrieve_within_its_window_says_nothing_of_beyond() -> None:
    claim = Claim("", "", 4, Arm("one"), Arm("other"), RETRIEVAL)
    known = {
        Cell(name, factor, arm): {
            RETRIEVAL: 0.4 if (name, factor, arm) == (FIVE[0], 1, claim.worse) else 0.9
        }
        for name in FIVE
        for factor in (1, 4)
        for arm in (claim.better, claim.worse)
    }
    assert set(claims.finding(known, claim).by_model) == set(FIVE[1:])
    assert set(claims.finding(known, claim._replace(factor=1)).by_model) == set(FIVE)


def test_a_model_that_does_not_copy_says_nothing_of_repeated_text() -> None:
    better, worse = Arm("ntk_mixed"), Arm("ntk_fixed")
    claim = Claim("", "", 8, better, worse, Measure(REPEATED, ACCURACY), 0.01)
    known = {
        Cell(name, 8, arm): {
            Measure(TEXT, ACCURACY): 0.1,
            Measure(REPEATED, ACCURACY): 0.11
            + (0.2 if name == FIVE[0] else 0)
            + 0.01 * (arm == better),
        }
        for name in FIVE
        for arm in (better, worse)
    }
    assert claims.finding(known, claim).by_model == {FIVE[0]: pytest.approx(0.01)}
    text = claim._replace(measure=Measure(TEXT, ACCURACY))
    assert set(claims.finding(known, text).by_model) == set(FIVE)


def test_a_gate_asks_for_room_and_leaves_planted_arms_alone() -> None:
    claim = second_step.CLAIMS[0]
    arms = (second_step.UNCHANGED, claim.better, claim.worse, second_step.TWICE)
    losses = {
        "gains": (4.0, 4.05, 4.15, 4.1),
        "nothing to gain": (4.0, 3.9, 4.01, 4.1),
        "broken": (4.0, 5.1, 5.4, 4.1),
    }
    known = {
        Cell(name, 1, arm): {claim.measure: loss}
        for name, own in losses.items()
        for arm, loss in zip(arms, own, strict=True)
    }
    assert claims.finding(known, claim).by_model == {"gains": pytest.approx(0.1)}
    planted = claims.finding(known, claim, claim.planted).by_model
    assert planted == dict.fromkeys(losses, pytest.approx(0.1))


def test_a_search_keeps_none_of_the_schedules_that_it_starts_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(second_step, "EVOLUTION", Evolution(population=4, generations=0))
    monkeypatch.setattr(second_step, "TOKENS", 1024)
    model = load("bundled")
    space = second_step.extending(model.present_plan.longest(), 1024)
    found = second_step.searched(model, space, journal := tmp_path / "journal.jsonl")
    *starts, other = kept(journal)
    assert len(starts) == 3
    assert min(each["losses"] for each in starts) < other["losses"]
    factors = found.rescale_factors[: space.pairs].tolist()
    assert factors == pytest.approx(other["candidate"]["factors"])


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_committed_cells_are_each_there_once_and_asked_for(study: claims.Study) -> None:
    cells = claims.values(study.file)
    assert len(cells) == len(kept(study.file))
    assert set(cells) <= set(study.cells())
    compared = {arm for each in study.claims for arm in (each.better, each.worse)}
    assert compared <= {cell.arm for cell in study.cells()}


@pytest.mark.parametrize(
    "study",
    [study for study in STUDIES if study.name != "pretrained"],  # which compares models
    ids=lambda study: study.name,
)
def test_a_claim_compares_arms_on_the_same_weights(study: claims.Study) -> None:
    """A model that is trained again on another machine has other weights."""
    weights = {
        Cell(line["subject"], line["factor"], Arm(**line["arm"])): line["weights"]
        for line in kept(study.file)
    }
    together = [
        [each.better, each.worse]
        for each in study.claims
        if each.of_model is None and each.better not in log_n.PRETRAINED.values()  # models again
    ]
    together += [[*base.BELOW], [base.RESCUED, base.KEPT, base.NOT_ENOUGH]]
    together += [[base.LONG_RESCUED, base.LONG_NOT_ENOUGH]]
    together += [[*base.AROUND_GAP]]
    for arms, name, factor in product(together, study.models, study.arms):
        cells = (Cell(name, factor, arm) for arm in arms)
        assert len({weights[cell] for cell in cells if cell in weights}) <= 1


def test_seeds_of_one_shape_are_the_units_of_an_interval() -> None:
    differences = dict(zip(superficial.MODELS[:5], PRECISE.by_model.values(), strict=True))
    own = Difference(differences)
    assert own.interval == t_interval(list(differences.values()))
    assert Difference(dict([*differences.items()][:4])).interval is None
    by_package = Difference({f"{'click' if i else 'numpy'} {i}": 0.01 * i for i in range(9)})
    assert by_package.interval is None, "two packages are two groups"


def test_power_is_the_share_of_studies_that_see_the_effect() -> None:
    effect = Effect("", 0.1, 0.1)
    power = Power([effect], 10, "", "")
    assert power.seen == pytest.approx(0.803, abs=0.01)  # of the noncentral t distribution
    assert power.false == pytest.approx(0.025, abs=0.004)
    assert power._replace(effects=[effect, effect]).seen == pytest.approx(0.803**2, abs=0.015)
    assert all(power.seen >= ENOUGH for study in STUDIES for power in study.powers)


@pytest.mark.slow
@pytest.mark.parametrize(
    "study",
    [study for study in STUDIES if study.name != "first_tokens_smollm2"],  # of fetched weights
    ids=lambda study: study.name,
)
def test_a_deleted_cell_runs_again_to_the_same_values(
    study: claims.Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The smoke form: two cells, at twice the window, of a model that ships, in short trainings."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(SUBJECTS, "smoke", SUBJECTS["bundled"])
    monkeypatch.setattr(model, "STAGES", tuple(replace(each, steps=2) for each in model.STAGES))
    monkeypatch.setattr(chain, "STAGES", ((2, 12),))
    monkeypatch.setattr(chain, "FACTOR", 4)
    monkeypatch.setattr(second_step, "FACTOR", 4)
    monkeypatch.setattr(second_step, "EVOLUTION", Evolution(population=4, generations=0))
    monkeypatch.setattr(second_step, "STEPS", WARM_UP + 2)
    monkeypatch.setattr(two_stages, "STEPS", (WARM_UP + 1, WARM_UP + 1))
    for name, windows in (("HALF", 2), ("WHOLE", 4)):
        monkeypatch.setattr(two_stages, name, windows)
    few: dict[str, Any] = {"documents": (2, 2, 2), "budget": 2}
    monkeypatch.setattr(chain, "DOCUMENTS", few["documents"])
    monkeypatch.setattr(rw, "search", partial(rw.search, **few))
    asked = [
        cell._replace(subject="smoke", factor=2, arm=cell.arm._replace(steps=WARM_UP + 1 + i))
        if cell.arm.steps
        else cell._replace(subject="smoke", factor=2)
        for i, cell in enumerate(study.cells()[1:3])
    ]
    file = tmp_path / "cells.jsonl"
    claims.run(study, file, asked, samples=2)
    first = kept(file)
    file.write_text(json.dumps(first[0]) + "\n")
    claims.run(study, file, asked, samples=2)
    assert [line["results"] for line in kept(file)] == [line["results"] for line in first]
    assert list(claims.values(file)) == asked


@pytest.mark.slow
def test_a_killed_pre_training_with_log_n_goes_on_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "STAGES", tuple(replace(each, steps=2) for each in model.STAGES))
    weights = []
    for asked, kept_stages in (("whole", 2), ("killed", 1), ("plain", 2)):
        place = tmp_path / asked
        monkeypatch.setattr(log_n, "RUNS", place)
        if asked == "plain":
            monkeypatch.setattr(log_n, "scaled_model", model.new_model)
        done = Path(log_n.trained_with_log_n("wide"))
        if kept_stages == 1:
            for folder in (done, done.with_name("stage-1")):
                shutil.rmtree(folder)
            log_n.trained_with_log_n("wide")
        weights.append(sampled_fingerprint(load(str(done)).model))
    whole, killed, plain = weights
    assert whole == killed != plain
