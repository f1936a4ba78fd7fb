"""Nine model classes rotate without the scaling.

They call `get_rope` with the base alone: Gemma, Gemma 2, GraniteMoE, Mixtral, OLMo, Persimmon,
Phi, StableLM and StarCoder2.

software: sglang
effect: {found:.0f} of {right:.0f} classes apply a linear scaling that the config states
remedy: express the extension as a base (`--method ntk`); `ropewalk export` refuses the rest by name
"""

from tools.faults import layers_of_nine, real

setting = {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4}
linear = real("sglang.srt.layers.rotary_embedding.base").LinearScalingRotaryEmbedding
rotations = [layer.self_attn.rotary_emb for layer in layers_of_nine(setting)]
print(sum(isinstance(own, linear) for own in rotations), len(rotations))
