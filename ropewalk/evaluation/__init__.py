"""Evidence that a context works: a model's retrieval at a length, and its perplexity."""
