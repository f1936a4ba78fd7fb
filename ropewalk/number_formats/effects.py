"""The effect of a shift of all positions: whether an answer in the context is still found."""

from __future__ import annotations

import torch

from ropewalk.evaluation.samples import Sample
from ropewalk.number_formats.arms import Arm
from ropewalk.number_formats.stage import Stage


def retrieves(stage: Stage, sample: Sample, arm: Arm, shift: int) -> bool:
    """True if every token of the answer is the model's first choice, fed the ones before it."""
    answer = torch.from_numpy(sample.answer)
    tokens = torch.from_numpy(sample.tokens)
    logits = stage.run(tokens, shift, arm, keep=len(answer) + 1)
    return bool((logits[:-1].argmax(-1).cpu() == answer).all())
