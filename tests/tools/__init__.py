"""Tests of the maintainers' programs in tools/."""
