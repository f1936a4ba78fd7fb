"""Maintainers' programs, run from the repository: nothing here is installed."""
