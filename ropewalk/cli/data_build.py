"""`ropewalk data build`: training text as tokens on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ropewalk.api.data import ALONE, build_data
from ropewalk.cli.progress import progress_bar
from ropewalk.cli.shared import DownloadOption, FieldOption, JsonOption, print_json, say
from ropewalk.errors import InvalidValue

EXAMPLE = "ropewalk data build path/to/model --corpus books.jsonl -o tokens"


def command(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="The folder of a tokenizer, or `bundled`.")
    ],
    corpus: Annotated[
        list[str],
        typer.Option(
            metavar="[DOMAIN=]FILE",
            help="A file, a folder, .jsonl, .parquet, or `python`, the standard library of this "
            "Python; with the name of its domain where there are several. Repeatable.",
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="DIR", help="The folder to build, or to go on building."
        ),
    ],
    field: FieldOption = "text",
    allow_download: DownloadOption = False,
    as_json: JsonOption = False,
) -> None:
    """Tokenise text into a folder that training maps into memory."""
    with progress_bar() as progress:
        found = build_data(
            model,
            by_domain(corpus),
            output,
            field=field,
            allow_download=allow_download,
            progress=progress,
        )
    if as_json:
        print_json(found)
    else:
        say(found.summary())
        say(f"how it fills windows: ropewalk data describe {output} --length 32k")


def by_domain(given: list[str]) -> dict[str, str]:
    """`books=books.jsonl`: a name and a path. A path may hold an equals sign itself."""
    found: dict[str, str] = {}
    for each in given:
        name, equals, path = each.partition("=")
        if not equals or Path(each).exists():
            name, path = ALONE, each
        if name in found or not name or not path:
            rule = "needs a domain of its own" if name and path else "is not DOMAIN=FILE"
            remedy = "write --corpus books=books.jsonl --corpus code=folder"
            raise InvalidValue("corpus", each, rule, remedy)
        found[name] = path
    return found
