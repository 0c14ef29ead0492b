"""Kernels on NVIDIA GPUs: IR goes in, PTX comes out, the driver runs it."""
