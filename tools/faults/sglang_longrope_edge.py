"""In decoding with two lists of factors, the token at the original length is rotated as position 0.

Its table has the short rows first and the long ones behind them, and the index moves to the long
ones only for positions above the original length.

software: sglang
effect: position 4,096 is rotated by {found:.3f} radians in place of {right:.3f} (slowest pair)
remedy: write one list: `ropewalk export --runtime sglang`
"""

import torch

from tools.faults import LONGROPE, real

get_rope = real("sglang.srt.layers.rotary_embedding").get_rope
rotary = get_rope(128, 128, 16384, 10000, dtype=torch.float32, rope_scaling=LONGROPE)
query = torch.cat([torch.ones(1, 64), torch.zeros(1, 64)], 1)
turned = rotary.forward(torch.tensor([4096]), query, query)[0].flatten()
print(float(torch.atan2(turned[127], turned[63])), 4096 / 4 * 10000 ** (-126 / 128))
