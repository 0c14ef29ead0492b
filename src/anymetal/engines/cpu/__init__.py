"""Kernels on the processor: the runtime, and two ways to run a simdgroup."""
