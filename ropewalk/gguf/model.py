"""A model in a GGUF file: its sizes, its rotation, and its weights.

One tensor of the file is in memory at a time, of experts those of one layer. What is peculiar to a
model type is in its file in families/.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ropewalk.context_plan import ContextPlan
from ropewalk.errors import InputError, UnknownName, Unsupported
from ropewalk.extras import missing
from ropewalk.gguf import provenance
from ropewalk.gguf.architectures import CONSECUTIVE
from ropewalk.gguf.families import GGUFFamily, Keys, Rotation, TensorPart, family
from ropewalk.gguf.settings import factor_tensors, stated
from ropewalk.gguf.tokenizer import GGUFTokenizer
from ropewalk.models.checkpoint import Checkpoint
from ropewalk.models.placement import GGUF_TYPES

_Q8_BLOCK = 32
_EXACT = ("ffn_gate_inp.weight", ".bias")
"""The endings of tensors that llama.cpp wants in F32: biases, and what chooses among experts."""


def check_installed() -> None:
    """Raise if the package that writes GGUF is missing."""
    if importlib.util.find_spec("gguf") is None:
        raise missing("writing GGUF", "gguf")


@dataclass(frozen=True)
class _Tensor:
    """One tensor of the file, and what of the checkpoint goes into it, by the source's name."""

    name: str
    shape: tuple[int, ...]
    kind: str
    parts: tuple[tuple[str, TensorPart], ...]


@dataclass(frozen=True, eq=False)
class GGUFModel:
    """A checkpoint on its way into a file."""

    checkpoint: Checkpoint
    config: Any
    """transformers' config object, which knows the defaults of its family."""
    rotation: Rotation
    length: int
    """The context that the file states."""
    original_length: int
    dtype: str

    def __post_init__(self) -> None:
        if self.dtype not in GGUF_TYPES:
            raise UnknownName("dtype", self.dtype, GGUF_TYPES)
        family = self.family
        family.check_config(self.config)
        window = getattr(self.config, "sliding_window", None)
        if family.windows or not getattr(self.config, "use_sliding_window", True):
            window = None
        if window is not None and window < self.length:
            raise Unsupported(
                f"sliding_window = {window}: llama.cpp would let {self.config.model_type} attend "
                f"to all of the {self.length} tokens; plan for at most {window}"
            )

    @property
    def architecture(self) -> str:
        """llama.cpp's name for the architecture that computes it."""
        return self.rotation.architecture.name

    @property
    def family(self) -> GGUFFamily:
        return family(str(self.config.model_type))

    @property
    def experts(self) -> int:
        """The number of experts in each layer."""
        return getattr(self.config, "num_local_experts", None) or 0

    @property
    def packed(self) -> bool:
        """True if some weights stay as they are quantised."""
        return any(part.packed for tensor in self._tensors for _, part in tensor.parts)

    @property
    def rounded(self) -> str:
        """The type whose rounding decides; what packed weights are multiplied with is in Q8_0."""
        return "Q8_0" if self.packed else self.dtype

    @property
    def head_dim(self) -> int:
        stated = getattr(self.config, "head_dim", None)
        return int(stated or self.config.hidden_size // self.config.num_attention_heads)

    def bytes(self) -> int:
        """The size of all tensors in the file."""
        return sum(_size(tensor.shape, tensor.kind) for tensor in self._tensors)

    def write(self, path: Path, plan: ContextPlan, tokenizer: GGUFTokenizer) -> None:
        import gguf

        writer = gguf.GGUFWriter(path, self.architecture)
        try:
            self._write_general(writer, plan)
            provenance.reserve(writer, replace(plan, model=provenance.name_of(plan.model)).dumps())
            self._write_keys(writer, self._sizes())
            self._write_keys(writer, self.family.keys(self.config, self.checkpoint.tensor))
            self._write_keys(writer, self._rope())
            tokenizer.write(writer)
            self._write_tensors(writer)
        finally:
            writer.close()

    def _write_general(self, writer: Any, plan: ContextPlan) -> None:
        """Metadata for people and hubs: the model's origin and size. No path of this machine."""
        import gguf

        writer.add_type(gguf.GGUFType.MODEL)
        writer.add_name(provenance.name_of(plan.model))
        kinds = gguf.LlamaFileType
        writer.add_file_type(
            kinds.ALL_F32 if self.dtype == "F32" else kinds[f"MOSTLY_{self.dtype}"]
        )
        writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
        experts = self.experts
        shared = [t for t in self._tensors if "_exps." not in t.name]
        weights, others = (
            sum(int(np.prod(tensor.shape)) for tensor in tensors)
            for tensors in (self._tensors, shared)
        )
        writer.add_size_label(
            gguf.size_label(weights, others, (weights - others) // max(1, experts), experts)
        )

    def _sizes(self) -> Keys:
        config = self.config
        return {
            "{arch}.vocab_size": config.vocab_size,
            "{arch}.block_count": config.num_hidden_layers,
            "{arch}.embedding_length": config.hidden_size,
            "{arch}.feed_forward_length": config.intermediate_size,
            "{arch}.attention.head_count": config.num_attention_heads,
            "{arch}.attention.head_count_kv": config.num_key_value_heads,
            "{arch}.attention.key_length": self.head_dim,
            "{arch}.attention.value_length": self.head_dim,
            "{arch}.attention.layer_norm_rms_epsilon": float(config.rms_norm_eps),
        }

    def _rope(self) -> Keys:
        how = self.rotation
        keys: dict[str, int | float | str] = {
            "rope.dimension_count": self.head_dim,
            **stated(how.architecture, how.setting, self.length, self.original_length),
        }
        if how.sliding_base is not None:
            keys["rope.freq_base_swa"] = how.sliding_base
        return {f"{{arch}}.{name}": value for name, value in keys.items()}

    def _write_keys(self, writer: Any, keys: Keys) -> None:
        for name, value in keys.items():
            key = name.format(arch=self.architecture)
            if isinstance(value, str):
                writer.add_string(key, value)
            elif isinstance(value, int):
                writer.add_uint32(key, value)
            elif isinstance(value, float):
                writer.add_float32(key, value)
            else:
                writer.add_array(key, value)

    def _write_tensors(self, writer: Any) -> None:
        from gguf import GGMLQuantizationType

        factors = factor_tensors(self.rotation.architecture, self.rotation.setting)
        infos = [(name, values.shape, "F32") for name, values in factors.items()]
        infos += [(tensor.name, tensor.shape, tensor.kind) for tensor in self._tensors]
        for name, shape, kind in infos:
            writer.add_tensor_info(
                name,
                shape,
                np.dtype(np.float32),
                _size(shape, kind),
                raw_dtype=GGMLQuantizationType[kind],
            )
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for values in factors.values():
            writer.write_tensor_data(values.astype(np.float32))
        for tensor in self._tensors:
            writer.write_tensor_data(self._stored(tensor))

    @cached_property
    def _tensors(self) -> tuple[_Tensor, ...]:
        """The tensors of the file in their order."""
        import gguf

        kinds = gguf.MODEL_ARCH_NAMES.items()
        kind = next(kind for kind, name in kinds if name == self.architecture)
        names = gguf.get_tensor_name_map(kind, self.config.num_hidden_layers)
        # Several tensors of the checkpoint may become one, as experts do.
        parts: dict[str, list[tuple[str, TensorPart]]] = {}
        shapes: dict[str, tuple[int, ...]] = {}
        stored = {name: shape for name, _, shape in self.checkpoint.stored()}
        for source in self._sources(stored):
            for part in self.family.parts(source):
                name = self._named(names, source, part)
                parts.setdefault(name, []).append((source, part))
                shape = self._shape(source, part, stored)
                if shapes.setdefault(name, shape) != shape:
                    raise self._ill_shaped(source, stored[source])
        self._check_layers(parts)
        # A name that two became without being experts would lose one.
        tensors = []
        for name, pieces in parts.items():
            shape, packed = shapes[name], pieces[0][1].packed
            if pieces[0][1].expert is not None:
                pieces, shape = self._of_experts(name, pieces), (len(pieces), *shape)
            elif len(pieces) > 1:
                raise InputError(
                    f"{self.checkpoint.folder}: holds {pieces[0][0]} and {pieces[1][0]}, which "
                    "become the same tensor of a GGUF file; download the model again"
                )
            stored_as = packed or self._kind(name, shape)
            tensors.append(_Tensor(name, shape, stored_as, tuple(pieces)))
        return tuple(tensors)

    def _check_layers(self, names: Iterable[str]) -> None:
        """Check that each layer has the tensors of the others."""
        layers: dict[str, set[str]] = {str(i): set() for i in range(self.config.num_hidden_layers)}
        for name in names:
            head, _, rest = name.partition(".")
            if head == "blk":
                index, _, tensor = rest.partition(".")
                layers.setdefault(index, set()).add(tensor)
        every = {tensor for tensors in layers.values() for tensor in tensors}
        for index, tensors in layers.items():
            if missing := sorted(every - tensors):
                raise InputError(
                    f"{self.checkpoint.folder}: layer {index} lacks "
                    f"{', '.join(missing[:3])}, which other layers have; download the complete "
                    "model again"
                )

    def _shape(
        self, source: str, part: TensorPart, stored: Mapping[str, tuple[int, ...]]
    ) -> tuple[int, ...]:
        """The shape of what is taken of a tensor, which is not read for it."""
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

        kind = torch.float32 if part.packed is None else torch.uint8
        try:
            shape = part.of(
                source, lambda name: torch.empty(stored[name], dtype=kind, device="meta")
            ).shape
        except KeyError as error:
            raise InputError(
                f"{self.checkpoint.folder}: holds {source} without {error.args[0]}; download the "
                "complete model again"
            ) from None
        except (RuntimeError, IndexError):
            raise self._ill_shaped(source, stored[source]) from None
        if part.packed is None:
            return tuple(shape)
        block, size = GGML_QUANT_SIZES[GGMLQuantizationType[part.packed]]
        if shape[-1] % size:
            raise self._ill_shaped(source, stored[source])
        return (*shape[:-1], shape[-1] // int(size) * int(block))

    def _ill_shaped(self, source: str, shape: tuple[int, ...]) -> InputError:
        return InputError(
            f"{self.checkpoint.folder}: {source} has the shape {list(shape)}, which no "
            f"{self.config.model_type} has; check that config and weights belong together"
        )

    def _sources(self, stored: Iterable[str]) -> Iterator[str]:
        """The tensors of the checkpoint that are read."""
        tied = self.config.tie_word_embeddings
        headless = not tied
        for source in stored:
            if source.endswith("rotary_emb.inv_freq"):  # old checkpoints hold what they compute
                continue
            if source.endswith("lm_head.weight"):
                headless = False
                if tied:  # transformers takes the embeddings, whatever stands here
                    continue
            yield source
        if headless:  # llama.cpp would take the embeddings in its place, without a word
            raise InputError(
                f"{self.checkpoint.folder}: has no lm_head.weight, and its config does not tie it "
                "to the embeddings; check that config and weights belong together"
            )

    def _named(self, names: Any, source: str, part: TensorPart) -> str:
        """The name in the file, by gguf's table."""
        name = names.get_name(part.name, try_suffixes=(".weight", ".bias"))
        if name is None:
            raise Unsupported(
                f"{self.checkpoint.folder}: holds a tensor {source}, for which llama.cpp's "
                f"{self.architecture} has no place"
            )
        return str(name)

    def _of_experts(
        self, name: str, parts: list[tuple[str, TensorPart]]
    ) -> list[tuple[str, TensorPart]]:
        """The parts in the order of the experts, none of which may be missing."""
        ordered = sorted(parts, key=lambda piece: piece[1].expert or 0)
        count = self.experts
        if [part.expert for _, part in ordered] != list(range(count)):
            raise InputError(
                f"{self.checkpoint.folder}: holds {len(parts)} experts for {name}, and its config "
                f"states {count}; check that config and weights belong together"
            )
        return ordered

    def _kind(self, name: str, shape: tuple[int, ...]) -> str:
        if len(shape) == 1 or name.endswith(_EXACT):
            return "F32"  # norms and biases: small, and llama.cpp computes with them in F32
        if self.dtype == "Q8_0" and shape[-1] % _Q8_BLOCK:
            return "F16"
        return self.dtype

    def _stored(self, tensor: _Tensor) -> NDArray[Any]:
        """The values of a tensor as the file stores them."""
        from gguf import GGMLQuantizationType
        from gguf.quants import quantize

        kind = GGMLQuantizationType[tensor.kind]
        parts = []
        for source, part in tensor.parts:
            if part.packed is not None:
                parts.append(part.of(source, self.checkpoint.tensor).numpy())
                continue
            values = self._arranged(source, part)
            largest = np.abs(values).max(initial=0)
            if tensor.kind == "F16" and largest > np.finfo(np.float16).max:
                raise Unsupported(
                    f"{source}: holds a value of {largest:.3g}, above the largest of F16; "
                    "export as BF16 or F32"
                )
            parts.append(quantize(values, kind))
        return parts[0] if tensor.parts[0][1].expert is None else np.stack(parts)

    def _exact(self, source: str) -> Tensor:
        stored = self.checkpoint.tensor(source)
        if not stored.is_floating_point():
            raise InputError(
                f"{self.checkpoint.folder}: {source} is stored as {stored.dtype}, not in floating "
                "point; export the checkpoint that it was quantised from"
            )
        return stored.to(torch.float32)

    def _arranged(self, source: str, part: TensorPart) -> NDArray[np.float32]:
        """The values, in llama.cpp's order."""
        values = np.ascontiguousarray(part.of(source, self._exact).numpy())
        if self.architecture in CONSECUTIVE:
            # transformers turns dimension i with i + d/2, these 2i with 2i + 1.
            projection = source.split(".")[-2]
            if projection in ("q_proj", "k_proj"):
                pairs = values.reshape(-1, 2, self.head_dim // 2, *values.shape[1:])
                values = np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(values.shape)
        return values


def _size(shape: tuple[int, ...], kind: str) -> int:
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    block, bytes_a_block = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    return int(np.prod(shape)) // int(block) * int(bytes_a_block)
