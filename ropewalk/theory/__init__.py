"""The theory of rotary schedules, before any model is run.

bound       how large the base must be for a length: certified infimum, safe base, islands
decay       B(m) of any schedule: where a similar key stops beating a random one, and by how much
coverage    which rotation angles pretraining has seen, and which would be new
asymptote   the closed forms to compare with: Su's Ci bound, counting digits
published   the two tables in print
table       bounds of common heads, computed once

numpy only, except for bound, whose loops are compiled by numba on first use.
"""
