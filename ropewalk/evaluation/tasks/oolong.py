"""Oolong's synthetic half (Bertsch et al., 2025): records to classify, count and compare.

Source: the paper (arXiv 2511.02817) and the scorer of its repository. Records are sentences of our
own about four topics, each with a date and a user as there; studies/papers.md lists the
differences.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from ropewalk.evaluation.tasks import PROMPTS, Draft, Scene, published

SENTENCES: dict[str, list[list[str]]] = json.loads(
    Path(__file__).with_name("oolong.json").read_text(encoding="utf-8")
)
"""By topic, the beginnings and the ends of its sentences."""
LABELS = tuple(SENTENCES)
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
USERS = 50
LEAST = 8
"""Records of the shortest list."""
INTRODUCTION = PROMPTS["oolong"].format(topics=", ".join(LABELS))
PHRASES = ("more common", "less common", "same frequency")
MORE, LESS, SAME = "more common than", "less common than", "same frequency as"


class Records(NamedTuple):
    text: str
    counted: Counter[str]
    topic: str
    other: str
    """Two that may be asked about."""


def _records(scene: Scene, units: int) -> Records:
    """`LEAST + units` of them; how common the topics are is the same however many there are."""
    random = scene.random
    order = random.shuffled(LABELS)
    shares = [4 + random.below(8) for _ in LABELS]
    drawn = [label for label, share in zip(LABELS, shares, strict=True) for _ in range(share)]
    rows = random.rows(LEAST + units, 6)
    labels = [drawn[row[0] % len(drawn)] for row in rows]
    count = Counter(labels)
    [top, second] = [*count.most_common(2), ("", 0)][:2]
    if top[1] == second[1]:  # one topic must be the most common one
        labels[labels.index(second[0])] = top[0]
        count = Counter(labels)
    lines = [_line(label, row, small=scene.small) for label, row in zip(labels, rows, strict=True)]
    return Records("".join(lines), count, order[0], order[1])


def _line(label: str, row: list[int], *, small: bool) -> str:
    _, who, begin, end, month, day = row
    if small:
        return f"# {label} {who % 100:02}\n"
    begins, ends = SENTENCES[label]
    return (
        f"Date: {MONTHS[month % 12]} {1 + day % 28:02}, 2024 || User: {10_000 + who % USERS} || "
        f"Record: {begins[begin % len(begins)]} {ends[end % len(ends)]}.\n"
    )


def _draft(scene: Scene, text: str, short: str, ask: str, answer: str) -> Draft:
    """`short`: the question to a small model."""
    if scene.small:
        return Draft(f"{text}# {short}", f" {answer}")
    return Draft(f"{INTRODUCTION}{text}\n{ask}", f" {answer}")


def count(scene: Scene, units: int) -> Draft:
    text, counted, topic, _ = _records(scene, units)
    ask = f"How many records are about {topic}? Answer with a number.\nAnswer:"
    return _draft(scene, text, f"count {topic}", ask, str(counted[topic]))


def most(scene: Scene, units: int) -> Draft:
    text, counted, *_ = _records(scene, units)
    ask = "Which topic do most records have? Answer with the topic alone.\nLabel:"
    [(label, _)] = counted.most_common(1)
    return _draft(scene, text, "most", ask, label)


def compare(scene: Scene, units: int) -> Draft:
    text, counted, a, b = _records(scene, units)
    difference = counted[a] - counted[b]
    answer = MORE if difference > 0 else LESS if difference < 0 else SAME
    ask = (
        f"How common is {a}, compared with {b}, among the records? Put one of '{MORE}', '{LESS}' "
        f"and '{SAME}' between the two.\nAnswer: {a} is"
    )
    draft = _draft(scene, text, f"compare {a} {b}", ask, f"{answer} {b}")
    return draft._replace(references=(answer,))


def parsed(response: str) -> str:
    """The published rule: the text after the last colon, or all of a short response."""
    if ":" not in response:
        return response if len(response) < 20 else response.split()[-1]
    answer = response.rsplit(":", 1)[1].strip().translate(str.maketrans("", "", "*[]"))
    if len(answer) < 20:
        return answer
    said = [phrase for phrase in PHRASES if phrase in answer]
    return said[0] if len(said) == 1 else answer  # to name several is no answer


def graded(response: str, gold: str, *, number: bool = False) -> float:
    """The published rule: equal, or near for a number, or a phrase that the answer holds."""
    answer = parsed(response)
    if answer == gold:
        return 1.0
    if answer in PHRASES:
        return float(answer in gold)
    try:
        return 0.75 ** abs(int(gold) - int(answer)) if number else 0.0
    except (ValueError, OverflowError):  # no number, or one of hundreds of digits
        return 0.0


def oolong_score(written: str, references: tuple[str, ...]) -> float:
    """By the kind of the answer; the first line that was written goes on after `Answer:`."""
    [line, *_] = written.strip().split("\n")
    gold = references[0].strip()
    return graded(f"Answer: {line.rstrip('. ')}", gold, number=gold.isdigit())


TASKS = tuple(
    published(
        f"oolong-{draft.__name__}-syn",
        summary,
        draft,
        oolong_score,
        "oolong-syn",
        ends=r"\S[^\n]*\n",
    )
    for draft, summary in (
        (count, "The number of records about a topic, of many."),
        (most, "The most common topic of many records."),
        (compare, "The more common of two topics of many records."),
    )
)
