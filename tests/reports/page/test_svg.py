"""Charts stay within their frame, and their ticks are round."""

from __future__ import annotations

import math
import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.chart import (
    Axis,
    Chart,
    Guide,
    Mark,
    Series,
    Tile,
    TileGrid,
    apart,
    ends,
    fractions,
    ticks,
)
from ropewalk.reports.page.svg import HEIGHT, SERIES, WIDTH, chart, has_names, tiles

NUMBERS = st.floats(-1e9, 1e9, allow_nan=False)
POSITIVE = st.floats(1e-6, 1e9)


def drawn(marks: list[Mark], x: Axis | None = None, y: Axis | None = None) -> ElementTree.Element:
    shown = Chart("t", x or Axis("x"), y or Axis("y"), (Series("s", tuple(marks)),))
    return ElementTree.fromstring(chart(shown))


def coordinates(path: str) -> list[tuple[float, float]]:
    found = re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", path)
    return [(float(x), float(y)) for x, y in found]


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=20))
def test_values_are_drawn_within_the_frame_and_in_order(values: list[tuple[float, float]]) -> None:
    marks = [Mark(x, y) for x, y in sorted(values)]
    line = drawn(marks).find("g/path")
    assert line is not None
    places = coordinates(line.attrib["d"])
    assert len(places) == len(marks)
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in places)
    assert [x for x, _ in places] == sorted(x for x, _ in places)
    heights = {y: place for (_, y), (_, place) in zip(sorted(values), places, strict=True)}
    assert [heights[y] for y in sorted(heights)] == sorted(heights.values(), reverse=True)


@given(st.lists(st.tuples(POSITIVE, POSITIVE), min_size=1, max_size=10))
def test_logarithmic_axes_too(values: list[tuple[float, float]]) -> None:
    root = drawn([Mark(x, y) for x, y in sorted(values)], Axis("x", "log2"), Axis("y", "log10"))
    line = root.find("g/path")
    assert line is not None
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in coordinates(line.attrib["d"]))


@pytest.mark.parametrize("count", [2, 3, 6])
def test_series_side_by_side_stay_within_the_axes(count: int) -> None:
    marks = tuple(Mark(length, 0.5, 0.4, 0.6) for length in (512, 1024, 2048))
    series = tuple(Series(str(i), marks) for i in range(count))
    shown = Chart("t", Axis("x", "log2", "length"), Axis("y"), series)
    spans = ends([shown])
    assert spans is not None
    first = fractions(shown.x, spans[0])(512)
    assert 0.01 < apart(shown, spans[0]) * (count - 1) / 2 < first


@given(NUMBERS, st.floats(1e-3, 1e9))
def test_ticks_are_round_even_and_within_the_axis(low: float, width: float) -> None:
    ends = (low, low + width)
    if ends[1] - ends[0] < 1e-9 * max(map(abs, ends)):
        return
    found = ticks(Axis("y"), ends)
    slack = 1e-6 * (width + abs(low))
    assert 2 <= len(found) <= 8
    assert all(ends[0] - slack <= tick <= ends[1] + slack for tick in found)
    step = (found[-1] - found[0]) / (len(found) - 1)
    digits = step / 10.0 ** math.floor(math.log10(step) + 1e-6)
    assert min(abs(digits - round_) for round_ in (1, 2, 5, 10)) < 1e-3


def test_a_length_is_written_as_users_write_it() -> None:
    texts = [
        t.text
        for t in drawn([Mark(512, 1), Mark(4096, 2)], Axis("x", "log2", "length")).iter("text")
    ]
    assert {"512", "4k"} <= set(texts)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_left_out(value: float) -> None:
    line = drawn([Mark(1, 1), Mark(2, value), Mark(3, 2)]).find("g/path")
    assert line is not None
    assert len(coordinates(line.attrib["d"])) == 2
    assert "No value" in (drawn([Mark(1, value)]).text or "")


@pytest.mark.parametrize("low", [0.0, -0.002, -1e308])
def test_an_interval_below_a_logarithmic_axis_ends_at_its_edge(low: float) -> None:
    root = drawn([Mark(1, 0.01, low, 0.02), Mark(2, 0.02, 0.01, 1e308)], y=Axis("y", "log10"))
    bars = [p.attrib["d"] for p in root.iter("path") if "bar" in p.attrib.get("class", "")]
    assert len(bars) == 2
    assert all(0 <= float(n) <= HEIGHT for bar in bars for n in re.findall(r"-?[\d.]+", bar)[1:])


def test_many_series_stay_nearer_to_their_length_than_to_the_next() -> None:
    marks = tuple(Mark(1024 * (i + 1), 0.5) for i in range(20))
    names = tuple(Series(str(i), marks) for i in range(20))
    root = ElementTree.fromstring(chart(Chart("t", Axis("x", "log2", "length"), Axis("y"), names)))
    lines = [coordinates(g.findall("path")[0].attrib["d"]) for g in root.findall("g")]
    for i in range(19):
        assert max(line[i][0] for line in lines) < min(line[i + 1][0] for line in lines)


def test_no_two_series_are_told_apart_by_colour_alone() -> None:
    marks = (Mark(0, 0), Mark(1, 1))
    names = tuple(Series(str(i), marks) for i in range(SERIES))
    root = ElementTree.fromstring(chart(Chart("t", Axis("x"), Axis("y"), names)))
    shapes = [group.findall("path")[-1].attrib["d"] for group in root.findall("g")]
    relative = {re.sub(r"^M[\d.]+ [\d.]+", "", shape) for shape in shapes}
    assert len(relative) == SERIES


def test_a_tile_says_its_number_in_words_and_a_vague_one_has_dashes_and_its_colour() -> None:
    grid = TileGrid(
        "t", "x", "y", ("1k", "2k"), ("0%",), ((Tile(1, "all", False), Tile(0, "few", True)),)
    )
    root = ElementTree.fromstring(tiles(grid))
    own, key = root.findall("g")
    found = [(p.findtext("title"), p.get("class"), p.get("opacity")) for p in own.findall("path")]
    assert found == [("all", None, "1"), ("few", None, "0.08"), (None, "vague", None)]
    shades = [float(p.get("opacity") or 0) for p in key]
    assert max(b - a for a, b in pairwise(shades)) < 0.06, "colours without steps"


@pytest.mark.parametrize(("columns", "shown"), [(3, "93% of 100"), (7, "93%")])
def test_a_tile_without_room_for_its_text_has_the_percentage(columns: int, shown: str) -> None:
    row = (Tile(0.93, "93 of 100", shown="93% of 100"),) * columns
    grid = TileGrid("t", "x", "y", tuple("0123456"[:columns]), ("0%",), (row,))
    assert tiles(grid).count(f">{shown}<") == columns


def test_a_name_of_a_mark_stands_within_the_frame_and_not_on_its_line() -> None:
    marks = Mark(1, 0, name="no"), Mark(2, 9, name="passes")
    shown = Chart("t", Axis("x"), Axis("y"), (Series("s", marks),), (), (Guide(3, "limit"),))
    root = ElementTree.fromstring(chart(shown))
    at = {e.text: (float(e.get("x", 0)), float(e.get("y", 0))) for e in root.iter("text")}
    first, last = coordinates(root.findall("g/path")[0].attrib["d"])
    assert at["passes"][0] + 4.5 * len("passes") <= WIDTH
    assert at["no"][1] > first[1], "below a line that rises"
    assert at["passes"][1] < last[1]
    assert "rule limit" in chart(shown)


def test_a_long_label_along_the_side_is_narrowed_to_fit_and_a_short_one_left() -> None:
    for label, fitted in (("perplexity", False), ("answered exactly, " * 4, True)):
        shown = chart(Chart("a", Axis("x"), Axis(label), (Series("s", (Mark(1, 1), Mark(2, 2))),)))
        assert ('textLength="225"' in shown) == fitted


def test_the_names_of_rows_and_tiles_of_a_grid_have_room_on_a_phone() -> None:
    grid = TileGrid("g", "length", "depth", ("512",), ("50–100%",), ((Tile(0.5, "w"),),))
    texts = ElementTree.fromstring(tiles(grid)).iter("text")
    [row] = [each for each in texts if each.text == "50–100%"]
    assert float(row.get("x") or 0) >= 8.3 * 5 + 6.5 + 12.4, "wide letters of 13 px"
    shown = "105 of 107 (98%)"
    three = ((Tile(0.98, "w", shown=shown),) * 3,)
    assert shown in tiles(TileGrid("g", "length", "depth", ("1", "2", "4"), ("24–48%",), three))


def test_a_picture_is_told_in_words() -> None:
    series = (Series("yarn", (Mark(512, 0.9, 0.8, 1), Mark(2048, 0.5, 0.4, 0.6))),)
    x, y = Axis("length", "log2", "length"), Axis("right", shown="percent")
    said = "right by length. yarn: 90% (80 to 100%) at 512 to 50% (40 to 60%) at 2k."
    assert f"<desc>{said}</desc>" in chart(Chart("a", x, y, series))
    grid = TileGrid("g", "length", "depth", ("512",), ("0–100%",), ((Tile(0.5, "512: 5 of 10"),),))
    assert "<desc>depth by length. 0–100%: 512: 5 of 10.</desc>" in tiles(grid)


def test_points_are_hundredths_with_a_sign() -> None:
    axis = Axis("change", shown="points")
    assert [axis.text(v) for v in (-0.15, 0.8, 0, -0.001)] == ["-15.0", "+80.0", "+0.0", "-0.1"]
    assert axis.text(-0.103) == "-10.3", "below a limit of -10, which whole numbers would hide"
    assert axis.texts([-0.15, 0, 0.8]) == ["-15", "0", "+80"]


def test_no_two_ticks_read_the_same() -> None:
    near = [0.501, 0.502, 0.503]
    assert Axis("", shown="percent").texts(near) == ["50.1%", "50.2%", "50.3%"]
    assert Axis("", shown="points").texts([0.0, 0.002, 0.004]) == ["+0.0", "+0.2", "+0.4"]
    assert Axis("", shown="percent").texts([0.0, 0.5]) == ["0%", "50%"]


def test_a_long_curve_shows_its_values_under_the_pointer() -> None:
    marks = tuple(Mark(i, i) for i in range(400))
    drawn = chart(Chart("c", Axis("x"), Axis("y"), (Series("s", marks),)))
    assert drawn.count('class="mark hidden') == 80
    assert "<title>s, 5: 5</title>" in drawn


def test_two_lines_that_end_apart_are_named_there_and_others_in_a_legend() -> None:
    ends = {"unmodified": 0.0, "extended (yarn)": 0.94, "close": 0.93}
    lines = [
        Series(name, (Mark(1, 1.0), Mark(2, 0.9, is_rough=True), Mark(3, end)))
        for name, end in ends.items()
    ]
    y = Axis("facts retrieved", shown="percent")
    for own, named in ((lines[:2], True), (lines, False), (lines[:1], False)):
        shown = Chart("t", Axis("x"), y, tuple(own))
        texts = [each.text for each in ElementTree.fromstring(chart(shown)).iter("text")]
        assert has_names(shown) == named == ("unmodified" in texts)
        assert chart(shown).count(" hollow") == len(own)
