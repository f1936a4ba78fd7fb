"""The weights of a folder: every file whole, every tensor where the index says, as the config asks.

Headers are compared with the config. Then every tensor is read once: are its numbers finite?

- `weights-damaged`: a file of weights is empty, cut off, or does not match its header
- `weights-misplaced`: the index names a file or tensor that is not there, or omits one
- `weights-differ`: config and weights are of different models
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ropewalk.audit.files.check import SHOWN, Checked, fault, passed, unknown, wrong
from ropewalk.audit.files.finite import Numbers, Report, all_zero, not_numbers, odd
from ropewalk.audit.files.shapes import check_shapes, quantised, twins
from ropewalk.errors import InputError, RopewalkError, Unsupported
from ropewalk.models.config import Config
from ropewalk.models.safetensors_header import (
    INDEX,
    OF_MISTRAL,
    PICKLES,
    SINGLE,
    Stored,
    read_header,
    read_index,
)
from ropewalk.runtimes.finding import Finding

ADAPTER = "adapter_config.json"
# What quantised a model may have left its settings here, which vLLM and SGLang read.
_QUANTISED = ("hf_quant_config.json", "quantize_config.json", "quant_config.json")
_CHUNK = 16 * 2**20
_AGAIN = "copy the folder again, or export the model again"
_damaged = fault("weights-damaged", "it does not load, or loads garbage", _AGAIN)
_missing = fault("weights-misplaced", "the weights are not found when loading", _AGAIN)
_differs = fault(
    "weights-differ",
    "it does not load, or loads with random weights in their place",
    "check that config and weights belong together",
)
_INCOMPLETE = Finding(
    "weights-misplaced",
    ("transformers", "transformers-4"),
    f"{INDEX} has no object `metadata`",
    "transformers loads no shards without it; other runtimes read the map alone",
    'add "metadata": {} to it',
)


@dataclass(frozen=True)
class Weights:
    """The findings."""

    checked: Checked
    files: tuple[Path, ...] = ()
    """The safetensors files that a runtime loads; none if there are none to load."""
    rows: int | None = None
    """The rows of the embedding."""


def weights(folder: Path, config: Config, progress: Report = lambda done: None) -> Weights:
    """Look at the weights of a folder."""
    if not folder.is_dir():
        said = "only a config was given"
        return Weights(unknown("weights", said, "give the folder that has config and weights"))
    try:
        problem, complete = "", True
        if (folder / SINGLE).exists() or (folder / SINGLE).is_symlink():
            files = {folder / SINGLE: read_header(_regular(folder / SINGLE))}
            # vLLM chooses files by the index even where a whole file stands next to it.
            if os.path.lexists(folder / INDEX):
                problem = _misplaced(_index(folder / INDEX)[0], files)
        elif (folder / INDEX).exists():
            index, complete = _index(folder / INDEX)
            shards = [folder / name for name in sorted(set(index.values()))]
            if absent := [path.name for path in shards if not os.path.lexists(path)]:
                raise _IndexError(f"{INDEX} names {absent[0]}, which is not there")
            files = {path: read_header(_regular(path)) for path in shards}
            problem = _misplaced(index, files)
        else:
            files = {}
        held = {name for each in files.values() for name in each}
        extra: tuple[Finding, ...] = ()
        for path in sorted(folder.glob("*.safetensors")):
            more = {} if path in files else read_header(_regular(path))
            twice = min(held & more.keys(), default="")
            read_too = twice or not path.match(OF_MISTRAL)
            if files and more and read_too and not os.path.lexists(folder / INDEX):
                extra = (_loaded_too(path.name, twice, min(more)),)
        if os.path.lexists(folder / ADAPTER):
            problem = f"with {ADAPTER} here, transformers loads the base model that it names"
        if problem:
            return Weights(wrong("weights", _missing(problem)), tuple(files))
        if not files:
            return Weights(_absent(folder))
    except Unsupported as error:
        remedy = "run it in its runtime"
        return Weights(unknown("weights", str(error), remedy))
    except _IndexError as error:
        return Weights(wrong("weights", _missing(str(error))))
    except InputError as error:
        return Weights(wrong("weights", _damaged(str(error))))
    if any((folder / name).is_file() for name in _QUANTISED):
        config = {"quantization_config": {}, **config}
    compared = _compared(files, config)
    if compared.checked.check.verdict == "wrong":
        return compared
    all_numbers = numbers(files)
    read = odd(all_numbers, progress)
    if read.not_finite:
        return replace(compared, checked=wrong("weights", not_numbers(read.not_finite)))
    zero = all_zero(read.zero, all_numbers)
    if any(each.wrong for each in zero):
        return replace(compared, checked=wrong("weights", *zero))
    if said := _untied(all_numbers, config):
        return replace(compared, checked=wrong("weights", _differs(said)))
    notes = (*compared.checked.findings, *zero, *extra, *(() if complete else (_INCOMPLETE,)))
    return replace(compared, checked=compared.checked._replace(findings=notes))


def _loaded_too(file: str, twice: str, name: str) -> Finding:
    """The finding for a file that transformers does not read."""
    return Finding(
        "weights-misplaced",
        ("vllm", "sglang") if twice else ("vllm",),
        f"{file} holds {f'{twice} too' if twice else name}, and there is no {INDEX}",
        "without an index vLLM and SGLang load every file: of two tensors the last one wins, and "
        "vLLM refuses those that it does not know",
        "remove that file, or add an index",
    )


def numbers(files: Mapping[Path, Mapping[str, Stored]]) -> list[Numbers]:
    """The places of all tensors' numbers, and how they are stored."""
    result = []
    for path, tensors in files.items():
        # The tensors fill the file from the end of its header to its last byte.
        first = path.stat().st_size - max((stored.end for stored in tensors.values()), default=0)
        result += [
            Numbers(
                *(name, path, first + stored.start, stored.end - stored.start, stored.dtype),
                matrix=len(stored.shape) > 1,
            )
            for name, stored in tensors.items()
        ]
    return result


def _untied(tensors: Sequence[Numbers], config: Config) -> str:
    """The head that differs from the embedding, although the config ties them; else empty."""
    by_name = {each.name: each for each in tensors}
    if (same := twins(by_name, config)) is None:
        return ""
    one, other = (by_name[name] for name in same)
    with one.path.open("rb") as first, other.path.open("rb") as second:
        first.seek(one.start)
        second.seek(other.start)
        for place in range(0, min(one.size, other.size), _CHUNK):
            size = min(_CHUNK, one.size - place, other.size - place)
            if first.read(size) != second.read(size):
                return (
                    f"{other.name} is not {one.name}, and the config ties them: some runtimes "
                    "leave it out"
                )
    return ""


class _IndexError(InputError):
    """The index cannot be followed."""


def _compared(files: Mapping[Path, Mapping[str, Stored]], config: Config) -> Weights:
    tensors = {name: tensor.shape for each in files.values() for name, tensor in each.items()}
    if not tensors:
        return Weights(wrong("weights", _damaged("the files hold no tensor")), tuple(files))
    where = SINGLE if len(files) == 1 else f"{len(files)} files"
    said = f"{len(tensors):,} tensors in {where}, complete"
    try:
        compared = check_shapes(tensors, config)
    except RopewalkError as error:
        checked = unknown("weights", f"{said}; not compared with the config: {error}", "correct it")
        return Weights(checked, tuple(files))
    # Integers under the name of a weight are quantised, which the config does not say. What has
    # four dimensions is the causal mask that older files store as a bias (Pythia's).
    whole_numbers = [
        f"{name} is stored as {tensor.dtype}, and weights of this config are floats"
        for each in files.values()
        for name, tensor in each.items()
        if name.endswith((".weight", ".bias"))
        and tensor.dtype[0] in "BIU"
        and tensor.dtype != "BF16"
        and len(tensor.shape) < 4
    ]
    problems = (*compared.problems, *(() if quantised(config) else whole_numbers))
    if problems:
        differ = [_differs(problem) for problem in _first(problems)]
        return Weights(wrong("weights", *differ), tuple(files), compared.rows)
    if compared.unknown:
        remedy = "run it in transformers, which compares them (leave --no-run away)"
        checked = unknown("weights", f"{said}; {compared.unknown}", remedy)
    else:
        checked = passed("weights", f"{said}, shapes match the config")
    return Weights(checked, tuple(files), compared.rows)


def _first(problems: tuple[str, ...]) -> tuple[str, ...]:
    """A config that does not belong to the weights differs in every layer: a few will do."""
    if len(problems) <= SHOWN:
        return problems
    more = f"{problems[SHOWN - 1]} (and {len(problems) - SHOWN} more)"
    return (*problems[: SHOWN - 1], more)


def _regular(path: Path) -> Path:
    if not path.exists():
        lost = f"links to {os.readlink(path)}, which" if path.is_symlink() else "it"
        raise InputError(f"{path.name}: {lost} is not there")
    if not path.is_file():  # a pipe would wait for ever
        raise InputError(f"{path.name}: is not a file")
    return path


def _index(path: Path) -> tuple[dict[str, str], bool]:
    try:
        return read_index(_regular(path))
    except InputError as error:
        raise _IndexError(str(error)) from None


def _misplaced(index: Mapping[str, str], files: Mapping[Path, Mapping[str, Stored]]) -> str:
    held = {(path.name, name) for path, each in files.items() for name in each}
    said = {(file, name) for name, file in index.items()}
    for pairs, reason in ((said - held, "which does not hold it"), (held - said, "")):
        if pairs:
            file, name = min(pairs)
            more = f" (and {len(pairs) - 1} more)" if len(pairs) > 1 else ""
            if reason:
                return f"{INDEX} places {name} in {file}, {reason}{more}"
            return f"{file} holds {name}, which {INDEX} does not place there{more}"
    return ""


def _absent(folder: Path) -> Checked:
    pickles = sorted(path.name for pattern in PICKLES for path in folder.glob(pattern))
    if pickles:
        return unknown(
            "weights",
            f"only in a pickle ({pickles[0]}), which can run any code and was not opened",
            "convert it to safetensors",
        )
    other = sorted(path.name for path in folder.glob("*.safetensors"))
    if other:
        said = f"{other[0]} is neither {SINGLE} nor named by {INDEX}"
        return unknown("weights", said, "add the index")
    return unknown("weights", "none in this folder", "give the folder that has config and weights")
