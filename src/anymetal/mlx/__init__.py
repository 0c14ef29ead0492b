"""Kernels that were written for MLX, on torch tensors: `metal_kernel` as `mlx.core.fast` has it."""

from anymetal.mlx.kernel import MetalKernel, metal_kernel

__all__ = ["MetalKernel", "metal_kernel"]
