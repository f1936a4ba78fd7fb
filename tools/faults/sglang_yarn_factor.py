"""YaRN's stated attention factor is ignored.

`get_rope` passes on `attn_factor`, which multiplies YaRN's own factor, and not `attention_factor`.

software: sglang
effect: attention factor {found:.4f} in place of {right:.4f}
remedy: write YaRN as longrope with equal lists: `ropewalk export --runtime sglang`
"""

from tools.faults import YARN, real

get_rope = real("sglang.srt.layers.rotary_embedding").get_rope
rotary = get_rope(128, 128, 8192, 10000, rope_scaling={**YARN, "attention_factor": 1.0})
print(rotary.mscale, 1.0)
