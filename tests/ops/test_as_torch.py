"""Every operator as torch's own: autocast, tensors of several dtypes, forward mode, second
derivatives. What has no such derivative says so; nothing is silently wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from judging import converted, doubled, tensors_of
from test_operators import OPERATORS, made, own, some
from torch.autograd import forward_ad

from anymetal import ops

FUNCTIONAL = [name for name, operator in OPERATORS.items() if not operator.mutates]
MUTATING = [name for name, operator in OPERATORS.items() if operator.mutates]
each_functional = pytest.mark.parametrize("name", FUNCTIONAL)
each_mutating = pytest.mark.parametrize("name", MUTATING)


def data(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def duals(args: list[Any]) -> list[Any]:
    """Arguments with tangents, the same in every dtype."""
    mine = torch.Generator().manual_seed(11)

    def dual(tensor: torch.Tensor) -> torch.Tensor:
        tangent = torch.randn(tensor.shape, generator=mine).to(tensor.dtype)
        made_dual: torch.Tensor = forward_ad.make_dual(tensor, tangent)  # type: ignore[no-untyped-call]
        return made_dual

    result: list[Any] = converted(args, dual)
    return result


def tangents(function: Callable[..., Any], args: list[Any], keywords: dict[str, Any]) -> list[Any]:
    with forward_ad.dual_level():  # type: ignore[no-untyped-call]
        results = tensors_of(function(*duals(args), **keywords))
        return [forward_ad.unpack_dual(result).tangent for result in results]  # type: ignore[no-untyped-call]


# --- where torch's own derivatives are missing or wrong ------------------------------------------


def _embedding(
    index: torch.Tensor, weight: torch.Tensor, padding: int, scale_grad_by_freq: bool
) -> torch.Tensor:
    """torch's second derivative leaves the scale out. Here it is in the value itself."""
    counts = torch.bincount(index.flatten(), minlength=len(weight)) if scale_grad_by_freq else 1
    learns = torch.arange(len(weight)) != padding
    share = (learns / torch.as_tensor(counts).clamp(1)).to(weight.dtype)[:, None]
    fixed = weight.detach()
    return (fixed + (weight - fixed) * share)[index]


def _embedding_bag(
    index: torch.Tensor,
    weight: torch.Tensor,
    offsets: torch.Tensor,
    per_sample_weights: None,
    mode: str,
    scale_grad_by_freq: bool,
    include_last_offset: bool,
    padding: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The mean of bags with offsets, which torch differentiates once."""
    assert (mode, scale_grad_by_freq, include_last_offset) == ("mean", False, True)
    bag = torch.searchsorted(offsets[1:], torch.arange(len(index)), right=True)
    kept = (index != padding).to(weight.dtype)[:, None]
    zeros = weight.new_zeros(len(offsets) - 1, weight.shape[1])
    sums = zeros.index_add(0, bag, weight[index] * kept)
    nothing = torch.empty(0)  # of what the operator keeps for its gradient
    return sums / zeros[:, :1].index_add(0, bag, kept).clamp(1), nothing, nothing


SECOND: dict[str, Callable[..., Any]] = {
    "embedding": _embedding,
    "embedding_bag": _embedding_bag,
}
# Tangents are torch's, of the reference; it has none for these.
NO_TANGENT = {"embedding_bag": "forward AD with _embedding_bag"}


# --- forward mode ---------------------------------------------------------------------------------


@each_functional
def test_tangent_is_right_or_refused(name: str) -> None:
    operator = OPERATORS[name]
    args, keywords = made(some(operator, 1)[0], torch.float32)
    if not operator.differentiable or name in NO_TANGENT:
        reason = NO_TANGENT.get(name, f"anymetal::{name} has no forward-mode")
        with pytest.raises(NotImplementedError, match=reason):
            tangents(operator, args, keywords)
        return
    exact = tangents(operator.reference, doubled(args), keywords)
    for mine, expected in zip(tangents(operator, args, keywords), exact, strict=True):
        assert (mine is None) == (expected is None)
        if mine is not None:
            torch.testing.assert_close(mine.double(), expected, rtol=1e-3, atol=1e-4)


@each_mutating
def test_mutating_operator_carries_tangents_or_refuses_them(name: str) -> None:
    operator = OPERATORS[name]
    args, keywords = made(some(operator, 1)[0], torch.float32)
    if not operator.differentiable:
        with pytest.raises(RuntimeError, match=f"anymetal::{name} has no gradient: "):
            tangents(operator, args, keywords)
        return

    def outcome(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given, **named: operator.outcome(function, given, named)

    mine = tangents(outcome(operator), converted(args, torch.clone), keywords)
    expected = tangents(outcome(own(operator)), args, keywords)
    for ours, theirs in zip(mine, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_jvp_of_torch_func() -> None:
    x, v = data(3, 5), data(5, 3).t()
    for mine, torchs in (
        (ops.silu, F.silu),
        (lambda t: ops.softmax(t, -1), lambda t: torch.softmax(t, -1)),
        (lambda t: ops.rms_norm(t, (5,)), lambda t: F.rms_norm(t, (5,))),
    ):
        torch.testing.assert_close(
            torch.func.jvp(mine, (x,), (v,)), torch.func.jvp(torchs, (x,), (v,))
        )


def test_forward_over_reverse() -> None:
    x, v = data(7).requires_grad_(), data(7)
    results = []
    for silu in (ops.silu, F.silu):
        with forward_ad.dual_level():  # type: ignore[no-untyped-call]
            y = silu(forward_ad.make_dual(x, v)).sum()  # type: ignore[no-untyped-call]
            (gradient,) = torch.autograd.grad(y, x, create_graph=True)
            results.append(forward_ad.unpack_dual(gradient).tangent)  # type: ignore[no-untyped-call]
    torch.testing.assert_close(*results)


# --- second derivatives ---------------------------------------------------------------------------


def second_derivatives(
    function: Callable[..., Any], args: list[Any], keywords: dict[str, Any]
) -> list[torch.Tensor | None]:
    leaves: list[torch.Tensor] = []

    def leaf(tensor: torch.Tensor) -> torch.Tensor:
        leaves.append(tensor.detach().clone().requires_grad_())
        return leaves[-1]

    given = converted(args, leaf)
    outputs = [out for out in tensors_of(function(*given, **keywords)) if out.requires_grad]
    mine = torch.Generator().manual_seed(5)
    total = torch.zeros((), dtype=outputs[0].dtype)
    for out in outputs:
        total = total + (out.square() * torch.rand(out.shape, generator=mine)).sum()
    first = torch.autograd.grad(total, leaves, create_graph=True, allow_unused=True)
    again = [gradient for gradient in first if gradient is not None and gradient.requires_grad]
    if not again:
        return [None] * len(leaves)
    norm = sum((gradient.square().sum() for gradient in again), torch.zeros((), dtype=total.dtype))
    return list(torch.autograd.grad(norm, leaves, allow_unused=True))


@each_functional
def test_second_derivative_is_right_or_refused(name: str) -> None:
    operator = OPERATORS[name]
    if not operator.differentiable:
        return
    args, keywords = made(some(operator, 1)[0], torch.float32)
    try:
        mine = second_derivatives(operator, args, keywords)
    except RuntimeError as error:
        assert "has no gradient: " in str(error), error
        assert not operator.twice
        return
    reference = SECOND.get(name, operator.reference)
    exact = second_derivatives(reference, doubled(args), keywords)
    for ours, expected in zip(mine, exact, strict=True):
        if expected is None or not expected.any():
            assert ours is None or not ours.any()
        else:
            assert ours is not None
            size = float(expected.abs().max())
            torch.testing.assert_close(ours.double(), expected, rtol=1e-2, atol=1e-4 * size)


# --- tensors of several dtypes --------------------------------------------------------------------

MIXED: dict[str, Callable[[Any, torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "layer_norm": lambda f, x, w: f(x, (8,), w, w),
    "rms_norm": lambda f, x, w: f(x, (8,), w),
    "group_norm": lambda f, x, w: f(x, 4, w, w),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", MIXED)
def test_norm_of_a_half_input_with_float_weights(name: str, dtype: torch.dtype) -> None:
    call = MIXED[name]
    results = []
    for function in (getattr(ops, name), getattr(F, name)):
        x, w = data(4, 8, dtype=dtype).requires_grad_(), data(8).requires_grad_()
        y = call(function, x, w)
        gradients = torch.autograd.grad(y.float().square().sum(), [x, w])
        results.append((y, *gradients))
    for mine, torchs in zip(*results, strict=True):
        assert mine.dtype == torchs.dtype
        torch.testing.assert_close(mine, torchs, rtol=2e-2, atol=2e-2)


def test_elementwise_operators_promote() -> None:
    x, y = data(4, 8, dtype=torch.float16), data(8, 4).reshape(4, 8)
    pairs = [
        (ops.swiglu(x, y), F.silu(x) * y),
        (ops.geglu(y, x), F.gelu(y) * x),
        (ops.bias_silu(x, y[0]), F.silu(x + y[0])),
        (ops.axpy(0.5, x, y), torch.add(y, x, alpha=0.5)),
        (ops.swiglu(x, x.bfloat16()), F.silu(x) * x.bfloat16()),
    ]
    for mine, torchs in pairs:
        assert mine.dtype == torchs.dtype
        torch.testing.assert_close(mine, torchs, rtol=1e-2, atol=1e-2)


def test_mixed_dtypes_compile() -> None:
    x, w = data(4, 8, dtype=torch.float16), data(8)
    compiled = torch.compile(
        lambda x, w: ops.rms_norm(x, (8,), w), fullgraph=True, backend="aot_eager"
    )
    torch.testing.assert_close(compiled(x, w), ops.rms_norm(x, (8,), w))
    torch._dynamo.reset()


# --- autocast -------------------------------------------------------------------------------------

# Ours and torch's, called with tensors of one dtype.
AUTOCAST: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "silu": (ops.silu, F.silu),
    "gelu": (ops.gelu, F.gelu),
    "sigmoid": (ops.sigmoid, torch.sigmoid),
    "softmax": (lambda x: ops.softmax(x, -1), lambda x: torch.softmax(x, -1)),
    "log_softmax": (lambda x: ops.log_softmax(x, -1), lambda x: torch.log_softmax(x, -1)),
    "layer_norm": (lambda x: ops.layer_norm(x, (8,), x[0]), lambda x: F.layer_norm(x, (8,), x[0])),
    "rms_norm": (lambda x: ops.rms_norm(x, (8,), x[0]), lambda x: F.rms_norm(x, (8,), x[0])),
    "group_norm": (lambda x: ops.group_norm(x, 4), lambda x: F.group_norm(x, 4)),
    "matmul": (lambda x: ops.matmul(x, x.mT), lambda x: torch.matmul(x, x.mT)),
    "linear": (lambda x: ops.linear(x, x), lambda x: F.linear(x, x)),
    "addmm": (lambda x: ops.addmm(x[:, :4], x, x.mT), lambda x: torch.addmm(x[:, :4], x, x.mT)),
    "scaled_dot_product_attention": (
        lambda x: ops.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None]),
        lambda x: F.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None]),
    ),
}


@pytest.mark.parametrize("given", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("name", AUTOCAST)
def test_autocast_gives_torchs_dtype(name: str, given: torch.dtype) -> None:
    mine, torchs = AUTOCAST[name]
    x = data(4, 8, dtype=given).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ours, theirs = mine(x), torchs(x)
    assert ours.dtype == theirs.dtype
    torch.testing.assert_close(ours, theirs, rtol=2e-2, atol=2e-2)
    (gradient,) = torch.autograd.grad(ours.float().sum(), x)
    assert gradient.dtype == given


def test_autocast_of_parameters_kept_in_float() -> None:
    x, weight = data(4, 8), data(8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = ops.linear(x, data(8, 8))
        assert ops.layer_norm(y, (8,), weight).dtype == F.layer_norm(y, (8,), weight).dtype


@pytest.mark.parametrize("name", ["softmax", "layer_norm", "linear"])
def test_autocast_on_mps_is_torchs(name: str, mps: torch.device) -> None:
    mine, _ = AUTOCAST[name]
    with torch.autocast("mps", dtype=torch.float16):
        lower = mine(data(4, 8, dtype=torch.float16).to(mps)).dtype
        full = mine(data(4, 8).to(mps)).dtype
    expected = torch.float16 if name == "linear" else torch.float32
    assert (lower, full) == (expected, expected)


@pytest.mark.parametrize("name", ["softmax", "linear"])
def test_autocast_compiles(name: str) -> None:
    mine, _ = AUTOCAST[name]
    x = data(4, 8)

    def model(x: torch.Tensor) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return mine(x)

    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), model(x))
    torch._dynamo.reset()


# --- vmap -----------------------------------------------------------------------------------------


def test_vmap_of_functional_operators() -> None:
    x = data(3, 8)
    for mine, torchs in (
        (ops.silu, F.silu),
        (lambda t: ops.softmax(t, -1), lambda t: torch.softmax(t, -1)),
        (lambda t: ops.rms_norm(t, (8,)), lambda t: F.rms_norm(t, (8,))),
    ):
        torch.testing.assert_close(torch.func.vmap(mine)(x), torch.func.vmap(torchs)(x))
