"""Run directories to report pages, one command a file: `page(run) -> Page`. No torch.

A command whose runs can be shown is a module here with that name.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from ropewalk.errors import InputError
from ropewalk.reports.page.blocks import Page
from ropewalk.run_on_disk import RunOnDisk


def commands() -> tuple[str, ...]:
    """Those whose runs can be shown."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def page_of(run: RunOnDisk) -> Page:
    """The page of a run, finished or not."""
    if run.command not in commands():
        raise InputError(
            f"{run.path}: is a run of {run.command}, which has no report; reports are made of "
            f"{', '.join(commands())}"
        )
    page: Page = import_module(f"{__name__}.{run.command}").page(run)
    return page._replace(notes=(*page.notes, *run.notes()))
