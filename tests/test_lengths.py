import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.errors import InvalidValue
from ropewalk.lengths import MAX_LENGTH, format_length, parse_length


@pytest.mark.parametrize(
    ("text", "length"),
    [("4096", 4096), ("4k", 4096), ("128K", 131072), ("1M", 2**20), (" 1.5k ", 1536), ("1", 1)],
)
def test_lengths_as_people_write_them(text: str, length: int) -> None:
    assert parse_length(text) == length


@pytest.mark.parametrize(
    "text",
    [
        "",
        "k",
        "0",
        "-4k",
        "4 k",
        "4kb",
        "1e3",
        "0.3",
        "1.0001k",
        "nan",
        "9" * 16,
        "9999999999M",
        "٤k",
    ],
)
def test_what_is_no_length_is_refused_with_the_way_to_write_it(text: str) -> None:
    with pytest.raises(InvalidValue, match="write 4096, 4k, 128k or 1M"):
        parse_length(text)


@given(st.integers(1, MAX_LENGTH))
def test_formatting_is_exact(length: int) -> None:
    assert parse_length(format_length(length)) == length
