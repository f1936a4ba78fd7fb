"""The request of `howlong`, checked: what is asked, up to which length, for how many tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ropewalk.blocks import Block, Paragraph, Table, cells
from ropewalk.budget import Budget
from ropewalk.data.corpora import Document
from ropewalk.errors import GateFailed, InputError, InvalidValue
from ropewalk.evaluation.usable.documents import DEGREES, FACTS
from ropewalk.evaluation.usable.search import SHARE, curve_tokens, reference_of, steps, sweep_tokens
from ropewalk.evaluation.verdict import LOOKS, TO_WORK
from ropewalk.lengths import MAX_MEASURED_LENGTH, check_measured, format_length
from ropewalk.models.source import Loading
from ropewalk.progress import Notice, Progress
from ropewalk.untrusted import check_seed
from ropewalk.values import Result

if TYPE_CHECKING:
    from ropewalk.evaluation.usable.readers import Askable

_WITHOUT_SCHEME = re.compile(r"[\w.-]+:[0-9]{2,5}(/.*)?")
UNASKED = 1_000_000
"""Tokens that are sent to another machine, which may charge for them, without a `budget`."""
SHORTEST = 128
"""No shorter length holds documents worth comparing."""
WITHIN, CHOOSING = TO_WORK, LOOKS[0]
"""Documents of the short length, and others of each degree of questions that is tried."""


@dataclass(frozen=True, eq=False)
class HowLong:
    """The arguments of `howlong`, converted."""

    model: Any
    documents: Sequence[Document]
    need: int | None
    claimed: int | None
    against: str | Path | None
    budget: Budget | None
    seed: int
    run: Path | None
    model_name: str | None
    timeout: float
    how: Loading
    strict: bool
    progress: Progress
    notice: Notice

    def __post_init__(self) -> None:
        check_seed(self.seed)
        if isinstance(self.model, str) and _WITHOUT_SCHEME.fullmatch(self.model):
            raise InvalidValue(
                "model", self.model, "is no URL without a scheme", f"write http://{self.model}"
            )
        if self.budget is not None and self.budget.unit != "tokens":
            raise InvalidValue(
                "budget", str(self.budget), "must be of tokens", "write 5e6tok, for example"
            )

    @property
    def is_server(self) -> bool:
        return isinstance(self.model, str) and self.model.startswith(("http://", "https://"))


@dataclass(frozen=True, eq=False)
class ReadingPlan(Result):
    """The lengths that a run of `howlong` would read, and their tokens, before anything is read."""

    rows_in = "lengths"

    model: str
    claimed: int
    serves: int | None
    """The length that a server has room for, if that is less."""
    reference: int
    lengths: tuple[int, ...]
    tokens: int
    """The most tokens that are read; of a server elsewhere, that are sent."""
    sweep: int
    """The tokens of the most documents of every length, counted alike."""
    is_remote: bool

    def to_rows(self) -> list[dict[str, Any]]:
        return [{"length": length} for length in (self.reference, *self.lengths)]

    def summary(self) -> str:
        does = "sends" if self.is_remote else "reads"
        again = ""
        if self.is_remote:
            again = f", each document {FACTS} times, once for each question"
        return (
            f"{self.model} claims {format_length(self.claimed)}; finding out {does} at most "
            f"{self.tokens:,} tokens{again}: documents of {format_length(self.reference)} to "
            f"compare with, and of lengths up to {format_length(self.lengths[-1])}."
        )

    def blocks(self) -> Iterator[Block]:
        yield Paragraph(self.summary())
        yield Table("", ("length",), tuple(cells(f"{row['length']:,}") for row in self.to_rows()))


def planned(call: HowLong, subject: Askable) -> ReadingPlan:
    """The lengths and the most tokens; what cannot be asked is refused."""
    claimed = call.claimed or subject.claims
    if claimed is None:
        does = "does not say how long a sequence it serves"
        if subject.reports is not None:
            does = (
                f"reports a length of {subject.reports!r}, which must be a whole number of tokens "
                f"from 1 to {MAX_MEASURED_LENGTH:,}"
            )
        raise InputError(
            f"{subject.name} {does}; give the length that it is said to serve (`claimed`)"
        )
    check_measured(claimed, "claimed")
    # The readings end at the needed length, if one is named: longer ones would not answer it.
    most = min(claimed, subject.serves or claimed)
    longest = most if call.need is None else call.need
    if longest > most:
        does = "claims" if most == claimed else "serves"
        raise GateFailed(subject.name, [f"{does} {most:,} tokens, and {longest:,} are needed"])
    if longest < 2 * SHORTEST:
        key = "claimed" if call.need is None else "need"
        raise InvalidValue(
            *(
                key,
                longest,
                f"must be at least {2 * SHORTEST} tokens, in which few facts fit twice",
            ),
            "give a longer one, if the model serves so many",
        )
    # At most half of the longest, so that there is a length to compare with it.
    reference = reference_of(most, small=subject.small, window=subject.window)
    reference = min(reference, longest // 2)
    lengths = steps(reference, longest)
    # By default a part of the full sweep is read, and at least what decides on the longest one.
    times = FACTS if subject.is_remote else 1
    whole = times * sweep_tokens(reference, lengths)
    least = times * (reference * (WITHIN + CHOOSING) + LOOKS[0] * lengths[0])
    tried = sum(each.suits_small or not subject.small for each in DEGREES)
    decided = (WITHIN + tried * CHOOSING) * reference + curve_tokens(lengths)
    tokens = max(whole // SHARE, times * decided)
    if call.budget is not None:
        tokens = min(tokens, int(call.budget.amount))
        if tokens < least:
            raise InvalidValue(
                "budget",
                str(call.budget),
                f"the first length alone takes {least:,} tokens",
                "give more, or a shorter length (`claimed`)",
            )
    elif subject.is_remote and tokens > UNASKED:
        raise InputError(
            f"this may send {tokens:,} tokens to {call.model}, which may charge for them; give "
            f"the most that you allow (`budget`), such as {Budget(tokens, 'tokens')}, or see first "
            "what would be sent (`preview`)"
        )
    serves = most if most < claimed else None
    return ReadingPlan(
        *(subject.name, claimed, serves, reference, lengths, tokens, whole, subject.is_remote)
    )
