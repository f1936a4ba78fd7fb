"""The measured figures of the pages are those of the committed results."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from matplotlib.figure import Figure

from docs import figures
from docs.figures import Picture, Sentence, Source

PAGE = "docs/page.md"
TEXT = """\
# Page
<!-- written by benchmarks.some -->
| 1.5 |
<!-- until here -->
Ours takes 3 s, and is
faster.
"""


@pytest.fixture(scope="module")
def offered() -> Sequence[Source]:
    """Everything but the pictures, which take longer to draw."""
    return [source._replace(pictures={}) for source in figures.sources(pictures=False)]


def some(block: str = "| 1.5 |", seconds: str = "3", holds: bool = True) -> Source:
    words = "Ours takes {} s, and is faster."
    return Source("benchmarks.some", {PAGE: block}, [Sentence(PAGE, words, (seconds,), holds)], {})


def test_the_pages_hold_the_figures_of_the_results(offered: Sequence[Source]) -> None:
    texts = figures.pages()
    complaints: list[str] = []
    assert figures.with_figures(texts, offered, complaints.append) == texts, "run: make figures"
    assert complaints == []


@pytest.mark.slow
def test_the_pictures_show_what_the_results_hold() -> None:
    assert figures.differences(list(figures.sources())) == []


@pytest.mark.parametrize("page", ["benchmarks/README.md", "docs/theory.md", "docs/methods.md"])
def test_a_changed_digit_of_a_block_is_found(page: str, offered: Sequence[Source]) -> None:
    texts = figures.pages()
    block = figures.BLOCK.search(texts[page])
    assert block is not None
    at = block.start(3) + next(re.finditer(r"\d(?=\D*$)", block[3])).start()
    digit = str((int(texts[page][at]) + 1) % 10)
    changed = {**texts, page: texts[page][:at] + digit + texts[page][at + 1 :]}
    [line] = [said for said in figures.differences(offered, changed) if "differs" in said]
    assert line.startswith(page)


def test_a_changed_digit_of_a_sentence_is_found(offered: Sequence[Source]) -> None:
    texts = figures.pages()
    page = "docs/theory.md"
    changed = {**texts, page: texts[page].replace("there are 250 islands", "there are 251 islands")}
    assert changed != texts
    [line] = [said for said in figures.differences(offered, changed) if "differs" in said]
    assert "251 islands" in line


@pytest.mark.parametrize(
    ("source", "text", "complaint"),
    [
        (some(), TEXT, None),
        (some("| 1.6 |"), TEXT, "differs from the results: | 1.5 |"),
        (some("| 1.5 |\n| 2 |"), TEXT, "lacks lines"),
        (some(seconds="4"), TEXT, "differs from the results: Ours takes 3 s"),
        (some(holds=False), TEXT, "do not support"),
        (some(), TEXT.replace("faster", "slower"), "does not say"),
        (some(), TEXT + "Ours takes 3 s, and is faster.", "does not say (once)"),
        (some(), TEXT.replace("benchmarks.some", "benchmarks.other"), "offers no block"),
        (some(), "Ours takes 3 s, and is faster.", "no markers"),
        (some(), TEXT + "![A picture](images/nowhere.png)", "no module offers this picture"),
    ],
)
def test_every_kind_of_difference_is_named(
    source: Source, text: str, complaint: str | None
) -> None:
    found = figures.differences([source], {PAGE: text})
    assert (found == []) if complaint is None else any(complaint in line for line in found), found


def test_a_figure_ends_before_the_next_cell_or_link() -> None:
    """The words before a figure may stand in another place too."""
    page = "Read ([a tour](tour.md)).\n| [2 families](families.md) |"
    source = Source("benchmarks.some", {}, [Sentence(PAGE, "[{} families](", ("3",))], {})
    written = figures.with_figures({PAGE: page}, [source], pytest.fail)
    assert written[PAGE] == page.replace("[2 ", "[3 ")


def test_what_differs_is_written_and_then_does_not_differ() -> None:
    source = some("| 1.6 |", "4")
    written = figures.with_figures({PAGE: TEXT}, [source], pytest.fail)
    assert "| 1.6 |" in written[PAGE]
    assert "Ours takes 4 s, and is\nfaster." in written[PAGE]
    assert figures.differences([source], written) == []


def drawing(values: Sequence[float], title: str = "") -> Figure:
    figure = Figure()
    axes = figure.add_subplot()
    axes.plot(range(len(values)), values)
    axes.bar(range(len(values)), values)
    axes.set_title(title)
    return figure


def test_a_picture_is_known_by_its_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "ROOT", tmp_path)
    values = [1.0, 2.0, np.pi]
    figures.save_picture(Picture(drawing(values)), figures.ROOT / "picture.png")

    def compared(figure: Figure) -> list[str]:
        source = Source("benchmarks.some", {}, [], {"picture.png": Picture(figure)})
        return figures.differences([source], {})

    assert compared(drawing([value * (1 + 1e-9) for value in values])) == []
    for other in (drawing([1.0, 2.0, 3.15]), drawing(values[:2]), drawing(values, "a title")):
        [line] = compared(other)
        assert line == "picture.png: other values are drawn in it than the results have"


def test_a_sentence_cannot_begin_or_end_with_a_figure() -> None:
    """It would match whatever stands before or after it."""
    with pytest.raises(ValueError, match="words on both sides"):
        figures.with_figures(
            {PAGE: TEXT}, [some()._replace(sentences=[Sentence(PAGE, "{} s", ("3",))])], print
        )


def test_modules_are_found_by_what_they_offer() -> None:
    module = ModuleType("benchmarks.some")
    offer: Callable[[], dict[str, str]] = lambda: {PAGE: "text"}  # noqa: E731
    setattr(module, "blocks", offer)  # noqa: B010
    assert figures.source_of(module) == Source("benchmarks.some", {PAGE: "text"}, [], {})
