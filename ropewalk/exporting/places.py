"""The places for an export: the policy of outputs.py, and what `overwrite` may replace.

An export is replaced by an export, never a folder that holds anything else: a slip of the keyboard
must not delete somebody's notes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from ropewalk.errors import InputError, InvalidValue
from ropewalk.exporting.manifest import MANIFEST, Manifest
from ropewalk.outputs import STANDARD_OUTPUT, check_place, check_unicode


def check_export_place(
    out: Path,
    *,
    sources: Iterable[Path] = (),
    overwrite: bool = False,
    is_folder: bool | None = None,
) -> None:
    """Refuse a place before the work begins; `is_folder` states what it will be, if known."""
    if out == STANDARD_OUTPUT:
        raise InvalidValue("out", "-", "cannot be printed", "give the path to write to")
    check_place(out, key="out", sources=sources)
    check_unicode(out)
    if not os.path.lexists(out):
        return
    if is_folder is not None and out.is_dir() != is_folder:
        kinds = ("a folder", "a file") if is_folder else ("a file", "a folder")
        raise InvalidValue(
            "out",
            str(out),
            f"is {kinds[1]}, and this runtime's export is {kinds[0]}",
            "choose another path",
        )
    if out.is_dir() and (foreign := _foreign(out)):
        raise InputError(
            f"{out}: holds {foreign}, which no export of ropewalk put there, so it is not "
            "replaced; remove the folder yourself, or choose another path"
        )
    if not overwrite:
        raise InputError(f"{out}: exists already; allow it to be replaced (`overwrite`)")


def _foreign(folder: Path) -> str | None:
    """Something in a folder that its manifest does not list; None if an export wrote all of it."""
    manifest = Manifest.read(folder) if (folder / MANIFEST).exists() else Manifest({})
    return next(iter(manifest.unlisted(folder)), None)
