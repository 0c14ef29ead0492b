"""Functions that tests time from the command line."""

from __future__ import annotations

import torch

from anymetal import compile_shader

SOURCE = """
#include <metal_stdlib>
using namespace metal;

kernel void scaled(device const float* x, device float* y, constant float& factor,
                   uint i [[thread_position_in_grid]]) {
  y[i] = factor * x[i];
}
"""


def scaled(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    compile_shader(SOURCE).scaled(x, y, 3.0, threads=x.numel(), group_size=64)
    return y


def reference(x: torch.Tensor, *_: object) -> torch.Tensor:
    return 3 * x


def wrong(x: torch.Tensor, *_: object) -> torch.Tensor:
    return 4 * x
