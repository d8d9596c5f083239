"""Benchmarks: each a ratio of two things timed alternately in one run, results checked equal first.

``python -m benchmarks`` prints a table, ``--json`` one JSON object, ``--only NAME`` one benchmark.
Times of one machine say little about another; ratios say more, and medians forgive a busy core.
"""
