"""What makes two runs the same computation."""

from __future__ import annotations

import copy
from dataclasses import replace

import torch

from ropewalk.evaluation.identity import run_identity
from tests.evaluation import tiny


def test_an_identity_has_the_same_keys_in_every_command() -> None:
    assert list(run_identity(tiny.loaded(), tiny.documents())) == [
        *("config_sha256", "present_plan", "weights_sha256", "tokenizer_sha256", "bos"),
        *("dtype", "device", "corpus_sha256"),
    ]


def test_it_changes_with_each_thing_that_decides_numbers() -> None:
    base = run_identity(tiny.loaded(), tiny.documents())
    assert run_identity(tiny.loaded(), tiny.documents()) == base

    def changed(other: dict[str, object]) -> set[str]:
        return {key for key in base if other[key] != base[key]}

    assert changed(run_identity(tiny.loaded(), tiny.documents(2))) == {"corpus_sha256"}
    without_bos = run_identity(tiny.loaded(bos=False), tiny.documents())
    assert changed(without_bos) == {"tokenizer_sha256", "bos"}
    trained = replace(tiny.loaded(), model=copy.deepcopy(tiny.model()))
    with torch.no_grad():
        trained.model.lm_head.weight[0, 0] += 1
    assert changed(run_identity(trained, tiny.documents())) == {"weights_sha256"}
    for bits in (1, 1 << 15):  # one bit, anywhere
        flipped = replace(tiny.loaded(), model=copy.deepcopy(tiny.model()))
        weight = flipped.model.model.layers[-1].mlp.down_proj.weight.detach().view(torch.int32)
        weight[-1, -2] ^= bits
        assert changed(run_identity(flipped, tiny.documents())) == {"weights_sha256"}
    half = replace(tiny.loaded(), model=copy.deepcopy(tiny.model()).to(torch.float16))
    assert "dtype" in changed(run_identity(half, tiny.documents()))
