"""Finds the rescale factors of a model by asking how well it does under them. numpy only.

A search knows a model only as an `Objective`: a function that scores a list of schedules. Whether
one process or a hundred ranks compute the scores is the caller's business.
"""
