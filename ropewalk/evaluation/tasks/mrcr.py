"""MRCR (Vodrahalli et al., 2024, in OpenAI's form of 2025): the second poem about one thing.

A dialogue holds several replies to one and the same request, and asks for one of them again, after
a given prefix. Source: the card of the data set `openai/mrcr`, with its rule of scoring. Replies
are passages of the corpus, so that a needle reads like everything around it; studies/papers.md
lists the differences.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import SequenceMatcher
from string import ascii_letters

from ropewalk.errors import Unsupported
from ropewalk.evaluation.randomness import Stream
from ropewalk.evaluation.tasks import PROMPTS, Draft, Scene, published
from ropewalk.evaluation.vocabulary import DIGITS, LETTERS, NOUNS

FORMS = ("poem", "riddle", "letter", "speech", "short story", "blog post", "song", "news article")
WORDS = 40
"""The words of a reply."""
PREFIX = 10
"""Letters and digits that the answer must begin with."""
ORDINALS = ("1st", "2nd", "3rd", "4th", "5th", "6th", "7th", "8th")
INTRODUCTION = PROMPTS["mrcr"]
Request = tuple[str, str]


@dataclass(frozen=True)
class MrcrForm:
    needles: int
    """The number of replies to the request that is asked about."""

    def draft(self, scene: Scene, units: int) -> Draft:
        """`units` further requests and replies."""
        random = scene.random
        key = random.choice(FORMS), random.choice(NOUNS)
        name = random.word(LETTERS, 2) if scene.small else f"{key[0]} about {key[1]}"
        replies = self._replies(scene)
        letters, size = (LETTERS, 2) if scene.small else (ascii_letters + DIGITS, PREFIX)
        prefix = random.word(letters, size)
        which = random.below(self.needles)
        depths = self._depths(random, which, scene.depth)
        # The replies to the request in question, among those to others, in the order of depths.
        turns = [(depth, name, reply) for depth, reply in zip(depths, replies, strict=True)]
        for i, (a, b, c) in enumerate(random.rows(units, 3)):
            place = (i + 0.5) / units
            turns.append((place, *_other(scene, key, name, (a, b, c))))
        turns.sort(key=lambda turn: turn[0])
        # A small model knows no conversation: it gets headings and the passages below them.
        if scene.small:
            text = "".join(f"# {title}\n{reply}\n" for _, title, reply in turns)
            prompt, space = f"{text}# {which + 1} {name} {prefix}\n", ""
        else:
            said = "".join(f"User: Write a {a}\nAssistant: {reply}\n" for _, a, reply in turns)
            ask = (
                f"Prepend {prefix} to the {ORDINALS[which]} (1 indexed) {name}. Do not include any "
                "other text in your response."
            )
            prompt, space = f"{INTRODUCTION}{said}User: {ask}\nAssistant:", " "
        others = [reply for i, reply in enumerate(replies) if i != which]
        return Draft(
            prompt,
            f"{space}{prefix}{replies[which]}",
            prompt.index(replies[which]) / len(prompt),
            references=(prefix, replies[which]),
            distractors=tuple(others[:3]),
            begun="",
        )

    def _replies(self, scene: Scene) -> list[str]:
        """Different ones, so that an answer is that of one of them."""
        replies: dict[str, None] = {}
        for [number] in scene.random.rows(32 * self.needles, 1):
            replies[_reply(scene, number)] = None
            if len(replies) == self.needles:
                return list(replies)
        raise Unsupported(
            f"the corpus is too short for {self.needles} different replies of {WORDS} words; give "
            "a longer one, or another task"
        )

    def _depths(self, random: Stream, which: int, depth: float) -> list[float]:
        """The asked reply at the depth, the ones before and after it on its two sides."""
        drawn = [random.below(2**20) / 2**20 for _ in range(self.needles - 1)]
        before = sorted(depth * place for place in drawn[:which])
        after = sorted(depth + (1 - depth) * place for place in drawn[which:])
        return [*before, depth, *after]


def _reply(scene: Scene, number: int) -> str:
    """A passage of the corpus in one line; of a small model, some digits."""
    if scene.small:
        return f"{number % 10**6:06}"
    lines = scene.haystack.crop((number >> 11) / 2**53, WORDS)
    return " ".join("".join(lines).split())


def _other(scene: Scene, key: Request, name: str, numbers: tuple[int, int, int]) -> tuple[str, str]:
    """A request that is not the asked one, though of its form or its topic now and then."""
    a, b, c = numbers
    if scene.small:
        other = LETTERS[a % 26] + LETTERS[b % 26]
        return (other if other != name else other[::-1] + "X"), _reply(scene, c)
    form, topic = FORMS[a % len(FORMS)], NOUNS[b % len(NOUNS)]
    match (a >> 32) % 4:
        case 0:
            form = key[0]
        case 1:
            topic = key[1]
    if (form, topic) == key:
        topic = NOUNS[(NOUNS.index(topic) + 1) % len(NOUNS)]
    return f"{form} about {topic}", _reply(scene, c)


def graded(response: str, answer: str, prefix: str) -> float:
    """The published rule: how alike two texts are, or 0 if the response lacks the prefix."""
    if not response.startswith(prefix):
        return 0.0
    pair = response.removeprefix(prefix), answer.removeprefix(prefix)
    return SequenceMatcher(None, *pair).ratio()


def sequence_ratio(written: str, references: tuple[str, ...]) -> float:
    """That of the first line that was written: our replies have one."""
    prefix, reply = references
    [line, *_] = written.strip().split("\n")
    return graded(line, prefix + reply, prefix)


TASKS = tuple(
    published(
        f"mrcr-{needles}-syn",
        f"One of {needles} replies to the same request, in a long dialogue.",
        MrcrForm(needles).draft,
        sequence_ratio,
        "mrcr-syn",
        ends=r"\S[^\n]*\n",
    )
    for needles in (2, 4, 8)
)
