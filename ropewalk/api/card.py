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

FOLDER, FILE = "model", "model.gguf"
"""The exports of a run of `extend`: the first gets the card, and of a GGUF file the second."""


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
        str | Path,
        Argument(
            "A run directory of `extend`, its GGUF file, or an export's folder.", "RUN_OR_EXPORT"
        ),
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

    It is written into the folder, or next to the GGUF file.

    The front matter is that of the hub: `base_model`, the licence and language of the source's own
    card, which is kept as README.source.md, and tags. Of a run, or of the export in it, the card
    has the run's verdict, if the folder is the one that was judged. `extend` and `export` write a
    card by themselves. A README.md that a person wrote or edited is kept unless `overwrite` is set.
    """
    from ropewalk.reports.card import HUB_ID

    if base_model is not None and not HUB_ID.fullmatch(base_model):
        rule = "must be a name of the hub, as ORG/NAME"
        raise InvalidValue("base_model", base_model, rule, "correct it, or leave it out")
    export = _export_of(as_path(run_or_export, "run_or_export").resolve())
    if not (export / MANIFEST).is_file() and not (_is_of_run(export) and export.is_file()):
        raise InputError(
            f"{export}: is not an export (it has no {MANIFEST}), and not the GGUF file of a run; "
            "give an export's folder, or the directory of a finished run of `extend`"
        )
    if export.is_dir():
        check_unchanged(export)
    return _written(export, base_model or "", overwrite=overwrite)


def keep_card(run_or_export: Path, source: Source, notice: Notice) -> None:
    """Write the card of an export that was just made. It must not fail for its card."""
    try:
        _written(_export_of(run_or_export.resolve()), _hub_id(source))
    except Exception as error:  # hours of work must not end in a fault of their card
        notice(f"no card: {error}")


def _export_of(path: Path) -> Path:
    """The export that gets the card, in a run directory or as it was given."""
    if not (path / CONFIGURATION).is_file():
        return path
    has_file_only = not (path / FOLDER).exists() and (path / FILE).exists()
    return path / (FILE if has_file_only else FOLDER)


def _is_of_run(export: Path) -> bool:
    return export.name in (FOLDER, FILE) and (export.parent / CONFIGURATION).is_file()


def _hub_id(source: Source) -> str:
    """The hub's name of a model, also of one in the hub's cache; empty if it is not known."""
    if source.kind in ("hub", "catalogue"):
        return model_argument(source)
    home = source.path.resolve().parent if source.path else Path()
    name = home.parent.name.removeprefix("models--").replace("--", "/")
    return name * (home.name in ("snapshots", "blobs"))  # the second of a file


def _written(export: Path, base_model: str, *, overwrite: bool = False) -> ModelCard:
    from ropewalk.reports.card import HUB_ID, stated
    from ropewalk.reports.card import card as made
    from ropewalk.run_on_disk import RunOnDisk

    folder = export if export.is_dir() else export.parent
    run = RunOnDisk.read(export.parent) if _is_of_run(export) else None
    run = run if run is not None and run.command == "extend" else None
    last = stated(folder / CARD).get("base_model", [""])[0]
    named = base_model if HUB_ID.fullmatch(base_model) else last
    card = made(export, run, named)
    files = {CARD: card.text, **card.pictures}
    there = [folder / name for name in files if (folder / name).exists() and not overwrite]
    if there and run is None:
        # Its run may lie elsewhere: it says no more than this if it is what is written without.
        before = made(export, None, last)
        same = {signed(text.encode()) for text in (before.text, *before.pictures.values())}
    for path in there:
        if not is_ours(path) or (run is None and path.read_bytes() not in same):
            raise InvalidValue(
                "run_or_export",
                str(path),
                "exists, and is a person's, or has the evidence of a run that is not here, so it "
                "is kept",
                "give the run's directory, or allow it to be replaced (`overwrite`)",
            )
    for name, text in files.items():
        write_atomically(folder / name, signed(text.encode()))
    return ModelCard(folder / CARD, card.title, card.verdict, named, tuple(card.pictures))
