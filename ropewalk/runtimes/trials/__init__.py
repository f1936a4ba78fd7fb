"""Runs of a model in the runtimes that run here: stock transformers, and llama.cpp."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from ropewalk.agreement import Agreement
from ropewalk.runtimes.finding import ExaminedModel, Finding
from ropewalk.runtimes.reading import MEASURED


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


def faults_without_weights(subject: ExaminedModel, found: Collection[Finding]) -> Iterator[Finding]:
    """A computation that fails for a reason that none of the findings names."""
    for reading in subject.readings:
        named = any(each.wrong and each.concerns(reading.runtime) for each in found)
        if reading.source != MEASURED or reading.unread or named:
            continue
        from ropewalk.runtimes.trials.stock_rotary import fault_of_forward

        if fault := fault_of_forward(subject.config):
            consequence = "its class reads no text with these values"
            yield Finding("refused", (reading.runtime,), fault, consequence, "correct the config")
