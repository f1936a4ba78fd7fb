"""Who may import whom, by package. A new file joins its package; a new package needs a row."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from ropewalk.extras import EXTRAS

ROOT = Path(__file__).parents[1]

# The ground floor is every module directly in ropewalk/: they import each other alone, and all
# packages may import them. A dotted name is a floor of a package, with a row of its own.
PACKAGES = {
    "scaling": "",
    "theory.kernels": "",
    "theory": "theory.kernels",
    "planning": "costs gguf models runtimes scaling theory",
    "models": "gguf scaling",
    "gguf": "models scaling",  # models/source.py reads headers; only a GGUF's plan needs families
    "runtimes": "exporting gguf models runtimes.trials scaling theory",  # a class writes and runs
    "runtimes.trials": "exporting gguf models rotation runtimes",
    "costs": "gguf models",
    "attention": "models",
    "data": "attention",
    "exporting": "data gguf models",
    "evaluation": "attention costs data exporting gguf models planning runtimes scaling",
    "rotation": "evaluation models scaling",
    "searching": "scaling",
    "searching.model": "costs data evaluation gguf models planning scaling searching",
    "number_formats": "data evaluation models",
    "training": "attention costs data evaluation exporting models planning runtimes scaling",
    "audit": "exporting gguf models rotation runtimes runtimes.trials scaling theory",
    "reports": (
        "costs evaluation exporting models number_formats pipeline planning runtimes "
        "searching.model training"
    ),
    "pipeline": (
        "audit costs data evaluation exporting gguf models planning runtimes searching.model "
        "training"
    ),
    "api": (
        "audit costs data evaluation exporting gguf models number_formats pipeline planning "
        "reports runtimes scaling searching searching.model theory training"
    ),
    "cli": (
        "api audit costs evaluation exporting gguf models number_formats pipeline planning reports "
        "runtimes scaling searching searching.model theory training"
    ),
    "__main__": "cli",
}
# A value draws itself when a person asks: only then is what draws imported.
DRAWN_BY = {"values": ("ropewalk.reports.figures.figure", "ropewalk.reports.notebook.html")}
NOT_BELOW = {
    "attention": ("schedule", "context_plan"),  # it knows positions, not how they are rotated
    "data": ("schedule", "context_plan"),
}

# Everybody may import numpy; these packages may import others, at the top of a file or inside a
# function.
NEEDS = {
    "torchrun": "torch",
    "progress": "rich IPython",
    "confined_work": "jinja2 tokenizers transformers",
    "theory.kernels": "numba",
    "models": "torch transformers safetensors huggingface_hub",
    "gguf": "torch transformers tokenizers gguf xllamacpp",
    "costs": "torch transformers",
    "attention": "torch transformers",
    "data": "datasets pyarrow",
    "exporting": "torch transformers safetensors",
    "evaluation": "torch transformers",
    "searching.model": "torch",
    "number_formats": "torch transformers",
    "rotation": "torch",
    "runtimes.trials": "torch transformers",
    "rotation.callback": "transformers",
    "training": "torch transformers peft",
    "audit": "torch transformers tokenizers",
    "pipeline": "torch",
    "reports": "matplotlib rich",
    "cli": "rich typer",
}
# Rooms and modules that open without the packages of any extra, torch first of all.
LIGHT = (
    *("ground", "scaling", "theory", "planning", "runtimes", "data", "searching", "reports"),
    *("api", "cli", "costs", "training.recipes", "evaluation.tasks"),
)


_FILES = {path.relative_to(ROOT / "ropewalk"): path for path in ROOT.glob("ropewalk/**/*.py")}
MODULES = {
    ".".join(file.with_suffix("").parts).removesuffix(".__init__"): path
    for file, path in sorted(_FILES.items())
    if str(file) != "__init__.py"  # the front door names what it opens
}


def room_of(module: str) -> str | None:
    """The row of a module: the longest name that the table knows, or the ground floor."""
    parts = module.split(".")
    prefixes = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
    own = next((prefix for prefix in prefixes if prefix in PACKAGES), None)
    is_file = (ROOT / "ropewalk" / f"{parts[0]}.py").exists() or module == "__version__"
    return own or ("ground" if is_file else None)


def imports(tree: ast.Module) -> Iterator[str]:
    """Every absolute name that a file imports, at its top or inside a function.

    What is imported for types alone is left out: it needs nothing, and makes no circle.
    """
    typing_only = {
        id(node)
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If) and "TYPE_CHECKING" in ast.unparse(branch.test)
        for node in ast.walk(branch)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and id(node) not in typing_only:
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and id(node) not in typing_only:
            assert node.level == 0 and node.module, "imports are absolute"  # noqa: PT018
            # `from ropewalk.scaling import yarn` imports a module, `… import names` does not.
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def broken_rules(name: str, source: str) -> list[str]:
    """What a module imports against the tables, one line each."""
    room = room_of(name)
    if room is None:
        return [f"{name} lies in a package without a row in PACKAGES"]
    allowed = PACKAGES.get(room, "").split()
    needs = ["numpy", *(word for key in {room, name} for word in NEEDS.get(key, "").split())]
    found = []
    for imported in imports(ast.parse(source)):
        package, _, inner = imported.partition(".")
        if imported in DRAWN_BY.get(name, ()):
            continue
        if package == "ropewalk":
            other = room_of(inner) if inner != "__version__" else "ground"
            unknown = other not in (room, "ground", *allowed)
            if unknown or inner.split(".")[0] in NOT_BELOW.get(room, ()):
                found.append(f"{name} imports {imported}, of a room that {room} may not know")
        elif package not in sys.stdlib_module_names and package not in needs:
            found.append(f"{name} imports {imported}, which {room} does not need")
    return found


@pytest.mark.parametrize("name", MODULES)
def test_no_file_imports_what_its_package_may_not(name: str) -> None:
    assert broken_rules(name, MODULES[name].read_text(encoding="utf-8")) == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Not even inside functions; api and cli put everything together, some of it by name."""
    known: dict[str, set[str]] = {}
    for name, path in MODULES.items():
        if room_of(name) not in ("api", "cli", "__main__"):
            inner = (
                each.removeprefix("ropewalk.") for each in imports(ast.parse(path.read_text()))
            )
            inner = (each for each in inner if f"ropewalk.{each}" not in DRAWN_BY.get(name, ()))
            named = {each if each in MODULES else each.rpartition(".")[0] for each in inner}
            known[name] = (named & MODULES.keys()) - {name}
    assert {*TopologicalSorter(known).static_order()} >= known.keys()


def test_light_packages_open_without_any_extra() -> None:
    """So do those modules of other packages that they import: nothing lists them."""
    inside = [name for name in MODULES if {room_of(name), name} & {*LIGHT}]
    opening = f"import sys\nsys.modules.update(dict.fromkeys({sorted(EXTRAS)}))\n"
    opening += "".join(f"import ropewalk.{name}\n" for name in inside)
    done = subprocess.run([sys.executable, "-c", opening], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(inside) > 150


def test_no_string_names_a_module_of_another_package() -> None:
    """What is imported by a name in a string, these tables do not see."""
    sources = {name: path.read_text(encoding="utf-8") for name, path in MODULES.items()}
    assert [each for name in MODULES for each in named_in_strings(name, sources[name])] == []


def named_in_strings(name: str, source: str) -> Iterator[str]:
    """The modules of other packages that strings name, as `ropewalk.package.module:function`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            module = node.value.partition(":")[0].removeprefix("ropewalk.")
            dotted = node.value.startswith("ropewalk.") and module in MODULES
            if dotted and room_of(module) != room_of(name):
                yield node.value


def test_a_module_in_a_string_is_seen() -> None:
    assert [*named_in_strings("runtimes.vllm", 'writer = "ropewalk.exporting.folder:export"')]
    assert not [*named_in_strings("runtimes.vllm", '"ropewalk.plan", "ropewalk.runtimes"')]


def test_every_row_has_a_package() -> None:
    rooms = {room_of(name) for name in MODULES}
    assert {*PACKAGES, *NEEDS, *NOT_BELOW} <= {*rooms, *MODULES}
    assert {*LIGHT} <= {*rooms, *MODULES}


@pytest.mark.parametrize(
    ("name", "source", "complaint"),
    [
        ("scaling.yarn", "from ropewalk.searching import space", "may not know"),
        ("scaling.yarn", "def f():\n    import ropewalk.models.load", "may not know"),
        ("errors", "from ropewalk import scaling", "may not know"),
        ("searching.space", "from ropewalk.searching import model", "may not know"),
        ("attention.layout", "from ropewalk.schedule import RotarySchedule", "may not know"),
        ("context_plan", "import ropewalk", "may not know"),
        ("outputs", "from ropewalk import plan", "may not know"),
        ("api.plan", "from ropewalk.cli import words", "may not know"),
        ("scaling.yarn", "def f():\n    from torch.nn import Linear", "does not need"),
        ("errors", "import torch", "does not need"),
        ("cellar.wine", "", "without a row"),
        ("scaling.yarn", "from ropewalk.scaling import linear\nimport math, numpy.linalg", None),
        ("context_plan", "from ropewalk import __version__, schedule", None),
        ("torchrun", "import torch", None),
    ],
)
def test_the_walk_sees_every_kind_of_import(name: str, source: str, complaint: str | None) -> None:
    found = broken_rules(name, source)
    assert (len(found) == 1 and complaint in found[0]) if complaint else found == []
