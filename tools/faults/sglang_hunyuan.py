"""YaRN put over Hunyuan-A13B's setting loses its attention factor.

`--json-model-override-args` are merged into the vendor's setting, whose `mscale` and
`mscale_all_dim` (both 1) stay there and cancel each other.

software: sglang
effect: attention factor {found:.4f} in place of {right:.4f}: {percent:.1f}% too small
remedy: state `mscale_all_dim: 0` in the override, as `ropewalk plan` prints it
"""

from math import log

from tools.faults import HUNYUAN, YARN, folder, real

path, given = folder(**HUNYUAN), {"rope_scaling": YARN}
config = real("sglang.srt.utils.hf_transformers.config").get_config(path, False, None, given)
get_rope = real("sglang.srt.layers.rotary_embedding").get_rope
rotary = get_rope(128, 128, 32768, 10000, rope_scaling=config.rope_parameters)
print(rotary.mscale, 0.1 * log(YARN["factor"]) + 1)
