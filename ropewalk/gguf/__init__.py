"""The GGUF format, read and written, and the real llama.cpp that runs it."""
