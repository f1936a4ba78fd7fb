"""RULER's variable tracking: a value is handed on four times, and its holders are asked for."""

from __future__ import annotations

from ropewalk.evaluation.prose import noise
from ropewalk.evaluation.randomness import Stream
from ropewalk.evaluation.references import string_match_all
from ropewalk.evaluation.tasks import PROMPTS, Draft, Scene, published
from ropewalk.evaluation.vocabulary import LETTERS

HOPS = 4
LETTERS_OF_A_NAME = 5
"""For small models too: any English text holds most pairs of letters somewhere."""
INTRODUCTION = PROMPTS["ruler_tracing"]
EXAMPLE = 10
"""Sentences of the example that a large model is shown."""


def draft(scene: Scene, units: int) -> Draft:
    """`units` sentences around one chain."""
    chains: list[tuple[list[str], int]] = []
    while len(chains) < 2:
        drawn = [scene.random.word(LETTERS, LETTERS_OF_A_NAME) for _ in range(1 + HOPS)]
        number = scene.random.below(9 * 10**4) + 10**4
        if len(set(drawn)) == len(drawn) and number not in (used for _, used in chains):
            chains.append((drawn, number))
    (names, value), shown = chains
    question, answer = _asked(names, value, small=scene.small)
    text = _text(scene.random, names, value, units, small=scene.small)
    example = ""
    if not scene.small:
        solved = _text(scene.random, *shown, EXAMPLE, small=False) + "".join(_asked(*shown))
        example = f"{INTRODUCTION}{solved}.\n\n"
    return Draft(f"{example}{text}{question}", answer, parts=tuple(names))


def _text(random: Stream, names: list[str], value: int, units: int, *, small: bool) -> str:
    """Sentences with a statement in each fifth of them, in the order of the chain."""
    hay = noise(units, end="\n" if small else " ")
    begin, end = ("# ", "\n") if small else ("VAR ", ". ")
    parts, done = [], 0
    for i, (name, source) in enumerate(zip(names, [value, *names], strict=False)):
        share = (i + random.below(2**20) / 2**20) / len(names)
        place = int(share * (len(hay) + 1))
        parts += [*hay[done:place], f"{begin}{name} = {source}{end}"]
        done = place
    return "".join([*parts, *hay[done:]]).rstrip() + "\n"


def _asked(names: list[str], value: int, *, small: bool = False) -> tuple[str, str]:
    """The question and its answer."""
    if small:
        return f"# {value} is in", f" {' '.join(names)}"
    question = (
        f"Which {len(names)} variables hold {value}, in the order in which they got it?\n"
        f"The variables that hold {value} are"
    )
    return question, f" {', '.join(names)}"


TASKS = (
    published(
        "vt-syn",
        "Five variables that hold one number, each set to the one before.",
        draft,
        string_match_all,
        *("ruler-syn", "ruler-11-syn"),
        version=2,
        allowance=30,
    ),
)
