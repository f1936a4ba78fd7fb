"""The cost of the run that would settle the claims: on a pretrained model with a natural sink.

    python -m studies.precision.cost

A forward of L tokens through N parameters takes 2NL operations, and attention 4·layers·width·L² for
all pairs of positions. Attention is computed once more for the comparison of each shift. In memory
are the weights in float32, a copy in bf16 for the arm `bf16_model`, and the queries and keys of the
reference shift, before and after the rotation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ropewalk.lengths import format_length
from ropewalk.number_formats.measurement import PrecisionSettings

THROUGHPUT = 1e13
"""Operations a second in float32 without TF32: about half of the peak of an A100."""


@dataclass(frozen=True)
class Pretrained:
    """A model of the catalogue, and the sizes that decide the cost."""

    name: str
    parameters: float
    layers: int
    width: int
    """The width of all query heads together."""


MODELS = (
    Pretrained("smollm2-1.7b", 1.71e9, 24, 2048),
    Pretrained("llama-2-7b", 6.74e9, 32, 4096),
)
LENGTH = 4096
SEQUENCES = 20
ARMS = ("fp32", "bf16", "bf16_model", "bf16_positions")


def settings() -> PrecisionSettings:
    """Those that `command` asks for."""
    return PrecisionSettings(LENGTH, arms=ARMS, sequences=SEQUENCES)


def command(model: Pretrained) -> str:
    return (
        f"ropewalk precision {model.name} --allow-download --device cuda --corpus TEXT "
        f"--length {format_length(LENGTH)} --sequences {SEQUENCES} --arms {','.join(ARMS)} "
        f"--run runs/precision-{model.name}"
    )


@dataclass(frozen=True)
class Cost:
    forwards: int
    tokens: int
    operations: float
    memory: float
    """In bytes."""

    @property
    def hours(self) -> float:
        return self.operations / THROUGHPUT / 3600


def cost(model: Pretrained, asked: PrecisionSettings) -> Cost:
    """By the formulas at the top; the traps of loading are not counted."""
    passes, length = asked.forwards, asked.length
    attention = 4 * model.layers * model.width * length**2
    return Cost(
        passes,
        passes * length,
        passes * (2 * model.parameters * length + 2 * attention),
        (4 + 2) * model.parameters + 4 * 4 * model.layers * model.width * length,
    )


def rows() -> Iterator[list[str]]:
    for model in MODELS:
        found = cost(model, settings())
        yield [
            model.name,
            f"{found.forwards:,}",
            f"{found.tokens / 1e6:.1f} million",
            f"{found.operations:.1e}",
            f"{found.memory / 2**30:.0f} GiB",
            f"{found.hours:.1f}",
        ]


COLUMNS = ["model", "forwards", "tokens", "operations", "GPU memory", "hours"]


def main() -> None:
    print(command(MODELS[0]))
    for row in rows():
        print(", ".join(f"{name} {value}" for name, value in zip(COLUMNS, row, strict=True)))


if __name__ == "__main__":
    main()
