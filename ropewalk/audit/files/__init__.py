"""The files of a model themselves: whether they are whole, and belong together.

Nothing is run, unpickled or loaded as a model, and none of it needs torch. One file for each
subject; each looks, and says what it saw as a `Check`:

    weights         safetensors headers, index, names and shapes against the config
    gguf            a GGUF file: where its tensors lie, their shapes, its vocabulary
    tokenizer       it loads, and none of its ids is beyond the vocabulary
    content         every byte, where the export carries a manifest or a digest
"""
