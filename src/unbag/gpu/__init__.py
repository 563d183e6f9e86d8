"""Kernels for NVIDIA GPUs, written in Triton, which must be installed to import them."""
