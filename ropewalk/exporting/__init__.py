"""Writes a planned model in the form that a stock runtime loads, and proves that it does the same.

One runtime a file: `transformers`, `vllm` (SGLang too) and `llama_cpp`. Each writes what its
runtime really honours, refuses by name what that cannot express, loads the result back, and
compares.
"""
