"""Text from anywhere: one `InputError` that names key, value, rule and remedy, or the value."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.errors import InputError, InvalidValue
from ropewalk.untrusted import (
    MAX_BYTES,
    MAX_DIGITS,
    Fields,
    one_of,
    parse_json,
    read_json,
    real_number,
    whole_number,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"])), inner
    ),
    max_leaves=20,
)  # fmt: skip


@given(JSON)
def test_ordinary_json_is_what_the_standard_library_reads(value: object) -> None:
    text = json.dumps(value)
    assert repr(parse_json(text, source="s")) == repr(json.loads(text))


@given(st.text() | st.text(alphabet='{}[]":,0123456789eE+-.NaInfty \\ud8'))
def test_any_text_is_a_value_that_can_be_written_again_or_an_input_error(text: str) -> None:
    try:
        value = parse_json(text, source="s")
    except InputError:
        return
    json.dumps(value, allow_nan=False, ensure_ascii=False).encode()


@pytest.mark.parametrize(
    ("text", "key", "value", "rule"),
    [
        ("NaN", "f", "NaN", "is not JSON"),
        ('{"a": {"b": [0, -Infinity]}}', "f: a.b[1]", "-Infinity", "is not JSON"),
        ('{"a": 1e999}', "f: a", "1e999", "too large for float64"),
        ("[1, -1e400]", "f: [1]", "-1e400", "too large for float64"),
        (f'{{"a": {"9" * 309}}}', "f: a", "9999", "too large for float64"),
        (f'{{"a": {"9" * 1000}}}', "f: a", "9999", f"more than {MAX_DIGITS} digits"),
        (f'{{"a": 0.{"9" * 1000}}}', "f: a", "0.999", f"more than {MAX_DIGITS} digits"),
        ('{"a": 1, "b": 2, "a": 3}', "f: a", "[1, 3]", "stands twice"),
        ('{"x": [{"a": 1, "a": 1}]}', "f: x[0].a", "[1, 1]", "stands twice"),
        ('{"a": {"b": NaN}, "a": 1}', "f: a", "", "stands twice"),
        ('{"a": "\\ud800"}', "f: a", "ud800", "not valid Unicode"),
        ('{"a": {"\\udc00": 1}}', "f: a.\\udc00", "udc00", "not valid Unicode"),
    ],
)
def test_what_parsers_let_through_is_refused_with_its_path(
    text: str, key: str, value: str, rule: str
) -> None:
    with pytest.raises(InvalidValue) as caught:
        parse_json(text, source="f")
    message = str(caught.value)
    assert message.startswith(f"{key} = ")
    assert value in message
    assert rule in message
    assert caught.value.remedy in message


def test_a_surrogate_pair_is_a_character() -> None:
    assert parse_json('"\\ud83e\\udea2"', source="f") == "\U0001faa2"


@pytest.mark.parametrize(
    "text",
    ["", "{", "nope", "{'a': 1}", '{"a": 1} x', "[1,]", '"\n"', '{"a"', "[" * 10**6, "\ufeff{}",
     '{"a":' * 10**6, "0x1", "+1", ".5"],
    ids=lambda text: repr(text[:8]),
)  # fmt: skip
def test_what_is_not_json_is_one_line(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_json(text, source="plan.json")
    assert str(caught.value).startswith("plan.json: is n")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("depth", range(600, 1000, 7))
def test_the_deepest_nesting_that_parses_can_still_be_refused(depth: int) -> None:
    text = '{"a":' + "[" * depth + "NaN" + "]" * depth + "}"
    with pytest.raises(InputError):
        parse_json(text, source="f")
    with pytest.raises(InputError):
        Fields(parse_json(text.replace("NaN", ""), source="f"), "f: ").number("a")


@pytest.mark.parametrize(
    "text",
    [
        "{" + ",".join(f'"{i}":0' for i in range(300_000)) + ',"299999":0}',
        "[" + "NaN," * 10**6 + "0]",
        "1" * 10**7,
        "1." + "1" * 10**7,
        '{"a":"' + "x" * 10**7 + '","b":NaN}',
        '{"' + "x" * 10**7 + '":NaN}',
    ],
    ids=["late duplicate", "all NaN", "long integer", "long real", "long text", "long key"],
)
def test_large_hostile_texts_are_refused_in_one_pass(text: str) -> None:
    """Anything quadratic would take hours here."""
    with pytest.raises(InvalidValue) as caught:
        parse_json(text, source="f")
    assert len(str(caught.value)) < 500


class TestReadJson:
    def test_reads_utf8(self, tmp_path: Path) -> None:
        (tmp_path / "x.json").write_text('{"λ": 1}', encoding="utf-8")
        assert read_json(tmp_path / "x.json") == {"λ": 1}
        assert read_json(str(tmp_path / "x.json")) == {"λ": 1}

    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            (b"\xff\xfe{\x00}\x00", "not UTF-8"),
            (b'{"a": "\xe9"}', "not UTF-8"),
            (b"", "not JSON"),
            (b"\x80\x04K\x01.", "not UTF-8"),  # a pickle is not looked into
            (b" " * (MAX_BYTES + 1), "larger than"),
            (b"0" + b" " * MAX_BYTES, "larger than"),
        ],
        ids=["utf-16", "latin-1", "empty", "pickle", "huge", "one byte too many"],
    )
    def test_a_bad_file_is_one_line_that_names_it(
        self, tmp_path: Path, content: bytes, reason: str
    ) -> None:
        path = tmp_path / "plan.json"
        path.write_bytes(content)
        with pytest.raises(InputError) as caught:
            read_json(path)
        assert str(caught.value).startswith(f"{path}: ")
        assert reason in str(caught.value)

    def test_exactly_the_limit_is_read(self, tmp_path: Path) -> None:
        (tmp_path / "x.json").write_text("[1] ")
        assert read_json(tmp_path / "x.json", max_bytes=4) == [1]
        with pytest.raises(InputError, match="larger than the limit of 3 bytes"):
            read_json(tmp_path / "x.json", max_bytes=3)

    @pytest.mark.parametrize("name", ["absent.json", ".", "x/y.json", "a\0b", "n" * 5000])
    def test_a_bad_path_is_one_line(self, tmp_path: Path, name: str) -> None:
        (tmp_path / "x").write_text("a file")
        with pytest.raises(InputError, match="check the path"):
            read_json(os.path.join(tmp_path, name))

    def test_a_pipe_is_refused_rather_than_waited_for(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe.json")
        with pytest.raises(InputError, match="is not a file"):
            read_json(tmp_path / "pipe.json")


class TestFields:
    def test_takes_every_kind_and_closes(self) -> None:
        fields = Fields(
            {
                "n": 1,
                "r": 2,
                "t": "x",
                "l": [1, "a"],
                "v": [1, 2.5],
                "m": {"k": 0},
                "s": {"k": "v"},
            },
            "f",
        )
        assert fields.integer("n") == 1
        real = fields.number("r")
        assert (real, type(real)) == (2.0, float)
        assert fields.text("t") == "x"
        assert fields.items("l") == [1, "a"]
        fields.take("v")
        assert fields.mapping("m") == {"k": 0}
        assert fields.texts("s") == {"k": "v"}
        fields.close()

    @pytest.mark.parametrize("value", [None, 1, "x", [], [("a", 1)], True])
    def test_only_an_object_has_members(self, value: object) -> None:
        with pytest.raises(InvalidValue, match=r"^f = .*must be a JSON object"):
            Fields(value, "f")
        with pytest.raises(InvalidValue, match=r"^plan\.json = .*must be a JSON object"):
            Fields(value, "plan.json: ")

    @pytest.mark.parametrize(
        ("take", "wrong"),
        [
            (Fields.integer, [1.0, "1", True, None, [1]]),
            (Fields.number, ["1", True, None, [1.0], math.nan, math.inf, 10**400]),
            (Fields.text, [1, None, ["a"], True]),
            (Fields.items, [{}, "ab", None, 1]),
            (Fields.mapping, [[], None, "a", 1]),
            (Fields.texts, [{"a": 1}, {"a": None}, [], "a"]),
        ],
    )
    def test_each_wrong_kind_is_named_with_its_path(
        self, take: Callable[[Fields, str], object], wrong: list[object]
    ) -> None:
        for value in wrong:
            with pytest.raises(InvalidValue, match=r"^f\.k(\[\d\]|\.a)? = .*must be "):
                take(Fields({"k": value}, "f"), "k")
        with pytest.raises(InvalidValue, match=r"^f\.k = None: is missing"):
            take(Fields({}, "f"), "k")

    def test_an_unknown_key_is_named_with_the_known_ones(self) -> None:
        fields = Fields({"a": 1, "bsae": 2}, "f")
        fields.take("a")
        with pytest.raises(InvalidValue) as caught:
            fields.close()
        assert str(caught.value) == ("f.bsae = 2: is not a known key; remove it; known: a")

    def test_build_refuses_leftovers_before_it_builds(self) -> None:
        with pytest.raises(InvalidValue, match=r"f\.a"):
            Fields({"a": 1}, "f").build(pytest.fail, reason="built")

    def test_build_puts_the_path_before_a_broken_rule(self) -> None:
        def make(**_: object) -> None:
            raise InvalidValue("base", 0, "rule", "remedy")

        with pytest.raises(InvalidValue, match=r"^plan\.json: geometry\.base = 0"):
            Fields({}, "plan.json: geometry").build(make)
        with pytest.raises(InvalidValue, match=r"^plan\.json: base = 0"):
            Fields({}, "plan.json: ").build(make)

    def test_the_callers_object_is_left_alone(self) -> None:
        given_ = {"a": 1}
        Fields(given_, "f").take("a")
        assert given_ == {"a": 1}


def test_numbers_keep_their_kind() -> None:
    assert type(real_number(3, "k")) is float
    assert real_number(2**53 + 1, "k") == 2.0**53
    assert whole_number(10**400, "k") == 10**400


def test_one_of_lists_the_choices() -> None:
    one_of("a", ("a", "b"), "k")
    with pytest.raises(InvalidValue, match="choose a or b"):
        one_of("c", ("a", "b"), "k")
