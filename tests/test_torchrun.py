"""What the environment of torchrun says, and that another one is refused in a line."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch

import ropewalk as rw
from ropewalk.errors import InputError, Unsupported
from ropewalk.torchrun import first, local_rank, started

TWO = {"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1", "MASTER_ADDR": "h", "MASTER_PORT": "1"}


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for key in TWO:
        monkeypatch.delenv(key, raising=False)
    return monkeypatch


def test_a_process_alone_and_one_of_two(environment: pytest.MonkeyPatch) -> None:
    assert (started(), first(), local_rank()) == (1, True, None)
    for key, text in TWO.items():
        environment.setenv(key, text)
    assert (started(), first(), local_rank()) == (2, False, 1)
    environment.setenv("RANK", "00")
    assert first()


def test_a_rank_without_a_size_is_a_process_alone(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("RANK", "1")
    assert (started(), first()) == (1, True)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"RANK": None}, "RANK is not set in"),
        ({"RANK": "2"}, "RANK is 2, not below the WORLD_SIZE of 2, in"),
        ({"WORLD_SIZE": "0", "RANK": "0"}, "RANK is 0, not below the WORLD_SIZE of 0, in"),
        ({"WORLD_SIZE": ""}, "WORLD_SIZE is '', which is not a number, in"),
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE is 'two', which is not a number, in"),
        ({"WORLD_SIZE": "-2"}, "WORLD_SIZE is '-2', which is not a number, in"),
        ({"WORLD_SIZE": "٢"}, "WORLD_SIZE is '٢', which is not a number, in"),
        ({"MASTER_PORT": None}, "MASTER_PORT is not set in"),
        ({"LOCAL_RANK": None}, "LOCAL_RANK is not set in"),
    ],
)
def test_what_torchrun_would_not_set_is_refused(
    given: Mapping[str, str | None], found: str, environment: pytest.MonkeyPatch
) -> None:
    for key, text in {**TWO, **given}.items():
        if text is not None:
            environment.setenv(key, text)
    with pytest.raises(InputError, match="start several processes with `torchrun") as refused:
        started()
    assert str(refused.value).startswith(found)
    assert "\n" not in str(refused.value)


def test_a_local_rank_that_is_no_number_is_refused(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("LOCAL_RANK", "gpu")
    with pytest.raises(InputError, match="LOCAL_RANK is 'gpu', which is not a number"):
        local_rank()


@pytest.mark.parametrize(
    ("verb", "model"), [("fingerprint", torch.nn.Linear(1, 1)), ("precision", "bundled")]
)
def test_commands_of_one_process_refuse_several(
    verb: str, model: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model in memory has one process too; ranks read their parts of its files."""
    own = {"WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "0"}
    own |= {"MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
    for key, value in own.items():
        monkeypatch.setenv(key, value)
    with pytest.raises(Unsupported, match=f"{verb}.* runs in one process, and torchrun started 2"):
        getattr(rw, verb)(model)
