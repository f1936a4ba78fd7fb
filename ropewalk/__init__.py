"""ropewalk: extend the context window of a RoPE language model, with the evidence.

    import ropewalk as rw

    rw.inspect("llama-3.1-8b")                              a model's geometry and present schedule
    planned = rw.plan("path/to/model", "128k", "yarn")      a schedule for a longer context
    rw.extend("path/to/model", "128k")                      search, evaluate, export, verify

Every verb of the command is a function here. It returns an immutable value with `summary()`,
`to_json()` and, where a picture says more, `figure()`. Nothing is imported before it is used.
docs/python.md is a tour.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from ropewalk.api.bound import bound as bound
    from ropewalk.api.compare_methods import compare_methods as compare_methods
    from ropewalk.api.compare_runs import compare_runs as compare_runs
    from ropewalk.api.cost import cost as cost
    from ropewalk.api.data import build_data as build_data
    from ropewalk.api.data import describe_data as describe_data
    from ropewalk.api.evaluate import evaluate as evaluate
    from ropewalk.api.evaluate_checkpoints import evaluate_checkpoints as evaluate_checkpoints
    from ropewalk.api.export import export as export
    from ropewalk.api.extend import extend as extend
    from ropewalk.api.fingerprint import check_server as check_server
    from ropewalk.api.fingerprint import fingerprint as fingerprint
    from ropewalk.api.inspect import inspect as inspect
    from ropewalk.api.methods import methods as methods
    from ropewalk.api.plan import plan as plan
    from ropewalk.api.precision import precision as precision
    from ropewalk.api.register import register as register
    from ropewalk.api.report import report as report
    from ropewalk.api.search import search as search
    from ropewalk.api.train import train as train
    from ropewalk.api.verify import verify as verify
    from ropewalk.attention.layout import AttentionLayout as AttentionLayout
    from ropewalk.context_plan import ContextPlan as ContextPlan
    from ropewalk.errors import RopewalkError as RopewalkError
    from ropewalk.models.install import applied as applied
    from ropewalk.models.load import load as load
    from ropewalk.schedule import RotaryGeometry as RotaryGeometry
    from ropewalk.schedule import RotarySchedule as RotarySchedule

_VERBS = (
    *("bound", "compare_methods", "compare_runs", "cost", "evaluate"),
    *("evaluate_checkpoints", "export", "extend", "fingerprint", "inspect"),
    *("methods", "plan", "precision", "register", "report", "search", "train", "verify"),
)
_HOMES = {
    **{verb: f"ropewalk.api.{verb}" for verb in _VERBS},
    "check_server": "ropewalk.api.fingerprint",
    "build_data": "ropewalk.api.data",
    "describe_data": "ropewalk.api.data",
    "load": "ropewalk.models.load",
    "applied": "ropewalk.models.install",
    "AttentionLayout": "ropewalk.attention.layout",
    "ContextPlan": "ropewalk.context_plan",
    "RopewalkError": "ropewalk.errors",
    "RotaryGeometry": "ropewalk.schedule",
    "RotarySchedule": "ropewalk.schedule",
}

__all__ = [*sorted(_HOMES), "__version__"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'ropewalk' has no attribute {name!r}")
    from ropewalk.extras import required_by

    with required_by(name):
        value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value  # found at once the next time
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
