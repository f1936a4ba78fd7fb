"""An option of a verb is declared once: in the signature of its function, next to its type.

    seed: Annotated[int, Option("Seed of the samples.", "N")] = 0

The command makes its own option from that (`cli/declared.py`): name, unit, help, heading, default.
A parameter without such a declaration exists in Python alone (`progress`, `notice`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, Protocol, TypeVar, cast

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
V_co = TypeVar("V_co", covariant=True)


@dataclass(frozen=True)
class Option:
    """The words of an option; its name, type and default are those of the parameter."""

    help: str
    unit: str = ""
    """The placeholder of its value; usually that of its type."""
    shell: tuple[str, ...] = field(default=(), kw_only=True)
    """Its names in a shell, where they differ: `--method` of `methods`, given once for each."""
    advanced: bool = field(default=False, kw_only=True)
    """Few people need it."""


class Argument(Option):
    """A parameter that a shell gives by its place, not by a name."""


class Verb(Protocol[P, R_co, V_co]):
    """A function with a preview: what it would do with the same arguments, and what it takes."""

    __name__: str

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    def preview(self, *args: P.args, **kwargs: P.kwargs) -> V_co: ...


def previewed_by(
    preview: Callable[..., V_co],
) -> Callable[[Callable[P, R_co]], Verb[P, R_co, V_co]]:
    """Give a verb a preview, which gets the verb's arguments, all of them by name.

    The verb itself stays a plain function, so that the traceback of a wrong argument ends in the
    call of whoever gave it.
    """

    def decorate(verb: Callable[P, R_co]) -> Verb[P, R_co, V_co]:
        @wraps(verb)
        def called(*args: P.args, **kwargs: P.kwargs) -> V_co:
            given = signature(verb).bind(*args, **kwargs)
            given.apply_defaults()
            return preview(**given.arguments)

        cast(Any, verb).preview = called
        return cast("Verb[P, R_co, V_co]", verb)

    return decorate
