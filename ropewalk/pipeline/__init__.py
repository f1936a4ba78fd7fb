"""`extend`, stage by stage: from a model and a length to files that stock runtimes load.

A stage is a value: its fields are its settings, and it knows what it costs, what it does, and what
it returns. `stages/` holds one a file; `extend.py` puts them in order and runs them.
"""
