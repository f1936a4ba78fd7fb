"""The verbs of `import ropewalk as rw`, one per file: a function and its result.

The command line parses arguments, calls one of these functions, and shows the result.
"""
