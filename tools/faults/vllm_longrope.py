"""longrope's stated attention factor is ignored.

The class reads `short_mscale` and `long_mscale`, and otherwise uses Phi-3's formula.

software: vllm
effect: attention factor {found:.4f} in place of {right:.4f}
remedy: state it under these two names as well: `ropewalk export --runtime vllm`
"""

import torch

from tools.faults import LONGROPE, real

get_rope = real("vllm.model_executor.layers.rotary_embedding").get_rope
rotary = get_rope(128, 16384, rope_parameters=LONGROPE, dtype=torch.float32)
print(float(rotary.long_short_cos_sin_cache[-16384, 0]), LONGROPE["attention_factor"])
