"""The gate: what an exported model computes, beside what the planned model computes."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ropewalk.errors import GateFailed


@dataclass(frozen=True)
class Parity:
    """How far an export strays from the model it was made from."""

    runtime: str
    """The runtime that was run, with its version: `transformers 5.23.0`."""
    max_logit_difference: float
    tolerance: float
    tokens: int
    """How many positions were compared, beyond the trained length as well as below it."""

    @property
    def passed(self) -> bool:
        return self.max_logit_difference <= self.tolerance  # False for NaN too

    def to_json(self) -> dict[str, object]:
        return {**asdict(self), "passed": self.passed}


@dataclass(frozen=True)
class Exported:
    """What was written, and the proof. `parity` None: nothing here can run that runtime."""

    target: str
    path: Path
    parity: Parity | None
    warnings: tuple[str, ...] = ()
    load: str = ""
    """The command or the line of Python that loads it."""
    overrides: str = ""
    """The command that runs the source itself under the plan, where its weights are unchanged."""

    def with_warnings(self, more: tuple[str, ...]) -> Exported:
        return replace(self, warnings=(*more, *self.warnings))

    def to_json(self) -> dict[str, object]:
        return {
            "target": self.target,
            "path": str(self.path),
            "parity": None if self.parity is None else self.parity.to_json(),
            "warnings": list(self.warnings),
            "load": self.load,
            "overrides": self.overrides,
        }


class NotTheSame(GateFailed):
    """What was written computes something else: it has been removed, and this is the proof."""

    def __init__(self, exported: Exported) -> None:
        self.exported, parity = exported, exported.parity
        assert parity is not None
        super().__init__(
            f"{exported.path} was not written",
            [
                f"its logits in {parity.runtime} differ from the planned model's by "
                f"{parity.max_logit_difference:.3g} over {parity.tokens} tokens, "
                f"and {parity.tolerance:g} is allowed"
            ],
        )

    def __reduce__(self) -> tuple[object, ...]:
        return NotTheSame, (self.exported,)
