"""Checks that need more than the project installs; each is run by hand and says how."""
