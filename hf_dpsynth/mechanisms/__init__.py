"""Mechanisms: each a frozen dataclass of hyper-parameters that plans its events and runs."""
