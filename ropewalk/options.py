"""An option of a verb is declared once: in the signature of its function, next to its type.

    seed: Annotated[int, Option("Seed of the samples.", "N")] = 0

The command makes its own option from that (`cli/declared.py`): name, unit, help, heading, default.
A parameter without such a declaration exists in Python alone (`progress`, `notice`).
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from functools import wraps
from inspect import Parameter, cleandoc, signature
from numbers import Integral
from pathlib import Path
from textwrap import fill
from typing import Any, ParamSpec, Protocol, TypeVar, cast

from ropewalk.errors import InputError
from ropewalk.extras import required_by
from ropewalk.progress import Progress, of_a_call, shown
from ropewalk.untrusted import truth_value

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
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
    """Its names in a shell, if they differ: `--method` of `methods`, given once for each."""
    group: str = field(default="", kw_only=True)
    """The heading that help gives it, with others of its kind."""
    convert: Callable[[Any, str], object] | None = field(default=None, kw_only=True)
    """Makes the value that a request holds out of a given one and the parameter's name."""


@dataclass(frozen=True)
class Advanced(Option):
    """An option that few people need: only `--help-all` shows it."""

    group: str = field(default="Advanced", kw_only=True)


class Argument(Option):
    """A parameter that a shell gives by its place, not by a name."""


@dataclass(frozen=True)
class RunFolder(Option):
    """The folder of a run, whose run.json keeps the arguments, so that --config can repeat it."""

    unit: str = "DIR"
    command: str = field(kw_only=True)
    """The name in run.json."""


@dataclass(frozen=True)
class Shell:
    """The command of a verb: what a shell has next to the verb's own options."""

    name: str
    group: str
    """The heading in the list of commands."""
    example: str
    more: str = ""
    """Words of help after the first paragraph of the verb's own."""
    plot: str = ""
    """What `--plot FILE` draws, if the result has a figure that people want alone."""
    output: str = ""
    """What `-o FILE` writes, if the result has a plan; - prints the plan alone."""
    details: str = ""
    """The help of `--details`, if a terminal shows less of the result without it."""
    preview: str = "Only show what would be done, and its cost here or on another machine (--on)."
    """The help of `--dry-run`, if the verb has a preview."""
    kept: str = "results and figures are in {run}"
    """The line that names the run; empty if the result does."""
    usual_run: Callable[[Mapping[str, Any]], Path] | None = None
    """The run of these arguments, for a verb that keeps nothing if Python names none."""
    saved: Callable[[Any, Path], Any] = lambda result, path: result
    """The result with the name that its plan is saved under."""
    hints: Callable[[Any, bool, bool], Iterable[str]] = lambda result, details, saved: ()
    """The options that would show more, under a result with or without `--details` and `-o`."""
    status: Callable[[Any], int] = lambda result: 0
    """The exit status by the result."""


def command(name: str, group: str, **more: Any) -> Callable[[F], F]:
    """Make a verb a command of the shell too (`Shell`)."""

    def decorate(verb: F) -> F:
        cast(Any, verb).shell = Shell(name, group, **more)
        return verb

    return decorate


class Names(dict[str, Any]):
    """The names of a module; one that only a type checker imports is a type of its own."""

    def __missing__(self, name: str) -> Any:
        if hasattr(builtins, name):
            raise KeyError(name)
        return type(name, (Elsewhere,), {"__module__": "builtins"})


class Elsewhere:
    """A type that is not imported."""


def declared(verb: Callable[..., Any]) -> list[tuple[Parameter, Any, Option]]:
    """The parameters that are declared as options, with their types and words."""
    hints = _hints(verb)
    return [
        (parameter, hints[name].__origin__, option)
        for name, parameter in signature(verb).parameters.items()
        for option in getattr(hints[name], "__metadata__", ())
        if isinstance(option, Option)
    ]


def request(
    kind: type[T], verb: Callable[..., object], values: Mapping[str, Any], **others: Any
) -> T:
    """The request to a verb: the arguments that have a field in `kind`, converted, and others.

    `values` are the verb's local variables, as for `called`.
    """
    return kind(**taken(kind, verb, values, others), **others)


def taken(
    kind: type, verb: Callable[..., object], values: Mapping[str, Any], but: Container[str] = ()
) -> dict[str, Any]:
    """The arguments of a verb that have a field in `kind`, converted; None stays None."""
    converters = {parameter.name: option.convert for parameter, _, option in declared(verb)}
    return {
        each.name: values[each.name]
        if values[each.name] is None or (convert := converters.get(each.name)) is None
        else convert(values[each.name], each.name)
        for each in fields(cast(Any, kind))
        if each.name in values and each.name not in but
    }


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    # From Python 3.14 on, get_type_hints copies names into a dict that has no more than these.
    own = vars(sys.modules[function.__module__])
    names = Names(own)
    return {name: eval(text, own, names) for name, text in function.__annotations__.items()}


def describe(verb: Any) -> None:
    """Tell readers of `help` the options: their types in the signature, their words below."""
    options, call, hints = declared(verb), signature(verb), _hints(verb)
    hints |= {parameter.name: annotation for parameter, annotation, _ in options}
    words = _OF_PYTHON | {parameter.name: option.help for parameter, _, option in options}
    lines = [
        fill(f"{name}: {words[name]}", 96, initial_indent=" " * 4, subsequent_indent=" " * 8)
        for name in call.parameters
        if name in words
    ]
    text = "\n".join([cleandoc(verb.__doc__), *(["", "Args:", *lines] if options else [])])
    returned = {verb: hints["return"]}
    if preview := getattr(verb, "preview", None):
        returned[preview] = _hints(preview.shows)["return"]
    for function, kind in returned.items():
        function.__doc__ = text
        function.__signature__ = call.replace(
            parameters=[
                each.replace(annotation=hints[each.name])
                for each in call.parameters.values()
                if each.name != "unknown"  # which are refused
            ],
            return_annotation=kind,
        )


_OF_PYTHON = {
    "progress": "Called with each `Status` of the work; None: shows nothing (default: a bar in "
    "terminals and notebooks).",
    "notice": "Called with each notice (default: the logger `ropewalk`, as warnings).",
    "done": "Called with each stage and its result.",
}


class Verb(Protocol[P, R_co, V_co]):
    """A function with a preview: what it would do with the same arguments, and what it takes."""

    __name__: str

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    def preview(self, *args: P.args, **kwargs: P.kwargs) -> V_co: ...


class _Stopped(BaseException):
    """The end of a verb that is only previewed. No `except Exception` may swallow it."""

    def __init__(self, *arguments: object) -> None:
        self.arguments = arguments


_IS_PREVIEW: ContextVar[bool] = ContextVar("is_preview", default=False)


def previewed_by(
    shown: Callable[..., V_co],
) -> Callable[[Callable[P, R_co]], Verb[P, R_co, V_co]]:
    """Give a verb a preview: the verb itself up to its `preview_ends`, then this function.

    The verb stays a plain function, so that the traceback of a wrong argument ends in the call of
    whoever gave it.
    """

    def decorate(verb: Callable[P, R_co]) -> Verb[P, R_co, V_co]:
        @wraps(verb)
        def preview(*args: P.args, **kwargs: P.kwargs) -> V_co:
            before = _IS_PREVIEW.set(True)
            try:
                verb(*args, **kwargs)
            except _Stopped as stopped:
                arguments = stopped.arguments
            finally:
                _IS_PREVIEW.reset(before)
            return shown(*arguments)

        cast(Any, preview).shows = shown
        cast(Any, verb).preview = preview
        return cast("Verb[P, R_co, V_co]", verb)

    return decorate


def is_preview() -> bool:
    """True if the verb that runs is only previewed, and will write nothing."""
    return _IS_PREVIEW.get()


def check_previewed(on: str | None) -> None:
    """Refuse another machine for a run: it is for what a preview calculates."""
    if on is not None and not is_preview():
        raise InputError(
            "a run takes place on this machine, and another machine (`on`) is only for its preview "
            "(`--dry-run`); leave `on` out"
        )


def preview_ends(*arguments: object) -> None:
    """End a preview here: in a verb, once its arguments are checked and nothing is written yet.

    The function that makes the preview gets `asked`.
    """
    if is_preview():
        raise _Stopped(*arguments)


_CALL: ContextVar[tuple[str, dict[str, object]]] = ContextVar("call", default=("", {}))


@contextmanager
def called(
    command: str, verb: Callable[..., object], values: Mapping[str, Any]
) -> Iterator[tuple[frozenset[str], Progress]]:
    """The body of a verb: a run directory in it keeps the verb's arguments in its run.json.

    `values` are the verb's local variables when it begins. Yields the names of the arguments that
    differ from their defaults, and the progress to report to. MissingExtra names the command.
    """
    parameters = signature(verb).parameters
    for name, parameter in parameters.items():
        if isinstance(parameter.default, bool):  # "no" would mean yes
            truth_value(values[name], name)
    arguments = {
        name: _kept(values[name])
        for name, parameter in parameters.items()
        if name not in _OF_THIS_CALL and not _is_usual(values[name], parameter.default)
    }
    before, reporter = _CALL.get()[0], values.get("progress")
    reset = _CALL.set((command, arguments))
    try:  # a verb in another one shows nothing of its own
        with (
            required_by(command),
            of_a_call(None if before and reporter is shown else reporter) as progress,
        ):
            yield frozenset(arguments), progress
    finally:
        _CALL.reset(reset)


def arguments_of(command: str) -> dict[str, object] | None:
    """The arguments that differ from the defaults, if a verb of this command runs.

    What only Python can hold, such as a model in memory, is the name of its type.
    """
    now, arguments = _CALL.get()
    return arguments if now == command else None


_OF_THIS_CALL = ("run", "folder", "progress", "notice", "done", "unknown")
"""Parameters that do not change what is computed."""
IN_PYTHON = "only in Python"
"""The key of a value in run.json that only Python can hold."""


_LONGEST = 2**16
"""Characters of an argument in run.json."""


def _is_usual(value: object, usual: object) -> bool:
    if isinstance(value, list) and isinstance(usual, tuple):
        return tuple(value) == usual
    return value is usual or (type(value) is type(usual) and value == usual)


def _kept(value: object) -> object:
    """A value as JSON. A text to train on is no setting: it is kept as its type alone."""
    import json

    encoded = _as_json(value)
    if only_in_python(encoded) or len(json.dumps(encoded)) > _LONGEST:
        return {IN_PYTHON: type(value).__name__}
    return encoded


def _as_json(value: object) -> object:
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, list | tuple):
        return [_as_json(each) for each in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _as_json(each) for key, each in value.items()}
    return {IN_PYTHON: type(value).__name__}


def only_in_python(value: object) -> str:
    """The type of what stands for a value, or in one, that run.json cannot hold; else empty."""
    if isinstance(value, Mapping):
        if isinstance(kind := value.get(IN_PYTHON), str):
            return kind
        value = [*value.values()]
    return next(filter(None, map(only_in_python, value)), "") if isinstance(value, list) else ""
