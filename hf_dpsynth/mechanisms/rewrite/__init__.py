"""Mechanisms that rewrite whole texts with a local language model: local DP of each text."""
