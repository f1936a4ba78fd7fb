"""Serving a plan in each runtime: exactly, approximately or not at all; the lines to paste.

Only the config and the plan are read; no weights are needed, and nothing is run. What the lines
rest on was established elsewhere: transformers and llama.cpp (with these very flags) are run in the
tests; vLLM, SGLang and Ollama go by their rules.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ropewalk.blocks import Block, Code, Heading, Paragraph
from ropewalk.context_plan import PLAN, ContextPlan
from ropewalk.errors import RopewalkError
from ropewalk.models.config import window_everywhere
from ropewalk.models.source import Source
from ropewalk.runtimes import every
from ropewalk.values import Value

Fit = Literal["exact", "approximate", "impossible", "unknown"]
MODEL = "MODEL"
"""Placeholder for the user's folder in lines to paste."""
OF_GGUF = (
    "LM Studio and Jan load the same GGUF file as Ollama: set their context length, and none of "
    "their RoPE settings"
)
NOT_RUN = "by its rules, not tested here"


@dataclass(frozen=True, eq=False)
class Serving(Value):
    """One runtime's support of a plan, and the lines that start it."""

    runtime: str
    fit: Fit
    reason: str
    lines: tuple[str, ...] = ()
    """Members of config.json for transformers, shell commands for the others."""

    @classmethod
    def possible(cls, runtime: str, near: Sequence[str], reason: str, *lines: str) -> Serving:
        """A runtime that follows the plan, or something near it."""
        if near:
            return cls(runtime, "approximate", f"{'; '.join(near)}; {reason}", lines)
        return cls(runtime, "exact", reason, lines)


def pasted(rows: Sequence[Serving]) -> Iterator[Block]:
    """The lines that serve a plan, by runtime."""
    yield Heading("To serve it:")
    for row in rows:
        yield Code(f"{row.runtime} ({row.fit}): {row.reason}", "\n".join(row.lines))
    if any(row.runtime == "ollama" and row.lines for row in rows):
        yield Paragraph(f"# {OF_GGUF}")


def serving(plan: ContextPlan, source: Source) -> tuple[Serving, ...]:
    """One row for each runtime that loads the model and can be told to follow a plan."""
    is_gguf = source.kind == "GGUF file"
    runtimes = (each for each in every().values() if not is_gguf or each.loads == source.kind)
    rows = tuple(row for each in runtimes if (row := each.serve(plan, source)) is not None)
    window = None if is_gguf else window_everywhere(source.config)
    if window is None or window >= plan.target_length:
        return rows
    note = f"; the model was trained to see the last {window} positions only (sliding_window)"
    return tuple(replace(row, reason=f"{row.reason}{note}") for row in rows)


def export_line(source: Source, runtime: str, out: str) -> str:
    words = ["ropewalk", "export", model_argument(source), "--plan", PLAN, "--runtime", runtime]
    download = ["--allow-download"] if source.kind in ("catalogue", "hub") else []
    return shlex.join([*words, "-o", out, *download])


def model_argument(source: Source) -> str:
    """The MODEL argument of a command: its folder, its hub id, or else a word to replace."""
    if source.kind in ("folder", "bundled", "GGUF file"):
        return str(source.path)
    if source.kind == "config file" and source.path and source.path.name == "config.json":
        return str(source.path.parent)
    if source.kind == "catalogue":
        return str(source.value.hub_id)
    return source.name if source.kind == "hub" else MODEL


def reason_of(error: RopewalkError, runtime: str) -> str:
    return str(error).removeprefix(f"{runtime}: ")
