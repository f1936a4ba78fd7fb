"""DeepSeek's class turns the type llama3 into YaRN.

It renames every type but `default` to `deepseek_yarn` (or `deepseek_llama_scaling` if
`attention_factor` is 1.0).

software: vllm
effect: cos and sin are multiplied by {found:.4f} in place of {right:.4f}, with YaRN's frequencies
remedy: plan YaRN (`--method yarn`); `ropewalk export --runtime vllm` refuses the rest by name
"""

from tools.faults import LLAMA3, deepseek_layer, real

module = real("vllm.model_executor.models.deepseek_v2")
rotary = deepseek_layer(module.DeepseekV2Attention, LLAMA3).rotary_emb
print(float(rotary.cos_sin_cache[0, 0]), 1.0)
