"""Kernels for NumPy vectors, compiled by numba."""
