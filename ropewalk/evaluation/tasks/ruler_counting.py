"""RULER's two tasks of counting: words that occur most often, in a list or by Zipf's law.

Both ask for the words in an order that the text gives, so that the answer can be forced.
"""

from __future__ import annotations

from ropewalk.evaluation.randomness import Stream
from ropewalk.evaluation.references import string_match_all
from ropewalk.evaluation.tasks import PROMPTS, Draft, Scene, published
from ropewalk.evaluation.vocabulary import ADJECTIVES, NAMES, NOUNS, numbered_name

COMMON = 10
EXAMPLE = 3, 1
"""Occurrences of the common and the other words of the example, ten words of each."""
SHORT = 4096
"""Below this a text has room for few words."""
ZETA_2 = 1.6449340668482264
LEAST = 100
"""Words of the shortest coded text: with fewer of them ranks are equally frequent."""
CODED = PROMPTS["ruler_counting"]


def common_words(scene: Scene, units: int) -> Draft:
    """`units` words that are not common."""
    often, seldom = (30, 3) if scene.length >= SHORT else (6, 1)
    words = _words(scene, 2 * COMMON + COMMON + units)
    shown, words = words[: 2 * COMMON], words[2 * COMMON :]
    common, others = words[:COMMON], words[COMMON:]
    listed = scene.random.shuffled([*common * often, *others * seldom])
    # By first appearance, as asked.
    chosen = set(common)
    answers = [word for word in dict.fromkeys(listed) if word in chosen]
    end = f" {', '.join(answers)}"
    if scene.small:
        text = "\n".join(listed)
        return Draft(f"{text}\n# common", f" {' '.join(answers)}", parts=tuple(answers))
    example = scene.random.shuffled([*shown[:COMMON] * EXAMPLE[0], *shown[COMMON:] * EXAMPLE[1]])
    first = [word for word in dict.fromkeys(example) if word in set(shown[:COMMON])]
    prompt = f"{_asked(example)} {', '.join(first)}.\n\n{_asked(listed)}"
    return Draft(prompt, end, parts=tuple(answers), distractors=tuple(others[:1]))


def _words(scene: Scene, count: int) -> list[str]:
    """Different words; for a small model short ones, as far as there are enough of them."""
    listed = [*ADJECTIVES, *NOUNS] if scene.small else []
    short = scene.random.sample(len(listed), min(count, len(listed)))
    long = scene.random.sample(NAMES, count - len(short))
    return [*(listed[i] for i in short), *map(numbered_name, long)]


def _asked(listed: list[str]) -> str:
    rows = "\n".join(f"{i}. {word}" for i, word in enumerate(listed, start=1))
    return (
        f"Some words of this list occur more often than the others.\n{rows}\n"
        f"Which {COMMON} words occur most often? Name them in the order of their first place.\n"
        f"The {COMMON} words that occur most often are"
    )


def frequent_words(scene: Scene, units: int) -> Draft:
    """`LEAST + units` words, of which rank k occurs in proportion to 1/k²."""
    total = LEAST + units
    ranks = max(25, (scene.length - 50) // 50)
    words = ["...", *_coined(scene.random, ranks, 4 if scene.small else 6)]
    counts = [int(total / (k * k * ZETA_2)) for k in range(1, len(words) + 1)]
    text = [word for word, count in zip(words, counts, strict=True) for _ in range(count)]
    answers, coded = words[1:4], " ".join(scene.random.shuffled(text))
    if scene.small:
        return Draft(f"{coded}\n# most", f" {' '.join(answers)}", parts=tuple(answers))
    prompt = (
        f"{CODED}{coded}\nWhich three words occur most often, the most frequent first?\n"
        "The three words that occur most often are"
    )
    return Draft(
        prompt, f" {', '.join(answers)}", parts=tuple(answers), distractors=(words[4], words[0])
    )


def _coined(random: Stream, count: int, size: int) -> list[str]:
    """Different words of random letters."""
    words: dict[str, None] = {}
    while len(words) < count:
        for [number] in random.rows(count, 1):
            word = "".join(chr(97 + (number >> 8 * i) % 26) for i in range(size))
            words[word] = None
    return list(words)[:count]


TASKS = (
    published(
        "cwe-syn",
        "The ten words that occur most often in a list.",
        common_words,
        string_match_all,
        "ruler-syn",
        continues=r"[\w-]",
        allowance=120,
    ),
    published(
        "fwe-syn",
        "The three words that occur most often in a coded text.",
        frequent_words,
        string_match_all,
        *("ruler-syn", "ruler-11-syn"),
        allowance=50,
    ),
)
