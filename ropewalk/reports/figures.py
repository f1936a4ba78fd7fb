"""Figures to files: the ending chooses the format, and the same values give the same bytes.

A picture carries a checksum of its own content, as everything that ropewalk writes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from ropewalk.errors import InvalidValue, MissingExtra
from ropewalk.outputs import UNSIGNED, cannot_write, signed, write_atomically
from ropewalk.progress import Notice

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PICTURES = ("png", "svg")
"""What a run directory keeps of each figure."""
_METADATA = {"png": {"ropewalk": UNSIGNED}, "svg": {"Date": None, "Description": UNSIGNED}}


def as_text(name: str) -> str:
    """A name that a user or a file gave, for a figure: dollar signs would begin a formula."""
    return name.replace("$", r"\$")


def format_of(path: Path, key: str = "path") -> str:
    """The format that a file's ending chooses; another ending is refused."""
    ending = path.suffix.lstrip(".").lower()
    if ending not in PICTURES:
        endings = " or ".join(f".{each}" for each in PICTURES)
        raise InvalidValue(key, str(path), f"must end in {endings}", "name it so")
    return ending


def save(figure: Figure, path: str | Path) -> None:
    """Write a figure."""
    path = Path(path)
    ending = format_of(path)
    import matplotlib

    drawn = BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "ropewalk"}):
        figure.savefig(drawn, format=ending, dpi=150, metadata=_METADATA.get(ending))
    write_atomically(path, signed(drawn.getvalue()))


def keep_figures(draw: Callable[[], Mapping[str, Figure]], folder: Path, notice: Notice) -> None:
    """Draw and write the figures of a finished run; without matplotlib, a notice says so."""
    try:
        figures = draw()
    except MissingExtra as error:
        notice(f"no figures: {error}")
        return
    for name, figure in figures.items():
        save_pictures(figure, folder / name)


def save_pictures(figure: Figure, stem: Path) -> None:
    """Write a figure in every format that a run directory keeps."""
    try:
        stem.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(stem.parent, error) from None
    for ending in PICTURES:
        save(figure, stem.with_name(f"{stem.name}.{ending}"))
