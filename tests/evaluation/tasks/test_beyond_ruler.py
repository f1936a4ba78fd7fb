"""MRCR, NoLiMa, GraphWalks and Oolong: answers worked out again, and the published rules."""

from __future__ import annotations

import re
from collections import Counter
from difflib import SequenceMatcher

import pytest

from ropewalk.data.corpora import Document
from ropewalk.errors import Unsupported
from ropewalk.evaluation.haystack import Haystack
from ropewalk.evaluation.prose import FIRST_NAMES
from ropewalk.evaluation.randomness import Stream
from ropewalk.evaluation.tasks import Draft, Scene, graphwalks, mrcr, named, nolima, oolong
from tests.evaluation import tiny

HAYSTACK = Haystack(tiny.documents())


def draft(name: str, units: int, seed: int = 0, *, small: bool = False) -> Draft:
    scene = Scene(Stream(name, seed), 0.1 + 0.08 * seed, HAYSTACK, 0.5, small, 4096)
    return named(name).draft(scene, units)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", ["bfs", "parents"])
def test_a_walk_over_the_listed_edges_finds_the_answer(kind: str, seed: int) -> None:
    prompt = draft(f"graphwalks-{kind}-syn", 200, seed).prompt
    edges = re.findall(r"^(\w{8}) -> (\w{8})$", prompt, re.MULTILINE)
    asked = re.search(r"(?:from|parents of) (\w{8})(?: of depth 2)?\.\nFinal Answer:$", prompt)
    assert len(edges) > 150
    assert asked is not None
    if kind == "parents":
        right = {start for start, end in edges if end == asked[1]}
    else:
        seen, right = {asked[1]}, {asked[1]}
        for _ in range(2):
            right = {end for start, end in edges if start in right} - seen
            seen |= right
    answer = draft(f"graphwalks-{kind}-syn", 200, seed).answer
    assert graphwalks.named_nodes(f"Final Answer:{answer}") == right
    assert len(right) == 4


def test_graphwalks_is_scored_by_the_rule_of_its_card() -> None:
    """The example of the card of `openai/graphwalks`, read on 2026-11-23; F1 worked by hand."""
    answer = ("uvwx", "efgh")
    assert graphwalks.named_nodes("Some words.\nFinal Answer: [uvwx, efgh]") == set(answer)
    assert graphwalks.named_nodes("Final Answer: [uvwx, efgh]\nThat was all.") == set()
    assert graphwalks.named_nodes("Answer: [uvwx, efgh]") == set()
    assert graphwalks.named_nodes("Final Answer: []") == set()
    assert graphwalks.set_f1(" [uvwx, efgh]", answer) == 1
    assert graphwalks.set_f1(" [efgh, uvwx]\nOperation:", answer) == 1
    assert graphwalks.set_f1(" [uvwx, alke, abcd]", answer) == pytest.approx(0.4)
    assert graphwalks.set_f1(" [alke]", answer) == graphwalks.set_f1(" uvwx, efgh", answer) == 0


@pytest.mark.parametrize("needles", [2, 4, 8])
@pytest.mark.parametrize("seed", range(4))
def test_a_reader_of_the_dialogue_finds_the_asked_reply(needles: int, seed: int) -> None:
    own = draft(f"mrcr-{needles}-syn", 30, seed)
    turns = re.findall(r"^User: Write a (.+)\nAssistant: (.+)$", own.prompt, re.MULTILINE)
    asked = re.search(r"Prepend (\w{10}) to the (\d)\w\w \(1 indexed\) (.+?)\. Do not", own.prompt)
    assert asked is not None
    found = [reply for request, reply in turns if request == asked[3]]
    assert len(turns) == 30 + needles
    assert len(set(found)) == len(found) == needles
    assert own.answer.strip() == asked[1] + found[int(asked[2]) - 1]
    assert own.prompt.endswith(".\nAssistant:")
    assert any(
        request.endswith(asked[3].split()[-1]) for request, _ in turns if request != asked[3]
    )


def test_mrcr_is_scored_by_the_rule_of_its_card() -> None:
    """The example of the card of `openai/mrcr`, read on 2026-11-23; the ratio worked by hand."""
    answer, prefix = "aYooSG8CQg(2nd poem about tapirs)", "aYooSG8CQg"
    assert mrcr.graded(answer, answer, prefix) == 1
    assert mrcr.graded("(2nd poem about tapirs)", answer, prefix) == 0
    assert mrcr.graded(f" {answer}", answer, prefix) == 0
    # 22 of 23 letters match on both sides, whose lengths are 23.
    assert mrcr.graded("aYooSG8CQg(1nd poem about tapirs)", answer, prefix) == pytest.approx(
        44 / 46
    )
    own = draft("mrcr-4-syn", 10)
    nearly = f" {own.references[0]}{own.references[1][:-10]}"
    assert 0.9 < mrcr.sequence_ratio(nearly, own.references) < 1
    other = own.references[0] + own.distractors[0]
    by_chance = SequenceMatcher(None, own.distractors[0], own.references[1]).ratio()
    assert mrcr.sequence_ratio(other, own.references) == by_chance < 1


def test_a_corpus_too_short_for_different_replies_is_refused() -> None:
    scene = Scene(Stream(0), 0.5, Haystack([Document("one", "word " * 30)]), 0.5, False, 4096)
    with pytest.raises(Unsupported, match="too short for 8 different replies"):
        named("mrcr-8-syn").draft(scene, 10)


COMMON = set(
    re.findall(r"\w+", "a an at be been before could for has have in is it of on the to was")
)


@pytest.mark.parametrize("pair", nolima.PAIRS, ids=[pair.one for pair in nolima.PAIRS])
def test_a_fact_shares_no_word_with_its_questions(pair: nolima.Pair) -> None:
    def words(text: str) -> set[str]:
        return {word.rstrip("s") for word in re.findall(r"[a-z]+", text.lower())} - COMMON

    for question in (pair.one, pair.two):
        assert not words(pair.fact.format("")) & words(f"Which character {question}")
    assert words(pair.one) != words(pair.two)


def test_lines_with_the_name_or_a_hint_are_left_out() -> None:
    fact = draft("nolima-onehop-syn", 0)
    name, [pair] = fact.answer.strip(), [p for p in nolima.PAIRS if p.one in fact.prompt]
    own = [
        f"Here is {name} again.",
        f"All about {pair.keywords[0].upper()}.",
        "A line.",
        "Another.",
    ]
    scene = Scene(
        Stream("nolima-onehop-syn", 0),
        0.5,
        Haystack([Document("d", "\n".join(own))]),
        0.9,
        False,
        1,
    )
    prompt = named("nolima-onehop-syn").draft(scene, 400).prompt
    assert prompt.count(name) == 1
    assert "A line." in prompt
    assert pair.keywords[0].upper() not in prompt
    hints = Haystack([Document("d", "\n".join(own[:2]))])
    scene = Scene(Stream("nolima-onehop-syn", 0), 0.5, hints, 0.9, False, 1)
    with pytest.raises(Unsupported, match="give another corpus"):
        named("nolima-onehop-syn").draft(scene, 400)


def test_nolima_is_scored_by_the_rule_of_its_repository() -> None:
    """Metric `contains`; the answer is that of the example of the paper's first figure."""
    assert nolima.contains("It is Yuki, of course.", (" Yuki",)) == 1
    assert nolima.contains("It is yuki.", (" Yuki",)) == nolima.contains("", (" Yuki",)) == 0
    first, second, *_ = FIRST_NAMES
    assert nolima.contains(f"{first}, {second}", (f" {first}",)) == 0
    assert nolima.contains(f"{first}. {first} does", (f" {first}",)) == 1


@pytest.mark.parametrize("written", ["9" * 400, "-" + "9" * 400, "9" * 5000])
def test_a_number_beyond_all_floats_scores_nothing_in_oolong(written: str) -> None:
    assert oolong.oolong_score(written, (" 12",)) == 0


@pytest.mark.parametrize("gold", [oolong.MORE, oolong.LESS, oolong.SAME])
def test_an_answer_with_all_phrases_scores_nothing_in_oolong(gold: str) -> None:
    written = f"{oolong.MORE}, {oolong.LESS}, {oolong.SAME}"
    assert oolong.oolong_score(written, (gold,)) == 0
    assert oolong.oolong_score(f"clearly {gold} the other topic", (gold,)) == 1
    assert oolong.oolong_score(f" {gold}.", (gold,)) == 1


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("small", [True, False])
def test_a_reader_of_the_records_counts_the_same(seed: int, small: bool) -> None:
    topics = {
        f"{begin} {end}.": label
        for label, (begins, ends) in oolong.SENTENCES.items()
        for begin in begins
        for end in ends
    }

    def counted(prompt: str) -> Counter[str]:
        if small:
            return Counter(re.findall(r"^# (\w+) \d\d$", prompt, re.MULTILINE))
        return Counter(topics[s] for s in re.findall(r"Record: (.+)$", prompt, re.MULTILINE))

    count = draft("oolong-count-syn", 80, seed, small=small)
    own = counted(count.prompt)
    [asked] = re.findall(r"(?:are about|# count) (\w+)", count.prompt)
    assert own.total() == 88
    assert count.answer == f" {own[asked]}"
    most = draft("oolong-most-syn", 80, seed, small=small)
    [(label, times), (_, second), *_] = counted(most.prompt).most_common()
    assert times > second
    assert most.answer == f" {label}"
    compared = draft("oolong-compare-syn", 80, seed, small=small)
    own = counted(compared.prompt)
    pattern = r"# compare (\w+) (\w+)" if small else r"common is (\w+), compared with (\w+)"
    [(a, b)] = re.findall(pattern, compared.prompt)
    sign = (own[a] > own[b]) - (own[a] < own[b])
    word = {1: "more common than", -1: "less common than", 0: "same frequency as"}[sign]
    assert compared.answer == f" {word} {b}"
    assert compared.references == (word,)


@pytest.mark.parametrize(
    ("response", "gold", "number", "score"),
    [
        ("Answer: 37", "37", True, 1),
        ("I counted them. **Answer: [37]**", "37", True, 1),
        ("Answer: 35", "37", True, 0.75**2),
        ("Answer: many", "37", True, 0),
        ("37", "37", True, 1),
        ("Label: spam", "spam", False, 1),
        ("Label: Spam", "spam", False, 0),
        ("There is far more of this than spam", "spam", False, 1),
        ("Answer: ham is more common than spam", "more common than", False, 1),
        ("Answer: ham is less common than spam", "more common than", False, 0),
        ("Answer: same frequency", "same frequency as", False, 1),
    ],
)
def test_oolong_is_scored_by_the_rule_of_its_repository(
    response: str, gold: str, number: bool, score: float
) -> None:
    """Worked by hand from `eval_helpers.py` of abertsch72/oolong (adbf1cb)."""
    assert oolong.graded(response, gold, number=number) == pytest.approx(score)
