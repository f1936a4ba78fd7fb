"""A plain `pip install ropewalk`: what works without extras, and what names the missing one."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
import venv
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import ropewalk as rw
from ropewalk.exporting import llama_cpp
from ropewalk.extras import EXTRAS, required_by
from tests.forks import Forks
from tests.gguf.gguf_cases import unproven

ROOT = Path(__file__).parents[1]
BUNDLED = ROOT / "ropewalk" / "models" / "bundled"
# As if the packages of the extras were not there: only the finder of files passes them over.
LIGHT = f"""
import sys
from importlib.machinery import PathFinder

class WithoutExtras:
    def find_spec(name, path=None, target=None):
        absent = name.partition(".")[0] in {sorted(EXTRAS)!r}
        return None if absent else PathFinder.find_spec(name, path, target)

sys.meta_path[:] = [WithoutExtras if each is PathFinder else each for each in sys.meta_path]
"""
COMMAND = f"""{LIGHT}
from ropewalk.__main__ import main
main()
"""
WITH_A_FOLDER_BEFORE_OTHERS = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from ropewalk.__main__ import main
main()
"""


Done = subprocess.CompletedProcess[str]
Call = Callable[..., Done]


def run(
    *words: object, python: str = sys.executable, cwd: Path = ROOT, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, *map(str, words)],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def call(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Done]]:
    """A program with its arguments, in a fork of a process that imported what the core needs."""
    forks = Forks("import numpy, typer.main, rich.console, rich.table")
    file = tmp_path_factory.mktemp("call") / "program.py"

    def program(text: str, *words: object) -> Done:
        file.write_text(f"import os\nos.chdir({str(ROOT)!r})\n{text}")
        return forks.run([str(file), *map(str, words)])

    yield program
    forks.close()


@pytest.fixture(scope="module")
def light(call: Callable[..., Done]) -> Call:
    """A command of an installation without extras."""
    return partial(call, COMMAND)


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("light") / "plan.json"
    path.write_text(rw.plan("bundled", "1k", "yarn").plan.dumps())
    return path


@pytest.fixture(scope="module")
def gguf_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("light") / "model.gguf"
    unproven(llama_cpp.export)("bundled", rw.plan("bundled", "1k", "linear").plan, path)
    return path


def check_core_verbs(call: Call, plan_file: Path, gguf_file: Path, out: Path) -> None:
    """The verbs of the core with their values, however the command is called."""

    def answer(*words: object) -> dict[str, Any]:
        done = call(*words, "--json")
        assert done.returncode == 0, done.stderr
        value: dict[str, Any] = json.loads(done.stdout)
        return value

    config = BUNDLED / "config.json"
    served = {"llama-3.1-8b": 131072, BUNDLED: 512, config: 512, gguf_file: 1024}
    for model, length in served.items():
        assert answer("inspect", model)["geometry"]["serves"] == length
    factors = answer("plan", gguf_file, "--to", "4k", "--method", "ntk")["rescale_factors"]
    assert len(factors) == 16
    compared = answer("plan", "llama-2-7b", "--to", "32k", "-o", out)
    assert out.is_file()
    assert "base_change" not in compared["refused"]
    untabled = answer("plan", "llama-2-7b", "--to", "30k", "-o", out)["refused"]
    assert "pip install 'ropewalk[theory]'" in untabled["base_change"]
    assert len(answer("methods")["methods"]) == 15
    assert answer("bound", "8k", "--only", "safe")["rows"][0]["safe"] == pytest.approx(394327.9)
    matrix = answer("export", BUNDLED, "--plan", plan_file, "--dry-run")["matrix"]
    assert matrix["YaRN"]["transformers"]["fit"] == "exact"


def check_verify(call: Call, gguf_file: Path) -> None:
    """What cannot be looked at is said once, and is not established."""
    done = call("verify", BUNDLED)
    assert done.returncode == 3, done.stderr
    said = " ".join(done.stdout.split())
    assert said.count("needs torch, which is not installed: pip install 'ropewalk[models]'") == 1
    assert "vllm: OK (by its rules, not tested here): full_attention: 16 pairs" in said
    assert "weights: OK, 29 tensors" in said
    needs = "needs tokenizers, which is not installed: pip install 'ropewalk[models]'"
    assert f"not established: tokenizer: loading the tokenizer {needs}" in said
    asked = call("verify", BUNDLED, "--runtime", "transformers", "--json")
    assert asked.returncode == 3
    assert json.loads(asked.stdout)["compared"] is False
    file = call("verify", gguf_file)
    assert file.returncode == 0, file.stderr
    assert "not run: running llama.cpp needs xllamacpp" in file.stdout
    wrong = call("verify", gguf_file, "--length", "8k")
    assert wrong.returncode == 1
    assert "not-extended" in wrong.stdout


def check_readme(call: Call) -> None:
    """Each of its commands and options exists; the tutorial runs those of its page."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = re.findall(r"^    (?:\$ )?ropewalk (.+?)(?:  +#.*)?$", text, re.MULTILINE)
    assert len(lines) >= 4
    for line in lines:
        verb, *words = shlex.split(line)
        shown = call(verb, "--help-all")
        assert shown.returncode == 0, line
        options = {word for word in words if word.startswith("--")}
        assert all(re.search(rf"{option}\b", shown.stdout) for option in options), line


def test_the_core_verbs_need_no_extra(
    light: Call, plan_file: Path, gguf_file: Path, tmp_path: Path
) -> None:
    check_core_verbs(light, plan_file, gguf_file, tmp_path / "best.json")
    check_verify(light, gguf_file)


@pytest.mark.parametrize(
    ("words", "subject", "package"),
    [
        ("bound 8k", "bound", "numba"),
        ("evaluate bundled", "evaluate", "torch"),
        ("search bundled --to 1k", "search", "torch"),
        ("extend", "extend", "torch"),
        ("extend --dry-run", "extend", "torch"),
        ("precision bundled", "precision", "torch"),
        ("inspect no/one --allow-download", "fetching from the hub", "huggingface_hub"),
        ("plan bundled --to 1k --method ntk --plot x.png", "a figure", "matplotlib"),
        ("export bundled --plan PLAN --runtime vllm -o x", "export", "torch"),
    ],
)
def test_a_missing_extra_is_one_line(
    words: str, subject: str, package: str, light: Call, plan_file: Path
) -> None:
    done = light(*words.replace("PLAN", str(plan_file)).split())
    assert (done.returncode, done.stdout) == (2, "")
    install = f"pip install 'ropewalk[{EXTRAS[package]}]'"
    assert done.stderr == f"error: {subject} needs {package}, which is not installed: {install}\n"


def test_a_training_names_all_extras_that_it_lacks(light: Call, plan_file: Path) -> None:
    corpus = ROOT / "README.md"
    words = ("train", "bundled", "--plan", plan_file, "--corpus", corpus, "--steps", 1, "--lora", 2)
    assert light(*map(str, words)).stderr == (
        "error: train needs torch, accelerate, peft, which are not installed: "
        "pip install 'ropewalk[models,train]'\n"
    )


def test_the_same_from_python() -> None:
    program = f"""{LIGHT}
import ropewalk as rw
from ropewalk.errors import MissingExtra
planned = rw.plan("llama-2-7b", "16k", "yarn")
assert "<strong>llama-2-7b</strong>" in planned._repr_html_()
assert "<img" not in planned._repr_html_()
for call in (
    lambda: rw.load, lambda: rw.applied, lambda: rw.search("bundled", "1k"),
    lambda: rw.extend("bundled"), lambda: rw.extend.preview("bundled"),
    lambda: rw.evaluate("bundled"), planned.figure,
):
    try: call()
    except MissingExtra as error: print(error.what, error.package, error.extra)
"""
    done = run("-c", program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        *(f"{name} torch models" for name in ("load", "applied", "search", "extend")),
        *("extend torch models", "evaluate torch models"),
        "a figure matplotlib plots",
    ]


VERIFIED = ("verify", BUNDLED, "--runtime", "transformers")


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        ("raise OSError('libcudart.so: cannot open shared object file')", ["precision", "bundled"]),
        ("raise ImportError('libtorch.so: undefined symbol')", VERIFIED),
        ("import torch._C", ["precision", "bundled"]),
        ("import numpy.no_such_module", VERIFIED),
    ],
)
def test_a_broken_package_is_not_called_missing(
    failure: str, words: Sequence[str], call: Callable[..., Done], tmp_path: Path
) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(f"{failure}\n")
    done = call(WITH_A_FOLDER_BEFORE_OTHERS, tmp_path, *words)
    assert done.returncode == 2
    assert "pip install" not in done.stderr + done.stdout
    assert done.stderr.startswith("error: torch is installed, but cannot be imported (")
    assert done.stderr.count("\n") == 1


def test_other_missing_packages_are_not_ours() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_package"), required_by("this"):
        import no_such_package  # type: ignore[import-not-found]  # noqa: F401


def test_a_finished_run_without_matplotlib_says_so_and_goes_on() -> None:
    program = f"""{LIGHT}
from pathlib import Path
from ropewalk.chart import Axis, Chart
from ropewalk.reports.figures import keep_figures
keep_figures({{"scores": [Chart("", Axis(""), Axis(""), ())]}}, Path("figures"), print)
"""
    assert run("-c", program).stdout == (
        "no figures: a figure needs matplotlib, which is not installed: "
        "pip install 'ropewalk[plots]'\n"
    )


def _names(requirements: Sequence[str]) -> set[str]:
    return {re.split(r"[<>=\[]", requirement)[0] for requirement in requirements}


def test_the_table_of_extras_is_that_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    assert _names(project["dependencies"]) == {"numpy", "rich", "typer"}
    brought = {
        package: extra
        for extra in ("theory", "models", "plots", "gguf", "data", "train")
        for package in _names(extras[extra]) - {"ropewalk"}
    }
    with_transformers = {"huggingface_hub": "models", "tokenizers": "models"}
    assert brought | with_transformers == EXTRAS
    assert extras["all"] == ["ropewalk[theory,models,plots,gguf,data,train]"]
    assert "ropewalk[all]" in extras["test"]


@pytest.mark.slow
def test_the_wheel_alone_runs_the_core_verbs(
    plan_file: Path, gguf_file: Path, tmp_path: Path
) -> None:
    """Installed into a fresh environment, with its own requirements, and run there."""
    pip = ("-m", "pip", "--quiet", "--disable-pip-version-check")
    built = run(*pip, "wheel", "--no-deps", "--wheel-dir", tmp_path, ROOT)
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("ropewalk-*.whl")
    venv.create(tmp_path / "venv", with_pip=True)
    folder = tmp_path / "venv" / ("Scripts" if os.name == "nt" else "bin")
    python = str(folder / "python")
    constraints = ROOT / "constraints.txt"
    installed = run(*pip, "install", "--constraint", constraints, wheel, python=python)
    assert installed.returncode == 0, installed.stderr
    listed = run("-m", "pip", "list", "--format", "json", python=python)
    packages = {each["name"].lower().replace("-", "_") for each in json.loads(listed.stdout)}
    assert packages.isdisjoint(EXTRAS)

    def call(*words: object) -> subprocess.CompletedProcess[str]:
        return run("-m", "ropewalk", *words, python=python, cwd=tmp_path, PYTHONPATH="")

    check_core_verbs(call, plan_file, gguf_file, tmp_path / "best.json")
    check_verify(call, gguf_file)
    check_readme(call)
    done = call("evaluate", "bundled")
    assert done.returncode == 2
    assert done.stderr.startswith("error: evaluate needs torch, which is not installed")
