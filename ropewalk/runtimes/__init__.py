"""The stock runtimes, one class and one file each. No torch at import. To add one, add a file here:

    '''What it is, and where its rules come from.'''

    class Foo(Runtime):
        name = "foo"

        def read(self, config: Config) -> RotaryReading:
            ...             # how it would turn this model's pairs, by its rules

    RUNTIMES = (Foo(),)

That is enough for a runtime that is only read: `verify --runtime foo` judges folders by it. One
that exports are written for is a `Target` (runtime.py) and says more: its support of a feature of a
plan, the config of an export, the lines that serve it, and how it is written and run, for which
torch is imported when that is asked. Whether a runtime follows a config under a plan is answered in
one place, `Runtime.judge`.

A runtime differs from transformers in which keys it reads, not in the formulas behind them. So its
rules leave out of a setting what the runtime does not see, put in what it would fill in, and hand
the rest to the reader of transformers' own configs (models/config). None of this is run: a
reading's `source` says so. What transformers itself does is measured instead.

The rules are those of vLLM 0.33, SGLang 0.5.23, llama.cpp, mlx-lm 0.32 and Ollama 0.33, read in
their sources; those of the first two are compared with the rotary modules of the released wheels by
tools/observatory/readings.py, and mlx-lm's with its models by tools/observatory/mlx_lm_classes.py.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, cast

from ropewalk.errors import UnknownName

if TYPE_CHECKING:
    from ropewalk.runtimes.engine import ServingEngine
    from ropewalk.runtimes.runtime import Dialect, Form, Runtime, Target


@cache
def every() -> Mapping[str, Runtime]:
    """All runtimes by name, in the order of tables."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names]
    runtimes = [each for module in modules for each in getattr(module, "RUNTIMES", ())]
    return {each.name: each for each in sorted(runtimes, key=lambda each: each.place)}


@cache
def targets() -> Mapping[str, Target]:
    """The runtimes that exports are written for."""
    return {name: cast("Target", each) for name, each in every().items() if each.is_target}


@cache
def engines() -> Mapping[str, ServingEngine]:
    """vLLM and SGLang."""
    return {name: cast("ServingEngine", each) for name, each in every().items() if each.is_engine}


def named(name: str) -> Runtime:
    """The runtime of that name."""
    if name not in every():
        raise UnknownName("runtime", name, tuple(every()))
    return every()[name]


def target(name: str) -> Target:
    """The runtime of that name, for an export."""
    if name not in targets():
        raise UnknownName("runtime", name, tuple(targets()))
    return targets()[name]


def judging(form: Form) -> list[str]:
    """The runtimes that judge such a model if none is named: they load exports of this form."""
    return [name for name, each in targets().items() if each.loads == form]


def dialects() -> list[Dialect]:
    """How the server of each runtime that has one says what it is."""
    return [each.dialect for each in every().values() if each.dialect is not None]


def loading(form: Form) -> tuple[str, ...]:
    """The runtimes that load such a model as it is."""
    return tuple(name for name, each in every().items() if each.loads == form)
