"""What of a model stands in a GGUF file: its sizes, how it turns, and its weights.

One tensor is in memory at a time. The families that this writes are Llama's and those near it:
Mistral, which computes the same; Qwen2 and Seed-OSS with biases on queries, keys and values; Qwen3,
which normalises queries and keys; SmolLM3, where every fourth layer does not rotate.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ropewalk.context_plan import ContextPlan
from ropewalk.errors import InputError, UnknownName, Unsupported
from ropewalk.extras import missing
from ropewalk.gguf import carried
from ropewalk.gguf.rotation import FAMILIES, GGUFRope
from ropewalk.gguf.tokenizer import GGUFTokenizer
from ropewalk.models.checkpoint import Checkpoint
from ropewalk.models.placement import GGUF_TYPES

_Q8_BLOCK = 32
_CONSECUTIVE = ("llama", "smollm3")
"""The architectures here whose graphs in llama.cpp turn consecutive dimensions together."""
_ROPE_FREQS = "rope_freqs.weight"


def check_installed() -> None:
    """Raise where the package that writes GGUF is missing."""
    if importlib.util.find_spec("gguf") is None:
        raise missing("writing GGUF", "gguf")


@dataclass(frozen=True, eq=False)
class GGUFModel:
    """A checkpoint on its way into a file."""

    checkpoint: Checkpoint
    config: Any
    """transformers' config object, which knows the defaults of its family."""
    rope: GGUFRope
    length: int
    """The context that the file states."""
    original_length: int
    dtype: str
    rewrite: Callable[[str, Tensor], Tensor] | None = None
    """What changes a weight by its name in the checkpoint, before it is stored."""

    def __post_init__(self) -> None:
        if self.dtype not in GGUF_TYPES:
            raise UnknownName("dtype", self.dtype, GGUF_TYPES)
        family = self.config.model_type
        if family not in FAMILIES:
            raise Unsupported(
                f"model type {family!r}: the export to GGUF writes {', '.join(FAMILIES)}; for "
                "another, convert it with llama.cpp's own converter and check the result "
                "(ropewalk verify)"
            )
        if self.config.hidden_act not in ("silu", "swish"):
            raise Unsupported(
                f"hidden_act = {self.config.hidden_act!r}: llama.cpp computes {family} with silu"
            )
        if family == "smollm3" and not _every_fourth_rests(self.config):
            raise Unsupported(
                "no_rope_layers: llama.cpp's smollm3 leaves every fourth layer without rotation, "
                "and this model others; no file can say that"
            )
        window = getattr(self.config, "sliding_window", None)
        if not getattr(self.config, "use_sliding_window", True):
            window = None
        if window is not None and window < self.length:
            raise Unsupported(
                f"sliding_window = {window}: llama.cpp would let {family} attend to all of the "
                f"{self.length} tokens; plan for at most {window}"
            )

    @property
    def architecture(self) -> str:
        """llama.cpp's name for what computes this model.

        Its `qwen2` refuses a file with `rope_freqs`; its `llama` takes biases, and so it computes
        Qwen2 as well.
        """
        kind = str(self.config.model_type)
        if kind in ("llama", "mistral") or (kind == "qwen2" and self.rope.factors is not None):
            return "llama"
        return kind

    @property
    def head_dim(self) -> int:
        stated = getattr(self.config, "head_dim", None)
        return int(stated or self.config.hidden_size // self.config.num_attention_heads)

    def bytes(self) -> int:
        """The size of all tensors in the file."""
        return sum(_size(shape, kind) for _, _, shape, kind in self._tensors())

    def write(self, path: Path, plan: ContextPlan, tokenizer: GGUFTokenizer) -> None:
        import gguf

        writer = gguf.GGUFWriter(path, self.architecture)
        try:
            self._write_general(writer, plan)
            carried.reserve(writer, replace(plan, model=carried.name_of(plan.model)).dumps())
            self._write_sizes(writer)
            self._write_rope(writer)
            tokenizer.write(writer)
            self._write_tensors(writer)
        finally:
            writer.close()

    def _write_general(self, writer: Any, plan: ContextPlan) -> None:
        """What people and hubs read: whose model it is, and how large. No path of this machine."""
        import gguf

        writer.add_type(gguf.GGUFType.MODEL)
        writer.add_name(carried.name_of(plan.model))
        experts = getattr(self.config, "num_local_experts", None) or 0
        weights = sum(int(np.prod(shape)) for _, _, shape, _ in self._tensors())
        writer.add_size_label(gguf.size_label(weights, 0, 0, experts))

    def _write_sizes(self, writer: Any) -> None:
        import gguf

        config = self.config
        writer.add_context_length(self.length)
        writer.add_vocab_size(config.vocab_size)
        writer.add_block_count(config.num_hidden_layers)
        writer.add_embedding_length(config.hidden_size)
        writer.add_feed_forward_length(config.intermediate_size)
        writer.add_head_count(config.num_attention_heads)
        writer.add_head_count_kv(config.num_key_value_heads)
        writer.add_key_length(self.head_dim)
        writer.add_value_length(self.head_dim)
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
        kinds = gguf.LlamaFileType
        writer.add_file_type(
            kinds.ALL_F32 if self.dtype == "F32" else kinds[f"MOSTLY_{self.dtype}"]
        )
        writer.add_quantization_version(gguf.GGML_QUANT_VERSION)

    def _write_rope(self, writer: Any) -> None:
        import gguf

        writer.add_rope_dimension_count(self.head_dim)
        writer.add_rope_freq_base(self.rope.base)
        writer.add_rope_scaling_orig_ctx_len(self.original_length)
        if self.rope.linear_factor != 1:
            writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
            writer.add_rope_scaling_factor(self.rope.linear_factor)
        if self.rope.yarn_factor != 1:
            writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
            writer.add_rope_scaling_factor(self.rope.yarn_factor)
        if self.rope.attention_factor != 1:
            writer.add_rope_scaling_attn_factors(self.rope.attention_factor)

    def _write_tensors(self, writer: Any) -> None:
        from gguf import GGMLQuantizationType
        from gguf.quants import quantize

        tensors = list(self._tensors())
        for _, name, shape, kind in tensors:
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
        if self.rope.factors is not None:
            writer.write_tensor_data(self.rope.factors.astype(np.float32))
        kinds = {source: kind for source, _, _, kind in tensors}
        for source, tensor in self.checkpoint.tensors():
            if source in kinds:
                values = self._arranged(source, tensor)
                largest = np.abs(values).max(initial=0)
                if kinds[source] == "F16" and largest > np.finfo(np.float16).max:
                    raise Unsupported(
                        f"{source}: holds a value of {largest:.3g}, above the largest of F16; "
                        "export as BF16 or F32"
                    )
                writer.write_tensor_data(quantize(values, GGMLQuantizationType[kinds[source]]))

    def _tensors(self) -> Iterator[tuple[str, str, tuple[int, ...], str]]:
        """Every tensor of the file in its order: its source's name, its own, shape and type."""
        import gguf

        if self.rope.factors is not None:
            yield "", _ROPE_FREQS, self.rope.factors.shape, "F32"
        names = gguf.get_tensor_name_map(
            gguf.MODEL_ARCH[self.architecture.upper()], self.config.num_hidden_layers
        )
        tied = self.config.tie_word_embeddings
        headless = not tied
        for source, _, shape in self.checkpoint.stored():
            if source.endswith("rotary_emb.inv_freq"):  # old checkpoints hold what they compute
                continue
            if source == "lm_head.weight":
                headless = False
                if tied:  # transformers takes the embeddings, whatever stands here
                    continue
            name = names.get_name(source, try_suffixes=(".weight", ".bias"))
            if name is None:
                raise Unsupported(
                    f"{self.checkpoint.folder}: holds a tensor {source}, for which llama.cpp's "
                    f"{self.architecture} has no place"
                )
            yield source, name, shape, self._kind(shape)
        if headless:  # llama.cpp would take the embeddings in its place, without a word
            raise InputError(
                f"{self.checkpoint.folder}: has no lm_head.weight, and its config does not tie it "
                "to the embeddings; check that config and weights belong together"
            )

    def _kind(self, shape: tuple[int, ...]) -> str:
        if len(shape) == 1:
            return "F32"  # norms and biases: small, and llama.cpp computes with them in F32
        if self.dtype == "Q8_0" and shape[-1] % _Q8_BLOCK:
            return "F16"
        return self.dtype

    def _arranged(self, source: str, tensor: Tensor) -> NDArray[np.float32]:
        """The values, in llama.cpp's order."""
        exact = tensor.to(torch.float32)
        values = (exact if self.rewrite is None else self.rewrite(source, exact)).numpy()
        if self.architecture in _CONSECUTIVE:
            # transformers turns dimension i with i + d/2, these 2i with 2i + 1.
            projection = source.split(".")[-2]
            if projection in ("q_proj", "k_proj"):
                pairs = values.reshape(-1, 2, self.head_dim // 2, *values.shape[1:])
                values = np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(values.shape)
        return values


def _every_fourth_rests(config: Any) -> bool:
    """Whether the layers without rotation are those that llama.cpp's smollm3 has."""
    turning = getattr(config, "no_rope_layers", None)  # 1 where a layer rotates
    usual = [int((i + 1) % 4 != 0) for i in range(config.num_hidden_layers)]
    return turning is None or list(map(int, turning)) == usual


def _size(shape: tuple[int, ...], kind: str) -> int:
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    block, bytes_a_block = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    return int(np.prod(shape)) // int(block) * int(bytes_a_block)
