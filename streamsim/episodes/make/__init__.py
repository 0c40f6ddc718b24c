"""Makers of synthetic episodes with real ground truth."""
