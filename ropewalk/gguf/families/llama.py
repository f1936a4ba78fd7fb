"""Llama, with biases or without."""

from ropewalk.gguf.family import Family

FAMILY = Family(("llama",))
