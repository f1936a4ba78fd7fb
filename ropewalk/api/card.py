"""`card`: the README of an export, with the evidence of its run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from ropewalk.arguments import as_path
from ropewalk.errors import InputError, InvalidValue, printable
from ropewalk.exporting.manifest import CARD, MANIFEST, check_unchanged
from ropewalk.models.source import Source
from ropewalk.options import Argument, Option, command
from ropewalk.outputs import is_ours, signed, write_atomically
from ropewalk.progress import Notice
from ropewalk.run_directory import CONFIGURATION
from ropewalk.runtimes.serving import model_argument
from ropewalk.values import Result

FOLDER = "model"
"""The export of a run of `extend` that gets a card."""


@dataclass(frozen=True, eq=False)
class ModelCard(Result):
    """A card that was written."""

    path: Path
    title: str
    verdict: str
    base_model: str
    """The hub's name of the source; empty if it is not known."""
    pictures: tuple[str, ...]

    def summary(self) -> str:
        base = self.base_model or "not named: the source has no hub id that is known here"
        return printable(f"Wrote {self.path}: {self.title}; {self.verdict}. Base model: {base}.")


@command("card", "For a runtime", example="ropewalk card runs/extend --base-model ORG/NAME")
def card(
    run_or_export: Annotated[
        str | Path, Argument("A run directory of `extend`, or an export's folder.", "RUN_OR_EXPORT")
    ],
    *,
    base_model: Annotated[
        str | None,
        Option(
            "The hub's name of the source (default: as its own path or the last card has it).",
            "ORG/NAME",
        ),
    ] = None,
    overwrite: Annotated[bool, Option("Replace a README.md that a person wrote.")] = False,
) -> ModelCard:
    """Write an export's README.md: verdict, intervals, curves, lines to serve it, and its limits.

    The front matter is that of the hub: `base_model`, the licence and language of the source's own
    card, which is kept as README.source.md, and tags. Of a run, or of the export in it, the card
    has the run's verdict, if the folder is the one that was judged. `extend` and `export` write a
    card by themselves. A README.md that a person wrote or edited is kept unless `overwrite` is set.
    """
    from ropewalk.reports.card import HUB_ID

    if base_model is not None and not HUB_ID.fullmatch(base_model):
        rule = "must be a name of the hub, as ORG/NAME"
        raise InvalidValue("base_model", base_model, rule, "correct it, or leave it out")
    given = as_path(run_or_export, "run_or_export").resolve()
    folder = given / FOLDER if (given / CONFIGURATION).is_file() else given
    if not (folder / MANIFEST).is_file():
        raise InputError(
            f"{folder}: is not an export (it has no {MANIFEST}); give an export's folder, or the "
            "directory of a finished run of `extend`"
        )
    check_unchanged(folder)
    return _written(folder, base_model or "", overwrite=overwrite)


def keep_card(folder: Path, source: Source, notice: Notice) -> None:
    """Write the card of an export that was just made. It must not fail for its card."""
    try:
        _written(folder.resolve(), _hub_id(source))
    except Exception as error:  # hours of work must not end in a fault of their card
        notice(f"no card: {error}")


def _hub_id(source: Source) -> str:
    """The hub's name of a model, also of one in the hub's cache; empty if it is not known."""
    if source.kind in ("hub", "catalogue"):
        return model_argument(source)
    home = source.path.resolve().parent if source.path else Path()
    return home.parent.name.removeprefix("models--").replace("--", "/") * (home.name == "snapshots")


def _written(folder: Path, base_model: str, *, overwrite: bool = False) -> ModelCard:
    from ropewalk.reports.card import HUB_ID, stated
    from ropewalk.reports.card import card as made
    from ropewalk.run_on_disk import RunOnDisk

    of_run = folder.name == FOLDER and (folder.parent / CONFIGURATION).is_file()
    run = RunOnDisk.read(folder.parent) if of_run else None
    run = run if run is not None and run.command == "extend" else None
    last = stated(folder / CARD).get("base_model", [""])[0]
    named = base_model if HUB_ID.fullmatch(base_model) else last
    found = made(folder, run, named)
    files = {CARD: found.text, **found.pictures}
    for path in (folder / name for name in files):
        ours = is_ours(path) and run is not None  # else its run is not here to write it again
        if path.exists() and not (ours or overwrite):
            raise InvalidValue(
                "run_or_export",
                str(path),
                "exists, and is a person's, or has the evidence of a run that is not here, so it "
                "is kept",
                "give the run's directory, or allow it to be replaced (`overwrite`)",
            )
    for name, text in files.items():
        write_atomically(folder / name, signed(text.encode()))
    return ModelCard(folder / CARD, found.title, found.verdict, named, tuple(found.pictures))
