"""The strategies of a search, one file each. To add one, add a file here with a function:

    def strategy(problem: Problem, …) -> …:       # see driver.Strategy

Its file's name is what `search --strategy` takes, and the conformance suite runs it.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache

from ropewalk.errors import UnknownName
from ropewalk.searching.driver import Strategy


@cache
def every() -> Mapping[str, Strategy]:
    """All strategies by name."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return {name: importlib.import_module(f"{__name__}.{name}").strategy for name in names}


def named(name: str) -> Strategy:
    if name not in tuple(every()):
        raise UnknownName("strategy", name, tuple(every()))
    return every()[name]
