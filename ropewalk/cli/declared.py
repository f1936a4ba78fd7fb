"""Makes a command of a verb: its options are the parameters that the verb declares.

`derived` makes the whole command, by what the verb's `@command` says that a shell adds. A verb of
which a shell makes more has a file of its own here:

    @command_of(train)
    def command(call: Call[Trained], *, as_json: JsonOption = False) -> None:
        found = call()            the verb, with the options that the shell gave

The function's own keyword parameters are options that only a shell has, such as -o and --json.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from dataclasses import dataclass, replace
from inspect import cleandoc
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

import typer

from ropewalk import registered
from ropewalk.cli.shared import (
    JsonOption,
    OverwriteOption,
    check_outputs,
    notify,
    print_json,
    save_plot,
    say,
    show_result,
    show_written,
    write_plan,
    written,
)
from ropewalk.cli.words import in_options
from ropewalk.errors import GateFailed, InputError, InvalidValue, printable
from ropewalk.lengths import format_length
from ropewalk.options import (
    Argument,
    Elsewhere,
    Names,
    Option,
    RunFolder,
    Shell,
    declared,
    only_in_python,
)
from ropewalk.outputs import STANDARD_OUTPUT
from ropewalk.progress import silent
from ropewalk.torchrun import first

R = TypeVar("R")


@dataclass(frozen=True)
class Call(Generic[R]):
    """A verb, and the arguments that a shell gave it."""

    verb: Callable[..., R]
    given: Mapping[str, Any]
    quiet: bool = False
    aside: bool = False
    """True if standard output is for one JSON object or plan."""

    @property
    def places(self) -> list[Path]:
        """The files and folders that are read, which nothing may be written to."""
        return [Path(value) for value in self.given.values() if isinstance(value, str | Path)]

    def __call__(self, **more: object) -> R:
        """Run the verb; its progress and notices go to standard error."""
        from ropewalk.progress import of_a_command

        work = self.verb.__name__.replace("_", " ")
        bar = nullcontext(silent) if self.quiet else of_a_command(work)
        with _clear_of_prints(self.aside), bar as progress:
            heard: dict[str, Any] = {"progress": progress}
            heard["notice"] = _warn if self.quiet else notify
            heard["done"] = self._done
            accepted = inspect.signature(self.verb).parameters
            heard = {name: hears for name, hears in heard.items() if name in accepted}
            return self.verb(**self.given, **heard, **more)

    def _done(self, stage: Any, result: Any) -> None:
        """Show the result of a stage as soon as it is there."""
        say(f"{stage.name}  {result.summary()}", sys.stderr if self.aside else None)

    def preview(self) -> Any:
        """Run the verb's preview in the same way."""
        verb: Any = self.verb
        return replace(self, verb=verb.preview)()


def _clear_of_prints(aside: bool) -> AbstractContextManager[object]:
    """Send what a plugin or another package prints to standard error, if JSON goes to the other."""
    return redirect_stdout(sys.stderr) if aside else nullcontext()


def command_of(*verbs: Callable[..., Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A decorator that makes a function a command, with a verb's options next to its own.

    The function's first parameter is the `Call`. `--help` begins with the verb's docstring. Of
    further verbs, the function gets a `Call` of each, and none of their options is required.
    """

    def decorate(run: Callable[..., None]) -> Callable[..., None]:
        forms: list[dict[str, _Form]] = [{} for _ in verbs]
        names: Any = Names(getattr(run, "__globals__", {}))
        options = list(inspect.signature(run, eval_str=True, locals=names).parameters.values())
        # The options: those of the verbs, then those of every command, then the function's own.
        parameters = [
            each
            for verb, its in zip(verbs, forms, strict=True)
            for each in _declared(verb, its, required=verb is verbs[0])
        ]
        folders = [option for *_, option in declared(verbs[0]) if isinstance(option, RunFolder)]
        parameters += [_CONFIG] if folders else []
        named = {verbs[0].__name__, *(name for its in forms for name in its)}
        parameters += [_QUIET, *([_PLUGIN] if named & _NAMES_OF_CODE else [])]

        def command(**words: Any) -> None:
            file, quiet = words.pop(_CONFIG.name, None), words.pop(_QUIET.name)
            aside = words.get("as_json", False) or words.get("output") == STANDARD_OUTPUT
            with _clear_of_prints(aside):
                for path in words.pop(_PLUGIN.name, ()):
                    registered.load(path)
            # Each verb takes its own options out of the words; the function gets what is left.
            calls = [
                Call(
                    verb,
                    _given({name: (form, words.pop(name)) for name, form in its.items()}),
                    quiet,
                    aside,
                )
                for verb, its in zip(verbs, forms, strict=True)
            ]
            if file is not None:
                calls[0] = replace(calls[0], given=_as_in(file, folders[0].command, calls[0]))
            if previews and words.pop("dry_run"):
                show_result(calls[0].preview(), as_json=words["as_json"])
            else:
                run(*calls, **words)

        shell: Any = getattr(verbs[0], "shell", None)
        options = options[len(verbs) :]
        previews = hasattr(verbs[0], "preview") and all(each.name != "dry_run" for each in options)
        dry_run = "dry_run", bool, False, "--dry-run"
        parameters += [_of_a_shell(*dry_run, help=shell.preview)] if previews else []
        parameters += options

        # typer reads the options from the signature, and the help from the docstring.
        command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
        )
        command.__annotations__ = {each.name: each.annotation for each in parameters}
        first = cleandoc(verbs[0].__doc__ or "").partition("\n\n")[0]
        command.__doc__ = f"{first}\n\n{shell.more}" if shell and shell.more else first
        return command

    return decorate


def derived(verb: Any) -> Callable[..., None]:
    """The command of a verb, if a shell adds nothing to it but files, previews and JSON."""
    shell: Shell = verb.shell
    keeps = shell.kept and any(isinstance(each, RunFolder) for *_, each in declared(verb))

    def run(
        call: Call[Any],
        *,
        output: Path | None = None,
        plot: Path | None = None,
        details: bool = False,
        overwrite: bool = False,
        as_json: bool = False,
    ) -> None:
        check_outputs(
            output=output, plot=plot, sources=call.places, overwrite=overwrite, as_json=as_json
        )
        alone, saved = output == STANDARD_OUTPUT, output not in (None, STANDARD_OUTPUT)
        if details and (as_json or alone):
            raise InputError(
                "--details is for the text of a terminal, which this command does not print here; "
                "omit it"
            )
        if shell.usual_run is not None:
            call = replace(call, given={"run": shell.usual_run(call.given), **call.given})
        try:
            result = call()
        except GateFailed as error:
            if as_json and error.result is not None:
                print_json(error.result)
            raise
        if not first():
            return
        result = shell.saved(result, output) if output is not None and saved else result
        save_plot(lambda: result.figure(), plot)  # first: without a figure, no plan is left behind
        if output is not None:
            write_plan(result.plan, output)
        if not alone:  # else the plan alone stands there
            show_result(result, as_json=as_json, details=details, lists=details or saved)
            for hint in () if as_json else shell.hints(result, details, saved):
                say(f"\n# {hint}")
        show_written(output, plot, as_json=as_json)
        if keeps and "run" in call.given:
            place = printable(str(call.given["run"]))
            (notify if as_json or alone else say)(shell.kept.format(run=place))
        if status := shell.status(result):
            raise typer.Exit(status)

    call = inspect.Parameter("call", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    run.__signature__ = inspect.Signature([call, *_own(shell)])  # type: ignore[attr-defined]
    return command_of(verb)(run)


def _own(shell: Shell) -> list[inspect.Parameter]:
    """The options that a shell has next to the verb's."""
    drawn = typer.Option("--plot", metavar="FILE", help=f"Draw {shell.plot}, as .png or .svg.")
    more = typer.Option("--details", help=shell.details)
    takes: list[tuple[object, str, Any, object]] = [
        (shell.output, "output", Annotated[Path | None, written(shell.output)], None),
        (shell.plot, "plot", Annotated[Path | None, drawn], None),
        (shell.details, "details", Annotated[bool, more], False),
        (shell.output or shell.plot, "overwrite", OverwriteOption, False),
        (True, "as_json", JsonOption, False),
    ]
    return [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for is_there, name, kind, default in takes
        if is_there
    ]


def _of_a_shell(
    name: str, kind: Any, default: object, *flags: str, **settings: Any
) -> inspect.Parameter:
    """An option of many commands, which no verb has."""
    annotation: Any = Annotated[kind, typer.Option(*flags, **settings)]
    kind_of_all = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind_of_all, default=default, annotation=annotation)


_CONFIG = _of_a_shell(
    *("config", Path | None, None),
    metavar="FILE",
    help="The run.json of a run to repeat; options given here take precedence.",
)
_QUIET = _of_a_shell(
    *("quiet", bool, False, "--quiet", "-q"),
    help="Show warnings only: no progress and no other notices.",
)
_PLUGIN = _of_a_shell(
    *("plugin", list[Path], [], "--plugin"),
    metavar="FILE",
    help="Run this Python code first, with your permissions: it registers methods, tasks "
    "or objectives. Repeatable.",
)
_NAMES_OF_CODE = {"method", "methods", "tasks", "objective", "plans", "to"}


def _warn(text: str) -> None:
    if text.startswith("warning"):
        notify(text)


def _given(words: Mapping[str, tuple[_Form, Any]]) -> dict[str, object]:
    """The values of the options that a shell gave."""
    return {
        name: form.read(word, name)
        for name, (form, word) in words.items()
        if word is not None and word != []
    }


def _as_in(file: Path, command: str, call: Call[Any]) -> Mapping[str, Any]:
    """The arguments of a call, with those of an earlier run for those not given."""
    from ropewalk.run_directory import read_arguments

    arguments = {**read_arguments(file, command), **call.given}
    parameters = inspect.signature(call.verb).parameters
    for name, value in arguments.items():
        if name not in parameters:
            raise InputError(f"{file}: {name!r} is not an argument of {command}; remove it")
        if kind := only_in_python(value):
            raise InputError(
                f"{file}: does not hold `{name}`, a {kind} that was given in Python and cannot be "
                f"stored in a file; give `{name}` here, or repeat the run in Python"
            )
    for name, parameter in parameters.items():
        if parameter.default is parameter.empty and name not in arguments:
            raise InputError(f"{file}: holds no `{name}`; give it here")
    return arguments


_LIST = "A,B,…"


class _Form(NamedTuple):
    """The form of a type's values in a shell."""

    type: Any
    """The type that typer parses the words as."""
    unit: str | None
    read: Callable[[Any, str], object] = lambda word, key: word
    """From the words, and the parameter's name for errors, to its value."""
    shown: Callable[[Any], str] = str
    """Makes the text of a default in help."""


def _declared(
    verb: Callable[..., Any], forms: dict[str, _Form], *, required: bool
) -> Iterator[inspect.Parameter]:
    """A parameter for typer for each that is declared as an option; its form is added."""
    options = declared(verb)
    flags = {parameter.name: _flag(parameter, option) for parameter, _, option in options}
    for parameter, annotation, option in options:
        name = parameter.name
        form = forms[name] = _form(annotation)
        is_needed = required and parameter.default is inspect.Parameter.empty
        yield parameter.replace(
            annotation=Annotated[
                form.type if is_needed else form.type | None, _info(parameter, option, form, flags)
            ],
            # So that what a shell did not give is not given to the verb, which has its own default.
            default=inspect.Parameter.empty if is_needed else None,
        )


def _flag(parameter: inspect.Parameter, option: Option) -> str:
    if isinstance(option, Argument):
        return option.unit.strip("[]…")
    return option.shell[0] if option.shell else f"--{parameter.name.replace('_', '-')}"


def _info(
    parameter: inspect.Parameter, option: Option, form: _Form, flags: Mapping[str, str]
) -> Any:
    """The option for typer; its help shows an informative default."""
    unit, usual = option.unit or form.unit, parameter.default
    says = usual not in (inspect.Parameter.empty, None, (), "") and usual is not False
    flag = flags[parameter.name]
    default = flag.removeprefix("--") if usual is True else form.shown(usual) if says else ""
    text = in_options(option.help, {"preview": "--dry-run", **flags})
    if form.type == list[str] and unit != _LIST and not isinstance(option, Argument):
        text += " Repeatable."
    text += f"  [default: {default}]" if says else ""
    if isinstance(option, Argument):
        return typer.Argument(metavar=unit, help=text)
    flag = f"{flag}/--no-{flag.removeprefix('--')}" if usual is True else flag
    return typer.Option(
        *(option.shell or (flag,)), metavar=unit, help=text, rich_help_panel=option.group or None
    )


def _form(annotation: Any) -> _Form:
    """The form of a type. Where several kinds of values are taken, a list comes before a text."""
    members = [
        each
        for each in _members(annotation)
        if not (isinstance(each, type) and issubclass(each, Elsewhere))
    ]
    if Any in members or object in members:  # all that is no text comes from Python
        members = [str]
    for each in members:
        if _origin_is(each, Mapping):
            return _named_values(str in members, _form(get_args(each)[1]))
    for each in members:
        if _origin_is(each, Sequence):
            return _list_of(_form(get_args(each)[0]))
    if str in members:
        if int in members:
            return _Form(str, "LENGTH", shown=format_length)
        return _Form(str, "FILE" if Path in members else "TEXT")
    [only] = members
    if only is bool:
        return _Form(bool, None)
    if only in (int, float, Path):
        return _Form(only, {int: "N", float: "X", Path: "FILE"}[only])
    if get_origin(only) is Literal:
        return _Form(only, None)
    raise TypeError(f"there is no way to write {annotation} in a shell")


def _members(annotation: Any) -> list[Any]:
    if get_origin(annotation) is Annotated:
        return _members(annotation.__origin__)
    if get_origin(annotation) in (Union, types.UnionType):
        parts = [member for each in get_args(annotation) for member in _members(each)]
        return [each for each in parts if each is not type(None)]
    return [annotation]


def _origin_is(annotation: Any, kind: type) -> bool:
    origin = get_origin(annotation)
    return isinstance(origin, type) and issubclass(origin, kind)


def _list_of(each: _Form) -> _Form:
    """Words that are repeated, or joined by commas. A file may have commas in its name."""

    def parts(word: str) -> list[str]:
        return [word] if each.unit == "FILE" and Path(word).exists() else word.split(",")

    def read(words: Sequence[str], key: str) -> list[object]:
        return [_member(each, part.strip(), key) for word in words for part in parts(word)]

    return _Form(list[str], _LIST, read, lambda usual: ",".join(map(each.shown, usual)))


def _named_values(alone: bool, each: _Form) -> _Form:
    """NAME=VALUE, repeatable; or, if it may stand alone, one value without a name.

    A path that exists is such a value, although it may hold an equals sign itself.
    """

    def read(words: Sequence[str], key: str) -> object:
        values: dict[str, object] = {}
        for word in words:
            if alone and ("=" not in word or Path(word).exists()):
                if len(words) > 1:
                    raise InvalidValue(key, word, "needs a name of its own", f"write NAME={word}")
                return _member(each if each.type is str else _form(str), word, key)
            name, equals, value = word.partition("=")
            if not (name and equals and value):
                raise InvalidValue(key, word, "must be NAME=VALUE", "write both, joined by =")
            if name in values:
                raise InputError(f"`{key}` names {name} twice; name each once")
            values[name] = _member(each, value, key)
        return values

    return _Form(list[str], f"NAME={each.unit}", read)


def _member(form: _Form, word: str, key: str) -> object:
    if form.type not in (int, float):
        return form.read(word, key)
    try:
        return form.type(word)
    except ValueError:
        kind = "a whole number" if form.type is int else "a number"
        raise InvalidValue(key, word, f"must be {kind}", "write digits") from None
