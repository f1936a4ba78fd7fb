"""The packages that only an extra installs, and one line for whoever lacks them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from ropewalk.errors import MissingExtra

EXTRAS = {
    package: extra
    for extra, packages in (
        ("theory", ("numba",)),
        ("models", ("huggingface_hub", "safetensors", "tokenizers", "torch", "transformers")),
        ("plots", ("matplotlib",)),
        ("gguf", ("gguf", "xllamacpp")),
        ("data", ("pyarrow", "datasets")),
        ("train", ("accelerate", "peft")),
    )
    for package in packages
}
"""By package, the extra of pyproject.toml that brings it."""


def environment() -> dict[str, str]:
    """The environment by which a child sees the packages of this process: those of PYTHONPATH, of
    `pip install --user`, and of a notebook that changed `sys.path`."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


@contextmanager
def required_by(what: str) -> Iterator[None]:
    """Raise MissingExtra if a package of an extra is not installed; also a decorator.

    A package that is installed and broken fails under another name, or with another error: that is
    raised as it is.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in EXTRAS:
            raise
        raise missing(what, error.name) from None


def check_installed(what: str, *packages: str) -> None:
    """Refuse work that would only later lack a package, with all that is lacking at once."""
    if absent := [package for package in packages if find_spec(package) is None]:
        raise missing(what, *absent)


def missing(what: str, *packages: str) -> MissingExtra:
    """The error that says what needs packages, and which extras to install."""
    extras = dict.fromkeys(EXTRAS[package] for package in packages)
    return MissingExtra(what, ", ".join(packages), ",".join(extras))
