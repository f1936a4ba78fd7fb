"""Blocks as a terminal prints them."""

from __future__ import annotations

import io

from ropewalk.blocks import Table, cells
from ropewalk.chart import Tile, TileGrid
from ropewalk.reports.terminal import Terminal, show


def printed(block: Table | TileGrid, width: int) -> str:
    out = io.StringIO()
    show([block], Terminal(out, width=width))
    return out.getvalue()


def test_a_vague_tile_has_its_question_mark() -> None:
    tiles = ((Tile(0.8, "80%", is_vague=True), Tile(1.0, "100%"), None),)
    grid = TileGrid("needle", "length", "depth", ("512", "1k", "2k"), ("0–100%",), tiles)
    assert printed(grid, 80).split()[-4:] == ["0–100%", "80%?", "100%", "–"]


def test_a_narrow_table_cuts_no_number() -> None:
    names = ("length", "steps", "windows of", "tokens", "epochs", "PFLOP", "time", "method")
    row = ("256k", "100", "256k", "209,715,200", "unknown", "5.27e+04", "6.2 hours", "ranked first")
    text = printed(Table("", names, (tuple(cells(*row)),)), 80)
    assert "209,715,200" in text
    assert "5.27e+04" in text
    assert max(map(len, text.splitlines())) <= 80
