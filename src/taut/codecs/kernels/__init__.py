"""Native loops: numba on the CPU, Triton and torch operations on the GPU."""
