"""The converter drops longrope's factors for Llama and Mistral.

It writes that the scaling is longrope, but tensors of factors only in classes such as Phi-3's;
without them, llama.cpp has nothing to divide the frequencies by.

software: convert_hf_to_gguf
effect: {found:.0f} of {right:.0f} tensors of factors are in the file
remedy: `ropewalk export --runtime llama.cpp`
"""

from importlib import import_module

import gguf

from tools.faults import LONGROPE, saved

path = saved("llama", hidden_size=512, num_attention_heads=4, rope_parameters=LONGROPE)
writer = import_module("conversion.llama").LlamaModel
writer.set_vocab = lambda self: None
writer(path, gguf.LlamaFileType.ALL_F32, path / "out.gguf").write()
print(sum("rope_factors" in t.name for t in gguf.GGUFReader(path / "out.gguf").tensors), 2)
