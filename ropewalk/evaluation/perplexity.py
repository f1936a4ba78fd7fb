"""Perplexity and next-token accuracy, and other definitions of perplexity.

Averaging alone moves a perplexity from 7.4 to 8.6, so a number means nothing without its rule:

    task                     windows                    average of             BOS
    perplexity               see below                  tokens                 as the tokenizer does
    repetition               see below                  tokens                 as the tokenizer does
    perplexity-hf            every 512, to the end      tokens, roughly        none
    perplexity-yarn          every 256, to the end      window means           every window
    perplexity-longrope      the first ten of those     window means           every window
    perplexity-256           every 256, to the end      tokens                 every window
    perplexity-256k          every 256k, to the end     tokens                 every window
    perplexity-base-bound    first of a document        documents' perplexities  as the tokenizer
    longppl                  as `perplexity`            key tokens             as the tokenizer does

`perplexity` scores the same final tokens at every length: a window of 128 and one of 1,024 end at
the same place of the same text, so that the only thing that changes is how much stands before.
`repetition` does so on a stretch of text, as long as the original context length, that is repeated
without end: a model that uses all of its context copies (the repeated text of the mixture-of-bases
article). Windows that share text are not independent, so the windows of both keep apart where the
text has room for that. `perplexity-256` and `perplexity-256k` are the sliding windows of LongRoPE's
Tables 5 and 7 and of its Table 6: over as many documents as `samples`, none shorter than the
longest length, every token counts once, whatever the length. `longppl` counts the tokens of a whole
window that need more than a short context (key_tokens.py). The others are kept as their authors
have them, to compare with published numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, pairwise
from typing import Literal, NamedTuple

import numpy as np

from ropewalk.data.corpora import Document
from ropewalk.errors import InputError
from ropewalk.evaluation.encoding import Encoder, IntArray
from ropewalk.evaluation.randomness import Stream, identity
from ropewalk.evaluation.statistics import FEWEST
from ropewalk.lengths import format_length

VERSION = 2
SCORED = 256
HF_STRIDE, YARN_STRIDE, LONGROPE_WINDOWS = 512, 256, 10
SHORT = 4096


@dataclass(frozen=True)
class Text:
    """A document as tokens, without BOS."""

    name: str
    tokens: IntArray
    text: str = ""


@dataclass(frozen=True)
class ScoredWindow:
    """A stretch of a text, of which the tokens from `scored_from` on are scored."""

    text: Text
    begin: int
    end: int
    bos: tuple[int, ...]
    scored_from: int
    """Counted in the window, BOS included."""
    weight: int
    layout: str
    """Windows of one layout read the same stretch of text: their losses are not independent."""
    period: int | None = None
    """The window reads the last `period` tokens before `end` over and over."""

    @property
    def tokens(self) -> IntArray:
        if self.period is None:
            part = self.text.tokens[self.begin : self.end]
        else:
            back = np.arange(self.begin - self.end, 0) % self.period - self.period
            positions = self.end + back
            part = self.text.tokens[positions]
        return np.concatenate([np.array(self.bos, dtype=np.int64), part])

    def __len__(self) -> int:
        return len(self.bos) + self.end - self.begin


class Request(NamedTuple):
    """The windows that are asked for."""

    texts: Sequence[Text]
    bos: tuple[int, ...]
    """The tokens with which the tokenizer begins a sequence."""
    start_token: tuple[int, ...]
    """BOS if there is one, whether the tokenizer adds it or not."""
    length: int
    longest: int
    """The longest of the lengths that are compared."""
    scored: int
    """The number of final tokens that are scored, at every length."""
    samples: int
    seed: int
    original_length: int


@dataclass(frozen=True)
class Definition:
    """A rule for which tokens count, in windows of which length, and how they are averaged."""

    name: str
    windows: Callable[[Request], list[ScoredWindow]]
    average: Literal["losses", "perplexities"] = "losses"
    by_position: bool = False
    """Its windows are also scored by position, at the longest length."""
    accuracy: bool = False
    keys: bool = False
    """Only key tokens count among the scored ones; an evaluator chooses them (key_tokens.py)."""


def have_keys(names: Iterable[str]) -> bool:
    """True if a task of these has key tokens."""
    return any(name in DEFINITIONS and DEFINITIONS[name].keys for name in names)


def texts(documents: Sequence[Document], encoder: Encoder) -> list[Text]:
    return [
        Text(document.name, encoder.pieces(document.text), document.text) for document in documents
    ]


def short_context(original_length: int) -> int:
    """The tokens of the short context of LongPPL and LongCE."""
    return min(SHORT, original_length)


def sample_id(window: ScoredWindow, definition: Definition, corpus: str, encoder: Encoder) -> str:
    return identity(
        definition.name,
        VERSION,
        corpus,
        encoder.sha256,
        window.text.name,
        [window.begin, window.end, window.scored_from, window.weight, window.period or 0],
        window.bos,
    )


def position_bins(length: int, scored: int) -> list[tuple[int, int]]:
    """Positions in doubling bins: where in its context a model goes wrong."""
    edges = [1]
    while edges[-1] < length:
        edges.append(min(length, max(scored, 2 * edges[-1])))
    return list(pairwise(edges))


def scored_tokens(lengths: Sequence[int]) -> int:
    """The number of final tokens that every length can score, with as many before them."""
    return max(1, min(SCORED, min(lengths) // 2))


def _common_ends(request: Request) -> list[ScoredWindow]:
    """Windows that end at drawn places, the same places whatever the length."""
    ends = _drawn_ends(request, request.longest - len(request.bos))
    return _ending_at(ends, request, request.length - len(request.bos))


def _repeated(request: Request) -> list[ScoredWindow]:
    """Windows that read the stretch before a drawn place again and again."""
    period = request.original_length
    windows = _ending_at(_drawn_ends(request, period), request, period)
    return [replace(window, period=period) for window in windows]


def _beyond_short(request: Request) -> list[ScoredWindow]:
    """Windows of which any token may be a key token, if they hold more than the short context."""
    if request.length <= short_context(request.original_length):
        return []
    windows = _common_ends(request)
    return [replace(window, scored_from=1, weight=len(window) - 1) for window in windows]


def _ending_at(ends: Sequence[tuple[Text, int]], request: Request, read: int) -> list[ScoredWindow]:
    """Windows of which each reads so many tokens of the text before its end."""
    inner = request.length - len(request.bos)
    stretches = _stretches(ends, read)
    return [
        ScoredWindow(
            text,
            begin=end - inner,
            end=end,
            bos=request.bos,
            scored_from=request.length - request.scored,
            weight=request.scored,
            layout=stretches[text.name, end],
        )
        for text, end in ends
    ]


def _stretches(ends: Sequence[tuple[Text, int]], read: int) -> dict[tuple[str, int], str]:
    """The stretch of text that each window lies in: windows that overlap or touch share one."""
    names: dict[tuple[str, int], str] = {}
    before: tuple[str, int] | None = None
    for place in sorted((text.name, end) for text, end in ends):
        name, end = place
        touches = before is not None and before[0] == name and end - read <= before[1]
        names[place] = names[before] if touches and before else f"{name}@{end - read}"
        before = place
    return names


def _drawn_ends(request: Request, room: int) -> list[tuple[Text, int]]:
    """Places with so many tokens before them, whose windows don't touch each other.

    Where the text has too few of those for an interval, they are only as far apart as what is
    scored there: the mean of more windows is surer, although nobody can say by how much.
    """

    def ends(step: int) -> list[tuple[Text, int]]:
        return [
            (text, end)
            for text in request.texts
            for end in range(len(text.tokens), room - 1, -step)
        ]

    slots = ends(room + 1)
    if len(slots) < FEWEST:
        slots = ends(request.scored)
    if not slots:
        most = max((len(text.tokens) for text in request.texts), default=0)
        raise InputError(
            f"no document of the corpus holds {room} tokens, which a length of {request.longest} "
            f"needs (the longest holds {most}); give longer documents (`corpus`) or shorter lengths"
        )
    drawn = Stream("perplexity", VERSION, request.seed).sample(
        len(slots), min(request.samples, len(slots))
    )
    return [slots[i] for i in drawn]


def _sliding(
    text: Text, length: int, stride: int, bos: tuple[int, ...], *, partial: bool
) -> Iterator[ScoredWindow]:
    """Windows that begin every `stride` tokens; a token is scored in the first that holds it.

    They weigh as many tokens as they add. `partial` keeps a last window that reaches the end of
    the text before it is full.
    """
    total, inner = len(text.tokens), length - len(bos)
    scored_to = 0
    for begin in range(0, total, stride):
        end = min(begin + inner, total)
        if end - begin < inner and not partial:
            break
        new = end - scored_to
        # Without BOS nothing predicts the first token of a window.
        scored_from = max(len(bos) + end - begin - new, 1)
        if scored_from < len(bos) + end - begin:
            yield ScoredWindow(text, begin, end, bos, scored_from, new, layout=text.name)
        scored_to = end
        if end == total:
            break


def _hugging_face(request: Request) -> list[ScoredWindow]:
    """Their page weighs every window by one token less than it adds."""
    return [
        replace(window, weight=window.weight - 1)
        for text in request.texts
        for window in _sliding(text, request.length, HF_STRIDE, (), partial=True)
        if window.weight > 1
    ]


def _yarn(request: Request, most: int | None = None, *, partial: bool = True) -> list[ScoredWindow]:
    """The first windows, or all of them, which weigh alike."""
    windows = (
        replace(window, weight=1)
        for text in request.texts
        for window in _sliding(
            text, request.length, YARN_STRIDE, request.start_token, partial=partial
        )
    )
    return list(islice(windows, most))


def _by_stride(stride: int, request: Request) -> list[ScoredWindow]:
    """The same documents at every length; no stride is longer than a window."""
    long = [text for text in request.texts if len(text.tokens) >= request.longest]
    count = min(request.samples, len(long))
    chosen = Stream("perplexity-stride", VERSION, request.seed).sample(len(long), count)
    most = request.length - len(request.start_token)
    return [
        replace(window, weight=len(window) - window.scored_from)
        for i in sorted(chosen)
        for window in _sliding(
            long[i], request.length, min(stride, most), request.start_token, partial=True
        )
    ]


def _base_bound(request: Request) -> list[ScoredWindow]:
    inner = request.length - len(request.bos)
    return [
        ScoredWindow(text, 0, inner, request.bos, scored_from=1, weight=1, layout=text.name)
        for text in request.texts
        if len(text.tokens) >= inner
    ]


DEFINITIONS: Mapping[str, Definition] = {
    definition.name: definition
    for definition in (
        Definition("perplexity", _common_ends, by_position=True, accuracy=True),
        Definition("repetition", _repeated, accuracy=True),
        Definition("perplexity-hf", _hugging_face),
        Definition("perplexity-yarn", _yarn),
        Definition("perplexity-longrope", partial(_yarn, most=LONGROPE_WINDOWS, partial=False)),
        *(
            Definition(f"perplexity-{format_length(stride)}", partial(_by_stride, stride))
            for stride in (256, 2**18)
        ),
        Definition("perplexity-base-bound", _base_bound, average="perplexities"),
        Definition("longppl", _beyond_short, keys=True),
    )
}
