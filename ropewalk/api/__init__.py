"""The verbs of `import ropewalk as rw`, one a file: a function, and the value that it returns.

The command line parses arguments, calls one of these, and shows what it returns.
"""
