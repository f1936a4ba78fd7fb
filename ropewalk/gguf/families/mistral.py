"""Mistral, which computes as Llama does."""

from ropewalk.gguf.families import GGUFFamily

FAMILY = GGUFFamily(("llama",))
