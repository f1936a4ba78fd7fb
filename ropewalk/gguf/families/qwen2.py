"""Qwen2, whose own graph refuses factors by pair; Llama's takes its biases, and factors."""

from ropewalk.gguf.family import Family

FAMILY = Family(("qwen2", "llama"))
