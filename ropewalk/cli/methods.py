"""`ropewalk methods`: the scaling methods and their parameters."""

from __future__ import annotations

from ropewalk.cli.shared import JsonOption, print_json


def command(as_json: JsonOption = False) -> None:
    """List the scaling methods, each with its parameters and their defaults."""
    from ropewalk.scaling import named, names

    methods = [named(name) for name in names()]
    if as_json:
        print_json(
            {
                "methods": [
                    {
                        "name": method.name,
                        "summary": method.summary,
                        "needs_geometric_start": method.geometric_start,
                        "parameters": [
                            {
                                "name": parameter.name,
                                "required": parameter.required,
                                "default": None if parameter.required else parameter.default,
                            }
                            for parameter in method.parameters.values()
                        ],
                    }
                    for method in methods
                ]
            }
        )
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    listing = Table.grid(padding=(0, 2))
    for method in methods:
        listing.add_row(Text(method.name, style="bold"), method.summary)
        if method.parameters:
            parameters = "  ".join(str(parameter) for parameter in method.parameters.values())
            listing.add_row("", Text(parameters, style="dim"))
    console = Console(highlight=False)
    console.print(listing)
    console.print("\nParameters go with --set; methods stack: --method yarn+resonance")
