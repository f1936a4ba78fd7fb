"""`import ropewalk as rw`: what is public, and that it is there whatever else is imported."""

from __future__ import annotations

import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

import ropewalk as rw
from ropewalk import errors
from tests.forks import Forks

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "ropewalk"


def program(text: str) -> str:
    """What a program prints in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_ropewalk_imports_nothing_else() -> None:
    loaded = program("import sys, ropewalk; print(*sys.modules)").split()
    assert {"numpy", "torch", "transformers", "matplotlib"}.isdisjoint(loaded)
    assert [name for name in loaded if name.startswith("ropewalk.")] == []


@pytest.mark.parametrize("name", rw.__all__)
def test_every_public_name_is_there(name: str) -> None:
    value = getattr(rw, name)
    assert name in dir(rw)
    assert name == "__version__" or callable(value)
    assert name == "__version__" or value.__name__ == name


def test_results_and_errors_are_public_and_nothing_else_is() -> None:
    assert dir(rw) == sorted(rw.__all__)
    # What the verbs return, by their annotations; and what they raise.
    for name in rw.__all__:
        verb = getattr(rw, name)
        if inspect.isfunction(verb) and name not in ("applied", "load", "register"):
            for each in filter(None, (verb, getattr(verb, "preview", None))):
                found = inspect.signature(each, eval_str=True).return_annotation
                kinds = {kind.__name__ for kind in get_args(found) or (found,)}
                assert kinds <= {*rw.__all__}, name
    for name, error in vars(errors).items():
        if isinstance(error, type) and issubclass(error, errors.RopewalkError):
            assert getattr(rw, name) is error


def test_other_names_are_not() -> None:
    with pytest.raises(AttributeError, match="no attribute 'plans'"):
        rw.plans  # noqa: B018


def test_no_module_is_named_like_a_public_name() -> None:
    """Else the order of imports would decide what `rw.plan` is."""
    modules = {module.name for module in pkgutil.iter_modules(rw.__path__)}
    assert "schedule" in modules
    assert modules.isdisjoint(rw.__all__)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 5))]
)
def test_a_verb_is_its_function_whatever_was_imported_before(seed: int, fresh: Forks) -> None:
    """Every module, in an order of chance: none of them may hide a verb."""
    names = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.name != "__main__.py"
    ]
    done = fresh.run(
        [
            "-c",
            "import importlib, random, sys\n"
            f"names = {names!r}\n"
            f"random.Random({seed}).shuffle(names)\n"
            "for name in names: importlib.import_module(name)\n"
            "import ropewalk as rw\n"
            "for name, home in rw._HOMES.items():\n"
            "    own = getattr(sys.modules[home], name)\n"
            "    assert callable(own) and getattr(rw, name) is own, name\n"
            "rw.methods(), rw.bound('4k', only='safe'), rw.inspect('bundled')\n"
            "rw.plan('bundled', '1k', 'yarn'), rw.plan('llama-2-7b', '8k')\n"
            "nowhere = [\n"
            "    lambda: rw.evaluate('no/where'), lambda: rw.precision('no/where'),\n"
            "    lambda: rw.search('no/where', '1k'), lambda: rw.extend('no/where'),\n"
            "    lambda: rw.verify('no/where'), lambda: rw.load('no/where'),\n"
            "    lambda: rw.compare_runs('no/where', 'no/where'),\n"
            "    lambda: rw.evaluate_checkpoints('no/where'),\n"
            "    lambda: rw.export('no/where', 'no.json', 'out', 'vllm'),\n"
            "]\n"
            "for call in nowhere:\n"
            "    try: call()\n"
            "    except rw.RopewalkError: continue\n"
            "    raise AssertionError('it found a model that is not there')\n",
        ]
    )
    assert done.returncode == 0, done.stderr
