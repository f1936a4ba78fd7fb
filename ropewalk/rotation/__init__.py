"""The rotation that live objects use, compared: in trainers, in engines, and between the two."""
