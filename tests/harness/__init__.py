"""Tests that need lm-evaluation-harness: `make test-lm-eval` makes an environment for them."""
