"""The number of forwards a search takes, and the sentence that announces a long one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ropewalk.costs.forwards import Forwards, Needs
from ropewalk.planning.extension import HAND_DESIGNED
from ropewalk.progress import Notice
from ropewalk.schedule import RotarySchedule
from ropewalk.searching.model.settings import SearchSettings, legs_of

if TYPE_CHECKING:
    from ropewalk.searching.model.readers import PlantedReader

QUICK, PUBLISHED = 40, 1344
"""Evaluations if no budget is given: for the adaptive strategy, and what Algorithm 1 takes."""
FINALISTS = 4
FIRST_ROUND = 6
"""Selection documents that all schedules are measured on, before the clearly worse drop out."""
FEWER = ((20, None), (10, None))
"""Evaluations of searches to propose instead of one that takes too long, on as many documents."""
SMALLER = (*FEWER, (20, (6, 16, 10)), (10, (6, 8, 5)), (10, (3, 5, 5)))
"""The same with fewer documents too, which only `rw.search` takes."""


def needs_of_leg(settings: SearchSettings, length: int, original_length: int) -> Needs:
    """The forwards of a leg: one for each document under each schedule.

    At its length, all methods and finalists may be measured on every document; at the least, the
    first methods decide it. At the original length, they are of the present, the best method and
    the chosen; and if short text counts, of all that are compared in the search or may be chosen.
    """
    to_search, to_select, to_report = settings.sizes
    methods = len(HAND_DESIGNED)
    finalists = 0 if settings.evaluations == 0 else FINALISTS
    scored = _scored(settings, length)
    reported = to_search + to_report if settings.reports else 0
    most = scored + (methods + finalists) * to_select + (methods + 1) * reported
    forwards = [Forwards(length, most)]
    if length > original_length:
        short = 3 * to_report
        if settings.limited:
            short += scored + (methods + finalists + 1) * to_select
            short += methods * to_search if settings.reports else 0
        forwards.append(Forwards(original_length, short))
    first = min(to_select, FIRST_ROUND)
    least = methods * first + (to_select - first) + methods * reported
    return Needs(tuple(forwards), least=(Forwards(length, least),))


def _scored(settings: SearchSettings, length: int) -> int:
    """The most documents that the strategy itself looks at."""
    evaluations, tokens = evaluations_of(settings), settings.tokens
    limits = [] if evaluations is None else [evaluations * settings.sizes[0]]
    return min(limits if tokens is None else [*limits, tokens // length])


def evaluations_of(settings: SearchSettings) -> int | None:
    """The budget in evaluations: the usual number if none is given, None if it is one of tokens."""
    if settings.evaluations is None and settings.tokens is None:
        return PUBLISHED if settings.strategy == "evolution" else QUICK
    return settings.evaluations


def forwards_of(start: RotarySchedule, settings: SearchSettings) -> list[Forwards]:
    """The most forwards of all legs of a search from a schedule on."""
    return [
        each
        for _, schedule, length in legs_of(start, settings)
        for each in needs_of_leg(settings, length, schedule.geometry.original_length).forwards
    ]


def announce_search(
    reader: PlantedReader,
    settings: SearchSettings,
    begun: Path | None,
    notice: Notice,
    proposed: Sequence[tuple[int, tuple[int, int, int] | None]] = SMALLER,
) -> None:
    """Say before the first forward of a long search what it takes and what would fit.

    `begun` is a file that is there once the search has begun.
    """
    from ropewalk.evaluation.forward_time import announce

    present = reader.present_plan
    start = present.longest(present.extended_layer)

    # Smaller searches to propose; of the published one, no smaller one is the same.
    smaller = []
    if not settings.as_published:
        for evaluations, documents in proposed:
            reduced = replace(
                settings,
                strategy="adaptive",
                documents=documents or settings.documents,
                evaluations=evaluations,
                tokens=None,
            )
            said = f"`budget` {evaluations}"
            if documents is not None:
                said += f" with `documents` {documents} of `rw.search`"
            if settings.strategy != reduced.strategy:
                said += f" and `strategy` {reduced.strategy}"
            smaller.append((said, forwards_of(start, reduced)))
    announce(
        reader.clock,
        present.target_length,
        forwards_of(start, settings),
        notice,
        begun=begun,
        what="this search",
        smaller=smaller,
        otherwise="`plan` compares methods without a forward, and `evaluate` measures a few of "
        "them on few `samples`",
    )
