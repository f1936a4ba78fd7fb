"""Faults in quantity: each file with `ROWS` breaks one kind of thing, and counts what then happens.

    python -m tools.reliability [ROW ...] [--count N] [--seed S] [--minutes M] [--again] [--finds]

`make faults` runs all rows. Counts are kept in counts/, one file per row, and docs/reliability.md
is made from them.
"""
