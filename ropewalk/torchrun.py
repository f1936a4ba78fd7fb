"""The processes that `torchrun` starts, and all that a verb needs to know of them. No torch.

A rank is one of these processes. Ranks may hold one copy of a model together, and copies share the
work. A verb gets its `Ranks` from `all_ranks` (models/dividing.py), and hands them down: to load a
part of the model, to share the work, and to return rank 0's result everywhere. A process without
torchrun is one rank that shares with nobody, so no caller asks whether there are several.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from math import gcd
from typing import Any, Self

from ropewalk.errors import InputError, InvalidValue, Unsupported
from ropewalk.untrusted import whole_number

_SIZE, _RANK, _LOCAL = "WORLD_SIZE", "RANK", "LOCAL_RANK"
_NEIGHBOURS = "LOCAL_WORLD_SIZE"
_MEETING = ("MASTER_ADDR", "MASTER_PORT")
"""The address at which processes meet; its values are torch's to read."""


def started() -> int:
    """The number of processes torchrun started; 1 without it. What it would not set is refused."""
    if _SIZE not in os.environ:
        return 1
    size, rank = _number(_SIZE), _number(_RANK)
    if not rank < size:
        raise _refused(f"{_RANK} is {rank}, not below the {_SIZE} of {size},")
    missing = [key for key in (*_MEETING, _LOCAL) if size > 1 and not os.environ.get(key)]
    if missing:
        raise _refused(f"{missing[0]} is not set")
    return size


def first() -> bool:
    """True if this process writes and shows: rank 0, or the only one."""
    return started() == 1 or _number(_RANK) == 0


def neighbours() -> int:
    """The number of processes torchrun started on this machine."""
    return _number(_NEIGHBOURS) if _NEIGHBOURS in os.environ else 1


def local_rank() -> int | None:
    """The number of this process on its machine, by which it takes a GPU; None without torchrun."""
    return _number(_LOCAL) if _LOCAL in os.environ else None


def _number(key: str) -> int:
    text = os.environ.get(key)
    if text is None:
        raise _refused(f"{key} is not set")
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise _refused(f"{key} is {text[:40]!r}, which is not a number,")
    return int(text)


def _refused(variable: str) -> InputError:
    return InputError(
        f"{variable} in an environment that is not torchrun's; start several processes with "
        f"`torchrun -m -- ropewalk …`, or unset {_SIZE} and {_LOCAL}"
    )


def check_ranks(per_copy: int, command: str, size: int | None = None) -> None:
    """Refuse a number of ranks to a copy that does not divide all (default: those of torchrun)."""
    size = started() if size is None else size
    if whole_number(per_copy, "ranks_per_copy") < 1:
        remedy = "give 1 (the default) if each rank can hold a whole copy of the model"
        raise InvalidValue("ranks_per_copy", per_copy, "must be at least 1", remedy)
    if size % per_copy:
        raise InvalidValue(
            "ranks_per_copy",
            per_copy,
            f"the number of ranks must be a multiple of it, but is {size}",
            f"start that many: torchrun --nproc-per-node {per_copy} -m -- ropewalk {command} …",
        )


def check_heads(heads: Sequence[tuple[int, str]], ranks: int) -> None:
    """Refuse ranks that do not divide these numbers of heads, each with what they are."""
    if not (other := [f"{n} {name}" for n, name in heads if n % ranks]):
        return
    common = gcd(*(n for n, _ in heads))
    fit = [str(n) for n in range(1, common + 1) if common % n == 0]
    raise InvalidValue(
        "ranks_per_copy",
        ranks,
        f"{other[0]} heads cannot be divided over so many ranks",
        f"give {' or '.join(fit)}; further ranks hold further copies",
    )


def check_alone(command: str) -> None:
    """Refuse several ranks for a command that would do the same work, and write it, on each."""
    if started() > 1:
        raise Unsupported(
            f"{command} runs in one process, and torchrun started {started()}; run it without "
            "torchrun (evaluate, search, extend, train and fingerprint share a model among ranks)"
        )


class Ranks:
    """This process among the ranks: here, the only one. Several meet in models/ranks.py."""

    rank = copy = member = 0
    """The numbers of this process among all, of its copy of the model, and of its part of that."""
    size = copies = per_copy = 1
    by_layers = False
    """True if each rank holds a part of every layer, else of the heads."""

    def __init__(self) -> None:
        self._sent: dict[str, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        return

    @property
    def by_heads(self) -> bool:
        """True if the ranks of a copy compute in step, each with its heads."""
        return self.per_copy > 1 and not self.by_layers

    def apart(self, name: str) -> Self:
        """The same ranks with keys of their own: for one series of requests."""
        return self

    def meet(self, device: Any) -> Any:
        """Begin a process group of the ranks of this copy, which use such devices."""
        raise Unsupported(
            "sharing a copy of the model needs more than one process; start several with torchrun"
        )

    def place(self, model: Any, device: Any) -> None:
        """Put this rank's part of every layer on the device (FSDP2)."""
        self.meet(device)

    def broadcast(self, value: Any) -> Any:
        """Rank 0's value of JSON, on every rank. All ranks make the same calls in one order."""
        return value

    def send(self, key: str, value: object) -> None:
        """Send what the ranks of this copy have all computed; floats keep every bit."""
        self._sent[key] = value

    def received(self, key: str) -> Any:
        """A value that some copy gave."""
        return self._sent[key]

    def check_same(self, configuration: Mapping[str, object]) -> None:
        """Refuse ranks that see other files or other settings."""


def device_of_rank(device: str) -> str:
    """Under torchrun, each rank takes the GPU of its number."""
    number = local_rank()
    if device in ("auto", "cuda") and number is not None:
        import torch

        if torch.cuda.is_available():
            return f"cuda:{number}"
    return device
