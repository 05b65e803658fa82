"""Numerical kernels without privacy in them: exact nearest neighbours and votes."""
