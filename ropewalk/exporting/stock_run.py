"""Asks stock transformers what exported folders compute. Run as a script, in a process of its own.

    python -P stock_run.py job.json

Nothing of ropewalk is imported here, and no code of a folder is run: what answers is what a user
of transformers gets. The job names folders and sequences; the answers are logits and the inverse
frequencies that were in force, in safetensors files. Where the job has a text, each folder's
tokenizer is loaded too, and its tokens of the text stand in a JSON file.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from inspect import signature
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor


def settle(model: Any) -> Any:
    """The model, to be compared: no dropout, and experts computed one by one, in any type."""
    if hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("eager")
    return model.eval()


@torch.no_grad()
def logits_of(
    model: Any,
    ids: Sequence[int],
    positions: Sequence[int],
    cuts: Sequence[int],
    before: Callable[[int], None] | None = None,
) -> Tensor:
    """The logits of one sequence at these positions: at once, or in pieces through the cache.

    `before` is called before every piece with the length that it reaches.
    """
    ids_1L, at_1L = torch.tensor([ids]), torch.tensor([positions])
    # Said explicitly: without a mask, positions with gaps would pass for packed documents.
    mask_1L = torch.ones_like(ids_1L)
    # The name before transformers 5.24, and the one since.
    named = "cache" if "cache" in signature(model.forward).parameters else "past_key_values"
    cache, pieces = None, []
    for start, end in pairwise((0, *cuts, len(ids))):
        if before is not None:
            before(positions[end - 1] + 1)
        output = model(
            input_ids=ids_1L[:, start:end],
            attention_mask=mask_1L[:, :end],
            position_ids=at_1L[:, start:end],
            use_cache=bool(cuts),
            **{named: cache},
        )
        cache = getattr(output, named) if cuts else None
        pieces.append(output.logits[0])
    return torch.cat(pieces)


def tokens_of(folder: str, text: str) -> dict[str, Any]:
    """The tokens of a text, or why the tokenizer of the folder cannot be loaded."""
    import transformers

    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
        # Not verbose: the text may be longer than the tokenizer's limit.
        return {"ids": [int(i) for i in tokenizer(text, verbose=False)["input_ids"]]}
    except Exception as error:  # whatever the many tokenizer classes raise
        return {"error": (str(error).strip().splitlines() or [type(error).__name__])[0]}


def answer(job: dict[str, Any]) -> None:
    import transformers

    torch.set_num_threads(int(job["threads"]))
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    for n, entry in enumerate(job["models"]):
        if job.get("text"):
            tokens = json.dumps(tokens_of(entry["folder"], job["text"]))
            (Path(job["answers"]) / f"{n}.tokens.json").write_text(tokens, encoding="utf-8")
        # No code of the folder, and no pickle: only what stock classes read.
        model, report = transformers.AutoModelForCausalLM.from_pretrained(
            entry["folder"],
            dtype=getattr(torch, job["dtype"]),
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
        settle(model)
        absent = sorted(report["missing_keys"])
        if absent:
            raise RuntimeError(f"{len(absent)} weights are missing: {', '.join(absent[:3])}")
        # Frequencies go with the logits of each sequence, for some change with the length.
        answers: dict[str, Tensor] = {}
        for i, sequence in enumerate(entry["sequences"]):
            answers[f"{i}.logits"] = logits_of(model, **sequence).contiguous()
            for name, buffer in model.named_buffers():
                last = name.rpartition(".")[2]
                if last.endswith("inv_freq") and "original" not in last:
                    answers[f"{i}.frequencies.{name}"] = buffer.detach().clone()
        save_file(answers, Path(job["answers"]) / f"{n}.safetensors")


if __name__ == "__main__":
    answer(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
