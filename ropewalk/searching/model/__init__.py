"""A search on a real model: its documents, its objective, the ranks that share the work."""
