"""Llama, with biases or without."""

from ropewalk.gguf.family import GGUFFamily

FAMILY = GGUFFamily(("llama",))
