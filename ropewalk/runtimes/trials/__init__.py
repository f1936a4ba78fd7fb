"""Runs of a model in the runtimes that run here: stock transformers, and llama.cpp."""

from __future__ import annotations

from dataclasses import dataclass

from ropewalk.agreement import Agreement
from ropewalk.runtimes.finding import Finding


@dataclass(frozen=True)
class Trial:
    """The outcome of a run."""

    runtime: str = ""
    agreement: Agreement | None = None
    """None if it was not run, or if there was nothing to compare its numbers with."""
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    loaded: str = ""
    """That all its weights were loaded, in words; empty if they were not."""


def differs(runtime: str, agreement: Agreement) -> Finding:
    return failed(
        "model-differs",
        f"in {agreement.runtime}, {agreement.quantity} differ from the planned model's by "
        f"{agreement.max_difference:.3g}, and {agreement.tolerance:.2g} is allowed",
        "it does not follow the plan",
        runtime,
    )


def failed(trap: str, what: str, consequence: str, runtime: str) -> Finding:
    return Finding(trap, (runtime,), what, consequence, "export the model again: ropewalk export")
