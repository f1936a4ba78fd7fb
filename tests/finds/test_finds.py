"""Inputs that once went wrong: each folder here holds the files of one, which must stay mended.

Files in `model/` replace those of the call's model; files in `run/` stand in what the call left, as
if an editor or a kill had put them there, and then it is called again.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from ropewalk.__main__ import run
from ropewalk.reports import figures
from ropewalk.run_directory import EVENTS
from tests.evaluation.scored import rewritten
from tools.reliability.subjects import SUBJECTS, Stage, make

FOLDER = Path(__file__).parent


class Find(NamedTuple):
    """The call that it is for (tools/reliability/subjects.py), and its error now."""

    subject: str
    says: str


FINDS = {
    "measured_without_its_name": Find("search", "search-measured.jsonl: line 1: of"),
    "precision_without_a_kind": Find("precision", "measurements.jsonl: line 1: kind"),
    "traps_twice": Find("precision", "measurements.jsonl: line 2 is not one that"),
    "shard_twice": Find("data", "lists a shard twice"),
    "configuration_of_another_kind": Find("evaluate", "has been edited since the run began"),
    "no_tokenizer": Find("evaluate", "its tokenizer_class, PreTrainedConfig, is no tokenizer"),
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    room = tmp_path_factory.mktemp("inputs")
    make(str(room))
    return room


def test_each_folder_is_a_find() -> None:
    assert {path.name for path in FOLDER.iterdir() if path.name[0] != "_"} == {
        *FINDS,
        Path(__file__).name,
    }


@pytest.mark.parametrize("name", FINDS)
@pytest.mark.filterwarnings("default")  # the command shows them as sentences
def test_a_find_stays_mended(
    inputs: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    find = FINDS[name]
    subject = SUBJECTS[find.subject]
    for attribute, value in subject.changed.items():
        monkeypatch.setattr(attribute, value)
    monkeypatch.setattr(figures, "PICTURES", ())  # which take longer than all the rest
    shutil.copytree(inputs, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    words = Stage(tmp_path).words(subject)
    if (FOLDER / name / "run").exists():
        assert run(words) in (0, 3)
    shutil.copytree(FOLDER / name, tmp_path, dirs_exist_ok=True)
    for journal in (FOLDER / name).glob("run/*.jsonl"):
        if journal.name != EVENTS:
            rewritten(tmp_path / "run" / journal.name)
    capsys.readouterr()
    assert run(words) == 2
    assert find.says in capsys.readouterr().err
