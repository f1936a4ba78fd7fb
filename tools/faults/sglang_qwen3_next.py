"""An export of Qwen3-Next with YaRN in the keys of transformers 5 does not load.

SGLang's own config class sets its length after the constructor of transformers, which already
needs it to check the setting.

software: sglang
fails: AttributeError
remedy: write the keys of transformers 4: `ropewalk export --runtime sglang`
"""

from tools.faults import YARN, folder, real

config = {"model_type": "qwen3_next", "architectures": ["Qwen3NextForCausalLM"]}
path = folder(**config, max_position_embeddings=16384, rope_parameters=YARN)
real("sglang.srt.utils.hf_transformers.config").get_config(path, False)
