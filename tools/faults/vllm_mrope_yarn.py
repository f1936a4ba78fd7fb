"""YaRN's ramp is laid for 4 times the original length under M-RoPE (Qwen2-VL, Qwen2.5-VL).

The table of such models is 4 times as long, for positions of videos, and the ramp takes its length
for the original one. Qwen3-VL and Qwen3.5 pass a factor of 1.

software: vllm
effect: pair 30 of 64 turns at {found:.4g} radians a position in place of {right:.4g}
remedy: extend it by another base: `ropewalk plan --method ntk`
"""

import torch

from tools.faults import YARN, real

get_rope = real("vllm.model_executor.layers.rotary_embedding").get_rope
sections, plain = {**YARN, "mrope_section": [16, 24, 24]}, YARN
pair = [get_rope(128, 8192, rope_parameters=own, dtype=torch.float32) for own in (sections, plain)]
print(*(float(rope._compute_inv_freq(2.0)[30]) for rope in pair))
