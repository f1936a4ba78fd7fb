"""Checkpoints of a training: tensors in safetensors, all else in JSON, nothing pickled.

    checkpoint-100/
      shard-0000N-….safetensors   weights, optimizer state and random states, by the rank that wrote
      training.json               what is no tensor, and the SHA-256 of each file

Every rank writes what it holds, through torch's distributed checkpoints. When they are read,
tensors are cut as the present ranks need them, so a run may go on with another number of ranks. A
checkpoint gets its name when all of it is on the disk: one that is found under its name is whole.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.hf_storage import (
    HuggingFaceStorageReader,
    HuggingFaceStorageWriter,
)
from torch.distributed.checkpoint.state_dict_loader import load as load_shards
from torch.distributed.checkpoint.state_dict_saver import save as save_shards

from ropewalk.errors import InputError, Unsupported
from ropewalk.outputs import TEMPORARY, sync_directory, write_atomically
from ropewalk.untrusted import Fields, read_json

FORMAT: Final = "ropewalk-training-1"
STATE: Final = "training.json"
PREFIX: Final = "checkpoint-"
_MAX_STATE = 64 * 2**20
_WEIGHT, _OPTIMIZER, _RANDOM = "model.", "optimizer.", "random."


def save(
    folder: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    state: Mapping[str, object],
    files: Mapping[str, object] = MappingProxyType({}),
) -> None:
    """Write a checkpoint, on all ranks together. `state` is JSON, and so are files of their own."""
    part = folder.with_name(f".{folder.name}{TEMPORARY}")
    if _rank() == 0:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
    _wait()
    tensors = {**_weights(model), **_optimizer_state(model, optimizer), **_random_states()}
    writer = HuggingFaceStorageWriter(str(part), save_distributed=True)
    save_shards(tensors, storage_writer=writer, no_dist=not dist.is_initialized())
    _wait()
    if _rank() == 0:
        for name, value in files.items():
            (part / name).write_text(_text(value))
        digests = {path.name: _digest(path, sync=True) for path in sorted(part.iterdir())}
        groups = [
            {key: value for key, value in group.items() if key != "params"}
            for group in optimizer.param_groups
        ]
        whole = {
            "format": FORMAT,
            "ranks": _ranks(),
            "files": digests,
            "groups": groups,
            "state": dict(state),
        }
        write_atomically(part / STATE, _text(whole))
        shutil.rmtree(folder, ignore_errors=True)
        os.rename(part, folder)
        sync_directory(folder.parent)
    _wait()


def load_state(folder: Path) -> dict[str, Any]:
    """What `save` was given as `state`, after every file was compared with its checksum."""
    fields = Fields(read_json(folder / STATE, max_bytes=_MAX_STATE), f"{folder / STATE}: ")
    if fields.text("format") != FORMAT:
        raise InputError(f"{folder / STATE}: is not a checkpoint that this version reads")
    for name, expected in fields.texts("files").items():
        path = folder / name
        if Path(name).name != name or not path.is_file() or path.is_symlink():
            raise InputError(f"{path}: is missing, or no file; go on from an earlier checkpoint")
        if _digest(path) != expected:
            raise InputError(f"{path}: is damaged; go on from an earlier checkpoint")
    return fields.mapping("state")


def load_weights(folder: Path, model: nn.Module) -> None:
    """The weights, in place."""
    _read(folder, _weights(model))


def load_optimizer(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """The optimizer's state, in place, made where it is not there yet."""
    groups = _written(folder)["groups"]
    if len(groups) != len(optimizer.param_groups):
        raise InputError(
            f"{folder}: its optimizer had {len(groups)} groups of parameters, this one has "
            f"{len(optimizer.param_groups)}; use the same settings"
        )
    known = _reader(folder).read_metadata().state_dict_metadata
    for name, parameter in _trained(model, optimizer):
        for key in [key for key in known if key.startswith(f"{_OPTIMIZER}{name}|")]:
            size = known[key].size  # type: ignore[union-attr]
            dtype = known[key].properties.dtype  # type: ignore[union-attr]
            empty = (
                torch.empty_like(parameter, dtype=dtype)
                if size == parameter.shape
                else torch.zeros(size, dtype=dtype)
            )
            optimizer.state[parameter][key.rpartition("|")[2]] = empty.detach()
    _read(folder, _optimizer_state(model, optimizer))
    for group, kept in zip(optimizer.param_groups, groups, strict=True):
        group.update({key: tuple(v) if isinstance(v, list) else v for key, v in kept.items()})


def load_random_states(folder: Path) -> None:
    """Those of this rank, where the number of ranks is the same; otherwise they stay."""
    if _written(folder)["ranks"] == _ranks():
        states = _random_states()
        _read(folder, states)
        _set_random_states(states)


def keep_last(run: Path, count: int) -> None:
    """Remove all checkpoints but the last ones."""
    for path in checkpoints_in(run)[:-count]:
        os.remove(path / STATE)  # what is left by a crash here is no checkpoint
        shutil.rmtree(path)


def is_checkpoint(folder: Path) -> bool:
    return (folder / STATE).is_file()


def checkpoints_in(run: Path) -> list[Path]:
    """Whole checkpoints, in the order of their steps."""
    found = [
        (int(path.name.removeprefix(PREFIX)), path)
        for path in run.glob(f"{PREFIX}*")
        if path.name.removeprefix(PREFIX).isdecimal() and is_checkpoint(path)
    ]
    return [path for _, path in sorted(found)]


def _written(folder: Path) -> dict[str, Any]:
    value = read_json(folder / STATE, max_bytes=_MAX_STATE)
    if not isinstance(value, dict):
        raise InputError(f"{folder / STATE}: is not an object")
    return value


def _weights(model: nn.Module) -> dict[str, Tensor]:
    return {f"{_WEIGHT}{name}": own.detach() for name, own in model.named_parameters()}


def _trained(
    model: nn.Module, optimizer: torch.optim.Optimizer
) -> Iterator[tuple[str, nn.Parameter]]:
    theirs = {id(own) for group in optimizer.param_groups for own in group["params"]}
    for name, parameter in model.named_parameters():
        if id(parameter) in theirs:
            yield name, parameter


def _optimizer_state(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    tensors = {}
    for name, parameter in _trained(model, optimizer):
        for key, value in optimizer.state.get(parameter, {}).items():
            if not isinstance(value, Tensor) or value.shape not in (parameter.shape, ()):
                raise Unsupported(
                    f"the optimizer's state {key!r} of {name} is not a tensor of its shape, and "
                    "checkpoints hold only such; use optim='adamw_torch'"
                )
            tensors[f"{_OPTIMIZER}{name}|{key}"] = value
    return tensors


def _random_states() -> dict[str, Tensor]:
    """Those of this rank."""
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
    return {f"{_RANDOM}{_rank()}.{key}": value for key, value in states.items()}


def _set_random_states(states: Mapping[str, Tensor]) -> None:
    own = {key.rpartition(".")[2]: value for key, value in states.items()}
    gauss = float(own["python_gauss"])
    random.setstate((3, tuple(own["python"].tolist()), None if np.isnan(gauss) else gauss))
    place, has_gauss, cached = own["numpy_rest"].tolist()
    words = own["numpy"].numpy().astype(np.uint32)
    np.random.set_state(("MT19937", words, int(place), int(has_gauss), cached))  # noqa: NPY002
    torch.random.set_rng_state(own["torch"])
    if "cuda" in own and torch.cuda.is_available():
        torch.cuda.set_rng_state(own["cuda"])


def _read(folder: Path, tensors: dict[str, Tensor]) -> None:
    """Fill tensors in place."""
    try:
        load_shards(tensors, storage_reader=_reader(folder), no_dist=not dist.is_initialized())
    except (RuntimeError, ValueError, KeyError, AssertionError) as error:
        reason = str(error).strip().splitlines()[-1]
        raise InputError(
            f"{folder}: does not fit this model and its optimizer ({reason}); give the model and "
            "the settings that it was saved with"
        ) from None


def _reader(folder: Path) -> HuggingFaceStorageReader:
    return HuggingFaceStorageReader(str(folder))


def _text(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _digest(path: Path, *, sync: bool = False) -> str:
    with path.open("rb") as file:
        if sync:
            os.fsync(file.fileno())
        return hashlib.file_digest(file, "sha256").hexdigest()


def _rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def _ranks() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


def _wait() -> None:
    if dist.is_initialized():
        dist.barrier()
