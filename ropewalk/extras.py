"""The packages that only an extra installs, and one line for whoever lacks them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec

from ropewalk.errors import MissingExtra

EXTRAS = {
    package: extra
    for extra, packages in (
        ("gguf", ("xllamacpp", "gguf")),
        ("theory", ("numba",)),
        ("models", ("huggingface_hub", "safetensors", "tokenizers", "torch", "transformers")),
        ("plots", ("matplotlib",)),
        ("data", ("pyarrow", "datasets")),
        ("train", ("accelerate", "peft")),
    )
    for package in packages
}
"""By package, the extra of pyproject.toml that brings it. xllamacpp is the first: once torch is
imported, its libraries hide that the system lacks one."""
_SECONDS = 120
_TRIAL = """
import importlib, json, os, sys
told = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what packages print is no answer
for name in sys.argv[1:]:
    fault = device = ""
    try:
        module = importlib.import_module(name)
        if name == "torch":
            gpus = range(module.cuda.device_count())
            device = ", ".join(map(module.cuda.get_device_name, gpus)) or "cpu"
            if module.backends.mps.is_available():
                device = "mps"
    except BaseException as error:
        fault = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    print(json.dumps([name, fault, device]), file=told, flush=True)
"""


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


def imported(names: Sequence[str]) -> tuple[dict[str, str], str]:
    """Import packages in a process apart: their errors by name, and the device that torch finds."""
    call, env = [sys.executable, "-P", "-c", _TRIAL, *names], environment()
    try:
        done = subprocess.run(call, env=env, capture_output=True, timeout=_SECONDS, check=False)
        output, end = done.stdout, f"its import ended the process with status {done.returncode}"
    except subprocess.TimeoutExpired as late:
        output, end = late.stdout or b"", f"its import took over {_SECONDS} s"
    answers = [json.loads(line) for line in output.splitlines()]
    faults = {name: fault for name, fault, _ in answers if fault}
    if len(answers) < len(names):
        faults[names[len(answers)]] = end
    return faults, "".join(device for *_, device in answers)


def unusable(package: str, fault: str) -> str:
    """What to say of a package that is installed, and whose import fails."""
    return (
        f"{package} is installed, but cannot be imported ({fault}): install what it lacks, or "
        "install it again"
    )


def broken(error: BaseException | None) -> str:
    """What to say of an error that an installed package's import raised; empty for another one."""
    said = set()
    while error is not None:
        frames = traceback.walk_tb(error.__traceback__)
        if any(frame.f_code.co_name == "<module>" for frame, _ in frames):  # in an import
            said.add(" ".join(f"{type(error).__name__}: {error}".split())[:300])
        error = error.__cause__ or error.__context__
    faults = imported([name for name in EXTRAS if find_spec(name)])[0] if said else {}
    return next((unusable(name, fault) for name, fault in faults.items() if fault in said), "")
