"""Text to measure and train on: corpora, and tokens in windows."""
