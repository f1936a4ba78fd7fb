import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.errors import InvalidValue
from ropewalk.lengths import MAX_LENGTH, format_length, parse_length, parse_lengths


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
        "0",
        "-4k",
        "1e3",
        "0.3",
        "1.0001k",
        "nan",
        "4 k b",
        "9" * 16,
        "9999999999M",
        "٤k",
    ],
)
def test_what_is_no_length_is_refused_with_the_way_to_write_it(text: str) -> None:
    with pytest.raises(InvalidValue, match="write 4096, 4k, 128k or 1M"):
        parse_length(text)


@pytest.mark.parametrize("ellipsis", ["…", "..."])
def test_an_ellipsis_stands_for_the_doublings(ellipsis: str) -> None:
    assert parse_lengths(["1k", ellipsis, "8k"]) == [1024, 2048, 4096, 8192]
    assert parse_lengths(["3k", ellipsis, "10k", "64k"]) == [3072, 6144, 10240, 65536]
    assert parse_lengths(["8k", "1k"]) == [8192, 1024]
    for words in ([ellipsis, "1k"], ["1k", ellipsis], ["1k", ellipsis, ellipsis, "4k"]):
        with pytest.raises(InvalidValue, match="write"):
            parse_lengths(words)


@pytest.mark.parametrize("length", [128000, 1024000])
def test_a_round_decimal_length_is_shown_as_it_was_given(length: int) -> None:
    assert format_length(parse_length(f"{length:,}")) == str(length)


def test_a_length_beyond_the_limit_is_told_the_limit() -> None:
    with pytest.raises(InvalidValue, match="from 1 to 1048576M"):
        parse_length("9999999M")


@given(st.integers(1, MAX_LENGTH))
def test_formatting_is_exact(length: int) -> None:
    assert parse_length(format_length(length)) == length
