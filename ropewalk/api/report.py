"""`report`: one page of a run that a person reads, keeps and sends on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ropewalk.api.common import as_path
from ropewalk.errors import InputError, InvalidValue
from ropewalk.outputs import check_file, write_atomically
from ropewalk.progress import Notice
from ropewalk.values import Result

PAGE = "report.html"
"""The page of a run, in its directory."""


@dataclass(frozen=True, eq=False)
class Reported(Result):
    """A page that was written."""

    path: Path
    title: str
    verdict: str
    missing: tuple[str, ...]
    """What an unfinished run does not have yet."""
    bytes: int

    def summary(self) -> str:
        told = f" Still missing: {', '.join(self.missing)}." if self.missing else ""
        return f"Wrote {self.path} ({self.bytes / 2**20:.2g} MiB): {self.verdict}{told}"


def report(*runs: str | Path, out: str | Path | None = None, overwrite: bool = False) -> Reported:
    """Write one self-contained HTML page of a run, or of two evaluations side by side.

    A run is the directory of extend, evaluate, search, precision or train, finished or not. The
    default `out` is `report.html` in it; of two runs it must be given. The page loads nothing from
    elsewhere and can be read without scripts.
    """
    from ropewalk.reports.commands import page_of
    from ropewalk.reports.commands.evaluate import evaluated
    from ropewalk.reports.page.html import document, is_page
    from ropewalk.reports.parts import comparison, places
    from ropewalk.reports.parts.folder import RunFolder

    paths = [as_path(run, f"runs[{i}]") for i, run in enumerate(runs)]
    if not 1 <= len(paths) <= 2:
        raise InputError(f"{len(paths)} runs: a report is of one run, or of two side by side")
    if out is None and len(paths) == 2:
        raise InputError("the report of two runs needs a file to be written to; give it (`out`)")
    folders = [RunFolder.read(path) for path in paths]
    place = paths[0] / PAGE if out is None else as_path(out, "out")
    check_file(place, key="out", overwrite=overwrite)
    if place.exists() and not overwrite and not is_page(place):
        raise InvalidValue(
            "out", str(place), "exists and is not a report", "choose another name for the page"
        )
    if len(folders) == 2:
        for folder in folders:
            evaluated(folder)
        from ropewalk.api.compare_runs import compare_runs

        page = comparison.page(compare_runs(*paths), place)
    else:
        page = page_of(folders[0])
    if not page.sections:
        raise InputError(
            f"{paths[0]}: has no results yet; start the same command again to go on with it"
        )
    page = places.shareable(page, paths)
    content = document(page)
    write_atomically(place, content)
    return Reported(place, page.title, page.verdict, page.missing, len(content))


def keep_report(run: Path, notice: Notice) -> None:
    """Write the page of a run that has just finished. It must not fail for its page."""
    try:
        report(run)
    except Exception as error:  # hours of work must not end in a fault of their page
        notice(f"no report: {error}")
