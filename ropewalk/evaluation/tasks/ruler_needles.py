"""RULER's eight needle tasks, with text, keys and wording of our own.

A small model gets lines `# key QX4821` between lines of the corpus, or nothing but such lines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from ropewalk.errors import Unsupported
from ropewalk.evaluation.haystack import insert
from ropewalk.evaluation.prose import noise, sentences
from ropewalk.evaluation.references import string_match_all
from ropewalk.evaluation.tasks import PROMPTS, Draft, Scene, Task, asked_places, published
from ropewalk.evaluation.vocabulary import LETTERS, NAMES, numbered_name

INTRODUCTION = PROMPTS["ruler_needles"]
SHOWN = 3
"""Wrong answers that a sample names."""


class Needle(NamedTuple):
    key: str
    value: str
    line: str


@dataclass(frozen=True)
class RulerForm:
    """The needles, and the hay that they are hidden in."""

    hay: Literal["noise", "essay", "needles"]
    key: Literal["word", "uuid"] = "word"
    value: Literal["number", "uuid"] = "number"
    keys: int = 1
    values: int = 1
    """The values of each key."""
    queries: int = 1
    """The number of keys that are asked for."""

    def draft(self, scene: Scene, units: int) -> Draft:
        """`units` sentences around the needles, words for a small model, or further needles."""
        return self.questions(scene, units)[0]

    def questions(self, scene: Scene, units: int) -> list[Draft]:
        """A draft for each of several keys, if a text holds more than are asked for."""
        needles = self._needles(scene, self.keys + (units if self.hay == "needles" else 0))
        text = self._text(scene, units, [needle.line for needle in needles])
        keys = list(dict.fromkeys(needle.key for needle in needles))
        if self.hay == "needles":
            placed = self._in_order(scene, keys)
            several = [[placed[place]] for place in asked_places(scene.depth, len(keys))]
        else:
            several = [keys[i : i + self.queries] for i in range(0, len(keys), self.queries)]
        return [self._about(group, scene, units, needles, text) for group in several]

    def _about(
        self, keys: list[str], scene: Scene, units: int, needles: list[Needle], text: str
    ) -> Draft:
        wanted = set(keys)
        # Several values of a key cannot be asked for one by one: they come as the text has them.
        chosen = sorted(
            (needle for needle in needles if needle.key in wanted),
            key=lambda needle: (keys.index(needle.key), text.index(needle.line)),
        )
        values = tuple(needle.value for needle in chosen)
        others = [n.value for n in needles[: 1 + SHOWN] if n.key not in wanted]
        prompt, answer = (
            self._briefly(text, keys, chosen) if scene.small else self._in_words(text, keys, chosen)
        )
        return Draft(
            prompt,
            answer,
            depth=prompt.index(chosen[0].line.strip()) / len(prompt) if len(chosen) == 1 else None,
            words=units if scene.small and self.hay == "essay" else 0,
            parts=values if len(values) > 1 else (),
            references=values,
            distractors=tuple(others),
        )

    def _needles(self, scene: Scene, count: int) -> list[Needle]:
        """The needles of so many keys; fewer are a prefix of more."""
        words = scene.random.shuffled(range(len(LETTERS) ** 2 if scene.small else NAMES))
        if self.key == "word" and count > len(words):
            raise Unsupported(
                f"this context holds {count} lines, but there are only keys for {len(words)}; give "
                "a shorter length, or another task"
            )
        by_key: dict[str, list[Needle]] = {}
        for i, (a, b, *numbers) in enumerate(scene.random.rows(count, 2 + 2 * self.values)):
            if self.key == "uuid":
                key = _letters(a, 4) if scene.small else uuid(a, b)
            else:
                key = _letters(words[i], 2) if scene.small else numbered_name(words[i])
            values = [
                self._value(c, d, small=scene.small)
                for c, d in zip(numbers[::2], numbers[1::2], strict=True)
            ]
            by_key.setdefault(key, [Needle(key, v, self._line(scene, key, v)) for v in values])
        return [needle for same in by_key.values() for needle in same]

    def _value(self, a: int, b: int, *, small: bool) -> str:
        if small:
            return f"{a % 10**4:04}" if self.value == "number" else f"{a % 10**8:08}"
        return str(10**6 + a % (9 * 10**6)) if self.value == "number" else uuid(a, b)

    @property
    def kind(self) -> str:
        return "number" if self.value == "number" else "code"

    def _line(self, scene: Scene, key: str, value: str) -> str:
        if scene.small:
            return f"# key {key}{value}\n"
        end = "\n" if self.hay == "needles" else " "
        return f"The secret {self.kind} of {key} is {value}.{end}"

    def _text(self, scene: Scene, units: int, lines: list[str]) -> str:
        """The needles in their hay, the first at the depth of the scene."""
        if self.hay == "needles":
            return "".join(self._in_order(scene, lines))
        depths = [scene.depth, *(a / 2**64 for [a] in scene.random.rows(len(lines) - 1, 1))]
        if self.hay == "noise":
            hay = noise(units, end="\n" if scene.small else " ")
        elif scene.small:
            hay = scene.haystack.crop(scene.place, units)
        else:
            hay = sentences(scene.random, units)
        return insert(hay, zip(depths, lines, strict=True))

    @staticmethod
    def _in_order(scene: Scene, items: list[str]) -> list[str]:
        """Needles that fill the context: the first at the depth of the scene."""
        first = int(scene.depth * len(items))
        return [*items[1 : first + 1], items[0], *items[first + 1 :]]

    def _briefly(self, text: str, keys: list[str], chosen: list[Needle]) -> tuple[str, str]:
        """The first asked line begun again; if there are several, the keys come before it."""
        listed = f"# keys {' '.join(keys)}\n" if len(keys) > 1 else ""
        question = f"# key {keys[0]}"
        answer = "".join(needle.line for needle in chosen).removeprefix(question).rstrip()
        return f"{text}{listed}{question}", answer

    def _in_words(self, text: str, keys: list[str], chosen: list[Needle]) -> tuple[str, str]:
        of = f"of {', '.join(keys)}"
        if len(chosen) == 1:
            question = f"What is the secret {self.kind} {of}?\nThe secret {self.kind} {of} is"
        else:
            order = "in this order" if len(keys) > 1 else "in the order of the text"
            question = (
                f"What are all secret {self.kind}s {of}, {order}?\nThe secret {self.kind}s {of} are"
            )
        prompt = f"{INTRODUCTION.format(kind=self.kind)}{text.rstrip()}\n{question}"
        return prompt, f" {', '.join(needle.value for needle in chosen)}"


def _letters(number: int, size: int) -> str:
    return "".join(LETTERS[number // len(LETTERS) ** i % len(LETTERS)] for i in range(size))


def uuid(high: int, low: int) -> str:
    text = f"{high:016x}{low:016x}"
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def _task(name: str, summary: str, form: RulerForm, *groups: str) -> Task:
    return published(
        f"niah-{name}-syn",
        summary,
        form.draft,
        string_match_all,
        *(groups or ("ruler-syn", "ruler-11-syn")),
        continues=r"[\w-]",
        allowance=128,
        # Those that hold keys which are not asked for.
        questions=form.questions if form.keys > form.queries or form.hay == "needles" else None,
    )


TASKS = (
    _task("single-1", "One number in repeated sentences.", RulerForm("noise")),
    _task("single-2", "One number in prose.", RulerForm("essay")),
    _task("single-3", "One UUID in prose.", RulerForm("essay", value="uuid")),
    _task("multikey-1", "One of four numbers in prose, by its key.", RulerForm("essay", keys=4)),
    _task("multikey-2", "One of many lines, which fill the context.", RulerForm("needles")),
    _task(
        "multikey-3",
        "One of many lines of two UUIDs, which fill the context.",
        RulerForm("needles", key="uuid", value="uuid"),
        "ruler-syn",
    ),
    _task("multivalue", "Four numbers of one key in prose.", RulerForm("essay", values=4)),
    _task(
        "multiquery", "Four numbers of four keys in prose.", RulerForm("essay", keys=4, queries=4)
    ),
)
