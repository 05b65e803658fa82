"""Mechanisms that tune a causal language model on private records and sample from it."""
