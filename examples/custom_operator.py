"""A kernel as an operator of torch: with a gradient, and inside torch.compile.

    python examples/custom_operator.py

`torch.library.custom_op` gives it a name and a schema, `register_fake` the shape of its result for
tracing, `register_autograd` its gradient. `opcheck` tests that these three agree.
"""

from __future__ import annotations

import torch

import anymetal

DEVICE = "mps" if torch.backends.mps.is_available() else "cpu"
compile_shader = torch.mps.compile_shader if DEVICE == "mps" else anymetal.compile_shader

LIBRARY = compile_shader("""
#include <metal_stdlib>
using namespace metal;

// Squared ReLU, and its gradient.
kernel void forward(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                    uint i [[thread_position_in_grid]]) {
  float positive = max(x[i], 0.0f);
  y[i] = positive * positive;
}

kernel void backward(device const float* grad [[buffer(0)]], device const float* x [[buffer(1)]],
                     device float* out [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  out[i] = grad[i] * 2.0f * max(x[i], 0.0f);
}
""")


@torch.library.custom_op("example::relu_squared", mutates_args=())
def relu_squared(x: torch.Tensor) -> torch.Tensor:
    x = x.contiguous()
    y = torch.empty_like(x)
    if x.numel():  # Metal has no empty grids
        LIBRARY.forward(x, y, threads=x.numel())
    return y


@torch.library.custom_op("example::relu_squared_backward", mutates_args=())
def relu_squared_backward(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    grad, x = grad.contiguous(), x.contiguous()
    out = torch.empty_like(x)
    if x.numel():
        LIBRARY.backward(grad, x, out, threads=x.numel())
    return out


@relu_squared.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@relu_squared_backward.register_fake
def _(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def save(ctx: torch.autograd.function.FunctionCtx, inputs: tuple, output: torch.Tensor) -> None:
    ctx.save_for_backward(*inputs)


def differentiate(ctx: torch.autograd.function.FunctionCtx, grad: torch.Tensor) -> torch.Tensor:
    (x,) = ctx.saved_tensors
    return relu_squared_backward(grad, x)


relu_squared.register_autograd(differentiate, setup_context=save)


def main() -> None:
    for shape in [(5, 33), (0,), (7,)]:
        x = torch.randn(shape, device=DEVICE, requires_grad=True)
        relu_squared(x).sum().backward()
        exact = x.detach().cpu().double().requires_grad_()
        torch.relu(exact).square().sum().backward()
        torch.testing.assert_close(x.grad.cpu(), exact.grad.float())
    print("results and gradients agree with float64")

    x = torch.randn(33, device=DEVICE, requires_grad=True)
    tests = ["test_schema", "test_faketensor", "test_aot_dispatch_dynamic"]
    if DEVICE == "cpu":  # torch 2.13 cannot look at the registration on mps
        tests.append("test_autograd_registration")
    found = torch.library.opcheck(relu_squared, (x,), test_utils=tests)
    print("opcheck:", ", ".join(sorted(found)))

    compiled = torch.compile(lambda x: relu_squared(x) + 1, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), torch.relu(x).square() + 1)
    print("torch.compile traces it whole")


if __name__ == "__main__":
    main()
