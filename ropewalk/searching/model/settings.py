"""The settings of a search, checked before a model is loaded."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from ropewalk.errors import InputError, InvalidValue, UnknownName
from ropewalk.evaluation.select import SHORT_LIMIT
from ropewalk.lengths import check_measured
from ropewalk.registered import added
from ropewalk.schedule import RotarySchedule
from ropewalk.searching import strategies
from ropewalk.searching.objective import KINDS
from ropewalk.searching.space import Space
from ropewalk.searching.strategies.evolution import HALVED_BEYOND
from ropewalk.untrusted import check_seed, real_number, whole_number

PUBLISHED_HEADROOM = 1.25
"""The largest factor that LongRoPE allows, as a multiple of s."""
DOCUMENTS = (12, 32, 20)
"""To search on, to select by, to report on; with eight facts each, 160 answers are reported."""


@dataclass(frozen=True)
class SearchSettings:
    """The target of a search, and its budget."""

    target_length: int
    strategy: str = "adaptive"
    objective: str = "mixed"
    """A `Kind`, or the name of a registered objective."""
    evaluations: int | None = None
    """0 compares the hand-designed methods, and searches nothing."""
    tokens: int | None = None
    stock_runtimes: bool = True
    beyond_critical: bool = False
    recover: bool = False
    documents: tuple[int, int, int] | None = None
    seed: int = 0
    short_limit: float | None = SHORT_LIMIT
    """Nats a token that an extension may cost on short text, if another schedule costs less; None
    for any."""
    as_published: bool = False
    """Algorithm 1 as it stands: score all tokens of plain text, search n̂, leave m alone, and take
    the lowest perplexity. `published` fills in the other settings."""

    def __post_init__(self) -> None:
        check_measured(self.target_length, "to")
        # Names that a table knows.
        strategies.named(self.strategy)
        kinds = (*KINDS, *added("objective"))
        if self.objective not in kinds:
            raise UnknownName("objective", self.objective, kinds)
        if not isinstance(self.sizes, tuple | list) or len(self.sizes) != 3:
            raise InvalidValue(
                "documents",
                self.documents,
                "must be three numbers: to search on, to select by, to report on",
                f"write {DOCUMENTS}",
            )
        counts = [whole_number(count, "documents") for count in self.sizes]
        if min(counts[:2]) < 1 or counts[2] < 0:
            raise InvalidValue(
                "documents",
                self.documents,
                "each of the first two must be at least 1, and the third at least 0",
                f"{DOCUMENTS} is usual",
            )
        check_seed(self.seed)
        if self.short_limit is not None and real_number(self.short_limit, "short_limit") < 0:
            raise InvalidValue(
                "short_limit", self.short_limit, "must be 0 or more", f"{SHORT_LIMIT} is usual"
            )

    @property
    def limited(self) -> bool:
        """True if the cost of a schedule on short text counts."""
        return self.short_limit is not None and not self.recover

    @property
    def reports(self) -> bool:
        """False if the choice is judged elsewhere; then nothing is read that decides nothing."""
        return self.sizes[2] > 0

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The numbers of documents to search on, to select by and to report on."""
        return DOCUMENTS if self.documents is None else self.documents


def published(settings: SearchSettings) -> SearchSettings:
    """The search of Ding et al. 2024: five documents to search on, three beyond 512k.

    Target, budget, seed and recovery are those given; all else is its own, and must have been left
    alone.
    """
    free = ("target_length", "evaluations", "tokens", "seed", "recover")
    changed = [
        field.name
        for field in dataclasses.fields(settings)
        if field.name not in free and getattr(settings, field.name) != field.default
    ]
    if changed:
        raise InputError(
            f"the published search has settings of its own for {', '.join(changed)}; leave these "
            "out, or leave `as_published` out"
        )
    searched_on = 3 if settings.target_length > HALVED_BEYOND else 5
    return dataclasses.replace(
        settings,
        strategy="evolution",
        objective="perplexity",
        stock_runtimes=False,
        documents=(searched_on, *DOCUMENTS[1:]),
        short_limit=None,
        as_published=True,
    )


def check_target(start: RotarySchedule, settings: SearchSettings) -> None:
    """Refuse a target before anything is computed for it."""
    for _, leg_start, length in legs_of(start, settings):
        space_of(leg_start, length, settings)


def legs_of(
    start: RotarySchedule, settings: SearchSettings
) -> list[tuple[str, RotarySchedule, int]]:
    """The name of each leg, the schedule that it starts from, and its length."""
    target = settings.target_length
    if settings.recover and target <= start.length:
        return [("recovery", start, target)]
    legs = [("search", start, target)]
    if settings.recover:
        # Each starts from what the first leg finds; the target is checked against this one.
        original = start.geometry.original_length
        legs.append(("recovery", start, original))
        if settings.as_published and 2 * original < target:  # §3.3: at 4k and 8k of Llama 2
            legs.append(("recovery-twice", start, 2 * original))
    return legs


def space_of(start: RotarySchedule, length: int, settings: SearchSettings) -> Space:
    recover = settings.recover and length <= start.length
    # Of two legs, the bound is for the first, which extends.
    space = Space(
        start,
        length,
        stock_runtimes=settings.stock_runtimes,
        beyond_critical=settings.beyond_critical and length == settings.target_length,
        recover=recover,
    )
    return published_space(space) if settings.as_published else space


def published_space(space: Space) -> Space:
    """The same space as LongRoPE bounds it: λ up to 1.25·s, and m that of the start.

    In recovery, where λ is over the plain frequencies, s is the length over the original one.
    """
    shortest = space.start.geometry.original_length if space.recover else space.start.length
    highest = PUBLISHED_HEADROOM * max(1.0, space.target_length / shortest)
    return dataclasses.replace(space, attention_scaling=1.0, highest_factor=highest)
