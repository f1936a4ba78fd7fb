"""A whole search on a tiny model: what it chooses, what it says of it, and where it may start."""

from __future__ import annotations

import copy
import json
import math
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers.utils import logging

from ropewalk.context_plan import ContextPlan, PlanStep
from ropewalk.errors import InputError, InvalidValue, RopewalkError, Unsupported
from ropewalk.evaluation.encoding import Encoder
from ropewalk.evaluation.planted import split_corpus
from ropewalk.evaluation.select import SHORT_LIMIT, Paired
from ropewalk.exporting import fresh_process
from ropewalk.interval import Interval
from ropewalk.models.config import present_plan
from ropewalk.models.install import applied
from ropewalk.models.load import LoadedModel
from ropewalk.models.stock_config import with_plan
from ropewalk.planning.extension import HAND_DESIGNED, extend_plan
from ropewalk.run_directory import Journal
from ropewalk.runtimes import targets
from ropewalk.schedule import RotarySchedule
from ropewalk.searching.model.documents import shortened
from ropewalk.searching.model.measure import JournaledMeasure, LocalMeasure
from ropewalk.searching.model.objectives import loss_of
from ropewalk.searching.model.results import SEARCHED, Score, SearchResult
from ropewalk.searching.model.run import check_search, search_model
from ropewalk.searching.model.settings import (
    SearchSettings,
    published,
    published_space,
)
from ropewalk.searching.space import Candidate, Space
from tests.api.conformance import check_result
from tests.evaluation import tiny
from tests.exporting.folders import answered_here
from tests.forks import Forks
from tests.models.tiny import model_of, tiny_config
from tests.searching.model.test_ranks import processes

TARGET = 2 * tiny.WINDOW
SETTINGS = SearchSettings(TARGET, "adaptive", evaluations=8, documents=(3, 2, 2))
KINDS = ("factors", "progress")


def loaded(model: Any = None) -> LoadedModel:
    model = model or tiny.model()
    return LoadedModel("tiny", model, tiny.tokenizer(), present_plan(model.config))


def searched(settings: SearchSettings = SETTINGS, model: Any = None, **more: Any) -> SearchResult:
    return search_model(loaded(model), tiny.documents(), settings, **more)


@cache
def usual() -> SearchResult:
    """The same search for all tests that only look at what it found."""
    return searched()


def extended(methods: str, parameters: Any = None) -> Any:
    """The tiny model as someone else has extended it to the target, by its stock config."""
    plan = extend_plan(present_plan(tiny.model().config), TARGET, methods, parameters)
    config = type(tiny.model().config).from_dict(with_plan(tiny.model().config, plan))
    model = type(tiny.model())(config).eval()
    model.load_state_dict(tiny.model().state_dict())
    return model


def test_a_search_ends_in_a_plan_that_its_own_numbers_speak_for() -> None:
    found = usual()
    [leg] = found.legs
    assert found.plan.target_length == TARGET
    assert found.plan.longest() == leg.best.schedule
    assert set(leg.baselines) == set(HAND_DESIGNED)
    cheap = [name for name, cost in leg.short_costs.items() if cost.difference.value <= SHORT_LIMIT]
    lowest = min(leg.baselines[name].selection.score for name in cheap)
    assert leg.baselines[leg.best_hand_designed].selection.score == lowest
    assert leg.best.selection.score <= lowest
    assert leg.evaluations <= 8
    assert leg.tokens == round(leg.evaluations * 3) * (TARGET + tiny.WINDOW)
    scores = [point.score for point in leg.history]
    assert scores == sorted(scores, reverse=True)
    with applied(tiny.model(), found.plan):  # which proves that it took effect
        pass


def test_the_published_search_has_its_own_documents_objective_and_space(tmp_path: Path) -> None:
    settings = published(SearchSettings(TARGET, evaluations=8, seed=1))
    assert settings.sizes == (5, *SearchSettings(TARGET).sizes[1:])
    assert published(SearchSettings(2**20)).sizes[0] == 3
    assert (settings.strategy, settings.objective) == ("evolution", "perplexity")
    path = tmp_path / "search.jsonl"
    small = replace(settings, documents=(5, 2, 2))
    [leg] = searched(
        small, journal=lambda name: Journal(path) if name == "search.jsonl" else None
    ).legs
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert {line["candidate"]["attention_scaling"] for line in lines} == {1.0}
    assert {line["candidate"]["kept_initial_positions"] for line in lines} - {0}
    # All tokens of plain text: the same loss as of the stretch itself.
    encoder = Encoder(tiny.tokenizer())
    sets = split_corpus(tiny.documents(), encoder, TARGET, (5, 2, 2), 1, plain_search=True)
    assert all(d.answers == () and len(d.tokens) == TARGET for d in sets.search)
    assert all(d.answers for d in (*sets.selection, *sets.reporting))
    candidate = Candidate(**{**(own := lines[0]["candidate"]), "factors": tuple(own["factors"])})
    plan = present_plan(tiny.model().config)
    space = published_space(Space(plan.longest(), TARGET))
    step = PlanStep(TARGET, space.schedule(candidate))
    tokens = torch.from_numpy(sets.search[0].tokens)[None]
    with torch.inference_mode(), applied(tiny.model(), plan.with_steps(plan.main_layer, (step,))):
        loss = float(tiny.model()(tokens, labels=tokens).loss)
    assert lines[0]["losses"][0] == pytest.approx(loss, rel=1e-5)
    assert leg.best.scores["search"].retrieval == 0, "nothing is asked of plain text"
    # Its result is the lowest perplexity, whatever other documents say, which stands beside it.
    lowest = min(lines, key=lambda line: sum(line["losses"]))["candidate"]
    lowest["factors"] = tuple(lowest["factors"])
    assert leg.chosen == "search"
    assert leg.best.schedule == space.schedule(Candidate(**lowest))
    assert leg.best.schedule.attention_scaling == 1.0
    assert leg.by_rule is not None
    assert "Algorithm 1 ends with the lowest perplexity" in (
        told := SearchResult(plan, (leg,)).summary()
    )
    assert f"By ropewalk's rule, on other documents, the choice would be {leg.by_rule}." in told


def test_the_published_search_recovers_two_short_lengths() -> None:
    settings = published(SearchSettings(4 * tiny.WINDOW, evaluations=6, recover=True))
    found = searched(replace(settings, documents=(1, 1, 1)))
    assert [leg.length for leg in found.legs] == [4 * tiny.WINDOW, tiny.WINDOW, 2 * tiny.WINDOW]
    steps = found.plan.steps(found.plan.extended_layer)
    assert [step.up_to_length for step in steps] == [n * tiny.WINDOW for n in (1, 2, 4)]
    for step, times in zip(steps, (1, 2, 4), strict=True):
        assert step.schedule.rescale_factors.max() <= 1.25 * times + 1e-9


def test_the_published_search_takes_no_other_settings() -> None:
    with pytest.raises(InputError, match="settings of its own for objective, short_limit"):
        published(SearchSettings(TARGET, objective="needle", short_limit=None))


def test_a_schedule_on_a_bound_says_so_in_the_summary_and_in_json() -> None:
    [leg] = usual().legs
    bound = "3 of 8 rescale factors are 2.5, the largest that is searched"
    leg = replace(leg, chosen="search", at_bounds=(bound,))
    found = SearchResult(usual().plan, (leg,))
    assert f"lies on a bound of the search space, so a better one may lie beyond it: {bound}." in (
        found.summary()
    )
    assert json.loads(json.dumps(found.to_json()))["legs"][0]["at_bounds"] == [bound]
    assert SearchResult.from_json(json.loads(json.dumps(found.to_json()))).legs[0].at_bounds == (
        bound,
    )


def test_the_choice_is_made_by_other_documents_than_those_of_the_search() -> None:
    """Where both sets disagree about the methods, the documents that no search saw count."""
    disagree = 0
    for seed in range(8):
        [leg] = searched(replace(SETTINGS, seed=seed, evaluations=5, short_limit=None)).legs
        arms = leg.baselines
        on_search, on_selection = (
            min(arms, key=lambda name: getattr(arms[name], documents).score)
            for documents in ("search", "selection")
        )
        assert leg.best_hand_designed == on_selection
        disagree += on_search != on_selection
    assert disagree


@pytest.mark.parametrize(
    "record", [{"of": "0"}, {"measured": [1.0]}, {"of": "0", "measured": ["1"]}]
)
def test_a_measured_document_that_was_edited_and_sealed_again_is_refused(
    tmp_path: Path, record: dict[str, object]
) -> None:
    journal = Journal(tmp_path / "search-measured.jsonl")
    journal.append([record])
    with pytest.raises(InputError, match=r"measured.jsonl: line 1: (of|measured)"):
        JournaledMeasure(lambda *_: np.zeros((1, 1, 4)), journal, 1)


def test_a_kill_costs_one_forward_and_each_forward_moves_the_bar(tmp_path: Path) -> None:
    model, shown, forwards = tiny.model(), list[Any](), 0
    journal = Journal(tmp_path / "search-measured.jsonl")

    def killed(module: Any, given: Any) -> None:
        nonlocal forwards
        forwards += len(shown) > 0  # proving that the plan works comes before
        if forwards == 6:
            raise KeyboardInterrupt

    model.get_input_embeddings().register_forward_pre_hook(killed)
    with pytest.raises(KeyboardInterrupt):
        searched(
            model=model,
            journal=lambda name: journal if "measured" in name else None,
            progress=shown.append,
        )
    # The first method on three documents, and the second on two.
    assert len((tmp_path / "search-measured.jsonl").read_text().splitlines()) == 5
    shares = sorted({status.done for status in shown})
    assert shares == pytest.approx([n / 3 / len(HAND_DESIGNED) for n in range(6)])


def test_what_is_clearly_worse_drops_out_and_no_set_of_documents_meets_another() -> None:
    settings = replace(SETTINGS, documents=(3, 14, 3))
    documents = tiny.documents(12)
    [leg] = search_model(loaded(), documents, settings).legs
    counts = {name: arm.selection.documents for name, arm in leg.baselines.items()}
    assert set(counts.values()) <= {6, 12, 14}
    assert counts[leg.best_hand_designed] == 14
    assert leg.best.selection.documents == 14
    assert {name for name, count in counts.items() if count == 14} >= set(leg.remaining)
    sizes = {place: len(set(sources)) for place, sources in leg.sources.items()}
    assert sizes == {"search": 3, "selection": 14, "reporting": 3}
    assert len(set().union(*leg.sources.values())) == 20


def test_a_searched_schedule_says_how_it_stands_on_documents_that_decided_nothing() -> None:
    found = usual()
    [leg] = found.legs
    for held_out, said in (
        (Paired(20, 20, Interval(-0.03, -0.05, -0.01, "nats")), "the searched schedule is better"),
        (Paired(20, 20, Interval(0.03, 0.01, 0.05, "nats")), "is worse there"),
        (Paired(20, 20, Interval(-0.01, -0.03, 0.01, "nats")), "inconclusive on these documents"),
        (Paired(4, 4, Interval(-0.01, None, None, "nats")), "inconclusive on these documents"),
    ):
        told = replace(found, legs=(replace(leg, chosen=SEARCHED, held_out=held_out),)).summary()
        assert said in told
        assert str(held_out) in told


def test_the_json_tells_the_first_leg_and_holds_all_of_it() -> None:
    found = check_result(searched(replace(SETTINGS, recover=True)))
    answer = json.loads(json.dumps(found.to_json(), allow_nan=False))
    long, short = found.legs
    assert answer["best"] == {
        "score": long.best.scores["search"].score,
        "rescale_factors": found.plan.longest().rescale_factors.tolist(),
        "kept_initial_positions": found.plan.longest().kept_initial_positions,
        "attention_scaling": found.plan.longest().attention_scaling,
    }
    assert answer["held_out"]["retrieval"] == long.best.scores["reporting"].retrieval
    for name in HAND_DESIGNED:
        assert answer["baselines"][name]["score"] == long.baselines[name].scores["reporting"].score
    assert answer["tokens"] == long.tokens + short.tokens
    assert answer["evaluations"] == pytest.approx(long.evaluations + short.evaluations, abs=1e-3)
    assert set(found.pictures()) == {f"{n}-{k}" for n in ("128", "256") for k in KINDS}
    assert set(usual().pictures()) == {*KINDS}


def test_a_model_that_fails_has_no_score_and_survives_json() -> None:
    found = usual()
    [leg] = found.legs
    failed = Score(math.inf, math.inf, 0.0, 2)
    baselines = {**leg.baselines, "linear": leg.baselines["linear"]._replace(reporting=failed)}
    again = check_result(replace(found, legs=(replace(leg, baselines=baselines),)))
    assert again.to_json()["baselines"]["linear"]["score"] is None  # type: ignore[index]
    assert (
        SearchResult.from_json(again.to_json())
        .legs[0]
        .baselines["linear"]
        .scores["reporting"]
        .score
        == math.inf
    )


def test_the_seed_chooses_documents_and_search_and_nothing_else_does() -> None:
    once, again = usual(), searched()
    assert once.plan == again.plan
    assert once.legs == again.legs
    other = searched(replace(SETTINGS, seed=1))
    assert other.legs[0].baselines != once.legs[0].baselines


@pytest.mark.parametrize(
    ("methods", "parameters"),
    [
        ("yarn", None),
        ("longrope", {"factors": np.geomspace(1, 2, 8).tolist()}),
        ("linear", None),
    ],
)
def test_a_second_search_starts_from_an_extended_model(methods: str, parameters: Any) -> None:
    model = extended(methods, parameters)
    present = present_plan(model.config).longest()
    found = searched(replace(SETTINGS, target_length=2 * TARGET, evaluations=6), model)
    assert found.plan.target_length == 2 * TARGET
    assert set(found.legs[0].baselines) == set(HAND_DESIGNED)
    # Composed: no pair turns faster than it does now.
    assert (found.plan.longest().rescale_factors >= present.rescale_factors * (1 - 1e-9)).all()


def test_recovery_gives_short_sequences_a_schedule_of_their_own() -> None:
    found = searched(replace(SETTINGS, recover=True))
    long, short = found.legs
    assert [step.up_to_length for step in found.plan.steps()] == [tiny.WINDOW, TARGET]
    assert found.plan.schedule(tiny.WINDOW) == short.best.schedule
    assert found.plan.longest() == long.best.schedule
    assert set(short.baselines) == {"plain", "unmodified"}
    assert short.best.schedule.rescale_factors.max() <= long.best.schedule.rescale_factors.max()
    with applied(tiny.model(), found.plan, length=tiny.WINDOW):
        pass


def test_a_served_length_is_for_recovery_alone() -> None:
    model = extended("yarn")
    settings = replace(SETTINGS, target_length=tiny.WINDOW)
    with pytest.raises(InvalidValue, match=f"above {TARGET}, the length .* recovery"):
        searched(settings, model)
    found = searched(replace(settings, recover=True), model)
    assert [leg.length for leg in found.legs] == [tiny.WINDOW]
    assert [step.up_to_length for step in found.plan.steps()] == [tiny.WINDOW, TARGET]
    assert found.plan.longest() == present_plan(model.config).longest()


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"target_length": tiny.WINDOW}, InvalidValue, "must be above 128"),
        ({"target_length": 2**20}, InputError, r"document 0 \(\d,\d+ tokens\)"),
    ],
)
def test_what_cannot_be_searched_is_refused(
    changes: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        searched(replace(SETTINGS, **changes))


def test_a_budget_without_room_for_one_evaluation_is_refused_before_any_forward() -> None:
    def check(tokens: int) -> None:
        settings = replace(SETTINGS, evaluations=None, tokens=tokens)
        check_search(tiny.loaded(), tiny.documents(), settings)

    least = 3 * (TARGET + tiny.WINDOW)
    with pytest.raises(InvalidValue, match=rf"one evaluation at {TARGET} takes {least:,}, over 3"):
        check(least - 1)
    check(least)


PROGRAM = """
import json, sys
import torch
torch.set_num_threads(1)
from pathlib import Path
from ropewalk.models.dividing import all_ranks
from ropewalk.run_directory import Journal
from tests.searching.model.test_run import SETTINGS, loaded, tiny
from dataclasses import replace
from ropewalk.searching.model.run import search_model

folder, settings = Path(sys.argv[1]), replace(SETTINGS, recover=True)
ranks = all_ranks(1, "search")
first = ranks.rank == 0
found = search_model(
    loaded(), tiny.documents(), settings, ranks=ranks,
    journal=lambda name: Journal(folder / name) if first else None,
)
if first:
    (folder / "plan.json").write_text(found.plan.dumps())
    (folder / "legs.json").write_text(json.dumps([leg.to_json() for leg in found.legs]))
"""
FILES = ("plan.json", "legs.json", "search.jsonl", "search-measured.jsonl", "recovery.jsonl")


@pytest.mark.slow
def test_two_ranks_find_what_one_process_finds_to_the_last_byte(
    tmp_path: Path, fresh: Forks
) -> None:
    settings = replace(SETTINGS, recover=True)
    alone, together = tmp_path / "alone", tmp_path / "together"
    alone.mkdir()
    together.mkdir()
    started = processes(fresh, PROGRAM, [str(together)], 2)
    found = searched(settings, journal=lambda name: Journal(alone / name))
    (alone / "plan.json").write_text(found.plan.dumps())
    (alone / "legs.json").write_text(json.dumps([leg.to_json() for leg in found.legs]))
    for process in started:
        done = process.wait()
        assert done.returncode == 0, done.stderr
    for name in FILES:
        assert (together / name).read_bytes() == (alone / name).read_bytes(), name


def test_a_killed_search_goes_on_and_ends_with_the_same_bytes(tmp_path: Path) -> None:
    settings = replace(SETTINGS, recover=True)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()
    killed.mkdir()
    found = searched(settings, journal=lambda name: Journal(whole / name))
    # As if killed inside a line of each journal, at three moments of the whole.
    for kept in (3, 17):
        for name in FILES[2:]:
            lines = (whole / name).read_bytes().splitlines(keepends=True)[:kept]
            (killed / name).write_bytes(b"".join(lines)[:-9])
        with pytest.warns(UserWarning, match="dropped"):
            again = searched(settings, journal=lambda name: Journal(killed / name))
        assert again.plan == found.plan
        assert again.legs == found.legs
        for name in FILES[2:]:
            assert (killed / name).read_bytes() == (whole / name).read_bytes(), name


@pytest.mark.slow
def test_a_search_killed_for_real_goes_on(tmp_path: Path) -> None:
    """Kills land where the journals have just grown: in scoring, in a line, between the legs."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()
    killed.mkdir()
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM]
    subprocess.run([*command, str(whole)], check=True, timeout=300)

    def lines() -> int:
        there = [killed / name for name in FILES[2:] if (killed / name).exists()]
        return sum(len(path.read_bytes().splitlines()) for path in there)

    for enough in (1, 5, 12):
        process = subprocess.Popen([*command, str(killed)])
        while process.poll() is None and lines() < enough:
            time.sleep(0.01)
        assert process.poll() is None, "ended before it could be killed"
        process.send_signal(signal.SIGKILL)
        process.wait()
    subprocess.run([*command, str(killed)], check=True, timeout=300)
    for name in FILES:
        assert (killed / name).read_bytes() == (whole / name).read_bytes(), name


def test_schedules_are_scored_on_all_search_documents() -> None:
    [leg] = searched(SearchSettings(TARGET, documents=(14, 2, 2), evaluations=1)).legs
    assert {arm.scores["search"].documents for arm in leg.baselines.values()} == {14}


def test_what_short_text_costs_is_measured_on_the_documents_of_the_report() -> None:
    encoder, plan = Encoder(tiny.tokenizer()), present_plan(tiny.model().config)
    sets = split_corpus(tiny.documents(), encoder, TARGET, (3, 2, 2), 0)
    short = shortened(sets.reporting, tiny.documents(), encoder, tiny.WINDOW, 0)
    for own, whole in zip(short, sets.reporting, strict=True):
        assert (len(own.tokens), own.source) == (tiny.WINDOW, whole.source)
        assert own.answers
    found = usual()
    [leg] = found.legs

    def plan_of(schedule: RotarySchedule) -> ContextPlan:
        return plan.with_steps(plan.main_layer, (PlanStep(TARGET, schedule),))

    measure = LocalMeasure(tiny.model(), short, plan_of)
    for name, schedule in (("unmodified", plan.longest()), (leg.chosen, leg.best.schedule)):
        measured = measure([schedule], range(2))
        score = leg.at_original_length[name]
        assert score.score == pytest.approx(float(loss_of(measured, "mixed").mean()), rel=1e-6)
        assert score.documents == 2
    cost = leg.cost_at_original_length
    assert cost is not None
    less = leg.at_original_length[leg.chosen].score - leg.at_original_length["unmodified"].score
    assert cost.difference.value == pytest.approx(less, rel=1e-6)
    assert f"changes the loss by {cost}; lower is better" in found.summary()


def test_what_costs_too_much_on_short_text_is_not_chosen_if_another_costs_less() -> None:
    """The costs are those of the documents to select by, cut to the original length."""
    free = searched(replace(SETTINGS, short_limit=None)).legs[0]
    assert free.short_costs == {}
    found = searched(replace(SETTINGS, short_limit=0.0))
    [leg] = found.legs
    assert {leg.chosen, leg.best_hand_designed} <= leg.short_costs.keys()
    assert all(cost.documents == 2 for cost in leg.short_costs.values())
    own = leg.short_costs[leg.chosen].difference.value
    assert leg.short_behind.keys() == leg.short_costs.keys() - {leg.chosen}
    for name, more in leg.short_behind.items():
        apart = leg.short_costs[name].difference.value - own
        assert more.difference.value == pytest.approx(apart), "on the same documents"
    over = [name for name, cost in leg.short_costs.items() if cost.difference.value > 0]
    if own > 0:  # all do
        assert own == min(cost.difference.value for cost in leg.short_costs.values())
        assert f"{leg.chosen} exceeds it least, at " in found.summary()
    elif over:
        assert f"not chosen: {over[0]} (" in found.summary()
    with pytest.raises(InvalidValue, match="short_limit = -1"):
        SearchSettings(TARGET, short_limit=-1)


def test_scores_of_a_search_stand_beside_those_of_hand_designed_methods() -> None:
    """Both with the loss of short text, or both without."""
    settings = replace(SETTINGS, strategy="yarn")
    for limit, added in ((0.02, True), (None, False)):
        [leg] = searched(replace(settings, short_limit=limit)).legs
        yarn = leg.baselines["yarn"].scores["search"].score
        assert (leg.by_objective["yarn"] > yarn + 0.1) == added
        # YaRN as published is the first that this strategy scores.
        assert leg.history[0].score == pytest.approx(leg.by_objective["yarn"], rel=1e-6)


def test_a_budget_too_small_to_score_a_candidate_leaves_the_hand_designed_methods() -> None:
    told: list[str] = []
    found = check_result(searched(replace(SETTINGS, evaluations=1), notice=told.append))
    [leg] = found.legs
    assert leg.history == ()
    assert leg.chosen == leg.best_hand_designed
    assert found.plan.longest() == leg.baselines[leg.chosen].schedule
    assert "the search's budget ended before it had scored a schedule" in told


def test_a_model_that_fails_under_every_schedule_is_refused() -> None:
    broken = copy.deepcopy(tiny.model())
    with torch.no_grad():  # on one letter, which the documents hold and a short probe does not
        broken.model.embed_tokens.weight[tiny.tokenizer()("e")["input_ids"][-1]] = math.nan
    with pytest.raises(RopewalkError, match=r"no finite score at 256 tokens under any schedule"):
        searched(model=broken)
    with torch.no_grad():
        broken.model.norm.weight.fill_(math.nan)
    with pytest.raises(RopewalkError, match=r"model\.embed_tokens\.weight holds NaN"):
        searched(model=broken)


@pytest.fixture(scope="module")
def resting() -> Any:
    """A model of Gemma 4's kind: 12 of the 16 pairs of its full attention have no frequency."""
    letters = len(tiny.tokenizer())
    sizes = {"vocab_size": letters, "vocab_size_per_layer_input": letters}
    ends = {"bos_token_id": 0, "pad_token_id": None, "eos_token_id": None}
    config = tiny_config("gemma4_text", max_position_embeddings=tiny.WINDOW, **sizes, **ends)
    return model_of(config)


def test_a_model_whose_pairs_rest_is_searched_recovered_and_exported(
    resting: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    settings = replace(SETTINGS, evaluations=5, recover=True)
    found = check_result(searched(settings, resting, notice=told.append))
    assert told[0].startswith("12 of 16 rotary pairs do not rotate")
    assert [leg.length for leg in found.legs] == [TARGET, tiny.WINDOW]
    for leg in found.legs:
        schedules = [leg.best.schedule, *(arm.schedule for arm in leg.baselines.values())]
        assert all((each.inverse_frequencies[4:] == 0).all() for each in schedules)
    with applied(resting, found.plan):  # which proves that it took effect
        pass
    # A finalist, whoever is chosen: it can be installed, and no stock config can say it.
    [present] = present_plan(resting.config).steps("full_attention")
    space = Space(present.schedule, TARGET, stock_runtimes=True)
    own = space.schedule(space.nearest([1.0, 1.2, 2.5, 3.0], 1.05))
    plan = found.plan.with_steps("full_attention", (PlanStep(TARGET, own),))
    with applied(resting, plan):
        pass
    with pytest.raises(
        Unsupported, match=r"12 of 16 pairs do not rotate.*install the plan with ropewalk"
    ):
        with_plan(resting.config, plan)
    # What a hand-designed method leads to goes through the gate.
    logging.disable_progress_bar()
    resting.save_pretrained(tmp_path / "model")
    tiny.tokenizer().save_pretrained(tmp_path / "model")
    monkeypatch.setattr(fresh_process, "run_script", answered_here)
    linear = found.plan.with_steps(
        "full_attention", (PlanStep(TARGET, found.legs[0].baselines["linear"].schedule),)
    )
    exported = targets()["transformers"].write(str(tmp_path / "model"), linear, tmp_path / "out")
    assert exported.agreement is not None
    assert exported.agreement.passed
    again = present_plan(str(tmp_path / "out")).longest("full_attention")
    assert again.inverse_frequencies.tolist() == linear.longest().inverse_frequencies.tolist()
