"""Weights that are no numbers: every byte of every tensor is read, in pieces, without torch.

A float is NaN or infinite if all bits of its exponent are set. A model computes in float32 at most,
in which larger numbers of float64 are infinite. Of blocks only the scales are floats. A hole in a
file is zeros and is not read.

- `weights-zero`: matrices hold only zeros; a note unless the embedding or a quarter of them do
- `weights-not-finite`: a tensor holds NaN or values that are infinite in float32
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ropewalk.audit.files.check import fault, listed
from ropewalk.gguf.rewriting import stretches
from ropewalk.runtimes.finding import Finding

Report = Callable[[float], None]
_AT_ONCE = 16 * 2**20
# How a number is stored, and the least bits, without the sign, that are no number. F8_E4M3 has NaN
# alone, where all bits are set.
_NO_NUMBERS = {
    "F64": ("<u8", 0x47EF_FFFF_F000_0000),  # rounded to float32, it is infinite
    "F32": ("<u4", 0x7F80_0000),
    "BF16": ("<u2", 0x7F80),
    "F16": ("<u2", 0x7C00),
    "F8_E5M2": ("u1", 0x7C),
    "F8_E4M3": ("u1", 0x7F),
}
_EMBEDDINGS = ("embed_tokens.weight", "embed_in.weight", "token_embd.weight")
_zero = fault(
    "weights-zero",
    "such a matrix passes nothing on, as after a copy or a training that left it out",
    "copy or convert the weights again, unless the model was trained so",
)
_not_finite = fault(
    "weights-not-finite",
    "every answer that reads them is garbage",
    "copy or convert the weights again, or train again from a checkpoint before the loss "
    "became NaN",
)


class Blocks(NamedTuple):
    """Quantised numbers: the bytes of a block, and the places in it of scales in F16."""

    size: int
    scales: tuple[int, ...]


class Numbers(NamedTuple):
    """A tensor in a file."""

    name: str
    path: Path
    start: int
    size: int
    kind: str | Blocks
    """The name of a float in safetensors; of other types, nothing is known."""
    matrix: bool = False
    """True if it has several rows: a bias or a norm may well be zero."""


class Odd(NamedTuple):
    """The names of tensors whose numbers are not those of a trained model."""

    not_finite: tuple[str, ...]
    """They hold NaN or an infinite value."""
    zero: tuple[str, ...]
    """Matrices of zeros alone."""


def odd(tensors: Sequence[Numbers], progress: Report = lambda done: None) -> Odd:
    """Read every tensor."""
    total, done = max(1, sum(tensor.size for tensor in tensors)), 0
    not_finite, zero = [], []
    for tensor in sorted(tensors, key=lambda tensor: (tensor.path, tensor.start)):
        broken, empty = _looked_at(tensor)
        not_finite += [tensor.name] if broken else []
        zero += [tensor.name] if empty and tensor.matrix else []
        done += tensor.size
        progress(done / total)
    return Odd(tuple(not_finite), tuple(zero))


def all_zero(names: Sequence[str], tensors: Sequence[Numbers]) -> tuple[Finding, ...]:
    """What to say of such matrices: layers may be added as zeros, but neither many nor the first.

    A copy that broke off has zeros where the file was to be filled.
    """
    what = f"{listed(names)} {'holds' if len(names) == 1 else 'hold'} zeros alone"
    many = 4 * len(names) > sum(tensor.matrix for tensor in tensors)
    broken = many or any(name.endswith(_EMBEDDINGS) for name in names)
    return (replace(_zero(what), wrong=broken),) if names else ()


def not_numbers(names: Sequence[str]) -> Finding:
    """The finding for such tensors."""
    more = f" and {len(names) - 1} more tensors" if len(names) > 1 else ""
    hold = "holds" if len(names) == 1 else "hold"
    return _not_finite(f"{names[0]}{more} {hold} NaN or values that are infinite in float32")


def _looked_at(tensor: Numbers) -> tuple[bool, bool]:
    """True if it holds a value that is no finite number; and true if all of it is zero."""
    kind, zero = tensor.kind, True
    step = kind.size if isinstance(kind, Blocks) else 8
    if not step or (not isinstance(kind, Blocks) and kind not in _NO_NUMBERS):
        return False, False
    at_once = _AT_ONCE // step * step
    with tensor.path.open("rb") as file:
        end = tensor.start + tensor.size
        for begin, stop in stretches(file.fileno(), tensor.start, end):
            # A stretch begins at a page of the disk, which may be within a number.
            at = tensor.start + (begin - tensor.start) // step * step
            stop = min(end, tensor.start + -(-(stop - tensor.start) // step) * step)
            while at < stop:
                file.seek(at)
                content = file.read(min(at_once, stop - at))
                if not content:
                    return False, False
                if _in(content, kind):
                    return True, False
                zero = zero and not np.frombuffer(content, np.uint8).any()
                at += len(content)
    return False, zero


def _in(content: bytes, kind: str | Blocks) -> bool:
    if isinstance(kind, Blocks):
        blocks = np.frombuffer(content, np.uint8, len(content) // kind.size * kind.size)
        rows = blocks.reshape(-1, kind.size)
        scales = (np.ascontiguousarray(rows[:, i : i + 2]).tobytes() for i in kind.scales)
        return any(_in(each, "F16") for each in scales)
    form, least = _NO_NUMBERS[kind]
    width = np.dtype(form).itemsize
    numbers = np.frombuffer(content, form, len(content) // width)
    without_sign = np.array((1 << (8 * width - 1)) - 1, form)
    return bool(((numbers & without_sign) >= np.array(least, form)).any())
