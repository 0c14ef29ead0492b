"""Activations and gated products: extreme values, in place forms, options, variants, messages."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from judging import doubled, judge

import anymetal
from anymetal import ops
from anymetal.ops.declare import variants
from anymetal.policy.policy import override

Function = Callable[..., torch.Tensor]


def gelu_tanh(x: torch.Tensor) -> torch.Tensor:
    return ops.gelu(x, approximate="tanh")


PAIRS: dict[str, tuple[Function, Function]] = {
    "silu": (ops.silu, F.silu),
    "gelu": (ops.gelu, F.gelu),
    "gelu_tanh": (gelu_tanh, lambda x: F.gelu(x, approximate="tanh")),
    "relu_squared": (ops.relu_squared, lambda x: F.relu(x).square()),
    "sigmoid": (ops.sigmoid, torch.sigmoid),
}
each_function = pytest.mark.parametrize("name", PAIRS)
EXTREMES = [0.0, -0.0, 1e-40, -1e-40, 1e-45, 88.8, -88.8, 103.0, 1e4, -1e4, 3e38, -3e38]
SPECIAL = [math.inf, -math.inf, math.nan]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@each_function
def test_extreme_values_are_torchs(name: str, dtype: torch.dtype) -> None:
    mine, torchs = PAIRS[name]
    x = torch.tensor(EXTREMES + SPECIAL).to(dtype)
    judge(mine(x), torchs(doubled(x)), torchs(x), name)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_eight_elements_a_thread(dtype: torch.dtype) -> None:
    gate, up = (torch.randn(3, 83).to(dtype) for _ in range(2))
    exact = F.silu(doubled(gate)) * doubled(up)
    with override("swiglu", "elementwise", width=8), variants.recorded() as keys:
        judge(ops.swiglu(gate, up), exact, F.silu(gate) * up, "swiglu")
        ops.swiglu(gate.flatten()[4:], up.flatten()[4:])
    assert [key.rsplit("/", 1)[1] for key in keys] == ["vec8", "vec4"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("size", [1, 31, 256, 264, 512, 4099])
def test_sixteen_elements_a_thread(size: int, dtype: torch.dtype) -> None:
    """Of two accesses: the second may lie behind the end, or be cut off by it."""
    x = torch.randn(size).to(dtype)
    with (
        override("silu", "elementwise", width=16, group_size=64),
        variants.recorded() as keys,
        anymetal.check() as report,
    ):
        judge(ops.silu(x), F.silu(doubled(x)), F.silu(x), "silu")
    assert not report.findings
    assert keys[0].endswith("vec16")


@each_function
def test_gradient_at_extreme_values(name: str) -> None:
    mine, torchs = PAIRS[name]
    x = torch.tensor(EXTREMES).requires_grad_()
    (gradient,) = torch.autograd.grad(mine(x).sum(), x)
    exact_input = doubled(x).requires_grad_()
    (exact,) = torch.autograd.grad(torchs(exact_input).sum(), exact_input)
    torch.testing.assert_close(gradient, exact.float(), rtol=1e-5, atol=1e-6)
    not_a_number = torch.tensor([math.nan], requires_grad=True)
    mine(not_a_number).backward()
    assert not_a_number.grad is not None
    assert not_a_number.grad.isnan().all()


def test_exact_gelu_keeps_its_digits_in_the_tail() -> None:
    x = torch.linspace(-12.5, -0.001, 4096)
    # In double, 1 + erf has no digits left either below -8: erfc has.
    exact = x.double() * 0.5 * torch.special.erfc(-x.double() / math.sqrt(2))
    relative = ((ops.gelu(x).double() - exact) / exact).abs()
    assert relative.max() < 6e-7
    own = ((F.gelu(x).double() - exact) / exact).abs()
    assert own.max() > 0.1


def test_exact_gelu_on_the_other_side_is_exact_to_two_roundings() -> None:
    x = torch.linspace(0.001, 12.5, 4096)
    exact = x.double() * 0.5 * torch.special.erfc(-x.double() / math.sqrt(2))
    assert ((ops.gelu(x).double() - exact) / exact).abs().max() < 2.5e-7


# --- in place -------------------------------------------------------------------------------------

IN_PLACE: dict[str, tuple[Function, Function]] = {
    "silu": (lambda x: ops.silu(x, inplace=True), F.silu),
    "sigmoid": (ops.sigmoid_, torch.sigmoid),
}
each_in_place = pytest.mark.parametrize("name", IN_PLACE)


@each_in_place
def test_in_place_form_writes_its_input(name: str) -> None:
    mine, torchs = IN_PLACE[name]
    x = torch.randn(5, 33)
    before = x.clone()
    assert mine(x) is x
    torch.testing.assert_close(x, torchs(before))


@each_in_place
def test_in_place_form_writes_views_only_where_they_are(name: str) -> None:
    mine, torchs = IN_PLACE[name]
    for view in (lambda t: t[:, 1:7], lambda t: t.t(), lambda t: t[::2, ::3], lambda t: t[2]):
        around = torch.randn(6, 9)
        expected = around.clone()
        view(expected).copy_(torchs(view(around)))
        mine(view(around))
        torch.testing.assert_close(around, expected)


@each_in_place
def test_in_place_form_has_torchs_gradient(name: str) -> None:
    mine, torchs = IN_PLACE[name]
    x = torch.randn(3, 31, requires_grad=True)
    weight = torch.randn(3, 31)
    (gradient,) = torch.autograd.grad((mine(x * 2) * weight).sum(), x)
    (expected,) = torch.autograd.grad((torchs(x * 2) * weight).sum(), x)
    torch.testing.assert_close(gradient, expected, rtol=1e-5, atol=1e-6)


@each_in_place
def test_in_place_form_is_seen_by_autograd(name: str) -> None:
    mine, _ = IN_PLACE[name]
    x = torch.randn(4, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        mine(x)
    kept = torch.randn(4)
    product = (x * kept).sum()
    mine(kept)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


@each_in_place
def test_in_place_form_compiles(name: str) -> None:
    mine, _ = IN_PLACE[name]

    def model(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        mine(y)
        return y + 1

    x = torch.randn(3, 5, requires_grad=True)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    (expected,) = torch.autograd.grad(model(x).sum(), x)
    (gradient,) = torch.autograd.grad(compiled(x).sum(), x)
    torch.testing.assert_close(gradient, expected)
    torch._dynamo.reset()


@pytest.mark.parametrize("name", ["silu_", "sigmoid_"])
def test_in_place_operator_passes_opcheck(name: str) -> None:
    overload = getattr(torch.ops.anymetal, name).default
    torch.library.opcheck(overload, (torch.randn(4, 3),))
    torch.library.opcheck(overload, (torch.randn(4, 3, requires_grad=True) * 2,))


def test_in_place_form_refuses_repeated_elements() -> None:
    with pytest.raises(ValueError, match="several elements in one place"):
        ops.silu(torch.zeros(1).expand(3), inplace=True)


# --- gates ----------------------------------------------------------------------------------------


def test_packed_form_equals_the_pair() -> None:
    packed = torch.randn(3, 5, 64)
    gate, up = packed.chunk(2, -1)
    assert torch.equal(ops.swiglu(packed), ops.swiglu(gate, up))
    assert torch.equal(ops.geglu(packed), ops.geglu(gate, up))
    tanh = ops.geglu(packed, approximate="tanh")
    assert torch.equal(tanh, ops.geglu(gate, up, approximate="tanh"))
    assert not torch.equal(tanh, ops.geglu(packed))


def test_halves_of_a_packed_tensor_are_not_copied() -> None:
    packed = torch.randn(6, 64)
    with variants.recorded() as keys:
        ops.swiglu(*packed.chunk(2, -1))
    assert keys == ["swiglu/fp32/elementwise/vec4"]


def test_order_of_dimensions_is_kept() -> None:
    x = torch.randn(4, 5, 6).permute(2, 0, 1)
    assert ops.silu(x).stride() == F.silu(x).stride()
    torch.testing.assert_close(ops.silu(x), F.silu(x))


# --- variants, options, messages ------------------------------------------------------------------


def test_variant_follows_alignment() -> None:
    x = torch.randn(9)
    ops.silu(x)
    assert variants.last() == "silu/fp32/elementwise/vec4"
    ops.silu(x[1:])
    assert variants.last() == "silu/fp32/elementwise/scalar"
    ops.silu(x.bfloat16()[4:])
    assert variants.last() == "silu/bf16/elementwise/vec4"
    ops.silu(torch.randn(3, 5)[:, :4])  # rows of five elements: not every one is aligned
    assert variants.last() == "silu/fp32/elementwise/scalar"


def test_signatures_are_torchs() -> None:
    assert list(inspect.signature(ops.silu).parameters) == ["input", "inplace"]
    approximate = inspect.signature(ops.gelu).parameters["approximate"]
    assert approximate.kind is inspect.Parameter.KEYWORD_ONLY
    assert approximate.default == "none"


def test_wrong_approximation() -> None:
    with pytest.raises(
        ValueError, match="gelu: argument 'approximate' expects 'none' or 'tanh', got 'sigmoid'"
    ):
        ops.gelu(torch.ones(1), approximate="sigmoid")


def test_wrong_shapes_and_dtypes_name_the_argument() -> None:
    x = torch.ones(3, 4)
    with pytest.raises(
        ValueError,
        match=r"swiglu: argument 'up' expects shape \[3, 4\] \(that of "
        r"'gate'\), got \[4, 3\]",
    ):
        ops.swiglu(x, x.t())
    with pytest.raises(TypeError, match=r"swiglu: argument 'gate' expects float32.* got float64"):
        ops.swiglu(x, x.double())
    with pytest.raises(ValueError, match=r"swiglu_packed: .* even last dimension .* \[3, 5\]"):
        ops.swiglu(torch.ones(3, 5))
    with pytest.raises(
        ValueError,
        match=r"bias_gelu: argument 'bias' expects shape \[4\] \(the last"
        r" dimension of 'input'\), got \[3\]",
    ):
        ops.bias_gelu(x, torch.ones(3))
    with pytest.raises(ValueError, match=r"bias_silu: argument 'input' expects at least one"):
        ops.bias_silu(torch.ones(()), torch.ones(()))


def test_wrong_shape_is_refused_while_tracing() -> None:
    compiled = torch.compile(ops.swiglu, fullgraph=True, backend="aot_eager")
    with pytest.raises(Exception, match="swiglu: argument 'up' expects shape"):
        compiled(torch.ones(2), torch.ones(3))
    torch._dynamo.reset()


def test_bias_gradient_of_many_rows() -> None:
    x = torch.randn(1000, 8)
    bias = torch.randn(8, requires_grad=True)
    (gradient,) = torch.autograd.grad(ops.bias_silu(x, bias).sum(), bias)
    exact_bias = bias.detach().double().requires_grad_()
    (exact,) = torch.autograd.grad(F.silu(x.double() + exact_bias).sum(), exact_bias)
    torch.testing.assert_close(gradient.double(), exact, rtol=3e-7, atol=0)
