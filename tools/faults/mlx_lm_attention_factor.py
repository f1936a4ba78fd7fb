"""YaRN's stated attention factor is ignored.

`initialize_rope` passes on the original length, both betas and both mscales, and computes the
factor by its own formula.

software: mlx_lm
effect: attention factor {found:.4f} in place of {right:.4f}
remedy: `ropewalk verify --runtime mlx-lm` names the trap; YaRN's own factor is followed
"""

from importlib import import_module

from tools.faults import YARN

rope_utils = import_module("mlx_lm.models.rope_utils")
setting = {**YARN, "attention_factor": 1.0}
print(rope_utils.initialize_rope(64, 10000, False, setting).mscale, 1.0)
