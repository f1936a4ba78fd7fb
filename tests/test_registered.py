"""Methods, tasks and objectives of one's own: found by name, kept with a digest, never mixed up."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ropewalk as rw
from ropewalk import registered
from ropewalk.errors import InputError, UnknownName
from ropewalk.scaling import named
from ropewalk.searching.model.measure import ENTRIES
from ropewalk.searching.model.objectives import loss_of
from tests.cli.calling import ropewalk
from tests.evaluation import tiny

EXAMPLES = Path(__file__).parents[1] / "examples"
METHOD = EXAMPLES / "own_method.py"


def test_a_plugin_brings_a_method_to_plan_and_methods() -> None:
    plan = ("plan", "llama-2-7b", "--to", "16k", "--plugin", METHOD, "--method", "slow_half")
    found = json.loads(ropewalk(*plan, "--set", "share=0.25", "--json"))
    factors = np.array(found["rescale_factors"])
    assert (factors[:48] == 1).all()
    assert (factors[48:] == 4).all()
    assert found["plan"]["provenance"]["code of slow_half"].startswith("own_method.py, SHA-256 ")
    assert "Interpolation of the slowest pairs alone." in " ".join(
        ropewalk("methods", "--plugin", METHOD).split()
    )


def test_a_recipe_with_an_own_method_needs_its_code() -> None:
    registered.load(METHOD)
    plan = rw.plan("llama-2-7b", "16k", "slow_half").plan
    assert rw.ContextPlan.loads(plan.dumps()) == plan
    registered._ALL["method"].clear()
    with pytest.raises(UnknownName, match="slow_half"):
        named("slow_half")


def test_a_run_with_an_own_task_keeps_its_digest_and_refuses_another(tmp_path: Path) -> None:
    registered.load(EXAMPLES / "own_task.py")
    asked = {"tasks": ["colour"], "lengths": [128], "samples": 4, "corpus": tiny.documents()}
    run = tmp_path / "run"
    found = rw.evaluate(tiny.loaded(), run=run, **asked)  # type: ignore[arg-type]
    assert {result.task for result in found.results} == {"colour"}
    kept = json.loads((run / "run.json").read_text())["configuration"]["code"]
    assert kept["task colour"]["origin"] == "own_task.py"
    assert len(kept["task colour"]["sha256"]) == 64
    rw.evaluate(tiny.loaded(), run=run, **asked)  # type: ignore[arg-type]
    changed = tmp_path / "own_task.py"
    changed.write_text((EXAMPLES / "own_task.py").read_text().replace("black", "brown"))
    registered.load(changed)
    with pytest.raises(InputError, match=r"holds a run with a different configuration: .*sha256"):
        rw.evaluate(tiny.loaded(), run=run, **asked)  # type: ignore[arg-type]


def test_a_run_keeps_nothing_of_code_that_it_does_not_use(tmp_path: Path) -> None:
    registered.load(METHOD)
    assert registered.code_in({"methods": ["yarn"]}) == {}
    assert [*registered.code_in({"methods": ["yarn+slow_half"]})] == ["method slow_half"]


def test_an_own_objective_is_the_mean_that_a_search_minimises() -> None:
    @rw.register("objective")
    def answers_alone(text: float, answers: float, retrieved: float) -> float:
        return answers

    known = np.array([[[3.0, 1.0, 0.5], [np.nan] * 3], [[2.0, 4.0, 0.0], [1.0, 0.5, 1.0]]])
    more = len(ENTRIES) - known.shape[-1]  # which a search measures too, and tells no function
    measured = np.concatenate([known, *[known[..., :1]] * more], axis=-1)
    np.testing.assert_array_equal(loss_of(measured, "answers_alone"), loss_of(measured, "needle"))
    assert loss_of(np.empty((0, len(ENTRIES))), "answers_alone").shape == (0,)


@pytest.mark.slow
def test_a_search_takes_a_function_and_refuses_to_go_on_with_another(tmp_path: Path) -> None:
    def weighted(text: float, answers: float, retrieved: float) -> float:
        return text + 2 * answers

    texts = [document.text for document in tiny.documents(2, lines=40)]
    run = tmp_path / "run"

    def search(objective: object) -> rw.ContextPlan:
        found = rw.search(tiny.loaded(), 256, corpus=texts, budget=3, run=run, objective=objective)  # type: ignore[arg-type]
        return found.plan

    assert search(weighted).provenance["objective"] == "weighted"
    assert "code of weighted" in search(weighted).provenance
    with pytest.raises(InputError, match='objective was "weighted", now "mixed"'):
        search("mixed")


def test_what_cannot_be_kept_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="ropewalk has one of that name"):

        @rw.register("method")
        def yarn(start: rw.RotarySchedule, target_length: int) -> rw.RotarySchedule:
            return start

    with pytest.raises(InputError, match="must be a name of small letters"):
        rw.register("objective")(lambda text, answers, retrieved: text)
    with pytest.raises(UnknownName, match="kind"):
        rw.register("metod")(print)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="missing 1 required positional argument: 'score'"):
        rw.register("task")(tiny.documents)
    for content, complaint in (
        ("x = 1\n", "registers nothing"),
        ("1 / 0\n", "failed with ZeroDivisionError"),
        ("def", "failed with SyntaxError"),
        (f"{SIGNATURE}, *, x: 'nope' = 3): ...", "method own: name 'nope' is not defined"),
        (f"{SIGNATURE}, *, x=3): ...", "its parameter 'x' has no type"),
        ("class E(Exception):\n    __str__ = None\nraise E", "message failed with TypeError"),
        ("raise ValueError('x' * 10**6)", "ValueError: x{500}; fix it"),
    ):
        file = tmp_path / "plugin.py"
        file.write_text(content)
        with pytest.raises(InputError, match=complaint):
            registered.load(file)
    with pytest.raises(InputError, match="there is no such file"):
        registered.load(tmp_path / "none.py")


SIGNATURE = "import ropewalk as rw\n@rw.register('method')\ndef own(start, target_length"
FAULTY = '''
import sys
import ropewalk as rw
from ropewalk.evaluation.tasks import Draft
from tests.cli.calling import ropewalk

@rw.register("method")
def crashes(start, target_length):
    """Divides."""
    return start if 1 / 0 else start

@rw.register("method")
def leaves(start, target_length):
    """Exits."""
    sys.exit(0)

@rw.register("method")
def gives_nothing(start, target_length):
    """Nothing."""

@rw.register("task", score=lambda written, references: {}["q"])
def unscored(scene, units):
    """A score that fails."""
    return Draft("word " * units + "The door is", " red", 0.5)

@rw.register("task", score=lambda written, references: float("nan"))
def no_number(scene, units):
    """A score that is no number."""
    return Draft("word " * units + "The door is", " red", 0.5)

@rw.register("task", score=lambda written, references: 1.0)
def stands_still(scene, units):
    """Always the same prompt."""
    return Draft("The door is", " red", 0.5)

@rw.register("task", score=lambda written, references: 1.0)
def nowhere(scene, units):
    """A place that is no number."""
    return Draft("word " * units + "The door is", " red", float("nan"))

@rw.register("task", score=lambda written, references: 1.0)
def unanswered(scene, units):
    """No answer."""
    return Draft("word " * units + "The door is", " ", 0.5)

@rw.register("task", score=lambda written, references: 1.0)
def surrogate(scene, units):
    """A byte of another encoding."""
    return Draft("word " * units + "The door\\udcff is", " red", 0.5)
'''


@pytest.fixture
def faulty(tmp_path: Path) -> Path:
    path = tmp_path / "faulty.py"
    path.write_text(FAULTY)
    return path


@pytest.mark.parametrize(
    ("method", "text"),
    [
        ("crashes", "method crashes: failed with ZeroDivisionError: division by zero; fix it"),
        ("leaves", "method leaves: called sys.exit"),
        ("gives_nothing", "method gives_nothing: returned None"),
    ],
)
def test_a_fault_of_an_own_method_is_the_users(faulty: Path, method: str, text: str) -> None:
    registered.load(faulty)
    with pytest.raises(InputError, match=text):
        rw.plan("llama-2-7b", "16k", method)


@pytest.mark.parametrize(
    ("task", "text"),
    [
        ("unscored", "task unscored: failed with KeyError: 'q'; fix it"),
        ("no-number", "check `score` of the task no-number"),
        ("stands-still", "task stands-still: .* let its text grow with `units`"),
        ("nowhere", "task nowhere = nan: must be a depth from 0 to 1"),
        ("unanswered", "task unanswered = ' ': must be an answer"),
        ("surrogate", "task surrogate = .*: stands in its text, and is no character"),
    ],
)
def test_a_fault_of_an_own_task_is_the_users(faulty: Path, task: str, text: str) -> None:
    registered.load(faulty)
    with pytest.raises(InputError, match=text):
        rw.evaluate(
            tiny.loaded(),
            tasks=[task],
            lengths=[128],
            samples=1,
            mode="generate",
            corpus=tiny.documents(),
        )


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("class Odd(BaseException): pass\nraise Odd('mine')\n", "failed with Odd"),
        ("raise GeneratorExit\n", "failed with GeneratorExit"),
        ("import sys\nsys.exit(0)\n", r"called sys\.exit"),
    ],
)
def test_a_plugin_that_raises_what_no_one_catches_is_refused(
    tmp_path: Path, body: str, told: str
) -> None:
    path = tmp_path / "script.py"
    path.write_text(body)
    with pytest.raises(InputError, match=rf"script\.py: {told}"):
        registered.load(path)


@pytest.mark.parametrize("more", [("--json",), ("-o", "-")])
def test_prints_of_a_plugin_stand_beside_the_json(tmp_path: Path, more: tuple[str, ...]) -> None:
    path = tmp_path / "loud.py"
    method = METHOD.read_text().replace("    factors = ", "    print('called')\n    factors = ")
    path.write_text(f"print('loaded')\n{method}")
    words = ("plan", "llama-2-7b", "--to", "16k", "--plugin", path, "--method", "slow_half")
    assert json.loads(ropewalk(*words, *more))


@pytest.mark.parametrize("body", ["sys.stdout.close()", "os.close(1)", "sys.stdout = None"])
def test_a_plugin_that_closes_the_output_is_one_error(tmp_path: Path, body: str) -> None:
    path = tmp_path / "script.py"
    path.write_text(f"import os, sys\n{body}\n")
    words = ["plan", "bundled", "--to", "2k", "-q", "--plugin", str(path)]
    path.write_text(path.read_text() + METHOD.read_text())
    done = subprocess.run(
        [sys.executable, "-m", "ropewalk", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr == "error: an output was closed meanwhile; a plugin must leave both open\n"
