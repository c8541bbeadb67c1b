"""Kernels for vectors on a GPU, in Triton."""
