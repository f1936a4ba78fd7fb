"""docs/errors.md shows what the command prints."""

from __future__ import annotations

from tests.errors_page import PAGE, with_output


def test_the_examples_print_what_the_page_says() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert with_output(page) == page
