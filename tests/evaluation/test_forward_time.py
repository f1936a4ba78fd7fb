"""What forwards take: timed within a minute on any model, and said before a run that takes long."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import ropewalk as rw
from ropewalk.evaluation import forward_time
from ropewalk.evaluation.answering import TOKENS_PER_BATCH
from ropewalk.evaluation.forward_time import Range, Timed, announce
from ropewalk.run_directory import CONFIGURATION
from tests.evaluation import tiny


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.folder_of(tiny.model(), tmp_path_factory.mktemp("models") / "tiny")


class Said(Exception):
    """Ends a run at its first notice, which must come before its first forward."""


def say(text: str) -> None:
    raise Said(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        ((0.1, 0.2, 0.3), "1 s"),
        ((10.0, 15.0, 30.0), "10 to 30 s"),
        ((100.0, 150.0, 300.0), "1.7 to 5.0 minutes"),
        ((36000.0, 40000.0, 144000.0), "10.0 to 40.0 hours"),
    ],
)
def test_a_range_is_told_in_the_unit_that_people_use(seconds: Any, text: str) -> None:
    assert str(Range(*seconds)) == text


def test_a_slow_model_is_timed_at_short_lengths_only(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny.model()
    read: list[int] = []
    model.get_input_embeddings().register_forward_pre_hook(
        lambda module, given: read.append(given[0].numel())
    )
    quick = Timed.of(model, 128, 1024)
    assert quick.at == (128, 1024)
    # As an evaluation reads them: in batches, without the last token.
    assert max(read) == TOKENS_PER_BATCH // 1024 * 1023
    read.clear()
    monkeypatch.setattr(forward_time, "PATIENCE", 0.0)  # any model is slow now
    slow = Timed.of(model, 128, 1024)
    assert slow.at == (128, 256)
    # Without batches, and as often as a range needs: each length four times, and the probe twice.
    assert [count for count in read if count > 8] == [127] * 6 + [255] * 4
    # Of what is longer, both are an extrapolation by the same arithmetic.
    [(length, times)] = forwards = [(4096, 3)]
    assert slow.range(forwards).high >= times * slow.arithmetic.seconds(length, slow.rates)[0]


def asked(
    model: Any, notice: Callable[[str], None], begun: Path | None = None, fewest: int = 0
) -> None:
    announce(
        model,
        128,
        [(256, 10), (128, 4)],
        notice,
        begun=begun,
        what="this search",
        smaller=[("`samples` 5", [(256, 5)]), ("`samples` 1", [(256, fewest)])],
        otherwise="`plan` does",
    )


def test_a_long_run_is_announced_with_what_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    model, said = tiny.model(), list[str]()
    asked(model, said.append)
    assert not said  # a quick run begins without a word
    monkeypatch.setattr(forward_time, "LONG", 0.0)
    asked(model, said.append)
    monkeypatch.setattr(forward_time, "NIGHT", 0.0)
    asked(model, said.append)
    asked(model, said.append, fewest=1)
    [fits, smaller, none] = said
    assert fits.startswith("this search takes up to 14 forwards of up to 256 tokens from beginning")
    assert fits.endswith("on this machine (timed at 128 and 256 tokens)")
    assert smaller.endswith("; `samples` 1 fits into 0 hours")
    assert "; no such run fits into 0 hours (one forward takes " in none
    assert none.endswith("), but `plan` does")


def test_a_run_that_goes_on_was_announced_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forward_time, "LONG", 0.0)
    with pytest.raises(Said):
        asked(tiny.model(), say, tmp_path / CONFIGURATION)
    (tmp_path / CONFIGURATION).touch()
    asked(tiny.model(), say, tmp_path / CONFIGURATION)


RUNS: dict[str, Callable[[Path], object]] = {
    "search": lambda folder: rw.search(folder, 256, corpus=tiny.documents(8), notice=say),
    "recovery": lambda folder: rw.search(
        folder, 256, recover=True, corpus=tiny.documents(8), notice=say
    ),
    "published": lambda folder: rw.search(
        folder, 256, as_published=True, corpus=tiny.documents(8), notice=say
    ),
    "evaluation": lambda folder: rw.evaluate(
        folder, tasks=["needle"], lengths=[128], corpus=tiny.documents(8), notice=say
    ),
    "measurement": lambda folder: rw.precision(
        folder, corpus=tiny.documents(8), length=128, notice=say
    ),
    "run": lambda folder: rw.extend(folder, 256, corpus=tiny.documents(8), notice=say),
}


@pytest.mark.parametrize("name", RUNS)
def test_each_verb_that_takes_long_says_so_before_it_keeps_anything(
    name: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(forward_time, "LONG", 0.0)
    kind = name if name in ("evaluation", "measurement", "run") else "search"
    with pytest.raises(Said, match=rf"this {kind}.* takes up to [\d,]+ forwards of up to "):
        RUNS[name](folder)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow  # half a GB of random weights, and a minute of timing
def test_a_default_search_on_a_model_of_135_million_parameters_is_announced_in_a_minute() -> None:
    config = LlamaConfig(
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        vocab_size=49152,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    model, said = LlamaForCausalLM(config).eval(), list[str]()
    began = time.process_time()
    announce(
        model,
        8192,
        [(16384, 980), (8192, 60)],
        said.append,
        begun=None,
        what="this search",
        smaller=[("`evaluations` 10", [(16384, 200)])],
        otherwise="`plan` takes no forward",
    )
    assert time.process_time() - began < 120
    [told] = said
    found = re.search(r"about ([\d.]+) to ([\d.]+) hours on this machine", told)
    assert found is not None
    assert float(found[1]) > 8
