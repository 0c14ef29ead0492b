"""Operators that a library registers for MPS."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from anymetal.device import enable


@pytest.fixture(scope="module")
def library(mps: torch.device) -> Iterator[torch.library.Library]:
    made = torch.library.Library("device_test", "DEF")
    made.define("square(Tensor x) -> Tensor")
    made.define("only_cpu(Tensor x) -> Tensor")
    made.impl("square", lambda x: x * x, "MPS")
    made.impl("square", lambda x: x * x + 1000, "CPU")
    made.impl("only_cpu", lambda x: x + 5, "CPU")
    yield made
    made._destroy()


def test_kernel_is_chosen_by_device(library: torch.library.Library) -> None:
    assert torch.ops.device_test.square(torch.tensor([3.0], device="mps")).tolist() == [9]
    assert torch.ops.device_test.square(torch.tensor([3.0])).tolist() == [1009]


def test_operator_without_mps_kernel_is_missing(library: torch.library.Library) -> None:
    x = torch.ones(2, device="mps")
    assert torch.ops.device_test.only_cpu(x).tolist() == [6, 6]
    assert torch.ops.device_test.only_cpu(x).is_mps
    enable(missing="error")
    with pytest.raises(NotImplementedError, match="device_test::only_cpu"):
        torch.ops.device_test.only_cpu(x)


def test_custom_operator_with_gradient() -> None:
    @torch.library.custom_op("device_test::cube", mutates_args=(), device_types="mps")
    def cube(x: torch.Tensor) -> torch.Tensor:
        assert x.is_mps
        return x**3

    cube.register_fake(torch.empty_like)
    cube.register_autograd(
        lambda ctx, gradient: gradient * 3 * ctx.saved_tensors[0] ** 2,
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
    )
    x = torch.full((2,), 2.0, device="mps", requires_grad=True)
    cube(x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [12, 12]
    torch.library.opcheck(
        cube,
        (torch.ones(3, device="mps", requires_grad=True),),
        test_utils=("test_schema", "test_faketensor"),
    )
    compiled = torch.compile(lambda t: cube(t) + 1, backend="aot_eager", fullgraph=True)
    assert compiled(torch.full((2,), 2.0, device="mps")).tolist() == [9, 9]
    with pytest.raises(NotImplementedError):
        cube(torch.ones(2))


def test_custom_operator_that_changes_its_argument() -> None:
    @torch.library.custom_op("device_test::increase", mutates_args={"x"}, device_types="mps")
    def increase(x: torch.Tensor) -> None:
        x.add_(1)

    x = torch.zeros(2, device="mps")
    increase(x)
    assert x.tolist() == [1, 1]
