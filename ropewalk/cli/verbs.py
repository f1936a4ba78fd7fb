"""The verbs that are commands: functions of `ropewalk/api` under a `@command`.

They are found in its sources, since importing all of them takes much longer than most calls do.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from ropewalk import api

_DECLARED = re.compile(
    r'^@command\(\s*"(?P<name>[^"]+)",\s*"(?P<group>[^"]+)",.*?'
    r'^def (?P<function>\w+)\(.*?^    """(?P<first>.*?)(?:\n\n|""")',
    re.MULTILINE | re.DOTALL,
)
HEADINGS = (
    *("All in one run", "From a config alone", "On a model", "For a runtime", "For training"),
    "This installation",
)


class Known(NamedTuple):
    """A verb, from its source alone."""

    name: str
    group: str
    first: str
    """The first line of its help."""
    module: str
    function: str

    def load(self) -> Any:
        """The verb itself."""
        return getattr(import_module(self.module), self.function)


@cache
def known() -> dict[str, Known]:
    """All verbs by name, as the list of commands has them."""
    verbs = []
    for path in sorted(Path(api.__path__[0]).glob("*.py")):
        for match in _DECLARED.finditer(path.read_text(encoding="utf-8")):
            name, group, function, first = match.group("name", "group", "function", "first")
            words, module = " ".join(first.split()), f"{api.__name__}.{path.stem}"
            verbs.append(Known(name, group, words, module, function))
    verbs.sort(key=lambda verb: (HEADINGS.index(verb.group), verb.name))
    return {verb.name: verb for verb in verbs}
