"""Models as others define them: the only code that knows transformers."""
