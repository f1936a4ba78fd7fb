"""A search that is killed, again and again, ends as if it never had been."""

from __future__ import annotations

import random
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ropewalk.run_directory import Journal, read_journal
from tests.forks import Forks

Victim = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def victim(fresh: Forks) -> Victim:
    return lambda *words: fresh.run(["-m", "tests.searching.victim", *words])


def kill_until(victim: Victim, kills: int, strategy: str, folder: Path, rng: random.Random) -> None:
    """Searches, each killed at random moments until it is through; no less than so many kills."""
    undisturbed = victim(whole := folder / "whole.jsonl", strategy)
    assert undisturbed.returncode == 0, undisturbed.stderr
    line = whole.stat().st_size // len(read_journal(whole))
    died = {"scoring": 0, "writing": 0}
    torn = 0
    while sum(died.values()) < kills or not all(died.values()):
        journal = folder / "killed.jsonl"
        journal.unlink(missing_ok=True)
        while True:
            where = rng.choice(list(died))
            at = rng.randint(1, 30) if where == "scoring" else rng.randint(1, 60 * line)
            ended = victim(journal, strategy, where, at)
            if ended.returncode == 0:
                break
            assert ended.returncode == -signal.SIGKILL, ended.stderr
            died[where] += 1
            torn += journal.stat().st_size and not journal.read_bytes().endswith(b"\n")
        assert ended.stdout == undisturbed.stdout
        assert journal.read_bytes() == whole.read_bytes()
    assert torn, "no kill fell inside a line"


@pytest.mark.parametrize("strategy", ["adaptive"])
def test_a_killed_search_ends_as_an_undisturbed_one(
    strategy: str, tmp_path: Path, victim: Victim
) -> None:
    kill_until(victim, 5, strategy, tmp_path, random.Random(4))


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["adaptive", "evolution"])
def test_a_hundred_kills_change_nothing(strategy: str, tmp_path: Path, victim: Victim) -> None:
    kill_until(victim, 100, strategy, tmp_path, random.Random(5))


def test_the_last_line_torn_at_any_byte_is_scored_again(tmp_path: Path, victim: Victim) -> None:
    victim(whole := tmp_path / "whole.jsonl", "evolution")
    content = whole.read_bytes()
    last = content[:-1].rindex(b"\n") + 1
    torn = tmp_path / "torn.jsonl"
    for cut in (last + 1, len(content) - 1):
        torn.write_bytes(content[:cut])
        with pytest.warns(UserWarning, match="torn off"):
            journal = Journal(torn)
        journal.close()
        assert victim(torn, "evolution").returncode == 0
        assert torn.read_bytes() == content
