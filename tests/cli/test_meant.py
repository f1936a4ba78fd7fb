"""What a call means: only words that a parser would refuse are read anew."""

from __future__ import annotations

import pytest

from ropewalk.cli.meant import options_meant, verb_meant
from ropewalk.errors import InputError

PLAN = ("--to", "--method", "--set", "--runtime", "--output", "--learning-rate", "--run", "--help")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("help", "--help"),
        ("help plan", "plan --help"),
        ("-h", "--help"),
        ("version", "--version"),
        ("-V", "--version"),
        ("Plan m --to 8k", "plan m --to 8k"),
        ("--version", "--version"),
        ("./model", "./model"),
        ("", ""),
    ],
)
def test_the_words_of_a_whole_call(written: str, meant: str) -> None:
    assert verb_meant(written.split()) == meant.split()


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("m -h", "m --help"),
        ("m to 8k", "m --to 8k"),
        ("m --to to", "m --to to"),  # a value stays what it is
        ("m --target 8k", "m --to 8k"),
        ("m --context-length=8k", "m --to=8k"),
        ("--model m --to 8k", "m --to 8k"),
        ("--model=m --to 8k", "m --to 8k"),
        ("m --method YaRN+Log-N", "m --method yarn+log_n"),
        ("m --run-time vLLM", "m --runtime vLLM"),
        ("m --runtime vLLM", "m --runtime vllm"),
        ("m --learning_rate 1", "m --learning-rate 1"),
        ("m --LR 1", "m --learning-rate 1"),
        ("m --out plan.json", "m --output plan.json"),
        ("m --samples 2", "m --samples 2"),  # no option of this verb: the parser says so
        ("m --runs 2", "m --runs 2"),
    ],
)
def test_the_options_of_a_verb(written: str, meant: str) -> None:
    assert options_meant(written.split(), PLAN, model=True) == meant.split()


def test_a_verb_without_a_model_keeps_the_option() -> None:
    assert options_meant(["--model", "m"], PLAN, model=False) == ["--model", "m"]


@pytest.mark.parametrize("written", ["m --factor 4 --to 8k", "m --factor=4", "m --Beta_Fast 4"])
def test_a_parameter_of_a_method_is_shown_where_it_belongs(written: str) -> None:
    with pytest.raises(InputError, match=r"not an option; write --set (factor|beta_fast)=4$"):
        options_meant(written.split(), PLAN, model=True)


def test_a_parameter_is_no_matter_where_a_verb_takes_none() -> None:
    assert options_meant(["m", "--factor", "4"], ("--to",), model=True) == ["m", "--factor", "4"]
