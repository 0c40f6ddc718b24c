"""Benchmarks that ``bench.py`` runs, each against something outside, in one run, as a ratio."""
