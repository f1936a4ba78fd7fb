"""Plants one fault at a time into functions that matter, and shows those that no test notices.

    python -m tools.mutation [--each N] [MODULE[:FUNCTION] ...]

A fault is a swapped operator or argument, a constant that is off by one, a negated condition, a
guard or a call that is left out. It is planted in a copy of the repository, where the tests of the
module are run. Without arguments, N faults are planted in each function of MATTERS. Run it before
a release: a fault takes as long as its tests. A survivor is either a missing test or no fault at
all, for example another order of sums. Exit status 1: a function has more survivors than one in
four faults.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
_NOT_COPIED = shutil.ignore_patterns(".*", "__pycache__", "runs", "build", "dist")

MATTERS = {
    "attention.layout": ("AttentionLayout.mask AttentionLayout._anchored", ""),
    "attention.per_document": ("attend _attended", "attention/test_engines.py"),
    "attention.ulysses": ("attend _exchange", ""),
    "context_plan": ("ContextPlan.__post_init__ ContextPlan.schedule ContextPlan.rotates_like", ""),
    "data.packing": ("_next_windows", ""),
    "data.windows": ("Windows._read _skipping", ""),
    "evaluation.scoring": ("Scorer._rows", "evaluation/test_chunks.py"),
    "evaluation.select": ("choose remaining _leader _keeps_both", ""),
    "evaluation.statistics": ("_clustered_mean wilson mcnemar holm", ""),
    "evaluation.verdict": ("look", ""),
    "exporting.gate": ("widened _check_frequencies", "exporting"),
    "gguf.rewriting": ("copy_span rewrite_parts _File.write", ""),
    "gguf.rotation": ("lengths_of _scaled", ""),
    "gguf.tensors": ("problems _misshapen", "audit/files/test_gguf.py"),
    "models.lengths": ("three_lengths", "models/test_lengths.py api/test_plan.py"),
    "models.rotary": ("_Steps.cos_sin", "models/test_install.py"),
    "models.stock_config": ("_as_longrope", "models/test_stock_config.py exporting/test_gate.py"),
    "outputs": ("check_place is_signed", "test_outputs.py exporting/test_writing.py"),
    "run_directory": ("_good_lines", ""),
    "scaling.longrope": ("schedule _published", "scaling"),
    "scaling.yarn": ("schedule _pair_turning", "scaling"),
    "schedule": ("RotarySchedule.angles RotarySchedule.rescaled", "test_schedule.py scaling"),
    "searching.space": ("Space.schedule Space.of_method", ""),
    "theory.bound": ("safe_bases", ""),
    "training.checkpoint": ("_problem load_optimizer", "training/test_trainer.py"),
    "training.trainer": ("RopewalkTrainer.compute_loss _targets", ""),
}
"""The functions whose silent fault would cost a user most, by module of ropewalk, and the tests
that must notice it: those of the module's own name unless others are named."""


class Fault(NamedTuple):
    """A wrong value for a field of a node of a syntax tree."""

    node: ast.AST
    field: str
    value: object

    def planted(self, whole: ast.AST | None = None) -> str:
        """The source of a tree, or of the node alone, with this fault."""
        right = getattr(self.node, self.field)
        setattr(self.node, self.field, self.value)
        try:
            return ast.unparse(whole or self.node)
        finally:
            setattr(self.node, self.field, right)

    def __str__(self) -> str:
        right, wrong = (text.split("\n")[0] for text in (ast.unparse(self.node), self.planted()))
        return f"line {getattr(self.node, 'lineno', 0)}: {right}  →  {wrong}"


def functions(tree: ast.AST, within: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    """The functions of a module and the methods of its classes, by their qualified names."""
    for node in getattr(tree, "body", []):
        if isinstance(node, ast.FunctionDef):
            yield within + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from functions(node, f"{within}{node.name}.")


def faults(function: ast.FunctionDef) -> list[Fault]:
    """Every fault that can be planted in a function."""
    own = [node for part in (*function.args.defaults, *function.body) for node in _inside(part)]
    return [Fault(node, field, value) for node in own for field, value in _wrong(node)]


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    """What is computed: neither types nor the words of messages."""
    yield node
    for name, value in ast.iter_fields(node):
        if name not in ("annotation", "returns"):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and not isinstance(child, ast.Raise | ast.JoinedStr):
                    yield from _inside(child)


_SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Mult: ast.Div,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.And: ast.Or,
    ast.Lt: ast.LtE,
    ast.Gt: ast.GtE,
    ast.Eq: ast.NotEq,
    ast.In: ast.NotIn,
    ast.Is: ast.IsNot,
}
_SWAPPED = {second: first for first, second in _SWAPPED.items()} | _SWAPPED


def _wrong(node: ast.AST) -> Iterator[tuple[str, object]]:
    match node:
        case ast.BinOp(op=right) | ast.BoolOp(op=right) if type(right) in _SWAPPED:
            yield "op", _SWAPPED[type(right)]()
        case ast.Compare(ops=[right, *others]) if type(right) in _SWAPPED:
            yield "ops", [_SWAPPED[type(right)](), *others]
        case ast.Constant(value=bool(right)):
            yield "value", not right
        case ast.Constant(value=int() | float() as right):
            yield "value", right + 1
        case ast.If(test=test, body=[first, *_]):
            guard = isinstance(first, ast.Raise)
            yield "test", ast.Constant(False) if guard else ast.UnaryOp(ast.Not(), test)
        case ast.Call(func=ast.Name(id="max" | "min")):
            pass
        case ast.Call(args=[first, second, *others]) if ast.dump(first) != ast.dump(second):
            yield "args", [second, first, *others]
        case ast.Expr(value=ast.Call()):
            yield "value", ast.Constant(...)


def tests_of(module: str) -> list[str]:
    """The files that must notice a fault in a module."""
    *packages, name = module.split(".")
    own = "/".join([*packages, f"test_{name}.py"])
    return [f"tests/{each}" for each in (MATTERS.get(module, ("", ""))[1] or own).split()]


def survivors(module: str, names: Sequence[str], each: int) -> Iterator[tuple[str, int, list[str]]]:
    """For each function: its name, the faults planted, and those that its tests did not notice."""
    tests = tests_of(module)
    with TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        shutil.copytree(ROOT, copy, ignore=_NOT_COPIED)
        file = copy / "ropewalk" / Path(*module.split(".")).with_suffix(".py")
        source = file.read_text(encoding="utf-8")
        begun = time.monotonic()
        if not _passes(copy, tests, None):
            raise SystemExit(f"without a fault, {' '.join(tests)} must pass")
        limit = 3 * (time.monotonic() - begun) + 30
        tree = ast.parse(source)
        for name, function in functions(tree):
            if name in names or not names:
                found = faults(function)
                found = found[:: -(-len(found) // each) or 1]
                missed = []
                for fault in found:
                    file.write_text(fault.planted(tree), encoding="utf-8")
                    # Python would run the last fault's code, if both have one second and size.
                    Path(importlib.util.cache_from_source(str(file))).unlink(missing_ok=True)
                    if _passes(copy, tests, limit):
                        missed.append(str(fault))
                yield name, len(found), missed


def _passes(copy: Path, tests: list[str], limit: float | None) -> bool:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": str(copy)}  # also for processes that tests start
    output = None if limit is None else subprocess.DEVNULL
    try:
        return not subprocess.call(command, cwd=copy, env=environment, stdout=output, timeout=limit)
    except subprocess.TimeoutExpired:
        return False


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("modules", nargs="*", metavar="MODULE[:FUNCTION]")
    parser.add_argument("--each", type=int, default=8, help="faults in each function (8)")
    given = parser.parse_args(words)
    wanted = [each.partition(":") for each in given.modules]
    rows = {module: name or MATTERS.get(module, ("", ""))[0] for module, _, name in wanted}
    poor = False
    for module, names in (rows or {module: row[0] for module, row in MATTERS.items()}).items():
        for name, planted, missed in survivors(module, names.split(), given.each):
            poor |= 4 * len(missed) > planted
            print(f"{module}:{name}: {planted - len(missed)} of {planted} noticed", flush=True)
            print("".join(f"    survives {each}\n" for each in missed), end="", flush=True)
    return int(poor)


if __name__ == "__main__":
    sys.exit(main())
