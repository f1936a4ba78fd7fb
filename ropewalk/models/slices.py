"""A model cut over ranks, each of which reads its own part of the weights and never the whole.

    empty = without_weights(folder, torch.float32)    # on the meta device, with real buffers
    fully_shard(…)                                    # by whoever trains it
    empty.read()                                      # this rank's rows of each tensor

A tensor is found by its name. Where transformers converts what the files hold (experts that it
merges, names of other versions), no slice of a file is a slice of a weight: `without_weights` then
says so, and the model has to be loaded whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from torch.nn.modules.module import register_module_parameter_registration_hook

from ropewalk.models.load import checked_weights, read_model
from ropewalk.models.safetensors_header import read_header


@dataclass(frozen=True)
class StoredParameter:
    """A parameter or buffer of a module, under each of its names."""

    stored: str
    """The name in the files."""
    held_by: tuple[tuple[nn.Module, str], ...]
    """More than one if weights are tied."""

    @property
    def tensor(self) -> Tensor:
        module, name = self.held_by[0]
        tensor: Tensor = getattr(module, name)
        return tensor

    def put(self, value: Tensor) -> None:
        for module, name in self.held_by:
            if name in module._buffers:
                module._buffers[name] = value
            else:
                module._parameters[name] = value  # type: ignore[assignment]


@dataclass(frozen=True)
class Empty:
    """A model whose weights are still in their files."""

    model: Any
    parameters: tuple[StoredParameter, ...]
    files: tuple[Path, ...]

    @torch.no_grad()
    def read(self) -> None:
        """Give the model its weights, of those that are cut this rank's part alone."""
        parameters = {parameter.stored: parameter for parameter in self.parameters}
        for path in self.files:
            for name in sorted(read_header(path).keys() & parameters.keys()):
                # Opened for each, so that no pages of the others stay in memory.
                with safe_open(path, framework="pt") as file:
                    _read(parameters[name], file.get_slice(name))

    @contextmanager
    def standing_in(self) -> Iterator[None]:
        """Have weights on the CPU for a while, which take no memory and say nothing.

        peft makes an adapter's weights where those are that it goes around, and on the meta device
        they would lose the values that were drawn for them.
        """
        former = {each.stored: each.tensor for each in self.parameters}
        for each in self.parameters:
            old = each.tensor
            one = torch.zeros((), dtype=old.dtype).expand(old.shape)
            made = nn.Parameter(one, old.requires_grad) if isinstance(old, nn.Parameter) else one
            each.put(made)
        try:
            yield
        finally:
            for each in self.parameters:
                each.put(former[each.stored].requires_grad_(each.tensor.requires_grad))


def without_weights(folder: Path, dtype: torch.dtype) -> Empty | str:
    """The model of a folder, on the meta device except for buffers that no file holds; or the
    reason why it must be loaded whole."""
    files = checked_weights(folder)
    model = read_model(folder, dtype, device_map={"": "meta"})
    shapes = {name: tensor.shape for path in files for name, tensor in read_header(path).items()}
    # A weight that is computed from several in the files cannot be read in parts.
    conversions = getattr(model, "_weight_conversions", None) or ()
    if any(getattr(each, "operations", None) for each in conversions):
        return "transformers converts weights of its files as it loads them"
    # Tied weights are one tensor with several names, any of which may be that in the files.
    named: dict[int, list[tuple[str, nn.Module, str]]] = {}
    for prefix, module in model.named_modules():
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            if tensor is not None and name not in module._non_persistent_buffers_set:
                whole = f"{prefix}.{name}" if prefix else name
                named.setdefault(id(tensor), []).append((whole, module, name))
    parameters, absent = [], []
    for aliases in named.values():
        _, module, name = aliases[0]
        shape = tuple(getattr(module, name).shape)
        stored = next((alias for alias, *_ in aliases if shapes.get(alias) == shape), None)
        if stored is None:
            absent.append(aliases[0][0])
        else:
            parameters.append(
                StoredParameter(stored, tuple((module, name) for _, module, name in aliases))
            )
    if absent:
        return f"its files have other names or shapes than the model ({absent[0]}, …)"
    _make_buffers(model)
    return Empty(model, tuple(parameters), tuple(files))


def _make_buffers(model: Any) -> None:
    """Compute buffers that no file holds, such as frequencies, as the class does."""

    def without_memory(module: nn.Module, name: str, tensor: Any) -> Any:
        return None if tensor is None else nn.Parameter(tensor.to("meta"), tensor.requires_grad)

    former = torch.get_default_dtype()
    torch.set_default_dtype(model.dtype)
    hook = register_module_parameter_registration_hook(without_memory)
    try:
        twin = type(model)(deepcopy(model.config))
    finally:
        hook.remove()
        torch.set_default_dtype(former)
    made = dict(twin.named_modules())
    for prefix, module in model.named_modules():
        for name in module._non_persistent_buffers_set:
            if module._buffers.get(name) is not None:
                module._buffers[name] = made[prefix]._buffers[name]


def _read(parameter: StoredParameter, stored: Any) -> None:
    tensor = parameter.tensor
    if not isinstance(tensor, DTensor):
        value = stored[:] if stored.get_shape() else stored[...]
        whole = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu").copy_(value)
        parameter.put(_as(tensor, whole))
        return
    shape, offset = compute_local_shape_and_global_offset(
        tensor.shape, tensor.device_mesh, tensor.placements
    )
    local = torch.empty(shape, dtype=tensor.dtype, device=tensor.device_mesh.device_type)
    if local.numel():
        local.copy_(stored[tuple(slice(a, a + n) for a, n in zip(offset, shape, strict=True))])
    cut = DTensor.from_local(
        local, tensor.device_mesh, tensor.placements, shape=tensor.shape, stride=tensor.stride()
    )
    parameter.put(_as(tensor, cut))


def _as(like: Tensor, value: Tensor) -> Tensor:
    return nn.Parameter(value, like.requires_grad) if isinstance(like, nn.Parameter) else value
