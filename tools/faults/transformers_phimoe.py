"""Phi-3.5-MoE uses the short factors at every length.

Its rotary module calls longrope's formula without the length at hand, and so never gets the long
list.

software: transformers
effect: position 8,191 is rotated by {found:.3f} radians in place of {right:.3f} (slowest pair)
remedy: write one list for all lengths: `ropewalk export --runtime transformers`
"""

import torch

from tools.faults import LONGROPE, tiny

rope = {**LONGROPE, "short_mscale": 1.0, "long_mscale": 1.0}
model = tiny("phimoe", hidden_size=512, num_attention_heads=4, rope_parameters=rope)
cos, sin = model.model.rotary_emb(torch.zeros(1), torch.arange(8192)[None])
print(float(torch.atan2(sin, cos)[0, -1, 63]), 8191 / 4 * 10000 ** (-126 / 128))
