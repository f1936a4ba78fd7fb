"""Pages to draw: one of every block with any text, and one as large as they come."""

from __future__ import annotations

from collections.abc import Iterable

from ropewalk.blocks import Block, Cell, Code, Page, Paragraph, Section, Table
from ropewalk.chart import Axis, Chart, Guide, Mark, Series, Tile, TileGrid


def blocks_of(text: str) -> tuple[Block, ...]:
    """Every kind of block, with a text wherever one may stand."""
    marks = tuple(Mark(512 * 2**i, 0.5, 0.4, 0.6) for i in range(3))
    return (
        Chart(
            text,
            Axis(text, "log2", "length"),
            Axis(text, shown="percent"),
            (Series(text, marks, True), Series(f"{text} again", marks)),
            (Guide(512, text),),
            (Guide(0.85, text),),
            caption=text,
        ),
        TileGrid(text, text, text, (text,), (text,), ((Tile(0.5, text),),), text),
        Table(
            text, (text, "n"), ((Cell(text), Cell(text, 2.0)), (Cell("b"), Cell("1", 1.0))), text
        ),
        Paragraph(text),
        Paragraph(text, "warning"),
        Code(text, text),
    )


def page_of(texts: Iterable[str]) -> Page:
    texts = list(texts)
    sections = tuple(Section(text, blocks_of(text)) for text in texts)
    first = texts[0]
    said, blocks = tuple(texts), blocks_of(first)
    to_do = Code(first, first)
    remarks = ((first, first),)
    return Page(first, first, said, sections, said, said, said, said, first, to_do, blocks, remarks)


def largest(lengths: int = 20, tasks: int = 17, methods: int = 4) -> Page:
    """Four methods on seventeen tasks at twenty lengths, with ten depths each."""
    at = [1024 * (i + 1) for i in range(lengths)]
    length, rate = Axis("context length", "log2", "length"), Axis("answered right", shown="percent")
    blocks: list[Block] = []
    for task in range(tasks):
        series = tuple(
            Series(
                f"method {m}",
                tuple(
                    Mark(n, 1 - 0.04 * i, 0.9 - 0.04 * i, 1 - 0.03 * i) for i, n in enumerate(at)
                ),
            )
            for m in range(methods)
        )
        blocks.append(Chart(f"task {task}", length, rate, series))
        line = tuple(Tile(0.5, "16k, 50%: 5 of 10") for _ in at)
        names = tuple(map(str, at))
        blocks += [
            TileGrid(f"task {task}, method {m}", "", "", names, ("0%",) * 10, (line,) * 10)
            for m in range(methods)
        ]
    return Page("A large page", "Large.", (), (Section("All", tuple(blocks)),))
