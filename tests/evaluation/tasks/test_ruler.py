"""RULER's tasks ask what they say they ask: each prompt is solved again from its text."""

from __future__ import annotations

import random
import re
from collections import Counter
from statistics import fmean

import pytest

import ropewalk as rw
from ropewalk.errors import UnknownName
from ropewalk.evaluation.prose import noise, person, sentences, surname, town
from ropewalk.evaluation.randomness import Stream
from ropewalk.evaluation.results import means
from ropewalk.evaluation.settings import expanded
from ropewalk.evaluation.tasks import Draft, Scene, groups, named
from ropewalk.records import EvalRecord, Mode
from tests.evaluation import tiny
from tests.evaluation.scored import known, record
from tests.evaluation.tasks.test_tasks import HAYSTACK

each_size = pytest.mark.parametrize("small", [True, False], ids=["small", "large"])


def _draft(name: str, units: int, *, small: bool, length: int = 8192, depth: float = 0.3) -> Draft:
    return named(name).draft(Scene(Stream(name, 5), depth, HAYSTACK, 0.5, small, length), units)


def _needles(draft: Draft, *, small: bool) -> list[tuple[str, str]]:
    text = draft.prompt[: draft.prompt.rindex("\n")]
    pattern = r"# key ([A-Z]+)(\d+)\n" if small else r"The secret \w+ of (\S+) is (\S+)\."
    return re.findall(pattern, f"{text}\n")


@each_size
@pytest.mark.parametrize(
    ("name", "hidden", "keys", "asked"),
    [
        ("single-1", 1, 1, 1),
        ("single-2", 1, 1, 1),
        ("single-3", 1, 1, 1),
        ("multikey-1", 4, 4, 1),
        ("multikey-2", 31, 31, 1),
        ("multikey-3", 31, 31, 1),
        ("multivalue", 4, 1, 4),
        ("multiquery", 4, 4, 4),
    ],
)
def test_the_needles_of_each_form(
    name: str, hidden: int, keys: int, asked: int, small: bool
) -> None:
    draft = _draft(f"niah-{name}-syn", 30, small=small)
    found = _needles(draft, small=small)
    assert len(found) == len(set(found)) == hidden
    assert len({key for key, _ in found}) == keys
    question = draft.prompt[draft.prompt.rindex("\n") :]
    wanted = [key for key, _ in found if key in question]
    if small and name == "multiquery":
        listed = re.findall(r"[A-Z]+", draft.prompt.split("\n")[-2])
        assert question == f"\n# key {listed[0]}"
        wanted = listed
    assert len(draft.references) == asked
    if name == "multivalue":
        assert draft.references == tuple(value for _, value in found)
    elif name == "multiquery":
        order = wanted if small else re.findall(r"[a-z]+-[a-z]+", question)
        assert draft.references == tuple(dict(found)[key] for key in order)
    else:
        assert draft.references == (dict(found)[wanted[0]],)
        assert draft.depth == pytest.approx(0.3, abs=0.2)


@pytest.mark.parametrize(
    ("name", "pattern"),
    [("single-2", r"[1-9]\d{6}"), ("single-3", r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")],
)
def test_numbers_have_seven_digits_and_codes_are_uuids(name: str, pattern: str) -> None:
    draft = _draft(f"niah-{name}-syn", 30, small=False)
    assert re.fullmatch(pattern, draft.references[0])


@each_size
def test_the_chain_leads_through_all_five_variables(small: bool) -> None:
    draft = _draft("vt-syn", 40, small=small)
    text = draft.prompt.rpartition("\n\n")[2]
    statements = re.findall(r"(?:VAR|#) ([A-Z]+) = (\w+)", text)
    value = re.findall(r"\d{5}", draft.prompt)[-1]
    held = [value]
    for name, source in statements:
        assert source == held[-1], "set to the one before, in this order"
        held.append(name)
    assert draft.parts == tuple(held[1:])
    assert len(held) == 6
    assert ("\n\n" in draft.prompt) != small, "a large model is shown an example"


@each_size
@pytest.mark.parametrize(("length", "often", "seldom"), [(2048, 6, 1), (8192, 30, 3)])
def test_common_words_occur_as_often_as_ruler_says(
    small: bool, length: int, often: int, seldom: int
) -> None:
    draft = _draft("cwe-syn", 50, small=small, length=length)
    rows = draft.prompt.rpartition("\n\n")[2].split("\n")
    words = rows[:-1] if small else [row.split(". ")[1] for row in rows[1:-2]]
    counts = Counter(words)
    assert Counter(counts.values()) == {often: 10, seldom: 50}
    assert [word for word in counts if counts[word] == often] == list(draft.parts)
    if not small:
        shown = Counter(re.findall(r"\d+\. (\S+)", draft.prompt.partition("\n\n")[0]))
        assert sum(shown.values()) == 40


@each_size
def test_frequent_words_follow_zipf_s_law(small: bool) -> None:
    draft = _draft("fwe-syn", 1900, small=small)
    text = draft.prompt.split("\n")[0 if small else 1]
    found = Counter(text.split()).most_common()
    assert found[0][0] == "..."
    expected = [int(2000 / k**2 / 1.6449340668) for k in range(1, 7)]
    assert [count for _, count in found[:6]] == expected
    assert [word for word, _ in found[1:4]] == list(draft.parts)


@each_size
def test_questions_are_answered_by_the_paragraphs(small: bool) -> None:
    one, two = (_draft(f"qa-{i}-syn", 40, small=small) for i in (1, 2))
    name = re.findall(r"[A-Z][a-z]+ [A-Z][a-z]+", one.prompt.rpartition("\n\n")[2])[-1]
    own = next(row for row in one.prompt.split("\n") if name in row)
    assert one.references[0] in own
    name = re.findall(r"[A-Z][a-z]+ [A-Z][a-z]+", two.prompt.rpartition("\n\n")[2])[-1]
    joined = re.findall(rf"{name} joined the ([A-Z]\w+ [A-Z]\w+ Works)", two.prompt)
    assert len(joined) == 1
    [office] = [row for row in two.prompt.split("\n") if row.startswith(f"The {joined[0]}")]
    assert two.references[0] in office
    assert two.references[0] not in next(row for row in two.prompt.split("\n") if name in row)
    assert len(re.findall(r"\n", two.prompt)) >= 41


@pytest.mark.parametrize("name", groups()["ruler-syn"])
def test_written_answers_are_scored_by_ruler_s_rule_and_carry_its_name(name: str) -> None:
    """As `string_match_all` and `string_match_part` of RULER's constants.py."""
    task, part = named(name), name.startswith("qa")
    assert task.metric == ("string_match_part" if part else "string_match_all")
    assert task.score("It is 926333,\x00 Aab", ("92633", "AB", "c")) == (1 if part else 2 / 3)
    assert task.score("none of them", ("92633", "AB")) == 0


@pytest.mark.parametrize(
    ("name", "small"),
    [
        *(("vt-syn", False), ("fwe-syn", False), ("fwe-syn", True), ("cwe-syn", False)),
        *((f"niah-multikey-{i}-syn", small) for i in (1, 2, 3) for small in (False, True)),
        *((f"qa-{i}-syn", small) for i in (1, 2) for small in (False, True)),
    ],
)
def test_a_list_of_all_words_of_a_prompt_is_no_answer(name: str, small: bool) -> None:
    """RULER's rule gives it the whole score."""
    draft = _draft(name, 600, small=small)
    references = draft.references or draft.parts or (draft.answer.strip(),)
    words = list(dict.fromkeys(re.findall(r"[\w-]+", draft.prompt)))
    lists = [random.Random(i).sample(words, len(words)) for i in range(20)]
    lists += [[word.lower() for word in each] for each in lists]
    score = named(name).score
    for separator in (" ", ", ", "\n"):
        assert fmean(score(separator.join(each), references) for each in lists) < 0.5
    assert score(f"They are {' and '.join(references)}.", references) == 1
    assert score(f"{draft.answer}\n{' '.join(words)}", references) == 1


@each_size
@pytest.mark.parametrize("name", sorted({*groups()["ruler-syn"]} - {"cwe-syn"}))
def test_other_text_holds_no_answer_by_chance(name: str, small: bool) -> None:
    """As substrings count, answers must be long; cwe's are words that any text may hold."""
    text = " ".join(HAYSTACK.crop(0.1, 400)) + "".join(noise(20, end=" "))
    for seed in range(20):
        scene = Scene(Stream(name, seed), 0.3, HAYSTACK, 0.5, small, 8192)
        draft = named(name).draft(scene, 40)
        assert named(name).score(text, draft.references or draft.parts) == 0


def test_prose_holds_nothing_that_a_task_hides_and_goes_on() -> None:
    text = sentences(Stream("prose"), 300)
    assert not re.search(r"[\d-]", "".join(text))
    assert sentences(Stream("prose"), 90) == text[:90]
    assert len(set(text)) == 300
    numbers = [number for [number] in Stream("names").rows(400, 1)]
    for make in (person, surname, town):
        assert len({make(number) for number in numbers}) > 200


def _answers(task: str, scores: list[float]) -> list[EvalRecord]:
    return [
        record("none", f"{task} {i}", score, task=task, mode="generate", metric=named(task).metric)
        for i, score in enumerate(scores)
    ]


def test_a_mean_needs_all_its_tasks_and_each_counts_alike() -> None:
    listed = {name: own for name, own in groups().items() if name.startswith("ruler")}
    assert len(listed["ruler-syn"]) == 13
    # Section 4.2 and Appendix D of the AnchorAttention paper.
    left_out = set(listed["ruler-syn"]) - set(listed["ruler-11-syn"])
    assert left_out == {"niah-multikey-3-syn", "cwe-syn"}
    rates = {task: i / 12 for i, task in enumerate(listed["ruler-syn"])}
    records = [r for task, rate in rates.items() for r in _answers(task, [rate] * 10)]
    found = {result.task: result for result in means(records, listed)}
    for name, members in listed.items():
        assert found[name].value == pytest.approx(fmean(rates[task] for task in members))
        assert found[name].samples == 10 * len(members)
        assert known(found[name].estimate.low) < found[name].value
    less = [r for r in records if r.task != "vt-syn"]
    assert means(less, listed) == []
    assert [r.task for r in means([r for r in records if r.task not in left_out], listed)] == [
        "ruler-11-syn"
    ]


def test_a_group_stands_for_its_tasks() -> None:
    assert expanded(["kv", "ruler-syn", "vt-syn"]) == ("kv", *groups()["ruler-syn"])
    with pytest.raises(UnknownName, match="ruler-syn"):
        expanded(["rulers"])


@pytest.mark.parametrize("mode", ["teacher_forced", "generate"])
def test_all_thirteen_are_scored_from_python(mode: Mode) -> None:
    found = rw.evaluate(
        tiny.loaded(),
        tasks=["ruler-syn"],
        samples=2,
        lengths=[1024],
        mode=mode,
        corpus=tiny.documents(),
    )
    assert {result.task for result in found.results} == set(groups()["ruler-syn"])
    assert [(r.task, r.length, r.samples) for r in found.means] == [
        ("ruler-syn", 1024, 26),
        ("ruler-11-syn", 1024, 22),
    ]
