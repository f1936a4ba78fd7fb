"""Beyond its first table, Hunyuan's `alpha` is lost.

The published configs state 32,768, and the vendor 262,144. The rows that are added to the table
for a longer server have the base without `alpha`.

software: sglang
effect: position 32,768 is rotated by {found:.4f} radians in place of {right:.4f} (slowest pair)
remedy: raise `max_position_embeddings` in the override too, as `ropewalk plan` prints it
"""

from tools.faults import HUNYUAN, angle, real

get_rope = real("sglang.srt.layers.rotary_embedding").get_rope
rotary = get_rope(128, 128, 32768, 10000, rope_scaling=HUNYUAN["rope_scaling"])
rotary._ensure_cos_sin_cache_length(262144)
print(angle(rotary, 32768), 32768 * (10000 * 1000 ** (128 / 126)) ** (-126 / 128))
