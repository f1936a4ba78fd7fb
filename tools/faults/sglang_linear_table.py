"""Beyond its first table, linear interpolation stops interpolating.

If a server's length exceeds `max_position_embeddings` times the factor, rows are added to the
table of cos and sin, without the factor.

software: sglang
effect: position 16,384 is rotated by {found:.3f} radians in place of {right:.3f} (slowest pair)
remedy: let the setting reach the served length; `ropewalk plan` prints the lines
"""

from tools.faults import angle, real

setting = {"rope_type": "linear", "factor": 4.0}
get_rope = real("sglang.srt.layers.rotary_embedding").get_rope
rotary = get_rope(128, 128, 4096, 10000, rope_scaling=setting)
rotary._ensure_cos_sin_cache_length(20000)
print(angle(rotary, 16384), 16384 / 4 * 10000 ** (-126 / 128))
