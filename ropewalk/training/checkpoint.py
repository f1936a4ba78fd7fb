"""Checkpoints of a training: tensors in safetensors, all else in JSON, nothing pickled.

    checkpoint-100/
      shard-0000N-….safetensors   weights, optimizer state and random states, by the rank that wrote
      training.json               what is no tensor, and the SHA-256 of each file

Every rank writes what it holds, through torch's distributed checkpoints. When they are read,
tensors are cut as the present ranks need them, so a run may go on with another number of ranks. A
checkpoint gets its name when all of it is on the disk: one that is found under its name is whole.

Weights that are not trained are left out; who saves says which they are (ranks.weights_digest).
"""

from __future__ import annotations

import json
import os
import random
import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import (
    HuggingFaceStorageReader,
    HuggingFaceStorageWriter,
)
from torch.distributed.checkpoint.state_dict_loader import load as load_shards
from torch.distributed.checkpoint.state_dict_saver import save as save_shards

from ropewalk import outputs
from ropewalk.errors import InputError, RopewalkError, Unsupported
from ropewalk.models.safetensors_header import read_json_header
from ropewalk.outputs import TEMPORARY, cannot_write, sha256_of, sync_directory, write_atomically
from ropewalk.training.ranks import on_all, on_first, rank, ranks
from ropewalk.untrusted import Fields, read_json

FORMAT: Final = "ropewalk-training-2"
STATE: Final = "training.json"
PREFIX: Final = "checkpoint-"
_MAX_STATE = 64 * 2**20
_WEIGHT, _OPTIMIZER, _RANK = "model.", "optimizer.", "rank."
_REPLACED = ".replaced"


def save(
    folder: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    state: Mapping[str, object],
    files: Mapping[str, object] = MappingProxyType({}),
    local: Mapping[str, Tensor] = MappingProxyType({}),
) -> None:
    """Write a checkpoint, on all ranks together. `state` is JSON, and so are `files` of their own.
    `local` are tensors of this rank alone, which come back if the number of ranks is the same."""
    part = _part_of(folder)
    tensors = {**weights(model), **_optimizer_state(model, optimizer)}
    tensors |= {f"{_RANK}{rank()}.{key}": value for key, value in {**_random(), **local}.items()}
    tensors = dict(sorted(tensors.items()))  # a resumed optimizer holds its state in another order
    on_first(lambda: _empty(part))
    writer = HuggingFaceStorageWriter(str(part), save_distributed=True)
    try:
        with _alone():
            save_shards(tensors, storage_writer=writer, no_dist=not dist.is_initialized())
        for shard in part.glob(f"shard-{rank() + 1:05d}-*"):
            _order_header(shard)
    except (CheckpointException, RuntimeError, OSError) as error:
        on_first(lambda: shutil.rmtree(part, ignore_errors=True))
        raise RopewalkError(
            f"{folder}: cannot be written ({_reason(error)}); make room, and go on from the "
            "checkpoint before it"
        ) from None
    # Each rank digests its own shards; the first writes down the digests of all.
    digests: dict[str, str] = {}
    for shards in on_all(lambda: _digests(part, f"shard-{rank() + 1:05d}-*")):
        digests |= shards
    groups = [
        {key: value for key, value in group.items() if key != "params"}
        for group in optimizer.param_groups
    ]
    whole = {"format": FORMAT, "ranks": ranks(), "groups": groups, "state": dict(state)}
    on_first(lambda: _finish(part, folder, whole, digests, files))


def _order_header(shard: Path) -> None:
    """Sort the metadata in a file's header, which safetensors writes in a random order."""
    with shard.open("r+b") as file:
        length, header = read_json_header(shard)
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
        assert len(text) <= length, "the same keys and values take the same room"
        file.seek(8)
        file.write(text.ljust(length))
        file.flush()
        os.fsync(file.fileno())


def _empty(part: Path) -> None:
    with _writing(part):
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)


def _finish(
    part: Path,
    folder: Path,
    whole: Mapping[str, object],
    digests: dict[str, str],
    files: Mapping[str, object],
) -> None:
    with _writing(folder):
        for name, value in files.items():
            (part / name).write_text(_text(value))
            digests |= _digests(part, name)
        missing = [name for name in digests if not (part / name).is_file()]
        if missing:
            raise RopewalkError(
                f"{part / missing[0]}: was written by another rank, and is not on the disk of the "
                "first; give all ranks the same folder"
            )
        state = _text({"signature": outputs.UNSIGNED, **whole, "files": digests})
        write_atomically(part / STATE, outputs.signed(state.encode()))
        replaced = part.with_name(f"{part.name}{_REPLACED}")
        if folder.exists():
            os.rename(folder, replaced)
        os.rename(part, folder)
        sync_directory(folder.parent)
        shutil.rmtree(replaced, ignore_errors=True)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise cannot_write(path, error) from None


def check(folder: Path) -> None:
    """Compare every file with its checksum, on all ranks together, each its share of them."""
    problems = on_all(lambda: _problem(folder))
    problem = next((each for each in problems if each is not None), None)
    if problem is not None:
        raise InputError(f"{problem}; remove this checkpoint to resume from the one before it")


def _problem(folder: Path) -> str | None:
    fields = _written(folder)
    if fields.text("format") != FORMAT:
        return f"{folder / STATE}: is not a checkpoint that this version reads"
    files = fields.texts("files")
    for name in files:
        path = folder / name
        if Path(name).name != name or not path.is_file() or path.is_symlink():
            return f"{path}: is missing, or not a regular file"
    if strange := sorted({path.name for path in folder.iterdir()} - {*files, STATE}):
        return f"{folder / strange[0]}: is not of this checkpoint"
    if not outputs.is_ours(folder / STATE):
        return f"{folder / STATE}: is damaged"
    for name in sorted(files)[rank() :: ranks()]:
        if sha256_of(folder / name) != files[name]:
            return f"{folder / name}: is damaged"
    return None


def load_state(folder: Path) -> dict[str, Any]:
    """Load the `state` that `save` was given."""
    return _written(folder).mapping("state")


def load_weights(folder: Path, model: nn.Module) -> None:
    """The trained weights, in place."""
    expected = weights(model)
    _check_fit(folder, _WEIGHT, expected)
    _read(folder, expected)


def load_optimizer(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """The optimizer's state, in place, made if it is not there yet."""
    groups: list[Any] = _written(folder).items("groups")
    if len(groups) != len(optimizer.param_groups):
        raise InputError(
            f"{folder}: its optimizer had {len(groups)} groups of parameters, but now there are "
            f"{len(optimizer.param_groups)}; use the same settings"
        )
    for name, parameter in _trained(model, optimizer):
        for key, (shape, dtype) in _known(folder, f"{_OPTIMIZER}{name}|").items():
            state = (
                torch.empty_like(parameter, dtype=dtype)
                if shape == tuple(parameter.shape)
                else torch.zeros(shape, dtype=dtype)
            )
            optimizer.state[parameter][key.rpartition("|")[2]] = state.detach()
    expected = _optimizer_state(model, optimizer)
    _check_fit(folder, _OPTIMIZER, expected)
    _read(folder, expected)
    for group, kept in zip(optimizer.param_groups, groups, strict=True):
        group.update({key: tuple(v) if isinstance(v, list) else v for key, v in kept.items()})


def load_local(folder: Path) -> dict[str, Tensor]:
    """The tensors that this rank gave `save` as `local`, and its random states, which are set. If
    the number of ranks differs, nothing is set or returned."""
    if _written(folder).integer("ranks") != ranks():
        return {}
    stored = _known(folder, f"{_RANK}{rank()}.")
    tensors = {key: torch.empty(shape, dtype=dtype) for key, (shape, dtype) in stored.items()}
    _read(folder, tensors)
    of_rank = {key.rpartition(".")[2]: value for key, value in tensors.items()}
    _set_random(of_rank)
    return of_rank


def keep_last(run: Path, count: int) -> None:
    """Remove all checkpoints but the last ones, on all ranks together."""

    def remove() -> None:
        for path in checkpoints_in(run)[:-count]:
            part = _part_of(path)  # what a kill leaves of it is removed at the next start
            with _writing(path):
                shutil.rmtree(part, ignore_errors=True)
                os.rename(path, part)
                shutil.rmtree(part)

    on_first(remove)


def remove_leftovers(run: Path) -> None:
    """Remove what killed processes left half written or half removed, on all ranks together."""

    def remove() -> None:
        for path in run.glob(f".{PREFIX}*{TEMPORARY}{_REPLACED}"):
            former = run / path.name.removeprefix(".").removesuffix(f"{TEMPORARY}{_REPLACED}")
            if not former.exists() and is_checkpoint(path):
                os.rename(path, former)  # the new one did not take its place
        for pattern in (f".{PREFIX}*{TEMPORARY}", f".{PREFIX}*{TEMPORARY}{_REPLACED}"):
            for path in run.glob(pattern):
                shutil.rmtree(path, ignore_errors=True)

    on_first(remove)


def is_checkpoint(folder: Path) -> bool:
    return (folder / STATE).is_file()


def checkpoints_in(run: Path) -> list[Path]:
    """Whole checkpoints, in the order of their steps."""
    checkpoints = [
        (int(path.name.removeprefix(PREFIX)), path)
        for path in run.glob(f"{PREFIX}*")
        if path.name.removeprefix(PREFIX).isdecimal() and is_checkpoint(path)
    ]
    return [path for _, path in sorted(checkpoints)]


def weights(model: nn.Module) -> dict[str, Tensor]:
    """The weights that are trained."""
    return {
        f"{_WEIGHT}{name}": weight.detach()
        for name, weight in model.named_parameters()
        if weight.requires_grad
    }


def _part_of(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}{TEMPORARY}")


def _written(folder: Path) -> Fields:
    """All that is no tensor."""
    return Fields(read_json(folder / STATE, max_bytes=_MAX_STATE), f"{folder / STATE}: ")


def _trained(
    model: nn.Module, optimizer: torch.optim.Optimizer
) -> Iterator[tuple[str, nn.Parameter]]:
    theirs = {id(weight) for group in optimizer.param_groups for weight in group["params"]}
    for name, parameter in model.named_parameters():
        if id(parameter) in theirs:
            yield name, parameter


def _optimizer_state(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    tensors = {}
    for name, parameter in _trained(model, optimizer):
        for key, value in optimizer.state.get(parameter, {}).items():
            if value is None:
                continue  # SGD without momentum
            if not isinstance(value, Tensor) or value.shape not in (parameter.shape, ()):
                raise Unsupported(
                    f"the optimizer's state {key!r} of {name} is neither one number nor of the "
                    "parameter's shape, so no checkpoint can hold it; use optim='adamw_torch'"
                )
            tensors[f"{_OPTIMIZER}{name}|{key}"] = value
    return tensors


def _random() -> dict[str, Tensor]:
    """The states of this rank's random numbers."""
    version, words, gauss = random.getstate()
    assert version == 3
    _, kept, *rest = np.random.get_state(legacy=True)  # noqa: NPY002
    states = {
        "python": torch.tensor(words, dtype=torch.int64),
        "python_gauss": torch.tensor([np.nan if gauss is None else gauss], dtype=torch.float64),
        "numpy": torch.tensor(np.asarray(kept).astype(np.int64)),
        "numpy_rest": torch.tensor([float(each) for each in rest], dtype=torch.float64),
        "torch": torch.random.get_rng_state(),
    }
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def _set_random(states: Mapping[str, Tensor]) -> None:
    gauss = float(states["python_gauss"])
    random.setstate((3, tuple(states["python"].tolist()), None if np.isnan(gauss) else gauss))
    place, has_gauss, cached = states["numpy_rest"].tolist()
    words = states["numpy"].numpy().astype(np.uint32)
    np.random.set_state(("MT19937", words, int(place), int(has_gauss), cached))  # noqa: NPY002
    torch.random.set_rng_state(states["torch"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])


Known = dict[str, tuple[tuple[int, ...], torch.dtype]]


def _known(folder: Path, prefix: str) -> Known:
    """Shape and type of a checkpoint's tensors whose names begin so."""
    kept = _reader(folder).read_metadata().state_dict_metadata
    return {
        key: (tuple(each.size), each.properties.dtype)  # type: ignore[union-attr]
        for key, each in kept.items()
        if key.startswith(prefix)
    }


def _check_fit(folder: Path, prefix: str, expected: Mapping[str, Tensor]) -> None:
    """Refuse another model's checkpoint: torch would read what has the same name."""
    stored = _known(folder, prefix)
    shapes = {key: (tuple(value.shape), value.dtype) for key, value in expected.items()}
    differ = sorted(key for key in {*stored, *shapes} if stored.get(key) != shapes.get(key))
    if differ:
        raise InputError(
            f"{folder}: does not fit this model and its optimizer, in {len(differ)} of "
            f"{len(stored)} tensors: {differ[0]} is {_shape(stored, differ[0])} there, and "
            f"{_shape(shapes, differ[0])} here; give the model and the settings that it was saved "
            "with"
        )


def _shape(tensors: Known, key: str) -> str:
    if key not in tensors:
        return "absent"
    shape, dtype = tensors[key]
    return f"{list(shape)} in {str(dtype).removeprefix('torch.')}"


def _read(folder: Path, tensors: dict[str, Tensor]) -> None:
    """Fill tensors in place."""
    try:
        with _alone():
            load_shards(tensors, storage_reader=_reader(folder), no_dist=not dist.is_initialized())
    except (CheckpointException, RuntimeError, ValueError, KeyError, AssertionError) as error:
        raise InputError(
            f"{folder}: cannot be read ({_reason(error)}); remove this checkpoint to resume from "
            "the one before it"
        ) from None


@contextmanager
def _alone() -> Iterator[None]:
    """torch warns a single process that it is one."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")
        yield


def _reason(error: BaseException) -> str:
    """The first cause that torch names, in one line."""
    if isinstance(error, CheckpointException) and error.failures:
        error = next(iter(error.failures.values()))[0]
    return (str(error).strip() or type(error).__name__).splitlines()[-1]


def _reader(folder: Path) -> HuggingFaceStorageReader:
    return HuggingFaceStorageReader(str(folder))


def _text(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _digests(folder: Path, pattern: str) -> dict[str, str]:
    """By name, of files that are on the disk when this returns."""
    with _writing(folder):
        paths = sorted(folder.glob(pattern))
        for path in paths:
            with path.open("rb") as file:
                os.fsync(file.fileno())
        return {path.name: sha256_of(path) for path in paths}
