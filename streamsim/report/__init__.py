"""Figures of runs and prediction files, as JSON and as tables."""
