"""Mixtures of papers: the shares in print, and text for each of their parts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ropewalk.data import published_mixtures
from ropewalk.data.published_mixtures import named, names, shares_of
from ropewalk.errors import InvalidValue, UnknownName

FOLDER = Path(published_mixtures.__file__).parent
_PARTS = ("commoncrawl", "c4", "github", "arxiv", "books", "wikipedia", "stackexchange")
TABLE_1 = {
    "wang-upsampled-128k": dict(zip(_PARTS, (58, 20, 7, 6, 5, 4, 2), strict=True)),
    "wang-slimpajama-128k": dict(zip(_PARTS, (53, 27, 5, 5, 4, 3, 3), strict=True)),
    "wang-slimpajama-64k": dict(zip(_PARTS, (54, 25, 5, 5, 4, 3, 3), strict=True)),
}
"""Of Wang et al. 2024, in percent."""


@pytest.mark.parametrize("name", names())
def test_each_value_has_a_source_that_states_it(name: str) -> None:
    mixture = named(name)
    assert sum(part.share for part in mixture.parts.values()) == pytest.approx(1, abs=3e-4)
    assert "arXiv" in mixture.source
    assert mixture.missing
    for part in mixture.parts.values():
        assert f"{100 * part.share:.2f}%" in part.source or f"@{part.share:g}" in part.source
        assert part.text


@pytest.mark.parametrize("name", TABLE_1)
def test_two_tables_of_one_paper_agree(name: str) -> None:
    """Table 9 has two decimals, Table 1 none, and rounds a half up or down."""
    parts = named(name).parts
    assert {part: TABLE_1[name][part] for part in parts} == TABLE_1[name]
    for part, value in parts.items():
        assert abs(100 * value.share - TABLE_1[name][part]) <= 0.5, part
        assert f"Table 1: {TABLE_1[name][part]}%" in value.source


def test_every_part_must_have_text_and_nothing_else() -> None:
    parts = list(named("prolong-64k").parts)
    assert shares_of("prolong-64k", parts) == pytest.approx(
        {part: value.share for part, value in named("prolong-64k").parts.items()}
    )
    with pytest.raises(
        InvalidValue, match=r"there is no text of books \(books in sequences of 64k"
    ):
        shares_of("prolong-64k", [part for part in parts if part != "books"])
    with pytest.raises(InvalidValue, match=r".prolong-64k.: has no part 'poems'"):
        shares_of("prolong-64k", [*parts, "poems"])
    with pytest.raises(UnknownName, match="did you mean 'prolong-64k'"):
        shares_of("prolong-65k", parts)
    assert shares_of({"a": 1}, ["a"]) == {"a": 1}
    assert shares_of(None, ["a"]) is None


def test_a_file_is_read_strictly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = json.loads((FOLDER / "prolong-64k.json").read_text())
    content["parts"]["books"]["share"] = "0.3"
    (tmp_path / "odd.json").write_text(json.dumps(content))
    monkeypatch.setattr(published_mixtures, "__file__", str(tmp_path / "__init__.py"))
    with pytest.raises(InvalidValue, match=r"odd\.json: parts\.books\.share"):
        named("odd")
