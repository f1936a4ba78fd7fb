"""Documents that show both faces of a schedule in one forward: text to predict, facts to retrieve.

    BOS │ text with facts planted at stratified depths │ the text's end, scored │ questions
                                                        └ perplexity            └ retrieval

Through a chat template, the user gives the text, and the model's turn holds the questions.

Perplexity alone rewards a model for looking only at what is near, retrieval alone for forgetting
how to write. Every document has exactly as many tokens as asked for and scores equally many of its
text, and no two share a token of the corpus.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ropewalk.data.corpora import Document
from ropewalk.errors import InputError
from ropewalk.evaluation.encoding import Encoder, IntArray
from ropewalk.evaluation.randomness import Stream, spread
from ropewalk.evaluation.samples import DoesNotFit, common_beginning
from ropewalk.evaluation.tasks.kv import uuid
from ropewalk.evaluation.tasks.needle import CONTINUES, Fact, draw_fact
from ropewalk.evaluation.tasks.passkey import NEEDLE as PASSKEY
from ropewalk.evaluation.vocabulary import pair_name

if TYPE_CHECKING:
    from ropewalk.evaluation.answering import TokenScores

VERSION = 1
FACTS = 8
"""A document holds so many, or as many as leave three quarters of it to the text."""
SCORED = 512
"""The final tokens of the text that are scored, or a quarter of a short document."""
SHOWN = 5  # documents that an error names
ASKED = "\nWrite down the numbers and values that the text above hides, a line for each."
"""What the user of a chat asks for, after the text."""
MANY = 2
"""No more documents are read when there are so many times the stretches that are wanted."""


@dataclass(frozen=True)
class Planted:
    """One document, and its scored tokens; without answers nothing was planted in it."""

    source: str
    """The document of the corpus, and the first token of the stretch that was taken from it."""
    tokens: IntArray
    text: slice
    answers: tuple[slice, ...]
    depths: tuple[float, ...]
    """The depth of the fact of each answer: 0 at the beginning, 1 at the end of the document."""
    goes_on: Callable[[int], bool]
    """True for a token that would go on with an answer, which then would be another one."""

    @property
    def scored_from(self) -> int:
        start: int = self.text.start
        return start

    def with_scored(self, most: int) -> Planted:
        """The same, with at most so many tokens of the text's end scored."""
        begin = max(self.text.start, self.text.stop - most)
        return replace(self, text=slice(begin, self.text.stop))

    @property
    def scored(self) -> IntArray:
        """The places of the tokens that tell all: the text's, each answer's, and the one after."""
        parts = [self.text, *(slice(each.start, each.stop + 1) for each in self.answers)]
        every = np.arange(len(self.tokens))
        return np.concatenate([every[part] for part in parts])

    def matched(self, scores: TokenScores, answer: slice) -> bool:
        """True if every token of an answer was chosen, and the choice after it ends the answer."""
        chosen = scores.chosen[answer.start - self.scored_from :]
        *written, after = chosen[: answer.stop - answer.start + 1]
        return np.array_equal(written, self.tokens[answer]) and not self.goes_on(int(after))

    def choices(self, scores: TokenScores) -> IntArray:
        """The first choice in the place of each token of the answers."""
        begin = self.scored_from
        parts = [scores.chosen[each.start - begin : each.stop - begin] for each in self.answers]
        return np.concatenate(parts)

    @property
    def answered(self) -> IntArray:
        """The tokens of all answers."""
        return np.concatenate([self.tokens[each] for each in self.answers])

    def measured(self, scores: TokenScores) -> DocumentScores:
        """The scores of text and answers, by those of the tokens."""

        def losses(part: slice) -> NDArray[np.float64]:
            scored = slice(part.start - self.scored_from, part.stop - self.scored_from)
            return scores.losses[scored]

        text = float(losses(self.text).mean())
        if not self.answers:
            return DocumentScores(text, 0.0, 0.0, 0)
        answers = np.concatenate([losses(answer) for answer in self.answers])
        right = [self.matched(scores, answer) for answer in self.answers]
        matched = sum(2**i for i, each in enumerate(right) if each)
        return DocumentScores(text, float(answers.mean()), float(np.mean(right)), matched)


class DocumentScores(NamedTuple):
    """A document as it was read; all but the first are 0 if nothing was planted in it."""

    text: float
    """Nats a token of the text."""
    answers: float
    """Nats a token of the answers."""
    retrieved: float
    """The share of answers that were matched exactly."""
    matched: int
    """Which ones: the bit of each, from the first fact on."""


class Stretch(NamedTuple):
    """Consecutive tokens of one document of the corpus."""

    source: str
    tokens: IntArray


@dataclass(frozen=True)
class Split:
    """The documents that a search may see, and two sets that it may not.

    Finalists are chosen by `selection`; what is reported comes from `reporting`, which has decided
    nothing.
    """

    search: tuple[Planted, ...]
    selection: tuple[Planted, ...]
    reporting: tuple[Planted, ...]

    @property
    def all(self) -> tuple[Planted, ...]:
        return (*self.search, *self.selection, *self.reporting)


def split_corpus(
    documents: Sequence[Document],
    encoder: Encoder,
    length: int,
    sizes: tuple[int, int, int],
    seed: int,
    notice: Callable[[str], None] = lambda text: None,
    *,
    plain_search: bool = False,
) -> Split:
    """Planted documents from disjoint stretches of the corpus, fewer if it is short.

    With `plain_search` the documents to search on are text alone, and all of it is scored.

    The stretches are shuffled before they are shared out, so that all three sets are of one kind:
    stretches of one long document may stand in different sets, and hold different tokens of it.
    """
    wanted, least = sum(sizes), len([size for size in sizes if size])
    drawn, short = stretches_of(documents, encoder, length, wanted, seed)
    if len(drawn) < least:
        raise InputError(_too_short(short, len(drawn), length, least))
    if len(drawn) < wanted:
        notice(
            f"the corpus holds only {len(drawn)} of the {wanted} stretches of {length:,} tokens "
            "wanted, so there are fewer documents to search, select and report on than asked "
            "for" + (f" ({_named(short)} are too short for one)" if short else "")
        )
        sizes = _shared(len(drawn), sizes)
    made = [
        plain(stretch, encoder, length)
        if plain_search and index < sizes[0]
        else plant(stretch, encoder, length, index, seed)
        for index, stretch in enumerate(drawn[: sum(sizes)])
    ]
    first, second = sizes[0], sizes[0] + sizes[1]
    return Split(tuple(made[:first]), tuple(made[first:second]), tuple(made[second:]))


def plant(
    stretch: Stretch,
    encoder: Encoder,
    length: int,
    index: int,
    seed: int,
    *,
    mixed_within: int | None = None,
) -> Planted:
    """A document of exactly `length` tokens from a stretch of as many.

    For a verdict its facts are `mixed`: pass keys, needles and pairs of keys and values, as many
    as fit `within` the shortest length that is compared, so that all are asked equally much.
    """
    judges = mixed_within is not None
    random = Stream("judged" if judges else "planted", VERSION, seed, index)
    starts = _line_starts(stretch.tokens, encoder)
    in_lines = np.count_nonzero(starts < length // 2) >= 2 * FACTS
    chat = encoder.chat
    opening = np.array(encoder.bos, dtype=np.int64) if chat is None else encoder.pieces(chat.before)
    kinds = [(index + i) % len(KINDS) for i in range(FACTS)] if judges else [NEEDLES] * FACTS
    facts = _facts(random, encoder, mixed_within or length, kinds)
    # Where lines are rare, a fact begins one of its own.
    lines = [encoder.pieces(fact.line if in_lines else f"\n{fact.line}") for fact in facts]
    order = random.sample(len(facts), len(facts))
    questions, slices = _questions([facts[i] for i in order], encoder)

    # The tokens before the questions are scored as text, so no fact stands among them.
    scored = scored_tokens(length)
    room = length - len(opening) - sum(map(len, lines)) - len(questions)
    text, body = stretch.tokens[:room], room - scored
    starts = starts[starts < body] if in_lines else np.arange(1, body)
    # Facts are spread evenly over the rest, each somewhere in a part of its own.
    parts, begins, taken = [opening], [], 0
    for i, line in enumerate(lines):
        depth = (i + spread(index, "planted", VERSION, seed, i)) / len(lines)
        place = int(starts[int(depth * len(starts))])
        parts += [text[taken:place], line]
        begins.append(sum(map(len, parts)) - len(line))
        taken = place
    tokens = np.concatenate([*parts, text[taken:], questions])
    end = length - len(questions)
    return Planted(
        source=stretch.source,
        tokens=tokens,
        text=slice(end - scored, end),
        answers=tuple(slice(end + answer.start, end + answer.stop) for answer in slices),
        depths=tuple(begins[i] / length for i in order),
        goes_on=partial(encoder.goes_on, MIXED_CONTINUES if judges else CONTINUES),
    )


def plain(stretch: Stretch, encoder: Encoder, length: int) -> Planted:
    """A document of exactly `length` tokens of text, of which all but the first are scored."""
    bos = np.array(encoder.bos, dtype=np.int64)
    tokens = np.concatenate([bos, stretch.tokens[: length - len(bos)]])
    return Planted(
        source=stretch.source,
        tokens=tokens,
        text=slice(max(1, len(bos)), length),
        answers=(),
        depths=(),
        goes_on=partial(encoder.goes_on, CONTINUES),
    )


def text_of(source: str) -> str:
    """The document of the corpus that a planted one was taken from."""
    return source.rpartition("@")[0]


def scored_tokens(length: int) -> int:
    """The number of final tokens of the text that are scored."""
    return max(1, min(SCORED, length // 4))


def _facts(random: Stream, encoder: Encoder, length: int, kinds: Sequence[int]) -> list[Fact]:
    """Draw facts, no two of one name, that leave three quarters of the document to the text."""
    facts: dict[str, Fact] = {}
    chat = encoder.chat
    taken = 0 if chat is None else len(encoder.pieces(f"{chat.before}{ASKED}{chat.after}"))
    while len(facts) < len(kinds):
        kind = NEEDLES if encoder.is_small else kinds[len(facts)]
        fact = KINDS[kind](random, encoder.is_small)
        if fact.question in facts:
            continue
        taken += len(encoder.pieces(f"\n{fact.line}\n{fact.question}{fact.answer}{fact.end}"))
        if 4 * taken > length:
            break
        facts[fact.question] = fact
    if not facts:
        raise DoesNotFit(
            f"a fact and its question take {taken} tokens, more than a quarter of the target of "
            f"{length}; search for a longer one"
        )
    return list(facts.values())


def _needle(random: Stream, small: bool) -> Fact:
    return draw_fact(random, small=small)


def _passkey(random: Stream, _: bool) -> Fact:
    """As the task asks, but for a name: a document may have several."""
    of, key = f"The pass key of {pair_name(random)} is", 10_000 + random.below(90_000)
    line = f"{PASSKEY.format(key).replace('The pass key is', of, 1)}\n"
    return Fact(line, of, f" {key}", ".\n")


def _pair(random: Stream, _: bool) -> Fact:
    key, value = uuid(random), uuid(random)
    return Fact(f'"{key}": "{value}",\n', f'"{key}": "', value, '",\n')


KINDS = (_needle, _passkey, _pair)
NEEDLES = KINDS.index(_needle)
MIXED_CONTINUES = r"[\w-]"
"""What would go on with a number, or with a value of a pair."""


def _questions(facts: Sequence[Fact], encoder: Encoder) -> tuple[IntArray, list[slice]]:
    """The questions with their answers, on lines of their own, and the places of the answers."""
    chat = encoder.chat
    tokens: list[int] = encoder.pieces("\n" if chat is None else ASKED + chat.after).tolist()
    answers = []
    for fact in facts:
        question = encoder.pieces(fact.question)
        answered = encoder.pieces(fact.question + fact.answer)
        # A token that joins both belongs to the answer: the model must predict it.
        begin = common_beginning(question, answered)
        answers.append(slice(len(tokens) + begin, len(tokens) + len(answered)))
        tokens += [*answered.tolist(), *encoder.pieces(fact.end).tolist()]
    return np.array(tokens, dtype=np.int64), answers


def _line_starts(tokens: IntArray, encoder: Encoder) -> IntArray:
    """The starts of lines that do not begin with a line break: "\\n\\n" may be two tokens."""
    ids, at = np.unique(tokens, return_inverse=True)
    texts = [encoder.text(ids[i : i + 1]) for i in range(len(ids))]
    ends = np.array([text.endswith("\n") for text in texts])[at]
    goes_on = np.array([text.startswith(("\n", "\r")) for text in texts])[at]
    return np.flatnonzero(ends[:-1] & ~goes_on[1:]) + 1


def stretches_of(
    documents: Sequence[Document], encoder: Encoder, length: int, wanted: int, seed: int
) -> tuple[list[Stretch], list[tuple[str, int]]]:
    """Up to `wanted` disjoint stretches in a drawn order, and the documents that hold none.

    Equal texts are taken once: under two names they could stand on both sides of the split.
    """
    random = Stream("stretches", VERSION, seed)
    unique: dict[bytes, Stretch] = {}
    short: list[tuple[str, int]] = []
    cut: list[list[Stretch]] = []
    most = 0
    seen: set[str] = set()
    for i in random.sample(len(documents), len(documents)):
        name, text = documents[i].name, documents[i].text
        if text in seen:
            continue
        seen.add(text)
        tokens = encoder.pieces(text)
        count = len(tokens) // length
        if count == 0:
            short.append((name, len(tokens)))
            continue
        begins = [place * length for place in random.sample(count, count)]
        cut.append([Stretch(f"{name}@{begin}", tokens[begin : begin + length]) for begin in begins])
        most += count
        if len(cut) >= wanted and most >= MANY * wanted:
            break
    # One of each document in turn: stretches of one document are more alike than of two.
    for row in zip_longest(*cut):
        for stretch in filter(None, row):
            unique.setdefault(stretch.tokens.tobytes(), stretch)
    taken = list(unique.values())[:wanted]
    return [taken[i] for i in random.sample(len(taken), len(taken))], short


def _shared(count: int, sizes: tuple[int, int, int]) -> tuple[int, int, int]:
    """The sizes scaled down to what there is, at least one each."""
    search, selection = (max(1, count * size // sum(sizes)) for size in sizes[:2])
    reporting = min(1, sizes[2])
    search = min(search, count - 1 - reporting)
    selection = min(selection, count - search - 1) if reporting else count - search
    return search, selection, count - search - selection


def _too_short(short: Sequence[tuple[str, int]], count: int, length: int, least: int) -> str:
    return (
        f"the corpus holds {count} stretches of {length:,} tokens, and a search needs at least "
        f"{least}" + (f": too short are {_named(short)}" if short else "") + "; give longer "
        "documents (`corpus`), or a shorter target (`to`)"
    )


def _named(short: Sequence[tuple[str, int]]) -> str:
    """`notes.txt (312 tokens), … and 3 more`."""
    names = ", ".join(f"{name} ({tokens:,} tokens)" for name, tokens in sorted(short)[:SHOWN])
    return names + (f" and {len(short) - SHOWN} more" if len(short) > SHOWN else "")
