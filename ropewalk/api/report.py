"""`report`: one page of a run that a person reads, keeps and sends on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ropewalk.arguments import as_path
from ropewalk.errors import InputError, InvalidValue, RopewalkError, printable
from ropewalk.options import Argument, Option, command
from ropewalk.outputs import check_file, write_atomically
from ropewalk.progress import Notice
from ropewalk.run_directory import CONFIGURATION
from ropewalk.values import Result

if TYPE_CHECKING:
    from ropewalk.blocks import Page
    from ropewalk.run_on_disk import RunOnDisk

PAGE = "report.html"
"""The page of a run, in its directory."""
INDEX = "index.html"
"""The page of several runs, in their folder."""


@dataclass(frozen=True, eq=False)
class Reported(Result):
    """A page that was written."""

    path: Path
    title: str
    verdict: str
    missing: tuple[str, ...]
    """The parts that an unfinished run still lacks."""
    bytes: int

    def summary(self) -> str:
        missing = f" Still missing: {', '.join(self.missing)}." if self.missing else ""
        wrote = printable(f"Wrote {self.path}")
        return f"{wrote} ({self.bytes / 2**20:.2g} MiB): {self.verdict}{missing}"


@command(
    "report",
    "On a model",
    example="ropewalk report runs/first",
    more="The page loads nothing from elsewhere, can be read without scripts, and can be mailed.",
)
def report(
    run: Annotated[
        str | Path, Argument("A run directory, or a folder of runs for an index.", "RUN")
    ],
    other: Annotated[
        str | Path | None, Argument("Another one: both of `evaluate`, to be compared.", "OTHER")
    ] = None,
    *,
    out: Annotated[
        str | Path | None,
        Option(
            "The page to write (default: report.html in the run, index.html for an index).",
            shell=("--output", "-o"),
        ),
    ] = None,
    overwrite: Annotated[
        bool, Option("Replace an existing file that ropewalk did not write.")
    ] = False,
) -> Reported:
    """Write one self-contained HTML page of a run, of two evaluations, or an index of runs.

    A run is the directory of extend, evaluate, search, precision or train, finished or not. Of a
    folder that is no run, the page is an index of all runs below it, each with its verdict. The
    default `out` is `report.html` in it; of two runs it must be given. The page loads nothing from
    elsewhere and can be read without scripts.
    """
    from ropewalk.reports.page.html import document, is_page
    from ropewalk.reports.parts import places
    from ropewalk.run_on_disk import RunOnDisk

    paths = [as_path(run, "run"), *([] if other is None else [as_path(other, "other")])]
    if out is None and len(paths) == 2:
        raise InputError("the report of two runs needs a file to be written to; give it (`out`)")
    is_index = other is None and paths[0].is_dir() and not (paths[0] / CONFIGURATION).is_file()
    folders = [] if is_index else [RunOnDisk.read(path) for path in paths]
    place = paths[0] / (INDEX if is_index else PAGE) if out is None else as_path(out, "out")
    check_file(place, key="out", overwrite=overwrite)
    if place.exists() and not overwrite and not is_page(place):
        raise InvalidValue(
            "out", str(place), "exists and is not a report", "choose another name for the page"
        )
    page = places.shareable(_page(paths, folders, place), paths)
    content = document(page)
    write_atomically(place, content)
    return Reported(place, page.title, page.told, page.missing, len(content))


def _page(paths: Sequence[Path], runs: Sequence[RunOnDisk], place: Path) -> Page:
    """The page of a run, of two evaluations, or without any run the index of a folder."""
    from ropewalk.evaluation.conclusion import evaluated
    from ropewalk.reports.commands import index_of, page_of
    from ropewalk.reports.parts import comparison

    if len(runs) == 2:
        for run in runs:
            evaluated(run)
        from ropewalk.api.compare_runs import compare_runs

        page = comparison.page(compare_runs(*paths), place)
    else:
        page = page_of(runs[0]) if runs else index_of(paths[0])
    if not page.sections:
        raise InputError(
            f"{paths[0]}: has no results yet; run the command that began it again, which continues "
            "where it stopped"
        )
    return page


def keep_report(run: Path, notice: Notice) -> None:
    """Write the page of a run that has just finished. It must not fail for its page."""
    try:
        report(run)
    except RopewalkError as error:
        notice(f"no report: {error}")
    except Exception as error:  # hours of work must not end in a fault of their page
        notice(f"no report: unexpected {type(error).__name__}: {error}; please report it")
