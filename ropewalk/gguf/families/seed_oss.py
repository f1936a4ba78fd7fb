"""Seed-OSS, with biases on queries, keys and values."""

from ropewalk.gguf.family import GGUFFamily

FAMILY = GGUFFamily(("seed_oss",))
