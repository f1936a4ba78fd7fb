"""Evidence that a context works: what a model retrieves at a length, beside its perplexity."""
