"""One kernel, several variants: function constants are set before a kernel runs.

    python examples/function_constants.py

A branch on a function constant costs nothing at run time. torch.mps.compile_shader cannot set them:
there a macro in front of the source does the same, and this program checks that both agree.
"""

from __future__ import annotations

from typing import Any

import torch

import anymetal

DEVICE = "mps" if torch.backends.mps.is_available() else "cpu"

KERNEL = """
kernel void bias_act(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                     device const float* bias [[buffer(2)]], constant uint& columns [[buffer(3)]],
                     uint i [[thread_position_in_grid]]) {
  float value = x[i];
  if (HAS_BIAS) value += bias[i % columns];
  if (ACTIVATION == 1) value = max(value, 0.0f);
  if (ACTIVATION == 2) value = value / (1.0f + precise::exp(-value));
  y[i] = value;
}
"""

CONSTANTS = """
#include <metal_stdlib>
using namespace metal;
constant bool HAS_BIAS [[function_constant(0)]];
constant int ACTIVATION [[function_constant(1)]];
"""


def with_constants(has_bias: bool, activation: int) -> Any:
    lib = anymetal.compile_shader(CONSTANTS + KERNEL)  # compiled once, kept in the cache
    return lib.specialize("bias_act", {"HAS_BIAS": has_bias, "ACTIVATION": activation})


def with_macros(has_bias: bool, activation: int) -> Any:
    compile_shader = torch.mps.compile_shader if DEVICE == "mps" else anymetal.compile_shader
    macros = f"#define HAS_BIAS {int(has_bias)}\n#define ACTIVATION {activation}\n"
    header = "#include <metal_stdlib>\nusing namespace metal;\n"
    return compile_shader(header + macros + KERNEL).bias_act


def main() -> None:
    functions = {0: lambda x: x, 1: torch.relu, 2: torch.nn.functional.silu}
    x, bias = torch.randn(5, 33), torch.randn(33)
    for has_bias, activation in [(False, 2), (True, 0), (True, 1)]:
        wanted = functions[activation]((x + bias if has_bias else x).double()).float()
        found = torch.empty_like(x)
        with_constants(has_bias, activation)(x, found, bias, 33, threads=x.numel())
        torch.testing.assert_close(found, wanted)
        other = torch.empty_like(x, device=DEVICE)
        tensors = (x.to(DEVICE), other, bias.to(DEVICE))
        with_macros(has_bias, activation)(*tensors, 33, threads=x.numel())
        torch.testing.assert_close(other.cpu(), wanted)
        print(f"bias {has_bias}, activation {activation}: constants and macros agree with float64")


if __name__ == "__main__":
    main()
