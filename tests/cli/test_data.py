"""`ropewalk data build` and `data describe`: two words, and what they print."""

from __future__ import annotations

from pathlib import Path

import pytest

from ropewalk.cli import call
from ropewalk.errors import InputError, InvalidValue, UnknownName


def test_a_folder_is_built_described_and_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "a=b.txt"  # a path with an equals sign is a path
    text.write_text("one rope, two ropes\n" * 200)
    tokens = str(tmp_path / "tokens")
    assert call(["data", "build", "bundled", "--corpus", str(text), "-o", tokens]) == 0
    said = capsys.readouterr().out
    assert f"how it fills windows: ropewalk data describe {tokens} --length 32k" in said
    picture = tmp_path / "lengths.png"
    words = ["--length", "64", "--layout", "interleaved", "--plot", str(picture)]
    assert call(["data", "describe", tokens, *words]) == 0
    said = capsys.readouterr().out
    assert "windows of 64 (interleaved)" in said
    assert "in the first epoch" in said
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_one_word_names_both() -> None:
    for words in (["data"], ["data", "bild"]):
        with pytest.raises(InputError, match=f"{' '.join(words)}: write data build or data desc"):
            call(words)


def test_help_on_the_first_word_lists_both(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["data", "--help"]) == 0
    said = capsys.readouterr().out
    assert "data build" in said
    assert "data describe" in said


@pytest.mark.parametrize("given", [["=x"], ["x="], ["python", "held-out"], ["a=python"] * 2])
def test_a_corpus_needs_a_name_of_its_own(given: list[str], tmp_path: Path) -> None:
    corpora = [word for each in given for word in ("--corpus", each)]
    with pytest.raises(InputError, match=r"(--corpus|NAME) = |--corpus names a twice"):
        call(["data", "build", "bundled", *corpora, "-o", str(tmp_path / "tokens")])
    assert not (tmp_path / "tokens").exists()


def test_a_file_is_no_place_for_tokens(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"--output = .*: is a file, not a folder"):
        call(["data", "build", "bundled", "--corpus", "python", "-o", str(tmp_path / "file")])


def test_a_second_share_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--share names code twice"):
        call(["data", "describe", str(tmp_path), "--share", "code=1", "--share", "code=2"])


@pytest.mark.parametrize("share", ["code=", "=1", "code=half"])
def test_a_share_names_a_domain_and_a_number(share: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match=r"--share = .*must be (NAME=VALUE|a number)"):
        call(["data", "describe", str(tmp_path), "--length", "64", "--share", share])


def test_a_share_alone_is_the_name_of_a_mixture(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="unknown mixture 'code'; valid: prolong-512k, prolong"):
        call(["data", "describe", str(tmp_path), "--length", "64", "--share", "code"])
    with pytest.raises(InvalidValue, match="--share = 'prolong-64k': needs a name of its own"):
        call(["data", "describe", str(tmp_path), "--share", "prolong-64k", "--share", "code=1"])
