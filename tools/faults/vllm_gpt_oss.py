"""gpt-oss loses a stated attention factor.

Its class writes the setting anew, from six keys; `attention_factor` is not one of them.

software: vllm
effect: attention factor {found:.4f} in place of {right:.4f}
remedy: none by config; `ropewalk export --runtime vllm` refuses it by name
"""

from transformers import GptOssConfig

from tools.faults import YARN, real

config = GptOssConfig(rope_parameters={**YARN, "attention_factor": 1.0})
attention = real("vllm.model_executor.models.gpt_oss").OAIAttention(config, prefix="layers.0")
print(attention.rotary_emb.mscale, 1.0)
