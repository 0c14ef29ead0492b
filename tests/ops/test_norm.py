"""Norms: every strategy, extreme rows, torch's defaults, the fused forms and their gradients."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from judging import doubled, judge

import anymetal
from anymetal import ops
from anymetal.evidence.judge import relative_error
from anymetal.launch.guarded import watched
from anymetal.ops.declare import OPERATORS
from anymetal.ops.norms.rows import Norm, Sizes
from anymetal.policy.policy import as_if_on, override

KINDS = ("rms_norm", "layer_norm")
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
STRATEGIES = ("single_simdgroup", "single_group", "looped", "two_phase")
each_kind = pytest.mark.parametrize("kind", KINDS)
each_strategy = pytest.mark.parametrize("strategy", STRATEGIES)


@contextlib.contextmanager
def forced(strategy: str) -> Iterator[int]:
    """Rows of the length that is given take this strategy, however short they are."""
    if strategy == "single_simdgroup":
        yield 260
        return
    with contextlib.ExitStack() as stack:
        if strategy != "single_group":
            stack.enter_context(override(strategy="single_group", group_size=32))
            stack.enter_context(override(strategy="looped", group_size=64))
        if strategy == "two_phase":
            stack.enter_context(override(strategy="two_phase", group_size=64, chunk=256))
        else:
            stack.enter_context(override(strategy="two_phase", max_rows=0))
        yield 616


@each_kind
def test_longer_rows_in_registers(kind: str) -> None:
    """As an NVIDIA GPU holds them."""
    x, parameters = torch.randn(3, 1500) + 7, parameters_for(kind, 1500)
    with override(strategy="single_group", group_size=64, held=32):
        result = norm_of(kind, x, *parameters)
    exact = torch_norm(kind, doubled(x), *(doubled(p) for p in parameters))
    judge(result, exact, torch_norm(kind, x, *parameters), kind)


def norm_of(kind: str, x: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
    function: Callable[..., torch.Tensor] = getattr(ops, kind)
    return function(x, x.shape[-1:], *parameters)


def torch_norm(kind: str, x: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
    function: Callable[..., torch.Tensor] = getattr(F, kind)
    eps = {} if kind == "layer_norm" else {"eps": torch.finfo(torch.float32).eps}
    return function(x, x.shape[-1:], *parameters, **eps)


def parameters_for(kind: str, columns: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    count = 2 if kind == "layer_norm" else 1
    return [torch.randn(columns, generator=generator) for _ in range(count)]


def results_and_gradients(
    function: Callable[..., Any], kind: str, dtype: torch.dtype, x: torch.Tensor
) -> list[torch.Tensor]:
    columns = x.shape[-1]
    given = [x, *parameters_for(kind, columns)]
    leaves = [t.to(x.dtype).to(dtype).requires_grad_() for t in given]
    y = function(kind, *leaves)
    grad = torch.randn(x.shape, generator=torch.Generator().manual_seed(6)).to(x.dtype).to(dtype)
    return [y, *torch.autograd.grad(y, leaves, grad)]


# --- strategies -----------------------------------------------------------------------------------


@each_kind
@each_strategy
@pytest.mark.parametrize("extra", [0, 1], ids=["vec4", "scalar"])
def test_every_strategy_is_right_and_says_its_name(kind: str, strategy: str, extra: int) -> None:
    with forced(strategy) as columns, ops.variants.recorded() as keys:
        x = torch.randn(3, columns + extra, generator=torch.Generator().manual_seed(1))
        mine = results_and_gradients(norm_of, kind, torch.float32, x)
    form = "scalar" if extra else "vec4"
    assert keys[:2] == [
        f"{kind}/fp32/{strategy}/{form}",
        f"{kind}_backward/fp32/{strategy}/{form}",
    ]
    exact = results_and_gradients(torch_norm, kind, torch.float64, x)
    own = results_and_gradients(torch_norm, kind, torch.float32, x)
    judge(mine, exact, own, f"{kind} {strategy}")


@pytest.mark.parametrize("strategy", STRATEGIES[2:])
def test_checker_is_silent_for_long_rows(strategy: str) -> None:
    """Short ones are checked with all operators' cases."""
    with forced(strategy) as columns, anymetal.check() as report:
        x = torch.randn(2, columns, dtype=torch.bfloat16).requires_grad_()
        y, total = ops.add_layer_norm(x, x, (columns,), x[0], x[1])
        (y.sum() + total.sum()).backward()
    assert not report.findings, report


def test_two_phase_is_chosen_for_few_long_rows() -> None:
    x = torch.randn(1, 40000)
    y = ops.layer_norm(x, (40000,))
    assert ops.variants.last() == "layer_norm/fp32/two_phase/vec4"
    judge(y, torch_norm("layer_norm", x.double()), torch_norm("layer_norm", x), "a long row")
    ops.layer_norm(x.view(100, 400), (400,))
    assert ops.variants.last() == "layer_norm/fp32/single_simdgroup/vec4"
    ops.layer_norm(x.view(10, 4000), (4000,))
    assert ops.variants.last() == "layer_norm/fp32/single_group/vec4"
    ops.layer_norm(x[:, :39996].view(9, 4444), (4444,))
    assert ops.variants.last() == "layer_norm/fp32/looped/vec4"


def test_held_elements_fill_a_threadgroup_exactly() -> None:
    """The longest row of each strategy, and one more: none of its elements is left out."""
    for columns, strategy in ((512, "single_simdgroup"), (513, "single_group")):
        x = torch.randn(2, columns)
        y = ops.layer_norm(x, (columns,))
        assert (
            ops.variants.last()
            == f"layer_norm/fp32/{strategy}/{'vec4' if columns == 512 else 'scalar'}"
        )
        judge(y, torch_norm("layer_norm", x.double()), torch_norm("layer_norm", x), strategy)


def test_many_rows_of_parameter_gradients() -> None:
    """More rows than a block has, and a last block that is not full."""
    x = torch.randn(301, 12, generator=torch.Generator().manual_seed(2))
    for kind in KINDS:
        judge(
            results_and_gradients(norm_of, kind, torch.float32, x),
            results_and_gradients(torch_norm, kind, torch.float64, x),
            results_and_gradients(torch_norm, kind, torch.float32, x),
            kind,
        )


def test_frozen_parameters_cost_nothing() -> None:
    x, weight = torch.randn(4, 600, requires_grad=True), torch.randn(600)
    with watched() as launches:
        ops.rms_norm(x, weight).sum().backward()
    assert [launch.kernel for launch in launches] == [
        "rms_norm_single_group_16_vec4_float",
        "rms_norm_backward_single_group_16_vec4_float",
    ]


@pytest.mark.parametrize("kind", ["rms_norm", "layer_norm", "add_rms_norm", "add_layer_norm"])
def test_single_pass_kernels_move_little_more_than_they_must(kind: str) -> None:
    for name, most in ((kind, 1.01), (f"{kind.removeprefix('add_')}_backward", 1.05)):
        operator = OPERATORS[name]
        case = next(case for case in operator.bench if case.name.startswith("1024x1024"))
        args, keywords = case.make(torch.float32, torch.device("cpu"), torch.Generator())
        args = [a[:64] if isinstance(a, torch.Tensor) and a.dim() == 2 else a for a in args]
        assert operator.cost is not None
        cost = operator.cost(*args, **keywords)
        with watched(counting=True) as launches:
            operator(*args, **keywords)
        moved = sum(launch.moved_bytes or 0 for launch in launches)
        assert 1.0 <= moved / (cost.read + cost.write) <= most, name


# --- extreme rows ---------------------------------------------------------------------------------


@each_strategy
def test_large_mean_keeps_its_digits(strategy: str) -> None:
    """Mean 1000, deviation 1: a variance made of squares would have four digits left."""
    with forced(strategy) as columns:
        x = 1000 + torch.randn(3, columns, generator=torch.Generator().manual_seed(3))
        mine = results_and_gradients(norm_of, "layer_norm", torch.float32, x)
    exact = results_and_gradients(torch_norm, "layer_norm", torch.float64, x)
    for result, truth in zip(mine, exact, strict=True):
        error = (result.double() - truth).abs().max() / truth.abs().max()
        assert error < 2e-6


def test_first_element_far_away_costs_no_accuracy() -> None:
    """The shift is the first element; here it is the worst choice."""
    x = 1 + torch.randn(2, 500, generator=torch.Generator().manual_seed(4))
    x[:, 0] = 1e4
    y = ops.layer_norm(x, (500,))
    judge(y, torch_norm("layer_norm", x.double()), torch_norm("layer_norm", x), "an outlier")


@pytest.mark.parametrize("dtype", DTYPES)
@each_strategy
def test_equal_elements_become_the_bias(strategy: str, dtype: torch.dtype) -> None:
    with forced(strategy) as columns:
        bias = torch.randn(columns).to(dtype)
        x = torch.full((2, columns), 0.1).to(dtype)
        assert torch.equal(ops.layer_norm(x, (columns,), None, bias), bias.expand(2, -1))


@each_kind
@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize("at", [0, 17])
def test_infinities_and_nan_stay_in_their_row(kind: str, value: float, at: int) -> None:
    x = torch.randn(3, 40)
    clean = norm_of(kind, x)
    x[1, at] = value
    mine, own = norm_of(kind, x), torch_norm(kind, x)
    assert torch.equal(mine.isnan(), own.isnan())
    torch.testing.assert_close(mine[1], own[1], equal_nan=True)
    assert torch.equal(mine[[0, 2]], clean[[0, 2]])


@each_kind
def test_denormals_are_divided_by_eps(kind: str) -> None:
    x = torch.randn(2, 40) * 1e-40
    torch.testing.assert_close(norm_of(kind, x), torch_norm(kind, x), rtol=1e-3, atol=1e-40)


@each_kind
def test_large_half_values_do_not_overflow(kind: str) -> None:
    x = (torch.randn(2, 40) * 6e4).clamp(-6.5e4, 6.5e4).half()
    judge(norm_of(kind, x), torch_norm(kind, x.double()), torch_norm(kind, x), kind)


# --- torch's signatures ---------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_rms_norm_without_eps_takes_torchs(dtype: torch.dtype) -> None:
    """Small enough that another eps gives another result."""
    x = torch.full((2, 8), 5e-4, dtype=dtype)
    torch.testing.assert_close(ops.rms_norm(x, (8,)), F.rms_norm(x, (8,)))


def test_rms_norm_short_forms() -> None:
    x, weight = torch.randn(3, 8) * 1e-3, torch.randn(8)
    expected = ops.rms_norm(x, (8,), weight, 1e-6)
    assert torch.equal(ops.rms_norm(x, weight, eps=1e-6), expected)
    assert torch.equal(ops.rms_norm(x, weight, 1e-6), expected)
    assert torch.equal(ops.rms_norm(x, 8, weight, 1e-6), expected)
    assert torch.equal(ops.add_rms_norm(x, x, weight, 1e-6)[0], ops.rms_norm(x + x, weight, 1e-6))
    with pytest.raises(TypeError, match=r"rms_norm: got two weights"):
        ops.rms_norm(x, weight, weight)
    with pytest.raises(TypeError, match=r"rms_norm: argument 'weight' expects a tensor, got 1e-06"):
        ops.rms_norm(x, (8,), 1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
def test_weight_offset_is_gemmas(dtype: torch.dtype) -> None:
    x, weight = torch.randn(3, 48).to(dtype), (0.1 * torch.randn(48)).to(dtype)
    mine = ops.rms_norm(x, weight, eps=1e-6, weight_offset=1.0)
    exact = F.rms_norm(x.double(), (48,), 1 + weight.double(), 1e-6)
    judge(mine, exact, F.rms_norm(x, (48,), 1 + weight, 1e-6), "gemma")


# --- fused with a residual ------------------------------------------------------------------------


@each_kind
@pytest.mark.parametrize("dtype", DTYPES)
def test_fused_form_is_the_norm_of_the_sum(kind: str, dtype: torch.dtype) -> None:
    """Of the sum as it is returned, rounded: to the last bit."""
    x, residual = torch.randn(2, 3, 100).to(dtype), torch.randn(2, 3, 100).to(dtype)
    y, total = getattr(ops, f"add_{kind}")(x, residual, (100,))
    assert torch.equal(total, x + residual)
    assert torch.equal(y, norm_of(kind, x + residual))


@pytest.mark.parametrize("used", ["normed", "sum", "both"])
def test_fused_gradient_of_what_is_used(used: str) -> None:
    def run(function: Callable[..., Any], dtype: torch.dtype) -> list[torch.Tensor | None]:
        generator = torch.Generator().manual_seed(8)
        leaves = [
            torch.randn(shape, generator=generator).to(dtype).requires_grad_()
            for shape in ((5, 20), (5, 20), (20,))
        ]
        y, total = function(*leaves)
        loss = {"normed": y.square().sum(), "sum": total.square().sum()}
        loss["both"] = loss["normed"] + loss["sum"]
        return list(torch.autograd.grad(loss[used], leaves, allow_unused=True))

    def own(x: torch.Tensor, r: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return F.rms_norm(x + r, (20,), w, 1e-6), x + r

    mine = run(lambda x, r, w: ops.add_rms_norm(x, r, w, eps=1e-6), torch.float32)
    exact, torchs = run(own, torch.float64), run(own, torch.float32)
    assert [g is None for g in mine] == [g is None for g in exact]
    judge(*([g for g in found if g is not None] for found in (mine, exact, torchs)), used)


# --- group_norm -----------------------------------------------------------------------------------


def test_group_norm_takes_channels_last() -> None:
    x = torch.randn(2, 6, 5, 4).to(memory_format=torch.channels_last)
    weight, bias = torch.randn(6), torch.randn(6)
    mine = ops.group_norm(x, 3, weight, bias)
    exact = F.group_norm(x.double(), 3, weight.double(), bias.double())
    judge(mine, exact, F.group_norm(x, 3, weight, bias), "channels last")


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_gradients_of_long_channels_keep_their_digits(device: str) -> None:
    """An error of the mean enters the sum for a weight at each of 8198 places; with the launches
    that a GPU gets, too."""
    errors = []
    for seed in range(8):
        generator = torch.Generator().manual_seed(seed)
        x, dy = (torch.randn(2, 2, 4099, generator=generator) for _ in range(2))
        x[:, 0, 0] = 30  # far from the mean
        dy += 0.5
        weight, bias = torch.ones(2), torch.zeros(2)
        with as_if_on(device):
            found = torch.ops.anymetal.group_norm_backward(dy, x, 1, weight, bias)
        normal = F.group_norm(x.double(), 1)
        exact = (dy * normal).sum((0, 2)), dy.double().sum((0, 2))
        errors.append([relative_error(a, b) for a, b in zip(found[1:], exact, strict=True)])
    assert torch.tensor(errors).median(0).values.max() < 2e-6


@pytest.mark.parametrize("strategy", ["single_group", "looped", "two_phase"])
def test_group_norm_strategies(strategy: str) -> None:
    def run(function: Callable[..., torch.Tensor], dtype: torch.dtype) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(9)
        leaves = [
            torch.randn(shape, generator=generator).to(dtype).requires_grad_()
            for shape in ((2, 4, 308), (4,), (4,))
        ]
        y = function(leaves[0], 2, *leaves[1:])
        return [y, *torch.autograd.grad(y.square().sum(), leaves)]

    with forced(strategy), ops.variants.recorded() as keys:
        mine = run(ops.group_norm, torch.float32)
    assert keys[0] == f"group_norm/fp32/{strategy}/vec4"
    judge(mine, run(F.group_norm, torch.float64), run(F.group_norm, torch.float32), strategy)


# --- what is refused ------------------------------------------------------------------------------


@each_kind
def test_wrong_shapes_say_what_was_expected(kind: str) -> None:
    x = torch.randn(2, 8)
    with pytest.raises(
        ValueError,
        match=rf"{kind}: argument 'normalized_shape' expects the last dimensions of 'input', whose"
        r" shape is \[2, 8\]; got \[7\]",
    ):
        getattr(ops, kind)(x, (7,))
    with pytest.raises(ValueError, match=rf"{kind}: argument 'weight' expects shape \[8\].*\[7\]"):
        getattr(ops, kind)(x, (8,), torch.randn(7))
    with pytest.raises(TypeError, match=rf"{kind}: argument 'input' expects .*, got float64"):
        getattr(ops, kind)(x, (8,), torch.randn(8).double())
    with pytest.raises(
        ValueError, match=rf"add_{kind}: argument 'residual' expects shape \[2, 8\]"
    ):
        getattr(ops, f"add_{kind}")(x, x[:1], (8,))


def test_group_norm_refuses_groups_that_do_not_divide() -> None:
    with pytest.raises(
        ValueError, match=r"group_norm: argument 'num_groups' .* has 6 \(shape \[2, 6, 3\]\); got 4"
    ):
        ops.group_norm(torch.randn(2, 6, 3), 4)
    with pytest.raises(ValueError, match=r"group_norm: argument 'input' expects at least two"):
        ops.group_norm(torch.randn(6), 2)


def test_gradient_of_a_gradient() -> None:
    x, weight = torch.randn(2, 8, requires_grad=True), torch.randn(2, 8)
    seconds = []
    for norm in (ops.layer_norm, F.layer_norm):
        total = (norm(x, (8,)) * weight).sum()
        (first,) = torch.autograd.grad(total, x, create_graph=True)
        seconds.append(torch.autograd.grad(first.square().sum(), x)[0])
    torch.testing.assert_close(*seconds, rtol=1e-4, atol=1e-5)


def test_virtual_mps_tensors_give_the_same(mps: torch.device) -> None:
    x, weight = torch.randn(3, 40), torch.randn(40)
    there = ops.rms_norm(x.to(mps), weight.to(mps))
    assert there.device.type == "mps"
    assert torch.equal(there.cpu(), ops.rms_norm(x, weight))


def test_plan_does_not_depend_on_the_dtype_alone() -> None:
    """The same rows take the same strategy in every dtype: results differ by rounding only."""
    for dtype in DTYPES:
        plan = Norm(OPERATORS["rms_norm"], "rms_norm", Sizes(4, 700, 1e-6)).plan(
            torch.empty(1).to(dtype)
        )
        assert plan.strategy == "single_group"
