"""Mistral, which computes as Llama does."""

from ropewalk.gguf.family import Family

FAMILY = Family(("llama",))
