"""`methods`: the scaling methods and their parameters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ropewalk.blocks import Block, Cell, Paragraph, Table, cells
from ropewalk.options import command
from ropewalk.scaling import Parameter, named, names
from ropewalk.scaling.longrope import PublishedFactors, published
from ropewalk.values import Result


class MethodParameter(NamedTuple):
    """A parameter of a scaling method."""

    name: str
    required: bool
    default: object
    """None if it is required."""
    usage: str
    """In the form of `plan --set`: `beta_fast=32`, or `base=NUMBER`."""


class ScalingMethod(NamedTuple):
    """A scaling method by its name."""

    name: str
    summary: str
    needs_geometric_start: bool
    """True if it needs frequencies b^(-2i/d), so that it cannot start from every schedule."""
    parameters: tuple[MethodParameter, ...]


@dataclass(frozen=True, eq=False)
class Methods(Result):
    """All scaling methods, in alphabetical order."""

    rows_in = "methods"

    methods: tuple[ScalingMethod, ...]
    published: tuple[PublishedFactors, ...]
    """The factors that longrope knows by name: `factors=longrope:NAME`."""

    def summary(self) -> str:
        listed = ", ".join(method.name for method in self.methods)
        return f"There are {len(self.methods)} scaling methods: {listed}."

    def blocks(self) -> Iterator[Block]:
        rows = []
        for method in self.methods:
            rows.append(cells(method.name, method.summary))
            if method.parameters:
                usage = "  ".join(parameter.usage for parameter in method.parameters)
                rows.append((Cell(""), Cell("", quiet=usage)))
        yield Table("", ("method", "what it does, and its parameters"), tuple(rows))
        names = ", ".join(each.name for each in self.published)
        first = self.published[0]
        yield Paragraph(
            f"Published factors, as the parameter factors=longrope:NAME: {names} (target, model, "
            f"length of its fine-tuning; {first.origin}; {first.licence})"
        )
        yield Paragraph(
            "Parameters are for `plan` (--set in a shell); methods stack, as in yarn+resonance"
        )


@command("methods", "From a config alone", example="ropewalk methods")
def methods() -> Methods:
    """List the scaling methods, each with its parameters and their defaults."""
    definitions = [named(name) for name in names()]
    return Methods(
        tuple(
            ScalingMethod(
                name=method.name,
                summary=method.summary,
                needs_geometric_start=method.geometric_start,
                parameters=tuple(map(_parameter, method.parameters.values())),
            )
            for method in definitions
        ),
        published(),
    )


def _parameter(parameter: Parameter) -> MethodParameter:
    return MethodParameter(
        name=parameter.name,
        required=parameter.required,
        default=None if parameter.required else parameter.default,
        usage=str(parameter),
    )
