"""Reproducible side-by-side runs; results in RESULTS.md, experiments in LOG.md."""
