"""A result in a notebook: its blocks as HTML, and its charts as one picture."""

from __future__ import annotations

from base64 import b64encode
from io import BytesIO

from ropewalk.chart import Chart, TileGrid
from ropewalk.errors import MissingExtra
from ropewalk.reports.page.html import block_of
from ropewalk.reports.page.markup import joined, tag
from ropewalk.values import Drawn, Result


def html(result: Result) -> str:
    """The result as one fragment; without matplotlib, without the picture.

    A notebook has no style sheet of the page, without which its charts would be black.
    """
    words = (each for each in result.blocks() if not isinstance(each, Chart | TileGrid))
    shown = joined(*map(block_of, words))
    if not isinstance(result, Drawn):
        return shown
    picture = BytesIO()
    try:
        result.figure().savefig(picture, format="png", dpi=110)
    except MissingExtra:  # words need no matplotlib
        return shown
    source = f"data:image/png;base64,{b64encode(picture.getvalue()).decode()}"
    return joined(shown, tag("img", alt=result.summary(), src=source))
