"""The reference of methods of docs/methods.md, from the docstring of each and its parameters."""

from __future__ import annotations

import importlib
import inspect

import ropewalk as rw
from ropewalk import scaling
from ropewalk.api.methods import ScalingMethod


def blocks() -> dict[str, str]:
    return {"docs/methods.md": "\n\n".join(map(_described, rw.methods().methods))}


def _described(method: ScalingMethod) -> str:
    module = importlib.import_module(f"{scaling.__name__}.{method.name}")
    lines = [f"### {method.name}", inspect.getdoc(module) or ""]
    if method.parameters:
        usage = ", ".join(f"`{parameter.usage}`" for parameter in method.parameters)
        lines += ["", f"Parameters: {usage}."]
    return "\n".join(lines)
