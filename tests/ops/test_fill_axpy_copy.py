"""fill, axpy and copy: in place forms, strides, conversions, messages."""

from __future__ import annotations

import pytest
import torch

from anymetal import ops
from anymetal.ops.declare import variants

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@pytest.mark.parametrize("to", DTYPES)
@pytest.mark.parametrize("source", DTYPES)
def test_copy_converts_as_torch_does(source: torch.dtype, to: torch.dtype) -> None:
    x = torch.tensor([0.1, -70000.0, 1e-7, float("inf"), float("nan"), 1 / 3]).to(source)
    torch.testing.assert_close(ops.copy(x, to), x.to(to), rtol=0, atol=0, equal_nan=True)


def test_copy_of_any_strides() -> None:
    x = torch.randn(6, 8, 10)
    for view in (x[::2, :, ::3], x.transpose(0, 2)[1:, ::2], x[:1].expand(4, 8, 10), x[2]):
        copy = ops.copy(view)
        assert torch.equal(copy, view)
        assert copy.data_ptr() != view.data_ptr()


@pytest.mark.parametrize("dtype", DTYPES)
def test_copy_in_place_spreads_and_stays_inside(dtype: torch.dtype) -> None:
    for view in (lambda t: t[:, 1:4], lambda t: t.t()[::2], lambda t: t[1:3, ::2]):
        around = torch.randn(4, 6)
        expected = around.clone()
        source = torch.randn(view(around).shape[-1]).to(dtype)
        view(expected).copy_(source)
        assert ops.copy_(view(around), source).shape == view(around).shape
        assert torch.equal(around, expected)


def test_copy_in_place_has_torchs_gradient() -> None:
    torch.manual_seed(1)
    source = torch.randn(3, dtype=torch.float16, requires_grad=True)
    x = torch.randn(4, 3, requires_grad=True)
    weight = torch.randn(4, 3)
    results = []
    for copy in (ops.copy_, torch.Tensor.copy_):
        product = (copy(x * 2, source) * weight).sum()
        results.append(torch.autograd.grad(product, [x, source]))
    # Sums of halves, in another order.
    torch.testing.assert_close(*results, rtol=1e-2, atol=1e-2)


def test_fill_in_place() -> None:
    around = torch.zeros(5, 6)
    expected = around.clone()
    expected[1:4, ::2].fill_(0.3)
    ops.fill_(around[1:4, ::2], 0.3)
    assert torch.equal(around, expected)
    ops.fill_(around, 7)
    assert (around == 7).all()
    assert variants.last() == "fill/fp32/elementwise/vec4"
    x = torch.randn(3, requires_grad=True)
    (gradient,) = torch.autograd.grad((ops.fill_(x * 2, 1.0) * x).sum(), x)
    torch.testing.assert_close(gradient, torch.ones(3))


def test_fill_out_of_range() -> None:
    with pytest.raises(ValueError, match=r"fill: argument 'value' is 70000\.0, but torch.float16"):
        ops.fill(torch.ones(2, dtype=torch.float16), 70000.0)
    assert ops.fill(torch.ones(2, dtype=torch.float16), float("inf")).isinf().all()


def test_axpy_in_place() -> None:
    x, y = torch.randn(4, 9), torch.randn(4, 18)
    for view in (lambda t: t[:, :9], lambda t: t[:, ::2]):
        around, expected = y.clone(), y.clone()
        view(expected).add_(x, alpha=0.5)
        ops.axpy_(0.5, x, view(around))
        torch.testing.assert_close(around, expected)
    leaf = torch.randn(3, requires_grad=True)
    other = torch.randn(3, requires_grad=True)
    weight = torch.randn(3)
    product = (ops.axpy_(0.5, other, leaf * 2) * weight).sum()
    gradients = torch.autograd.grad(product, [leaf, other])
    torch.testing.assert_close(gradients, (2 * weight, 0.5 * weight))


def test_axpy_rounds_once() -> None:
    x = torch.randn(1000).bfloat16()
    y = torch.randn(1000).bfloat16()
    exact = (0.3 * x.double() + y.double()).bfloat16()
    assert (ops.axpy(0.3, x, y) != exact).float().mean() < 0.01


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("fill_", lambda t: (t, 2.0)),
        ("axpy_", lambda t: (t, 0.5, torch.ones(3, 5))),
        ("copy_", lambda t: (t, torch.ones(5))),
    ],
)
def test_in_place_operators_pass_opcheck(name: str, args: object) -> None:
    assert callable(args)
    overload = getattr(torch.ops.anymetal, name).default
    torch.library.opcheck(overload, args(torch.randn(3, 5)))
    torch.library.opcheck(overload, args(torch.randn(3, 5, requires_grad=True) * 2))


def test_messages() -> None:
    with pytest.raises(ValueError, match=r"axpy: argument 'x' expects shape \[3\] .*, got \[2\]"):
        ops.axpy(1.0, torch.ones(2), torch.ones(3))
    with pytest.raises(
        ValueError, match=r"copy_: argument 'source' of shape \[2\] cannot be spread"
    ):
        ops.copy_(torch.ones(3), torch.ones(2))
    with pytest.raises(TypeError, match=r"copy: argument 'dtype' expects .*, got torch.int8"):
        ops.copy(torch.ones(3), torch.int8)
    with pytest.raises(ValueError, match=r"fill_: .* several elements in one place"):
        ops.fill_(torch.ones(1).expand(3), 1.0)
