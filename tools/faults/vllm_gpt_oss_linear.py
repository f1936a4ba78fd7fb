"""gpt-oss with any type but YaRN does not load.

Its class takes YaRN's keys whatever the type: linear, NTK, llama3 and longrope lack one of them.

software: vllm
fails: KeyError
remedy: plan YaRN (`--method yarn`); `ropewalk export --runtime vllm` refuses the rest by name
"""

from transformers import GptOssConfig

from tools.faults import real

config = GptOssConfig(rope_parameters={"rope_type": "linear", "rope_theta": 1.5e5, "factor": 4.0})
real("vllm.model_executor.models.gpt_oss").OAIAttention(config, prefix="layers.0")
