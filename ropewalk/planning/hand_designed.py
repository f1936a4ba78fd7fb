"""The hand-designed methods that every search is compared with."""

from __future__ import annotations

from ropewalk.errors import Unsupported
from ropewalk.planning.extension import extend
from ropewalk.schedule import RotarySchedule

HAND_DESIGNED = ("linear", "ntk", "ntk_mixed", "yarn", "llama3", "two_band")


def hand_designed(start: RotarySchedule, length: int) -> dict[str, RotarySchedule]:
    """The schedule of each method at a length.

    A method that does not compose on the start begins at the plain frequencies.
    """
    return {method: _extended(start, length, method) for method in HAND_DESIGNED}


def _extended(start: RotarySchedule, length: int, method: str) -> RotarySchedule:
    try:
        return extend(start, length, method)
    except Unsupported:
        return extend(RotarySchedule.plain(start.geometry), length, method)
