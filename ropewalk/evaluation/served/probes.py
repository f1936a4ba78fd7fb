"""The prompts of a fingerprint: single tokens, short texts, and the beginnings of one long text.

- A single token has nothing to attend to but itself, so its answer depends on the weights alone and
  on no rotation. It tells other weights from another rotation.
- The beginnings of one text, up to the target length, end within a question about a fact that
  stands far before, or in running text. A server that caches prefixes reads the text once, and the
  model in process needs one forward.
- A short text is sent as text: the server's own tokenizer, BOS and template show in the count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ropewalk.errors import InvalidValue
from ropewalk.evaluation.encoding import Encoder
from ropewalk.evaluation.haystack import Haystack
from ropewalk.evaluation.randomness import Stream, spread
from ropewalk.evaluation.tasks.needle import draw_fact
from ropewalk.values import RESTORE, Value

Kind = Literal["token", "context", "text"]

SINGLE, TEXTS, CONTEXTS = 3, 3, 15
MOST = SINGLE + TEXTS + CONTEXTS
SHORTEST = 16
"""Tokens of the shortest beginning: each probe is at least so long, single tokens aside."""
TEXT_WORDS = 24
_AHEAD = 12
"""The most tokens that a probe may lack, so that the model goes on with whole characters."""


@dataclass(frozen=True, eq=False)
class Probe(Value):
    """A prompt that is answered with one token and its likeliest alternatives."""

    kind: Kind
    length: int
    """In tokens, with the BOS that the model's own tokenizer adds."""
    tokens: tuple[int, ...] = ()
    """Empty for a beginning of the fingerprint's long text."""
    text: str = ""
    """The text that is sent in place of tokens, without BOS."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.kind == "text") != bool(self.text):
            raise InvalidValue(
                "text", self.text, f"does not suit a probe of kind {self.kind}", RESTORE
            )
        held = 0 if self.kind == "context" else self.length
        if self.length < 1 or len(self.tokens) != held:
            raise InvalidValue(
                "length",
                self.length,
                f"must be at least 1, and a probe of kind {self.kind} with this length must hold "
                f"{held} tokens",
                RESTORE,
            )


@dataclass(frozen=True)
class ProbeText:
    """The long text, and where its probes may end: the first choice that suits is taken."""

    tokens: tuple[int, ...]
    ends: tuple[tuple[int, ...], ...]
    single: tuple[int, ...]
    """Tokens to ask alone, in the order of preference."""
    texts: tuple[tuple[str, tuple[int, ...]], ...]


def draft(encoder: Encoder, haystack: Haystack, original: int, target: int, seed: int) -> ProbeText:
    """Candidate probes up to the target; a pure function of these and the seed."""
    lengths = probe_lengths(original, target)
    questioned = lengths[::2]
    name = ("fingerprint", 1, seed)
    random = Stream(*name)
    facts = [draw_fact(random, small=encoder.is_small) for _ in questioned]
    lines = [encoder.pieces(f"\n{fact.line}").tolist() for fact in facts]
    questions = [encoder.pieces(f"\n{fact.question}").tolist() for fact in facts]
    # The fact of a question stands anywhere before it, the earlier ones among the farthest.
    hidden = sorted(
        (int(spread(i, *name) * 0.9 * (length - len(questions[i]) - len(lines[i]))), i)
        for i, length in enumerate(questioned)
    )
    filler = encoder.pieces("".join(haystack.crop(spread(0, "text", *name), target))).tolist()
    tokens, used = list(encoder.bos), 0

    def fill(until: int) -> None:
        nonlocal used
        count = max(0, until - len(tokens))
        while count:
            part = filler[used % len(filler) :][:count]
            tokens.extend(part)
            used, count = used + len(part), count - len(part)

    # One text serves all probes: each is a beginning of it, and questions end some of them.
    for i, length in enumerate(questioned):
        before = length - len(questions[i])
        while hidden and hidden[0][0] < before - len(lines[hidden[0][1]]):
            place, fact = hidden.pop(0)
            fill(place)
            if len(tokens) + len(lines[fact]) <= before:
                tokens.extend(lines[fact])
        fill(before)
        tokens.extend(questions[i])
        del tokens[length:]
    fill(target - 1)
    # Besides the text: where probes may end, and tokens and short texts to send alone.
    ends = tuple(tuple(range(n, max(1, n - _AHEAD), -1)) for n in lengths)
    common = dict.fromkeys([*encoder.bos, *tokens[:: max(1, len(tokens) // 256)]])
    texts: dict[str, tuple[int, ...]] = {}
    for i in range(4 * TEXTS):
        text = " ".join("".join(haystack.crop(spread(i, "short", *name), TEXT_WORDS)).split())
        if text:
            texts[text] = tuple(encoder.sequence(text).tolist())
    return ProbeText(tuple(tokens), ends, tuple(common), tuple(texts.items()))


def probe_lengths(original: int, target: int) -> tuple[int, ...]:
    """Lengths up to the target, in equal ratios to the original length and beyond it.

    One token of room is left for the answer.
    """
    longest = target - 1
    if longest < 2 * SHORTEST:
        raise InvalidValue(
            "length",
            target,
            f"a fingerprint needs {2 * SHORTEST + 1} tokens",
            "give a longer one, and a plan that reaches as far",
        )
    inside = min(original, longest)
    within = CONTEXTS if longest <= original else CONTEXTS // 3
    lengths = [SHORTEST * (inside / SHORTEST) ** (i / within) for i in range(1, within + 1)]
    beyond = CONTEXTS - within
    lengths += [inside * (longest / inside) ** (i / beyond) for i in range(1, beyond + 1)]
    return tuple(sorted({min(longest, round(length)) for length in lengths}))
