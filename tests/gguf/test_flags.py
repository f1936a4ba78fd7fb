"""A GGUF file under a schedule by llama.cpp's flags: it answers as the planned model does here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ropewalk.context_plan import FULL_ATTENTION, PlanStep
from ropewalk.errors import Unsupported
from ropewalk.evaluation.scoring import Scorer
from ropewalk.gguf.flags import Flags, flags_of
from ropewalk.gguf.llama_cpp_run import Engine, Scored, _words, running
from ropewalk.gguf.parts import read_model
from ropewalk.models.config import BUNDLED
from ropewalk.models.install import applied
from ropewalk.models.load import LoadedModel, load
from ropewalk.planning.extension import extend
from ropewalk.schedule import RotarySchedule
from tests.evaluation.served import made
from tests.gguf.tiny_architectures import deep

STATED, LENGTH = 512, 1400
"""The file's own context, and a text beyond it."""
PLACES = range(LENGTH - 24, LENGTH)
METHODS = {
    "linear": {},
    "ntk": {},
    "yarn": {},
    "base_change": {"base": 500_000.0},
    "yarn with betas": {"beta_fast": 16.0, "beta_slow": 2.0},
}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made.gguf(tmp_path_factory.mktemp("gguf") / "plain.gguf", made.plain(), length=STATED)


@pytest.fixture(scope="module")
def bundled() -> LoadedModel:
    return load(BUNDLED, dtype="float32", device="cpu")


@pytest.fixture(scope="module")
def tokens() -> np.ndarray:
    return np.random.default_rng(0).integers(2, 1024, LENGTH)


def by_flags(file: Path, schedule: RotarySchedule, tokens: np.ndarray) -> Scored:
    flags = flags_of(read_model(file), schedule, LENGTH)
    with running(file, length=LENGTH, flags=flags) as llama:
        found = llama.scores(tokens, PLACES)
        # Each token is read once, and the last one again where the next is half a character.
        assert LENGTH - 1 <= llama.read < LENGTH + len(PLACES)
    return found


@pytest.mark.parametrize("name", METHODS)
def test_answers_are_those_of_the_planned_model(
    name: str, file: Path, bundled: LoadedModel, tokens: np.ndarray
) -> None:
    """Beyond the file's own context: float32 on both sides, so what differs is rounding.

    The loss of a random token is about 11 nats; a schedule that is not followed moves it by a
    tenth or more (below), and rounding, of angles too, by less than a thousandth.
    """
    plain = made.plain()
    schedule = extend(plain, LENGTH, name.partition(" ")[0], METHODS[name])
    found = by_flags(file, schedule, tokens)
    plan = bundled.present_plan.with_steps(FULL_ATTENTION, (PlanStep(LENGTH, schedule),))
    with applied(bundled.model, plan, length=LENGTH):
        [here] = Scorer(bundled.model).score([tokens], [PLACES.start])
    np.testing.assert_allclose(found.losses, here.losses, atol=1e-3)
    np.testing.assert_array_equal(found.chosen, here.chosen)
    unmodified = by_flags(file, replace(plain, length=LENGTH), tokens)
    assert np.abs(unmodified.losses - here.losses).max() > 0.1


def test_the_page_lists_each_flag_that_is_passed() -> None:
    page = (Path(__file__).parents[2] / "docs" / "gguf.md").read_text("utf-8")
    words = set(Flags(1e4, 0.5, True, 512).words)
    for exact, keeps in ((True, True), (False, False)):
        words |= {
            *_words(Path("a.gguf"), 512, exact, keeps, "q8_0", Engine(threads=1, gpu_layers=1))
        }
    passed = {word for word in words if word.startswith("--")} | {"--port"}
    assert len(passed) > 20
    assert [flag for flag in sorted(passed) if f"`{flag}`" not in page] == []


def test_what_no_flag_says_is_refused_with_the_remedy(file: Path, tmp_path: Path) -> None:
    header, plain = read_model(file), made.plain()
    for method in ("llama3", "ntk_mixed"):
        with pytest.raises(
            Unsupported, match=r"a factor for each pair.*write a file with the plan"
        ):
            flags_of(header, extend(plain, LENGTH, method), LENGTH)
    short = extend(plain, LENGTH, "yarn", {"factor": 2.0})
    with pytest.raises(Unsupported, match=r"1,024 tokens, and 1,400 are asked for; write a file"):
        flags_of(header, short, LENGTH)
    factors = made.gguf(tmp_path / "factors.gguf", extend(plain, made.TARGET, "llama3"))
    with pytest.raises(Unsupported, match=r"holds the tensor rope_freqs.weight, which no flag"):
        flags_of(read_model(factors), extend(plain, LENGTH, "linear"), LENGTH)
    keys = {"context_length": 64, "attention__sliding_window": 16}
    windows = read_model(deep(tmp_path / "windows.gguf", "gemma2", 2, **keys))
    own = replace(plain, length=64)
    with pytest.raises(Unsupported, match="flags do not change its layers with a sliding window"):
        flags_of(windows, own, 128)
