"""`truncate: false` is not read in a setting by layer type.

YaRN's function looks for it at the top of `rope_parameters`, and for everything else in the
layer type's own setting.

software: transformers
effect: a pair of the ramp turns at {found:.3f} of its frequency
remedy: `ropewalk verify` names the trap (`truncate-ignored`)
"""

from tools.faults import YARN, tiny

rope = {"full_attention": {**YARN, "truncate": False}, "sliding_attention": {"rope_theta": 1e4}}
found = tiny("olmo3", num_hidden_layers=4, hidden_size=256, rope_parameters=rope).model
right = tiny("llama", hidden_size=256, rope_parameters=rope["full_attention"]).model
ratio = found.rotary_emb.full_attention_inv_freq / right.rotary_emb.inv_freq
print(float(ratio[(ratio - 1).abs().argmax()]), 1.0)
