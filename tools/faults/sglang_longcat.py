"""LongCat-Flash without a scaling does not load.

The config class sets `rope_scaling` to None, which under transformers 5 also sets
`rope_parameters` to None; the model's class then looks for the base in it.

software: sglang
fails: TypeError
remedy: none by config alone, except with a scaling in the keys of transformers 4
"""

from tools.faults import folder, real

path = folder(architectures=["LongcatFlashForCausalLM"], rope_theta=1e7, rope_scaling=None)
config = real("sglang.srt.utils.hf_transformers.config").get_config(path, False)
module = real("sglang.srt.models.longcat_flash", "sglang.srt.models.deepseek_v2")
module.LongcatFlashDecoderLayer(config, layer_id=0)
