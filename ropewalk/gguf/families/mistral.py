"""Mistral, which computes as Llama does."""

from ropewalk.gguf.family import GGUFFamily

FAMILY = GGUFFamily(("llama",))
