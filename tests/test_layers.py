"""Who may import whom. A new room joins by one row; a room without a row fails."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.stock_process import StockProcess

ROOT = Path(__file__).parents[1]
HEAVY = ("torch", "transformers", "numba", "matplotlib", "rich", "typer", "safetensors")


@dataclass(frozen=True)
class Row:
    """What a room may use. A room is a module, or a package with all that it holds."""

    rooms: tuple[str, ...] = ()
    """The rooms that it may import, at the top of a file or inside a function."""
    needs: tuple[str, ...] = ()
    """The third-party packages that it may import at the top."""
    lazily: tuple[str, ...] = ()
    """Those that only its functions may import."""
    wires: bool = False
    """Its functions may import anything: for the command, which puts the rooms together."""


VALUES = ("errors", "extras", "lengths", "untrusted", "schedule")

ROOMS = {
    "errors": Row(),
    "extras": Row(("errors",)),
    "registered": Row(("errors",)),
    "options": Row(("errors", "extras", "untrusted")),
    "lengths": Row(("errors",)),
    "budget": Row(("errors",)),
    "untrusted": Row(("errors",)),
    "schedule": Row(("errors", "lengths", "untrusted"), needs=("numpy",)),
    "progress": Row(),
    "torchrun": Row(("errors", "untrusted"), lazily=("torch",)),
    "values": Row(("errors", "untrusted"), lazily=("numpy",)),
    "context_plan": Row((*VALUES, "outputs"), needs=("numpy",)),
    "scaling": Row((*VALUES, "registered"), needs=("numpy",)),
    "outputs": Row(("errors",)),
    "run_directory": Row(("errors", "options", "outputs", "registered", "untrusted")),
    "agreement": Row(("values",)),
    "records": Row(("errors", "values")),
    "data": Row(
        (
            *("errors", "extras", "lengths", "progress", "untrusted", "values"),
            *("run_directory", "attention"),
        ),
        needs=("numpy",),
        lazily=("pyarrow", "datasets"),
    ),
    "theory": Row((*VALUES, "outputs", "theory.kernels"), needs=("numpy",)),
    "theory.kernels": Row(needs=("numpy", "numba")),
    "planning": Row(
        (*VALUES, "values", "context_plan", "registered", "scaling", "theory"), needs=("numpy",)
    ),
    "models": Row(
        (
            *(*VALUES, "context_plan", "models.config", "models.placement"),
            *("agreement", "models.logits", "models.modes", "models.renamed"),
            *("models.source", "torchrun"),
        ),
        needs=("numpy", "safetensors", "torch", "transformers"),
        lazily=("huggingface_hub",),
    ),
    "models.catalogue": Row(("errors",)),
    "models.families": Row((*VALUES, "context_plan")),
    "models.native": Row(("errors", "lengths", "untrusted")),
    "models.config": Row((*VALUES, "context_plan", "scaling", "models.families", "models.native")),
    "models.recipes": Row(("errors", "lengths", "context_plan", "models.config", "models.native")),
    "models.placement": Row(("errors",)),
    "models.logits": Row(("errors",), needs=("torch",)),
    "models.modes": Row(needs=("torch",)),
    "models.renamed": Row(),
    "models.assumptions": Row((*VALUES, "models.config", "models.families", "models.native")),
    "models.stock_config": Row(
        (*VALUES, "context_plan", "scaling", "models.config", "models.native", "models.recipes")
    ),
    "models.source": Row(
        (
            *(*VALUES, "context_plan", "models.catalogue", "models.config"),
            *("models.assumptions", "models.placement", "models.recipes"),
            *("gguf.header", "gguf.parts", "gguf.rotation", "progress", "run_directory"),
        ),
        lazily=("huggingface_hub",),
    ),
    "attention": Row(
        ("errors", "extras", "untrusted", "models.modes"),
        needs=("numpy", "torch", "transformers", "matplotlib", "safetensors"),
    ),
    "evaluation.statistics": Row(("values",), needs=("numpy",)),
    "evaluation.results": Row(("values", "records", "evaluation.statistics"), needs=("numpy",)),
    "evaluation.effective_length": Row(
        (
            *("lengths", "values", "records", "evaluation.results"),
            "evaluation.statistics",
        )
    ),
    "evaluation.verdict": Row(("evaluation.statistics",)),
    "evaluation.select": Row(("errors", "evaluation.statistics"), needs=("numpy",)),
    "evaluation.conditions": Row(("errors", "context_plan", "scaling", "planning", "records")),
    "evaluation": Row(
        (*VALUES, "data", "records", "registered", "evaluation.statistics"), needs=("numpy",)
    ),
    "evaluation.settings": Row(
        ("errors", "lengths", "untrusted", "records", "evaluation"), needs=("numpy",)
    ),
    "evaluation.drawing": Row(("errors", "evaluation", "evaluation.settings"), needs=("numpy",)),
    "evaluation.identity": Row(
        ("data", "evaluation", "models"),
        needs=("numpy", "torch", "transformers", "safetensors"),
    ),
    "evaluation.chunks": Row(("costs", "models.renamed"), needs=("torch", "transformers")),
    "evaluation.scoring": Row(
        (
            *("errors", "models.logits", "evaluation", "evaluation.answering"),
            "evaluation.chunks",
        ),
        needs=("numpy", "torch", "transformers"),
    ),
    "evaluation.forward_time": Row(
        (
            *("progress", "models", "evaluation"),
            *("evaluation.answering", "evaluation.scoring"),
        ),
        needs=("numpy", "torch", "transformers", "safetensors"),
    ),
    "evaluation.public_benchmarks": Row(
        ("errors", "models"),
        needs=("numpy", "torch", "transformers", "safetensors"),
        lazily=("datasets", "huggingface_hub", "lm_eval"),
    ),
    "evaluation.answering": Row(
        ("errors", "records", "run_directory", "evaluation"), needs=("numpy",)
    ),
    "evaluation.runner": Row(
        (
            *("errors", "lengths", "run_directory", "records", "data", "evaluation"),
            *("evaluation.answering", "evaluation.drawing", "evaluation.settings"),
        ),
        needs=("numpy",),
    ),
    "evaluation.able": Row(
        (
            *("errors", "lengths", "progress", "records", "evaluation.conditions"),
            *("evaluation.results", "evaluation.runner"),
        ),
        needs=("numpy",),
    ),
    "evaluation.in_process": Row(
        (
            *("records", "evaluation", "evaluation.answering", "evaluation.conditions"),
            "evaluation.settings",
        ),
        needs=("numpy",),
        wires=True,  # torch reads the model, and what is refused before needs none
    ),
    "evaluation.over_ranks": Row(
        (
            *("untrusted", "records", "models", "evaluation", "evaluation.answering"),
            *("evaluation.conditions", "evaluation.in_process"),
        ),
        needs=("numpy",),
    ),
    "evaluation.answerers": Row(
        (
            *("errors", "lengths", "outputs", "progress", "untrusted", "context_plan", "data"),
            *("records", "run_directory", "evaluation", "evaluation.answering"),
            *("evaluation.conditions", "evaluation.in_process", "evaluation.over_ranks"),
            *("evaluation.runner", "evaluation.served", "evaluation.settings"),
            "exporting.manifest",
            *("models.config", "models.source", "torchrun", "budget"),
            *("gguf.architectures", "gguf.cache", "gguf.header", "gguf.llama_cpp_run"),
            *("gguf.parts", "gguf.rewriting"),
        ),
        needs=("numpy",),
        wires=True,  # who answers in process needs torch, and a server does not
    ),
    "evaluation.compared": Row(
        (
            *("lengths", "values", "records", "reports", "reports.chart", "evaluation.results"),
            "evaluation.statistics",
        ),
        needs=("numpy",),
    ),
    "evaluation.conclusion": Row(
        (
            *("errors", "lengths", "progress", "values", "records", "reports", "run_directory"),
            *("run_on_disk", "evaluation.answering", "evaluation.conditions"),
            "evaluation.effective_length",
            *("evaluation.results", "evaluation.runner", "evaluation.served"),
            *("evaluation.settings", "evaluation.statistics"),
        ),
        needs=("numpy",),
    ),
    "evaluation.served": Row(
        (
            *(*VALUES, "values", "outputs", "context_plan", "planning", "run_directory", "data"),
            *("records", "evaluation", "evaluation.settings", "runtimes"),
        ),
        needs=("numpy",),
    ),
    "evaluation.served.rounding": Row(("errors",), needs=("torch", "transformers")),
    "evaluation.served.reference": Row(
        (
            *("errors", "context_plan", "data", "models", "evaluation", "evaluation.scoring"),
            *("evaluation.forward_time", "evaluation.served", "evaluation.served.rounding"),
            *("progress", "costs.here", "evaluation.identity", "untrusted"),
        ),
        needs=("numpy", "torch", "transformers", "safetensors"),
    ),
    "searching": Row((*VALUES, "context_plan", "scaling", "run_directory"), needs=("numpy",)),
    "searching.model.settings": Row(
        (*VALUES, "registered", "scaling", "searching", "evaluation.select"), needs=("numpy",)
    ),
    "searching.model.results": Row(
        (*VALUES, "values", "context_plan", "searching", "evaluation.select", "reports"),
        needs=("numpy",),
    ),
    "searching.model": Row(
        (
            *(*VALUES, "values", "progress", "context_plan", "planning", "run_directory", "data"),
            *(
                "registered",
                "searching",
                "searching.model.settings",
                "searching.model.results",
                "models",
            ),
            *("evaluation", "evaluation.answering", "evaluation.scoring"),
            *(
                "evaluation.forward_time",
                "evaluation.statistics",
                "evaluation.select",
                "costs.here",
            ),
        ),
        needs=("numpy", "torch", "transformers", "safetensors"),
    ),
    "number_formats.results": Row(("lengths", "values", "evaluation.statistics"), needs=("numpy",)),
    "number_formats.conclusion": Row(
        ("lengths", "values", "number_formats.results", "reports"), needs=("numpy",)
    ),
    "number_formats": Row(
        (
            *("errors", "lengths", "untrusted", "schedule", "context_plan", "run_directory"),
            *("data", "evaluation", "evaluation.identity", "evaluation.statistics", "models"),
            *("number_formats.results", "models.logits", "models.modes"),
        ),
        needs=("numpy", "torch", "transformers", "safetensors"),
    ),
    "training.settings": Row(
        ("errors", "lengths", "untrusted", "values", "data"), needs=("numpy",)
    ),
    "training.execution": Row(
        (
            *("errors", "lengths", "untrusted", "schedule", "context_plan", "torchrun"),
            *("costs", "costs.here", "models.config", "runtimes", "training.settings"),
        ),
        lazily=("transformers",),
    ),
    "training.recipes": Row(("errors", "data", "training.settings"), needs=("numpy",)),
    "training.journal": Row(("untrusted",)),
    "training.results": Row(
        (
            *("lengths", "untrusted", "values", "context_plan", "reports", "exporting.exported"),
            *("evaluation.statistics", "training.journal"),
        ),
        needs=("numpy",),
    ),
    "training": Row(
        (
            *(*VALUES, "values", "progress", "outputs", "context_plan", "run_directory", "data"),
            *("attention", "models", "models.config", "models.source", "evaluation", "exporting"),
            *("runtimes", "exporting.manifest"),
            *("exporting.staging", "models.logits", "models.modes", "models.renamed"),
            *("training.settings", "training.results", "torchrun"),
            *("training.execution", "training.journal"),
        ),
        needs=("numpy", "torch", "transformers", "safetensors"),
        lazily=("peft",),
    ),
    "gguf.header": Row(("errors", "schedule"), needs=("numpy",)),
    "gguf.sizes": Row(("gguf.header",)),
    "gguf.tensors": Row(("gguf.header",)),
    "gguf.architectures": Row(),
    "gguf.parts": Row(("errors", "gguf.header")),
    "gguf.carried": Row(("gguf.header",)),
    "gguf.cache": Row(("gguf.header",)),
    "gguf.rewriting": Row(("errors", "schedule", "gguf.header", "gguf.parts", "gguf.sizes")),
    "gguf.rotation": Row(
        (
            *(*VALUES, "context_plan", "scaling", "models.families", "models.native"),
            *("gguf.header", "gguf.architectures"),
        ),
        needs=("numpy",),
    ),
    "gguf.settings": Row(
        (
            *("errors", "schedule", "context_plan", "scaling", "gguf.architectures"),
            *("gguf.header", "gguf.rewriting", "gguf.rotation"),
        ),
        needs=("numpy",),
    ),
    "gguf.family": Row(("errors", "context_plan")),
    "gguf.families": Row(
        (
            *("errors", "schedule", "context_plan"),
            *("gguf.architectures", "gguf.family", "gguf.settings"),
        ),
        needs=("numpy",),
        lazily=("torch",),
    ),
    "gguf.llama_cpp_run": Row(("errors", "extras"), needs=("numpy",)),
    "gguf": Row(
        (
            *(*VALUES, "context_plan", "models", "models.placement", "models.source"),
            *("gguf.architectures", "gguf.carried", "gguf.families", "gguf.family"),
            *("gguf.header", "gguf.settings"),
        ),
        needs=("numpy", "torch", "transformers", "safetensors"),
        lazily=("gguf", "tokenizers", "xllamacpp"),
    ),
    "runtimes": Row(
        (
            *(*VALUES, "values", "context_plan", "scaling", "models.config", "models.families"),
            *("models.source", "models.stock_config", "gguf.architectures", "gguf.families"),
            *("gguf.family", "gguf.header", "gguf.parts", "gguf.rotation", "gguf.settings"),
        ),
        needs=("numpy",),
    ),
    "exporting.fresh_process": Row(()),
    "exporting.staging": Row(("errors", "outputs", "exporting.places")),
    "exporting.gguf_file": Row(
        (
            *("errors", "extras", "progress", "schedule", "context_plan"),
            *("runtimes", "exporting.manifest"),
            *("agreement", "exporting.exported", "exporting.places", "exporting.staging"),
            "exporting.tokens",
            *("gguf.carried", "gguf.header", "gguf.llama_cpp_run", "gguf.parts"),
            *("gguf.rewriting", "gguf.settings", "gguf.tensors"),
        ),
        needs=("numpy",),
        wires=True,  # what it is compared with needs torch, and the export does not
    ),
    "exporting.exported": Row(("agreement", "errors", "values")),
    "exporting.manifest": Row(("errors", "outputs", "untrusted", "values")),
    "exporting.places": Row(("errors", "outputs", "exporting.manifest")),
    "exporting.tokens": Row(),
    "exporting": Row(
        (
            *(*VALUES, "outputs", "progress", "context_plan", "data", "models", "models.config"),
            *("models.logits", "models.stock_config", "runtimes", "gguf.settings"),
            *("exporting.exported", "exporting.manifest", "exporting.places", "exporting.tokens"),
            *("agreement", "exporting.staging", "exporting.fresh_process"),
            *("gguf.families", "gguf.header", "gguf.parts"),
            *("gguf", "gguf.carried", "gguf.llama_cpp_run", "gguf.rotation"),
        ),
        needs=("numpy", "torch", "transformers", "safetensors"),
    ),
    "wheels": Row(
        (*("errors", "values", "models.config", "runtimes"),),
    ),
    "audit.finding": Row(
        (
            *("values", "context_plan", "models.config", "runtimes"),
            "runtimes",
        ),
    ),
    "audit.files.check": Row(("values", "audit.finding")),
    "audit.files": Row(
        (
            *("errors", "extras", "untrusted", "models.config", "audit.finding"),
            *("audit.files.check", "exporting.manifest", "exporting.tokens"),
            *("gguf.carried", "gguf.header", "gguf.rewriting", "gguf.sizes", "gguf.tensors"),
        ),
        needs=("numpy",),
        lazily=("tokenizers", "transformers"),
    ),
    "audit.result": Row(
        (
            *("agreement", "lengths", "values", "runtimes", "audit.finding"),
            *("audit.files.check", "wheels"),
        ),
    ),
    "audit.stock_rotary": Row(
        ("errors", "models", "models.config", "runtimes"),
        needs=("numpy", "torch", "transformers", "safetensors"),
    ),
    "audit": Row(
        (
            *(*VALUES, "progress", "context_plan", "scaling", "theory", "models"),
            *("models.assumptions", "models.config", "models.source", "exporting"),
            *("agreement", "runtimes", "models.families", "exporting.tokens"),
            *("runtimes",),
            *("gguf", "gguf.header", "gguf.carried", "gguf.llama_cpp_run", "gguf.rotation"),
            *("gguf.parts", "gguf.settings"),
            *("audit.files", "audit.files.check"),
            *("runtimes", "audit.finding", "audit.result", "audit.stock_rotary", "wheels"),
        ),
        needs=("numpy",),
        lazily=("torch",),
    ),
    "reports": Row(
        (
            *(*VALUES, "outputs", "progress", "context_plan", "records", "evaluation.results"),
            *("evaluation.statistics", "evaluation.effective_length", "number_formats.results"),
            *("reports.chart", "training.journal"),
        ),
        needs=("numpy",),
        lazily=("matplotlib",),
    ),
    "run_on_disk": Row(
        ("errors", "untrusted", "values", "context_plan", "records", "run_directory")
    ),
    "reports.chart": Row(("lengths",)),
    "reports.page": Row(("errors", "outputs", "reports.chart")),
    "reports.parts": Row(
        (
            *(*VALUES, "values", "context_plan", "records", "run_directory", "models.config"),
            *("evaluation.results", "evaluation.effective_length", "evaluation.statistics"),
            *("searching.model.results", "training.results", "reports", "reports.page"),
            *("evaluation.compared", "reports.chart"),
            *("exporting.exported", "runtimes", "evaluation.conditions", "costs", "models.source"),
        ),
        needs=("numpy",),
    ),
    "reports.commands": Row(
        (
            *("errors", "lengths", "values", "context_plan", "records", "run_directory"),
            *("evaluation.results", "evaluation.effective_length", "pipeline.results"),
            *("searching.model.results", "training.results", "reports.page", "reports.parts"),
            *("evaluation.conclusion", "number_formats.conclusion", "run_on_disk", "reports"),
            "training.journal",
        ),
        needs=("numpy",),
    ),
    "pipeline.results": Row(
        (
            *("errors", "lengths", "untrusted", "schedule", "values", "records", "reports"),
            *("evaluation.conclusion", "evaluation.conditions", "evaluation.statistics"),
            *("evaluation.verdict", "reports.chart"),
            *("exporting.exported", "audit.finding", "audit.files.check", "training.results"),
        ),
        needs=("numpy",),
    ),
    "pipeline.settings": Row(
        (
            *("errors", "lengths", "untrusted", "context_plan", "data", "evaluation.verdict"),
            "evaluation.select",
        ),
        needs=("numpy",),
    ),
    "pipeline": Row(
        (
            *("searching.model.settings", "searching.model.results", "evaluation.settings"),
            *(*VALUES, "context_plan", "progress", "values", "records", "run_directory", "data"),
            *("planning", "models", "searching.model", "evaluation", "evaluation.results"),
            *("evaluation.answering", "evaluation.answerers", "evaluation.conclusion"),
            *("evaluation.conditions", "evaluation.runner", "evaluation.scoring", "reports"),
            *("evaluation.forward_time", "evaluation.in_process", "evaluation.over_ranks"),
            *("evaluation.statistics", "budget", "evaluation.select", "evaluation.verdict"),
            "training.journal",
            *(
                "exporting",
                "exporting.exported",
                "exporting.gguf_file",
                "exporting.manifest",
                "audit",
                "audit.finding",
                "audit.files.check",
            ),
            *("pipeline.settings", "pipeline.results", "outputs", "models.config", "models.source"),
            *("torchrun", "training", "training.execution", "training.settings"),
            "training.results",
        ),
        needs=("numpy", "torch", "transformers", "safetensors"),
    ),
    "costs": Row(
        ("errors", "extras", "lengths", "untrusted", "models.config"),
        lazily=("torch", "transformers"),  # to count the weights of unusual models
    ),
    "costs.here": Row(
        ("errors", "models", "models.config", "costs", "torchrun"), lazily=("torch",)
    ),
    "costs.fake": Row(
        ("errors", "models.config", "models", "models.renamed", "costs", "training"),
        needs=("torch", "transformers"),
    ),
    "api": Row(
        (
            *(*VALUES, "values", "progress", "context_plan", "records", "run_directory"),
            *("options", "outputs", "data", "run_on_disk", "costs", "torchrun", "budget"),
            *("scaling", "planning", "theory", "costs.fake", "models.placement", "models.recipes"),
            "models.source",
            *(
                "evaluation.answerers",
                "evaluation.compared",
                "evaluation.conclusion",
                "evaluation.conditions",
                "evaluation.statistics",
                "evaluation.results",
                "runtimes",
                "exporting.places",
                "runtimes",
                "audit.result",
            ),
            *("exporting.exported", "number_formats.results", "reports"),
            "number_formats.conclusion",
        ),
        needs=("numpy",),
        wires=True,
    ),
    "api.register": Row(
        ("errors", "schedule", "registered", "scaling", "searching", "evaluation"),
        needs=("numpy",),
    ),
    "api.search": Row(
        (
            *("errors", "untrusted", "api", "api.register", "budget", "options", "progress"),
            "run_directory",
            *("models.source", "context_plan", "searching", "torchrun", "values", "costs"),
            *("evaluation.select", "lengths"),
        ),
        needs=("numpy",),
        wires=True,
    ),
    "api.data": Row(
        (
            *("errors", "extras", "lengths", "options", "progress", "values", "api", "data"),
            "models.source",
        ),
        needs=("numpy",),
        wires=True,
    ),
    "api.train": Row(
        (
            *("errors", "untrusted", "extras", "api", "budget", "lengths", "options", "progress"),
            "costs",
            *(
                "run_directory",
                "context_plan",
                "data",
                "scaling",
                "models.placement",
                "models.source",
                "reports",
            ),
            *("values", "torchrun", "training.recipes", "training.results", "training.settings"),
        ),
        needs=("numpy",),
        wires=True,
    ),
    "api.extend": Row(
        (
            "torchrun",
            *("errors", "api", "lengths", "options", "progress", "run_directory", "data"),
            *("budget", "values", "costs"),
            "models.source",
            "pipeline.settings",
            "evaluation.select",
        ),
        needs=("numpy",),
        wires=True,
    ),
    "cli": Row(
        (
            *(*VALUES, "values", "progress", "registered", "api", "api.data", "api.extend"),
            "api.search",
            *("api.train", "context_plan", "options", "planning", "scaling", "torchrun"),
            *("models.recipes", "models.source", "costs"),
            *(
                "outputs",
                "records",
                "theory",
                "evaluation.results",
                "runtimes",
            ),
            *("evaluation.compared", "evaluation.conclusion", "evaluation.statistics"),
            *("number_formats.conclusion", "training.results"),
            *("exporting.exported", "runtimes", "audit.finding", "audit.result"),
            *("audit.files.check", "data", "pipeline.settings", "number_formats.results"),
        ),
        needs=("numpy", "typer"),
        lazily=("rich",),
        wires=True,
    ),
    "cli.terminal": Row(("errors",), needs=("numpy", "rich", "typer")),
    "__main__": Row(("cli", "errors", "outputs"), needs=("numpy", "typer")),
}


def room_of(module: str) -> str | None:
    """The room that a dotted name inside ropewalk lies in: the longest that the table knows."""
    parts = module.split(".")
    prefixes = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
    return next((prefix for prefix in prefixes if prefix in ROOMS), None)


def modules() -> Iterator[tuple[str, Path]]:
    """Every module of the package but its empty front door, by its name without `ropewalk.`."""
    for path in sorted((ROOT / "ropewalk").rglob("*.py")):
        parts = path.relative_to(ROOT / "ropewalk").with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if name:
            yield name, path


def imports(tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """Every absolute name that a file imports, and whether it does so as it is itself imported.

    What is imported for types alone is left out: it needs nothing, and makes no circle.
    """
    inside = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for node in ast.walk(function)
    }
    typing_only = {
        id(node)
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If) and "TYPE_CHECKING" in ast.unparse(branch.test)
        for node in ast.walk(branch)
    }
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        at_top = id(node) not in inside
        if isinstance(node, ast.Import):
            yield from ((alias.name, at_top) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, "imports are absolute"  # noqa: PT018
            # `from ropewalk.scaling import yarn` imports a module, `… import names` does not:
            # both lie in the room of the longer name, or else of the shorter.
            yield from ((f"{node.module}.{alias.name}", at_top) for alias in node.names)


def broken_rules(name: str, source: str) -> list[str]:
    """What a module imports against the table, one line each."""
    room = room_of(name)
    if room is None:
        return [f"{name} has no row in ROOMS"]
    row = ROOMS[room]
    found = []
    for imported, at_top in imports(ast.parse(source)):
        if row.wires and not at_top:
            continue
        package, _, inner = imported.partition(".")
        if package == "ropewalk":
            other = room_of(inner)
            if inner != "__version__" and other != room and other not in row.rooms:
                found.append(f"{name} imports {imported}, of a room that {room} may not know")
        elif package not in sys.stdlib_module_names:
            allowed = row.needs if at_top else row.needs + row.lazily
            if package not in allowed:
                where = "" if at_top else " inside a function"
                found.append(f"{name} imports {imported}{where}, which {room} may not")
    return found


@pytest.mark.parametrize(("name", "path"), list(modules()), ids=lambda value: str(value))
def test_no_file_imports_what_its_room_may_not(name: str, path: Path) -> None:
    assert broken_rules(name, path.read_text(encoding="utf-8")) == []


# The third-party packages of a room take seconds to import, and the room itself a tenth of one. So
# one process imports more and more of them, from the rooms that need none to those that need most,
# and each room opens in a fork of it that has imported nothing of ropewalk. Its argument is a list
# of (room, packages it must not need, what to import before, its modules).
OPENING = """
import importlib, json, os, sys, traceback

def open_room(absent, inside):
    # None: importing it fails. Also what others have loaded of it.
    of_absent = {name for name in sys.modules if name.partition(".")[0] in absent}
    sys.modules.update(dict.fromkeys(of_absent | set(absent)))
    for name in inside:
        importlib.import_module(name)

def fork(room, absent, inside):
    reader, writer = os.pipe()
    if os.fork() == 0:
        said = ""
        try:
            open_room(absent, inside)
        except BaseException:
            said = traceback.format_exc() or "?"
        os.write(writer, said[-2000:].encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as file:
        said = file.read()
    return "" if os.wait()[1] == 0 and not said else said or "it crashed"

found = {}
for room, absent, before, inside in json.load(open(sys.argv[1])):
    for name in before:
        package, _, attribute = name.rpartition(".")
        try:
            importlib.import_module(name)
        except ModuleNotFoundError:
            getattr(importlib.import_module(package), attribute)
    assert not any(name.partition(".")[0] == "ropewalk" for name in sys.modules)
    found[room] = fork(room, absent, inside)
json.dump(found, sys.stdout)
"""


def third_party(paths: Iterable[Path]) -> set[str]:
    """What files import at their top from packages that are not ropewalk's or Python's own."""
    names = {name for path in paths for name, top in imports(ast.parse(path.read_text())) if top}
    ours = {"ropewalk", *sys.stdlib_module_names}
    return {name for name in names if name.partition(".")[0] not in ours}


@pytest.fixture(scope="module")
def opened(stock: StockProcess, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """By room, what went wrong as it opened; empty if nothing did."""
    given = []
    for room, row in sorted(ROOMS.items(), key=lambda item: len({*HEAVY} & {*item[1].needs})):
        inside = {name: path for name, path in modules() if room_of(name) == room}
        assert inside, f"the row {room!r} names no room"
        absent = [package for package in HEAVY if package not in row.needs]
        before = sorted(third_party(inside.values()))
        given.append((room, absent, before, [f"ropewalk.{name}" for name in inside]))
    (rooms := tmp_path_factory.mktemp("rooms") / "rooms.json").write_text(json.dumps(given))
    done = stock.forks.run(["-c", OPENING, rooms])
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("room", ROOMS)
def test_each_room_opens_without_what_it_may_not_need(room: str, opened: dict[str, str]) -> None:
    """What the table allows only lazily, or not at all, is not even installed for this process."""
    assert opened[room] == ""


def test_rooms_know_only_rooms_and_never_in_a_circle() -> None:
    done: set[str] = set()
    while ready := {n for n, row in ROOMS.items() if n not in done and set(row.rooms) <= done}:
        done |= ready
    assert done == set(ROOMS)


def test_only_a_room_that_wires_is_free_inside_its_functions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(ROOMS, "cli", Row(("errors",), needs=("typer",), wires=True))
    lazily = "import typer\ndef f():\n    import torch\n    from ropewalk import context_plan"
    assert broken_rules("cli.plan", lazily) == []
    assert len(broken_rules("cli.plan", "import torch\nfrom ropewalk import context_plan")) == 2


@pytest.mark.parametrize(
    ("name", "source", "complaint"),
    [
        ("schedule", "from ropewalk.context_plan import ladder", "may not know"),
        ("schedule", "def f():\n    import ropewalk.context_plan", "may not know"),
        ("errors", "from ropewalk import schedule", "may not know"),
        ("context_plan", "from ropewalk.scaling import yarn", "may not know"),
        ("context_plan", "import ropewalk", "may not know"),
        ("scaling.yarn", "import torch", "may not"),
        ("scaling.yarn", "def f():\n    from torch.nn import Linear", "inside a function"),
        ("errors", "import numpy as np", "may not"),
        ("cellar", "", "no row"),
        ("scaling.yarn", "from ropewalk.scaling import linear\nimport math, numpy.linalg", None),
        ("context_plan", "from ropewalk import __version__, schedule", None),
    ],
)
def test_the_walk_sees_every_kind_of_import(name: str, source: str, complaint: str | None) -> None:
    found = broken_rules(name, source)
    assert (len(found) == 1 and complaint in found[0]) if complaint else found == []
