"""Benchmarks of circuits: instances as in the paper, runs of methods on them, and a report of the runs.

:mod:`margmap.bench.instances` divides variables and draws evidence, :mod:`margmap.bench.runs` runs methods with limits,
one process a run, and :mod:`margmap.bench.report` writes tables and figures.
"""
