"""The facts about each runtime, one module each. No torch. To add one, add a file here:

    '''What it is, and where its rules come from.'''

    def read(config: Config) -> Reading:
        ...                 # how it would turn this model's pairs, by its rules

    RUNTIME = Runtime("name", {"name": read})

That is enough for a runtime that is only read: `verify --runtime name` judges folders by it. One
that exports are written for says more: `cell`, what it makes of a feature of a plan; `written`, the
config of an export; `serve`, the lines that start it; `server`, how that says what it is; `writer`,
the function that writes an export for it, which is imported when it is called and may need torch.
Whether it is run here the writer and the audit know. Whether a runtime follows a config under a
plan is answered in one place, following.py.

A runtime differs from transformers in which keys it reads, not in the formulas behind them. So its
rules leave out of a setting what the runtime does not see, put in what it would fill in, and hand
the rest to the reader of transformers' own configs (models/config.py). None of this is run: a
reading's `source` says so. What transformers itself does is measured instead (audit/stock_rotary).

The rules are those of vLLM 0.33, SGLang 0.5.23, llama.cpp, mlx-lm 0.32 and Ollama 0.33, read in
their sources; those of the first two are compared with the rotary modules of the released wheels by
tools/observatory/readings.py, and mlx-lm's with its models by tools/observatory/mlx_lm_classes.py.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ropewalk.context_plan import ContextPlan
    from ropewalk.models.config import Config
    from ropewalk.models.source import Source
    from ropewalk.runtimes.features import Cell, Feature
    from ropewalk.runtimes.following import Followed
    from ropewalk.runtimes.reading import Reading
    from ropewalk.runtimes.servers import Speech
    from ropewalk.runtimes.serving import Serving


@dataclass(frozen=True)
class Runtime:
    """A runtime: the facts about it, and the ways to reach it."""

    name: str
    versions: Mapping[str, Callable[..., Reading]]
    """By its name with a version (`vllm`, `vllm-2025`), its reading of a folder's config."""
    recorded: Callable[[], str] | None = None
    """The release whose rules are recorded here; None if it is measured or run as installed."""
    place: int = 99
    """The place in tables; runtimes of one place are in the order of their files."""
    cell: Callable[[Feature], Cell] | None = None
    """Its support of a feature of a plan; None for a runtime that is only read."""
    written: Callable[[Config, ContextPlan], Config | None] | None = None
    """The config of an export; None of one that is no folder, if it can be written."""
    serve: Callable[[ContextPlan, Source], Serving] | None = None
    """The lines that serve a plan."""
    writer: str = ""
    """The function that writes an export for it, as `package.module:function`."""
    accepts: Callable[[Config], int | None] | None = None
    """The longest sequence that it accepts, by its own rule."""
    line: Callable[[str, int, Config | None], str] | None = None
    """The command that serves a folder up to a length, with changes to its config."""
    by_model_type: bool = False
    """True if it chooses its class by the model type; else by `architectures`."""
    loads_files: bool = False
    """True if it loads GGUF files."""
    server: Speech | None = None
    """The answers by which its server is recognised."""

    def write(self, *arguments: Any, **options: Any) -> Any:
        """Write an export for it."""
        module, _, function = self.writer.partition(":")
        return getattr(importlib.import_module(module), function)(*arguments, **options)


@cache
def every() -> Mapping[str, Runtime]:
    """All runtimes by name, in the order of tables."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names]
    found = [module.RUNTIME for module in modules if hasattr(module, "RUNTIME")]
    return {each.name: each for each in sorted(found, key=lambda each: each.place)}


def targets() -> tuple[str, ...]:
    """The runtimes that exports are written for."""
    return tuple(name for name, each in every().items() if each.cell is not None)


def rules() -> dict[str, Callable[..., Reading]]:
    """Every version of every runtime, with its reader of a folder's config."""
    return {name: read for each in every().values() for name, read in each.versions.items()}


def follows(runtime: str, config: Config, plan: ContextPlan, **folder: Any) -> Followed:
    """The answer of following.py, which knows all runtimes, so it is imported when it is asked."""
    asked = importlib.import_module(f"{__name__}.following").follows
    found: Followed = asked(runtime, config, plan, **folder)
    return found


def served_by(owner: str) -> Speech | None:
    """The speech of the server that gives this as the owner of its models."""
    return next((speech for speech in _speeches() if speech.owner == owner), None)


def spoken(kind: str) -> Speech | None:
    """The speech of a kind of server."""
    return next((speech for speech in _speeches() if speech.kind == kind), None)


def _speeches() -> list[Speech]:
    return [each.server for each in every().values() if each.server is not None]


def unchecked(name: str, version: str = "") -> str:
    """Why recorded rules may not be those of a release: the named one, or else the installed one.

    Empty if they are, or if there is none.
    """
    runtime = every().get(name)
    if runtime is None or runtime.recorded is None:
        return ""
    if not version:
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            return ""
    recorded, version = runtime.recorded(), version.partition("+")[0]
    if f"{recorded}.".startswith(f"{version}."):
        return ""
    return f"recorded up to {recorded}; not checked for {version}"


def of_version(name: str) -> Runtime:
    """The runtime that a name with a version stands for."""
    return next(each for each in every().values() if name in (each.name, *each.versions))
