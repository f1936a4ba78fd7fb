"""Bamba's forward with a cache counts positions from 0 again.

Unlike other models, it does not add the cache's length to positions that are not given. `generate`
gives them; loops that call the model with `past_key_values` alone are wrong.

software: transformers
effect: a tiny model's next logits are off by up to {found:.1f} of their standard deviation
remedy: pass `position_ids`
"""

import torch

from tools.faults import tiny

model, ids = tiny("bamba", attn_layer_indices=[1], initializer_range=0.5), torch.arange(32)[None]
past = model(ids[:, :31], use_cache=True).past_key_values
cached, whole = model(ids[:, 31:], past_key_values=past).logits, model(ids).logits[:, 31:]
print(float((cached - whole).abs().max() / whole.std()), 0.0)
