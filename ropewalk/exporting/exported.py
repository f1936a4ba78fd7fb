"""The result of an export: the proof that it follows the plan, and the cost of an approximation.

Light values: reading them back needs no runtime.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from ropewalk.agreement import Agreement, bound
from ropewalk.blocks import Block, Paragraph
from ropewalk.errors import GateFailed, printable
from ropewalk.values import Result, Unbounded, Value


@dataclass(frozen=True, eq=False)
class Loss(Value):
    """The measured cost of an approximation."""

    nats: Unbounded
    """Mean Kullback-Leibler divergence of the next-token distributions."""
    max_logit_difference: Unbounded

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "nats", bound(self.nats))
        object.__setattr__(self, "max_logit_difference", bound(self.max_logit_difference))

    def __str__(self) -> str:
        return (
            f"{self.nats:.2g} nats per token on average, logits by up to "
            f"{self.max_logit_difference:.2g}"
        )


class Lines(NamedTuple):
    """The lines that serve an export in its runtime, and what its user should know."""

    load: str
    overrides: str = ""
    caveats: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Exported(Result):
    """An export, and the proof that it follows the plan."""

    target: str
    """The runtime that it was written for."""
    path: Path
    agreement: Agreement | None
    """None if nothing here can run that runtime."""
    warnings: tuple[str, ...] = ()
    load: str = ""
    """The command or the line of Python that loads it."""
    overrides: str = ""
    """The command that runs the source itself under the plan, if its weights are unchanged."""
    elsewhere: tuple[str, ...] = ()
    """The commands that load it in another runtime that takes the same file: Ollama."""

    drafting: tuple[str, ...] = ()
    """The commands that serve it with its drafter, which is written beside it."""

    def with_warnings(self, more: tuple[str, ...]) -> Exported:
        return replace(self, warnings=(*more, *self.warnings))

    def moved(self, folder: Path) -> Exported:
        """The same in another folder: a run directory may have moved."""
        path = folder / self.path.name
        before, now = (_in_modelfile(each) for each in (self.path, path))
        return replace(
            self,
            path=path,
            load=self.load.replace(shlex.quote(str(self.path)), shlex.quote(str(path))),
            elsewhere=tuple(line.replace(before, now) for line in self.elsewhere),
        )

    def summary(self) -> str:
        wrote = f"Wrote {self.path} for {self.target}"
        if self.agreement is None:
            return f"{wrote}; not tested here."
        count = len(self.warnings)
        warned = f" {count} warning{'s' * (count > 1)}." if count else ""
        return f"{wrote}; {self.agreement.runtime} gives {self.agreement}.{warned}"

    def blocks(self) -> Iterator[Block]:
        yield Paragraph(f"wrote {printable(str(self.path))}")
        if self.agreement is not None:
            yield Paragraph(f"  {self.agreement.runtime} follows the plan: {self.agreement}")
        for warning in self.warnings:
            yield Paragraph(f"  {warning}", "warning")
        if self.load:
            yield Paragraph(f"  {self.load}")
        if self.drafting:
            yield Paragraph("with its drafter, written beside it:")
            yield from (Paragraph(f"  {line}") for line in self.drafting)
        if self.elsewhere:
            yield Paragraph("or, in Ollama (predicted from its rules, not run):")
            yield from (Paragraph(f"  {line}") for line in self.elsewhere)
        if self.overrides:
            yield Paragraph(f"or, on the source itself:\n  {self.overrides}")


def _in_modelfile(path: Path) -> str:
    return f"FROM {path}" if path.is_absolute() else f"FROM ./{path}"


def modelfile(file: str, length: int) -> tuple[str, ...]:
    """The commands that make an Ollama model of a GGUF file, and run it.

    Without num_ctx, Ollama serves 4k, 32k or 256k, by the memory of the graphics cards.
    """
    path = file if file.startswith("/") else f"./{file}"
    # As arguments, for printf takes % and \ in its format as signs of its own.
    lines = shlex.join((f"FROM {path}", f"PARAMETER num_ctx {length}"))
    return (
        f"printf '%s\\n' {lines} > Modelfile",
        "ollama create extended -f Modelfile && ollama run extended",
    )


class NotTheSame(GateFailed):
    """The export computes something else: it has been removed, and this is the proof."""

    def __init__(self, exported: Exported, agreement: Agreement) -> None:
        self.result, self.agreement = exported, agreement
        super().__init__(
            f"{exported.path} was not written",
            [
                f"its {agreement.quantity} in {agreement.runtime} differ from the planned "
                f"model's by {agreement.max_difference:.3g} over {agreement.tokens} tokens, "
                f"and the tolerance is {agreement.allowed}{agreement.by_median}"
            ],
        )

    def __reduce__(self) -> tuple[object, ...]:
        return NotTheSame, (self.result, self.agreement)
