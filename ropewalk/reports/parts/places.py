"""Paths as a page shows them. A page is sent to others, whom no path of this machine concerns.

A path below the working directory is shown relative to it, so that its commands can be pasted
there; a run directory elsewhere by its name; any other absolute path by its last part, after an
ellipsis.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ropewalk.blocks import Page

_FROM = r"(?P<file>FROM )?(?<![\w.~…/-])"  # a Modelfile takes a relative path only after ./
_ENDS = r"(?![^\s/'\"<>|;:,.()])"
_QUOTED = re.compile(r"""(['"])/[^'"\n]*/([^'"/\n]+)/?\1""")
_BARE = re.compile(r"""(?<![\w.~…/:\])-])/(?!v\d+/)(?:[^\s/'"<>|;:,()]+/)+([^\s/'"<>|;:,()]*)""")


def shareable(page: Page, runs: Sequence[Path]) -> Page:
    """The page of these run directories without absolute paths, in any of its texts."""
    cwd = Path.cwd()
    patterns = {
        re.compile(f"{_FROM}{re.escape(str(place))}{_ENDS}"): name
        for run, name in zip(runs, names(runs), strict=True)
        for place in (run.absolute(), run.resolve())
    }
    if cwd.parent != cwd:
        patterns |= {re.compile(f"{_FROM}{re.escape(f'{at}/')}"): "" for at in (cwd, cwd.resolve())}

    def shortened(text: str) -> str:
        if "/" not in text:
            return text
        for place, name in patterns.items():
            text = place.sub(lambda at, name=name: _relative(at["file"], name), text)  # type: ignore[misc]
        return _BARE.sub(r"…/\1", _QUOTED.sub(r"\1…/\2\1", text))

    shown: Page = with_texts(page, shortened)
    return shown


def names(runs: Sequence[Path]) -> list[str]:
    """The name of each run directory: as it was given if that is relative, and never alike."""
    cwd = Path.cwd()
    inside = [run.relative_to(cwd) if run.is_relative_to(cwd) else run for run in runs]
    short: list[str] = []
    for parts in range(1, max(2, *(len(run.parts) + 1 for run in runs))):
        short = ["/".join(r.parts[-parts:]) if r.is_absolute() else str(r) for r in inside]
        if len(set(short)) == len(set(runs)):
            break
    return short


def _relative(file: str | None, name: str) -> str:
    return name if file is None else f"{file}./{name}"


def with_texts(value: Any, change: Callable[[str], str]) -> Any:
    """A value of named tuples with each of its texts changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, tuple):
        members = [with_texts(each, change) for each in value]
        return type(value)(*members) if hasattr(value, "_fields") else tuple(members)
    return value
