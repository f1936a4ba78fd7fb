"""A stand-in for vLLM's offline engine: its signatures, over a model of transformers."""

from __future__ import annotations

import types
from dataclasses import dataclass
from typing import Any

import torch

from ropewalk.models.load import load


@dataclass
class SamplingParams:
    temperature: float = 1.0
    max_tokens: int | None = 16


@dataclass
class CompletionOutput:
    text: str
    token_ids: list[int]


@dataclass
class RequestOutput:
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]


class LLM:
    """Reads at most `max_model_len` tokens; without tokens to spare, a prompt is cut."""

    def __init__(self, model: str, *, max_model_len: int = 512, cut: int | None = None) -> None:
        self._loaded, self._cut = load(model, dtype="float32", device="cpu"), cut
        self.model_config = types.SimpleNamespace(
            model=model,
            dtype=torch.float32,
            max_model_len=max_model_len,
            hf_config=self._loaded.model.config,
            quantization=None,
            hf_overrides={},
            enforce_eager=True,
            seed=0,
        )

    def get_tokenizer(self) -> Any:
        return self._loaded.tokenizer

    def generate(
        self,
        prompts: Any,
        sampling_params: Any = None,
        *,
        use_tqdm: Any = True,
        lora_request: Any = None,
        priority: Any = None,
        tokenization_kwargs: Any = None,
        mm_processor_kwargs: Any = None,
    ) -> list[RequestOutput]:
        return [self._one(*pair) for pair in zip(prompts, sampling_params, strict=True)]

    def _one(self, prompt: dict[str, list[int]], asked: SamplingParams) -> RequestOutput:
        assert asked.temperature == 0
        read = prompt["prompt_token_ids"][: self._cut]
        written = self._loaded.model.generate(
            torch.tensor([read]), max_new_tokens=asked.max_tokens, do_sample=False
        )[0, len(read) :].tolist()
        text = self._loaded.tokenizer.decode(written)
        return RequestOutput(read, [CompletionOutput(text, written)])


def module() -> types.ModuleType:
    """What `import vllm` finds."""
    found = types.ModuleType("vllm")
    LLM.__module__ = "vllm.entrypoints.llm"
    vars(found).update(__version__="0.33.0", SamplingParams=SamplingParams, LLM=LLM)
    return found
