"""ropewalk: extend the context window of a RoPE language model, with the evidence.

    import ropewalk as rw

    rw.inspect("llama-3.1-8b")                              a model's geometry and present schedule
    planned = rw.plan("path/to/model", "128k", "yarn")      a schedule for a longer context
    rw.extend("path/to/model", "128k")                      judge, choose, export, verify

Every verb of the command is a function here. It returns an immutable value with `summary()`,
`to_json()` and, where a picture says more, `figure()`; the classes of results and errors are here
too. Nothing is imported before it is used.
docs/python.md is a tour.
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

__version__ = "0.1.0"

_STUB = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")
_HOMES = {name: home for home, name in re.findall(r"^from (\S+) import (\w+) as", _STUB, re.M)}
"""The module of each public name, as the stub for type checkers imports it."""

__all__ = [*sorted(_HOMES), "__version__"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'ropewalk' has no attribute {name!r}")
    from ropewalk.extras import required_by

    with required_by(name):
        value = getattr(import_module(_HOMES[name]), name)
    if _HOMES[name].startswith("ropewalk.api.") and not isinstance(value, type):
        from ropewalk.options import describe

        describe(value)
    globals()[name] = value  # found at once the next time
    return value


def __dir__() -> list[str]:
    return __all__
