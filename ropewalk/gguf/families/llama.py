"""Llama, with biases or without."""

from ropewalk.gguf.families import GGUFFamily

FAMILY = GGUFFamily(("llama",))
