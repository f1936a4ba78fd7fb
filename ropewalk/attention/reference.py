"""The reference engine: the dense mask, written out. Slow, and by definition correct.

It computes in the type that it is given, float64 included, and keeps length² scores a head.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ropewalk.attention import inputs
from ropewalk.attention.layout import PADDING, AttentionLayout


def obstacle(device: torch.device, dtype: torch.dtype, layout: AttentionLayout) -> str | None:
    return None


def attend(
    query: Tensor, key: Tensor, value: Tensor, layout: AttentionLayout, *, scale: float
) -> Tensor:
    inputs.check(query, key, value, layout, obstacle)
    group = query.shape[1] // key.shape[1]
    key, value = (tensor.repeat_interleave(group, dim=1) for tensor in (key, value))
    padding = torch.tensor(layout.document_ids == PADDING, device=query.device)
    # A row that sees nothing has no softmax: let padding see itself, and drop what it says.
    seen = torch.tensor(layout.mask(), device=query.device) | torch.diag(padding)
    scores = (query @ key.transpose(-1, -2) * scale).masked_fill(~seen, -torch.inf)
    return (scores.softmax(dim=-1) @ value).masked_fill(padding[:, None], 0)
