"""The text of `--help`: options under headings, each text in full, an example, the documents.

Plain text, wrapped at the width of the terminal and never cut off.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

from typer.core import TyperCommand, TyperGroup

from ropewalk.cli.verbs import HEADINGS, known
from ropewalk.cli.words import options_meant, options_named, understood_at_once
from ropewalk.errors import InputError
from ropewalk.outputs import RUN_FILE

ADVANCED, GENERAL = "Advanced", "General"
"""The headings of options that few people need, and of those that most verbs have."""
OF_MOST_VERBS = frozenset(
    (
        *("allow_download", "config", "device", "dtype", "help", "help_all", "as_json"),
        *("overwrite", "plugin", "quiet", "seed", "strict"),
    )
)
_RARE = json.loads(Path(__file__).with_name("rare_values.json").read_text(encoding="utf-8"))
RARE_VALUES: dict[str, Rows] = {verb: list(map(tuple, rows)) for verb, rows in _RARE.items()}
"""By verb, values of options that few people need, with their help."""
DOCUMENTS = "Documentation: the folder docs/ of the source distribution (README.md first)."

Rows = list[tuple[str, str]]


class _Help:
    """Words that need no more than Python, and an example behind the help."""

    epilog: str | None

    def get_params(self, ctx: Any) -> list[Any]:
        return understood_at_once(super().get_params(ctx))  # type: ignore[misc]

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        formatter.write_paragraph()
        formatter.write(f"Example:\n  {self.epilog or ''}\n\n{DOCUMENTS}\n")


class VerbHelp(_Help, TyperCommand):
    """One verb: its errors name its options, and its help has headings."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--help-all" in args:
            ctx.meta[ADVANCED], args = True, ["--help"]
        for option, word in pairwise(["", *args]):
            # As from "$RUN" in a shell where RUN is not set; an empty path would be this folder.
            if not word or re.fullmatch(r"--[\w-]+=", word):
                name = option if option.startswith("-") else word.strip("=") or "an argument"
                raise InputError(f"{name}: is empty; give a value, or leave it out")
        if any(word.partition("=")[0] == "--config" for word in args):
            for each in self.params:
                each.required = False  # the file may hold it
        options = {name for each in self.params for name in each.opts + each.secondary_opts}
        has_model = any(each.name == "model" for each in self.params if each.opts == ["model"])
        return super().parse_args(ctx, options_meant(args, options, model=has_model))

    def invoke(self, ctx: Any) -> Any:
        try:
            with options_named(self.params):
                return super().invoke(ctx)
        except KeyboardInterrupt as error:
            run = ctx.params.get("run")  # ended before the run was opened, or after
            if run and not hasattr(error, "__notes__") and (Path(run) / RUN_FILE).is_file():
                error.add_note(f"kept in {run}; run the same command to continue")
            raise

    def format_options(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, Rows] = {"Arguments": [], "Options": []}
        last: dict[str, Rows] = {GENERAL: [], ADVANCED: []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                usual = "Arguments" if parameter.param_type_name == "argument" else "Options"
                usual = GENERAL if parameter.name in OF_MOST_VERBS else usual
                heading = getattr(parameter, "rich_help_panel", None) or usual
                names, text = record
                # The type of an argument says nothing that its text does not.
                names = names if heading != "Arguments" else names.partition(" <")[0]
                (last if heading in last else groups).setdefault(heading, []).append((names, text))
        rare = [*last.pop(ADVANCED), *RARE_VALUES.get(self.name or "", ())]
        if ctx.meta.get(ADVANCED):
            last[ADVANCED] = rare
        elif rare:
            last[GENERAL].append(("--help-all", f"Show {len(rare)} advanced options too."))
        _write(formatter, [*groups.items(), *last.items()])


class RootHelp(_Help, TyperGroup):
    """The help of `ropewalk` itself."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, Rows] = {heading: [] for heading in HEADINGS}
        for verb in known().values():
            groups[verb.group].append((verb.name, verb.first))
        _write(formatter, groups.items())


def _write(formatter: Any, groups: Iterable[tuple[str, Rows]]) -> None:
    for heading, rows in groups:
        if rows:
            with formatter.section(heading):
                formatter.write_dl(rows)
