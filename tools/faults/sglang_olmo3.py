"""A checkpoint of OLMo 3 saved by transformers 5 rotates with base 10,000, without a word.

SGLang loads it with a config class of its own, which sets `rope_scaling` after the constructor of
transformers; under transformers 5 that erases `rope_parameters`, base and scaling included.

software: sglang
effect: base {found:,.0f} in place of {right:,.0f}
remedy: write the keys of transformers 4: `ropewalk export --runtime sglang`
"""

from tools.faults import folder, real

stated = {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}
path = folder(model_type="olmo3", architectures=["Olmo3ForCausalLM"], **stated)
config = real("sglang.srt.utils.hf_transformers.config").get_config(path, False)
rotary = real("sglang.srt.models.olmo2").Olmo2Attention(config, layer_id=3).rotary_emb
print(rotary.base, stated["rope_parameters"]["rope_theta"])
