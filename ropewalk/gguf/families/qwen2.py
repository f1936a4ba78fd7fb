"""Qwen2, whose own graph refuses factors by pair; Llama's takes its biases, and factors."""

from ropewalk.gguf.families import GGUFFamily

FAMILY = GGUFFamily(("qwen2", "llama"))
