"""`register`: a method, a task or an objective of one's own, by its function's name."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any

from ropewalk import registered
from ropewalk.errors import InputError, UnknownName
from ropewalk.registered import F, Kind
from ropewalk.schedule import RotarySchedule


def register(kind: Kind, **declared: Any) -> Callable[[F], F]:
    """Make a function available by its name, wherever names of its kind are taken.

        @rw.register("method")          (start, target_length, *, …) -> RotarySchedule
        @rw.register("task", score=f)   (scene, units) -> Draft; f(written, references) -> 0 to 1
        @rw.register("objective")       (text, answers, retrieved) -> loss of one document

    `declared` are the promises of a method and the fields of a task, as in `ropewalk.scaling` and
    `ropewalk.evaluation.tasks`. The decorated function stays a plain function. A command reads a
    file of such functions with `--plugin FILE`, which runs it as code.
    """

    def decorate(function: F) -> F:
        name = getattr(function, "__name__", "")
        registered.add(kind, *_made(kind, name, function, declared), function)
        return function

    return decorate


def _made(
    kind: Kind, name: str, function: Callable[..., Any], declared: dict[str, Any]
) -> tuple[str, Any]:
    """The name that it is found by, and the thing itself."""
    built_in: tuple[str, ...]
    made: Any = None
    try:
        # `guarded` names the user's function in whatever it raises or wrongly returns.
        if kind == "method":
            from ropewalk import scaling

            built_in = scaling.built_in_names()
            declared = {"identity_at_one": False, "monotone": False, **declared}
            compute = registered.guarded(kind, name, function, RotarySchedule)
            made = scaling.scaling_method(**declared)(compute)
            made.parameters  # noqa: B018 - reads the types of the signature, which may be none
        elif kind == "task":
            from ropewalk.evaluation import tasks

            built_in = tuple(tasks.built_in())
            name = declared.pop("name", name.replace("_", "-"))
            summary = (function.__doc__ or name).strip().splitlines()[0]
            returns = {"score": Real, "questions": list}
            options = {
                key: registered.guarded(kind, name, value, returns[key])
                for key, value in declared.items()
                if key in returns and callable(value)
            }
            draft = registered.guarded(kind, name, function, tasks.Draft)
            made = tasks.Task(name, summary, draft, **declared | options)
        elif kind == "objective":
            from ropewalk.searching import objective

            built_in = objective.KINDS
            made = registered.guarded(kind, name, function, Real)
            if declared:
                raise TypeError(f"an objective declares nothing, not {', '.join(declared)}")
        else:
            raise UnknownName("kind", kind, ("method", "task", "objective"))
    except KeyError as error:
        raise InputError(
            f"{kind} {name}: its parameter {error} has no type annotation; add one"
        ) from None
    except (TypeError, NameError) as error:
        raise InputError(f"{kind} {name}: {error}; see `rw.register`") from None
    # Last, since a task's name may be declared.
    if name in built_in:
        raise InputError(f"{kind} {name}: ropewalk has one of that name; choose another")
    return name, made
