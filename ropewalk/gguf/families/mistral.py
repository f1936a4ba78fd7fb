"""Mistral, which computes what Llama does."""

from ropewalk.gguf.family import Family

FAMILY = Family(("llama",))
