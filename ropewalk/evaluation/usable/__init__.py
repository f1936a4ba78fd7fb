"""How far a model or a server works: up to where it answers as well as at its own short lengths."""
