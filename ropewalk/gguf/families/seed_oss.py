"""Seed-OSS, with biases on queries, keys and values."""

from ropewalk.gguf.family import Family

FAMILY = Family(("seed_oss",))
