"""`ropewalk methods`: the scaling methods and their parameters."""

from __future__ import annotations

from ropewalk.api.methods import Methods, methods
from ropewalk.cli.declared import Call, command_of
from ropewalk.cli.shared import JsonOption, console, say, show_result

EXAMPLE = "ropewalk methods"


@command_of(methods)
def command(call: Call[Methods], *, as_json: JsonOption = False) -> None:
    """List the scaling methods, each with its parameters and their defaults."""
    show_result(call(), _show, as_json=as_json)


def _show(found: Methods) -> None:
    from rich.table import Table
    from rich.text import Text

    listing = Table.grid(padding=(0, 2))
    for method in found.methods:
        listing.add_row(Text(method.name, style="bold"), method.summary)
        if method.parameters:
            parameters = "  ".join(parameter.usage for parameter in method.parameters)
            listing.add_row("", Text(parameters, style="dim"))
    terminal = console()
    terminal.print(listing)
    names = ", ".join(each.name for each in found.published)
    first = found.published[0]
    say(
        f"\nPublished factors, as --set factors=longrope:NAME: {names} (target, model, length of "
        f"its fine-tuning; {first.origin}; {first.licence})"
    )
    terminal.print("\nParameters go with --set; methods stack: --method yarn+resonance")
