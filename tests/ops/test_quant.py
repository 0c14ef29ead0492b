"""Quantisation: ggml's and MLX's formats bit for bit, error bounds, gradients, messages."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import gguf.quants
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from gguf import GGMLQuantizationType
from hypothesis import given, settings
from hypothesis import strategies as st

import anymetal
from anymetal import ops
from anymetal.ops.declare import variants
from anymetal.ops.quantised.quantize import Quantized
from anymetal.ops.quantised.schemes import SCHEMES, codes_of, packed, unpacked, words_of
from anymetal.policy.policy import override

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
GGML = {"q4_0": GGMLQuantizationType.Q4_0, "q8_0": GGMLQuantizationType.Q8_0}
SCHEME_SIZES = [(name, size) for name, scheme in SCHEMES.items() for size in scheme.group_sizes]
each_dtype = pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
each_ggml = pytest.mark.parametrize("scheme", GGML)
each_scheme = pytest.mark.parametrize("scheme", SCHEMES)
each_scheme_and_size = pytest.mark.parametrize(("scheme", "group_size"), SCHEME_SIZES)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def matrix(rows: int, columns: int, seed: int = 0) -> torch.Tensor:
    """Random weights, and rows that are out of the ordinary."""
    weight = normal(rows, columns, seed=seed)
    steps = torch.arange(columns)
    weight[0] = 0
    weight[1] = torch.where(steps % 2 == 0, 3.0, -3.0)  # two weights furthest from zero
    weight[2] = torch.round(weight[2] * 4) / 4  # codes halfway between two
    weight[3] = 2.5
    weight[4] = -weight[4].abs() - 0.1
    weight[5] = weight[5].abs() + 1000  # a large mean
    weight[6] *= 1e-4
    weight[7] *= 1e4
    weight[8] = 0
    weight[8, ::32] = -1.5
    return weight


def exact_weights(q: Quantized) -> torch.Tensor:
    """The definition in float64, written again: one code after another."""
    codes = q.codes.double().reshape(*q.scales.shape, q.group_size)
    scales = q.scales.double()[..., None]
    if q.offsets is None:
        return (scales * (codes - q.scheme.levels // 2)).reshape(q.shape)
    if q.scheme.kind == "zero_point":
        return (scales * (codes - q.offsets.double()[..., None])).reshape(q.shape)
    return (scales * codes + q.offsets.double()[..., None]).reshape(q.shape)


# --- ggml's formats -------------------------------------------------------------------------------


@each_dtype
@each_ggml
def test_ggml_blocks_are_gguf_s(scheme: str, dtype: torch.dtype) -> None:
    weight = matrix(40, 160).to(dtype)
    theirs = gguf.quants.quantize(weight.float().numpy(), GGML[scheme])
    assert np.array_equal(ops.quantize(weight, scheme).to_ggml().numpy(), theirs)


@each_ggml
@settings(max_examples=30, deadline=None, derandomize=True)
@given(data=st.data())
def test_ggml_blocks_are_gguf_s_for_any_weights(scheme: str, data: st.DataObject) -> None:
    # Below 1e-30 a reciprocal of gguf's overflows, and its codes depend on the processor.
    weights = st.floats(-1e4, 1e4, width=32).filter(lambda x: x == 0 or abs(x) > 1e-30)
    block = data.draw(st.lists(weights, min_size=32, max_size=32))
    weight = torch.tensor([block])
    theirs = gguf.quants.quantize(weight.numpy(), GGML[scheme])
    mine = ops.quantize(weight, scheme)
    assert np.array_equal(mine.to_ggml().numpy(), theirs)
    back = gguf.quants.dequantize(theirs, GGML[scheme])
    assert np.array_equal(mine.dequantize(torch.float32).numpy(), back)


@each_ggml
def test_ggml_bytes_of_any_file_go_both_ways(scheme: str) -> None:
    """Blocks that no quantiser makes: all codes with all kinds of scales."""
    size = GGML_BYTES[scheme]
    blocks = np.random.default_rng(3).integers(0, 256, (9, 5, size), dtype=np.uint8)
    scales = np.array([1.0, -0.25, 0.0, -0.0, 6e-8, 65504.0, -1e-5, 3.14, 2e-7], np.float16)
    blocks[..., :2] = scales.view(np.uint8).reshape(9, 1, 2)
    rows = blocks.reshape(9, 5 * size)
    q = Quantized.from_ggml(torch.from_numpy(rows), scheme)
    assert np.array_equal(q.to_ggml().numpy(), rows)
    mine = q.dequantize(torch.float32).numpy()
    assert np.array_equal(mine, gguf.quants.dequantize(rows, GGML[scheme]))


GGML_BYTES = {"q4_0": 18, "q8_0": 34}


# --- MLX's format ---------------------------------------------------------------------------------

MLX = json.loads((Path(__file__).parent / "mlx_affine.json").read_text())["cases"]


def mlx_rows() -> torch.Tensor:
    """Numbers that every dtype holds: of both signs, positive, negative, and two values only."""
    i = torch.arange(128)
    rows = []
    for kind in range(4):
        base = ((i * 2654435761 + kind * 40503) % 65536).double() / 256 - 128
        rows.append(torch.round(base) / 32)
    rows[1] = rows[1].abs()
    rows[2] = -rows[2].abs() - 0.5
    rows[3] = torch.where(i < 64, 0.0, 2.5).double()
    return torch.stack(rows).float()


@pytest.mark.parametrize(
    "case", MLX, ids=lambda c: f"{c['bits']} bits, groups of {c['group_size']}, {c['dtype']}"
)
def test_mlx_words_scales_and_biases_are_mlx_s(case: dict[str, Any]) -> None:
    weight = mlx_rows().to(DTYPES[case["dtype"]])
    q = ops.quantize(weight, f"mlx_{case['bits']}bit", case["group_size"])
    words, scales, biases = q.to_mlx()
    assert words.dtype == torch.uint32
    assert [f"{word:08x}" for word in words.flatten().tolist()] == case["words"]
    assert scales.float().flatten().tolist() == [float.fromhex(x) for x in case["scales"]]
    assert biases.float().flatten().tolist() == [float.fromhex(x) for x in case["biases"]]
    again = Quantized.from_mlx(words, scales, biases, case["group_size"], case["bits"])
    assert torch.equal(again.words, q.words)
    assert torch.equal(again.dequantize(), q.dequantize())


@each_scheme
def test_every_scheme_can_be_written_in_mlx_s(scheme: str) -> None:
    q = ops.quantize(matrix(10, 128), scheme)
    words, scales, biases = q.to_mlx()
    as_mlx = Quantized.from_mlx(words, scales, biases, q.group_size, q.scheme.bits)
    weight = q.dequantize(torch.float32)
    error = (as_mlx.dequantize(torch.float32) - weight).abs().max()
    assert error <= torch.finfo(q.dtype).eps * weight.abs().max()


# --- every scheme ---------------------------------------------------------------------------------


@each_dtype
@each_scheme_and_size
def test_weights_are_within_half_a_step_or_a_step(
    scheme: str, group_size: int, dtype: torch.dtype
) -> None:
    weight = matrix(12, 256).to(dtype)
    q = ops.quantize(weight, scheme, group_size)
    error = (exact_weights(q) - weight.double()).abs().view(*q.scales.shape, group_size).amax(-1)
    assert (error <= _bound(q, weight)).all()


def _bound(q: Quantized, weight: torch.Tensor) -> torch.Tensor:
    """Half a step; where the scale (or the bias) is rounded, that times the furthest code too."""
    groups = weight.double().view(*q.scales.shape, q.group_size)
    largest = groups.abs().amax(-1)
    spread = groups.amax(-1) - groups.amin(-1)
    # Scales below the smallest normal number are multiples of the smallest one.
    info = torch.finfo(q.dtype)
    step = {
        "symmetric": largest / (q.scheme.levels // 2 - 1),
        "zero_point": torch.maximum(largest, spread) / (q.scheme.levels - 1),
        "affine": torch.maximum(spread / (q.scheme.levels - 1), torch.tensor(1e-7)),
        "q4_0": largest / 8,
        "q8_0": largest / 127,
    }[q.scheme.recipe]
    # q4_0 has no code for +8 steps. MLX changes its step so that zero has a code, and the end of
    # the range nearer to zero may then be up to a step away.
    steps = 1.0 if q.scheme.recipe in ("q4_0", "affine") else 0.5
    rounding = info.eps * largest + q.scheme.levels * info.tiny * info.eps
    return steps * step * (1 + 1e-5) + rounding


@each_dtype
@each_scheme_and_size
def test_dequantised_weights_are_the_definition(
    scheme: str, group_size: int, dtype: torch.dtype
) -> None:
    q = ops.quantize(matrix(12, 256), scheme, group_size)
    mine = ops.dequantize(q, dtype)
    assert mine.dtype == dtype
    exact = exact_weights(q)
    # Once rounded; MLX's sum of two terms first in float32.
    error = (mine.double() - exact).abs()
    bound = torch.finfo(dtype).eps / 2 * exact.abs() + 2**-23 * exact.abs().amax()
    assert (error <= bound + torch.finfo(dtype).tiny).all()


@pytest.mark.parametrize("bits", [4, 8])
def test_codes_stand_where_lanes_look_for_them(bits: int) -> None:
    codes = torch.randint(0, 1 << bits, (2, 320), dtype=torch.uint8)
    words = words_of(codes, bits)
    width = 32 // bits
    assert words.shape == (2, -(-320 // (32 * width)) * 32)
    for row in range(2):
        for column in range(320):
            block, place = divmod(column, 32 * width)
            i, lane = divmod(place, 32)
            word = words[row, block * 32 + lane].item() & 0xFFFFFFFF
            assert (word >> (bits * i)) & ((1 << bits) - 1) == codes[row, column]
    assert torch.equal(codes_of(words, 320, bits), codes)


@pytest.mark.parametrize("bits", [4, 8])
def test_mlx_s_words_hold_neighbours(bits: int) -> None:
    codes = torch.randint(0, 1 << bits, (3, 64), dtype=torch.uint8)
    words = packed(codes, bits)
    per_word = 32 // bits
    for row in range(3):
        for j in range(words.shape[1]):
            together = sum(int(codes[row, j * per_word + i]) << (bits * i) for i in range(per_word))
            assert words[row, j].item() & 0xFFFFFFFF == together
    assert torch.equal(unpacked(words, bits), codes)


@pytest.mark.parametrize("value", [1e-45, 1e-39, 3e38, -3e38])
@each_scheme
def test_extreme_weights_have_finite_codes(scheme: str, value: float) -> None:
    weight = torch.zeros(2, 128)
    weight[0, 5] = value
    weight[1] = value
    q = ops.quantize(weight, scheme)
    assert q.shape == (2, 128)
    if abs(value) < 1 or q.dtype == torch.float32:
        error = (exact_weights(q) - weight.double()).abs().max().item()
        assert error <= max(abs(value) / 6, 1e-6)


def test_scales_may_be_of_another_dtype() -> None:
    weight = matrix(12, 128)
    q = ops.quantize(weight, "int8", 32, torch.bfloat16)
    assert q.scales.dtype == q.dequantize().dtype == torch.bfloat16
    assert (exact_weights(q) - weight).abs().max() <= weight.abs().max() / 100
    assert q.to(torch.float32).scales.dtype == torch.float32
    ggml = ops.quantize(weight, "q8_0", dtype=torch.float32)
    assert ggml.to(torch.float32).scales.dtype == ggml.scales.dtype == torch.float16


def test_quantising_needs_whole_finite_matrices() -> None:
    weight = torch.ones(2, 96)
    with pytest.raises(ValueError, match=r"'weight' has rows of 96, .* groups of 64. Choose"):
        ops.quantize(weight, "int4")
    with pytest.raises(ValueError, match=r"'scheme' expects one of int4, .*, got 'int3'"):
        ops.quantize(weight, "int3")
    with pytest.raises(ValueError, match=r"'group_size' expects 32 for scheme 'q4_0', got 64"):
        ops.quantize(weight, "q4_0", 64)
    with pytest.raises(ValueError, match=r"'weight' expects two dimensions, got shape \[96\]"):
        ops.quantize(weight[0], "int4", 32)
    with pytest.raises(TypeError, match=r"'dtype' expects .*, got torch.int32"):
        ops.quantize(weight, "int4", 32, torch.int32)
    weight[1, 3] = math.nan
    weight[0, 0] = math.inf
    with pytest.raises(ValueError, match="2 values that are NaN or infinite"):
        ops.quantize(weight, "int4", 32)


# --- the product ----------------------------------------------------------------------------------

FUNCTIONS = {
    None: lambda x: x,
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
}


def check_product(
    x: torch.Tensor, q: Quantized, bias: torch.Tensor | None, activation: str | None
) -> None:
    """Sums in float32: each result is within the bound of its own products."""
    y = ops.quantized_linear(x, q, bias, activation=activation)
    assert y.dtype == x.dtype
    weight = exact_weights(q)
    exact = x.double() @ weight.T
    size = x.double().abs() @ weight.abs().T
    if q.offsets is not None:
        # Codes and what a group adds to them are summed apart.
        biases = (q.scales.double() * q.scheme.levels).abs() + (
            q.offsets.double().abs() if q.scheme.kind == "affine" else 0
        )
        apart = biases.repeat_interleave(q.group_size, 1)
        size = size + 2 * (x.double().abs() @ apart.T)
    if bias is not None:
        exact = exact + bias.double()
        size = size + bias.double().abs()
    exact = FUNCTIONS[activation](exact)
    steps = 8 + q.shape[1] / 64
    bound = torch.finfo(x.dtype).eps * exact.abs() + steps * 2**-24 * 1.2 * size + 1e-30
    error = (y.double() - exact).abs()
    worst = (error / bound).max().item() if error.numel() else 0.0
    assert worst <= 1, worst


@pytest.mark.parametrize(
    ("scheme", "group_size", "dtype"),
    [(*each, torch.float32) for each in SCHEME_SIZES]
    + [
        (name, scheme.default_group_size, dtype)
        for name, scheme in SCHEMES.items()
        for dtype in (torch.float16, torch.bfloat16)
    ],
)
def test_product_is_within_the_bound(scheme: str, group_size: int, dtype: torch.dtype) -> None:
    q = ops.quantize(normal(9, 384), scheme, group_size).to(dtype)
    check_product(normal(1, 384, seed=1).to(dtype), q, None, None)
    if dtype == torch.float32 or scheme in ("int4", "mlx_8bit"):
        check_product(normal(6, 384, seed=2).to(dtype), q, normal(9).to(dtype), None)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(data=st.data())
def test_product_of_any_shape(data: st.DataObject) -> None:
    scheme, group_size = data.draw(st.sampled_from(SCHEME_SIZES))
    rows = data.draw(st.integers(1, 70))
    groups = data.draw(st.integers(1, 12))
    count = data.draw(st.sampled_from([1, 2, 4, 5, 17, 33]))
    activation = data.draw(st.sampled_from(list(FUNCTIONS)))
    bias = normal(rows, seed=3) if data.draw(st.booleans()) else None
    q = ops.quantize(normal(rows, groups * group_size), scheme, group_size)
    check_product(normal(count, groups * group_size, seed=1), q, bias, activation)


def test_kernel_follows_the_number_of_rows() -> None:
    q = ops.quantize(normal(33, 128), "int4")
    weight = q.dequantize()
    for count, strategy in ((1, "dots/vec8"), (4, "dots/vec8"), (5, "tiles/scalar")):
        x = normal(count, 128)
        with variants.recorded() as keys:
            y = ops.quantized_linear(x, q)
        assert keys == [f"quantized_linear/fp32/{strategy}"]
        torch.testing.assert_close(y, x @ weight.T, rtol=1e-5, atol=1e-4)
    with override("quantized_linear", "dots", max_rows=0), variants.recorded() as keys:
        ops.quantized_linear(normal(1, 128), q)
    assert keys == ["quantized_linear/fp32/tiles/scalar"]


@pytest.mark.parametrize(("count", "strategy"), [(4, "columns/vec4"), (5, "tiles/scalar")])
def test_kernel_of_the_gradient_follows_the_number_of_rows(count: int, strategy: str) -> None:
    q = ops.quantize(normal(33, 160), "int8", 32)
    x, up = normal(count, 160).requires_grad_(), normal(count, 33)
    with variants.recorded() as keys:
        (gradient,) = torch.autograd.grad(ops.quantized_linear(x, q), x, up)
    assert keys[-1] == f"quantized_linear_backward/fp32/{strategy}"
    torch.testing.assert_close(gradient, up @ q.dequantize(), rtol=1e-5, atol=1e-4)


def test_long_sums_keep_their_digits() -> None:
    """Rows of one sign: the error of a sum that is made in one go grows with its length."""
    q = ops.quantize(normal(32, 4096).abs(), "int8_zero_point", 128)
    x = normal(16, 4096).abs()
    exact = x.double() @ exact_weights(q).T
    error = ((ops.quantized_linear(x, q).double() - exact) / exact).abs().max()
    assert error < 8 * 2**-24


@pytest.mark.parametrize("group_size", [32, 64, 128, 256])
def test_tiles_of_every_height_are_the_same(group_size: int) -> None:
    q = ops.quantize(normal(70, 64), "mlx_4bit")
    x = normal(150, 64)
    with override("quantized_linear", "tiles", group_size=group_size):
        y = ops.quantized_linear(x, q)
    torch.testing.assert_close(y, x @ q.dequantize().T, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("count", [1, 6])
def test_rows_do_not_mix(count: int) -> None:
    """One activation that is not a number spoils its own row only; infinities do not vanish."""
    q = ops.quantize(normal(5, 64), "int4_zero_point")
    x = normal(count + 1, 64)
    expected = ops.quantized_linear(x, q)
    x[0, 3] = math.nan
    y = ops.quantized_linear(x, q)
    assert y[0].isnan().all()
    assert torch.equal(y[1:], expected[1:])
    x[0, 3] = math.inf
    assert not ops.quantized_linear(x, q)[0].isfinite().any()


def test_strided_and_shared_activations_are_not_changed() -> None:
    q = ops.quantize(normal(7, 64), "q8_0")
    x = normal(3, 128)[:, ::2]
    torch.testing.assert_close(
        ops.quantized_linear(x, q), x @ q.dequantize(torch.float32).T, rtol=1e-5, atol=1e-4
    )
    row = normal(1, 64).expand(9, 64)
    same = ops.quantized_linear(row, q)
    assert torch.equal(same, same[:1].expand(9, 7))


@pytest.mark.parametrize("count", [2, 40])
@pytest.mark.parametrize("activation", FUNCTIONS)
@each_scheme
def test_gradient_is_that_of_the_float_layer(scheme: str, activation: str, count: int) -> None:
    q = ops.quantize(normal(37, 64), scheme)
    x, bias = normal(count, 64, seed=1).requires_grad_(), normal(37, seed=2).requires_grad_()
    up = normal(count, 37, seed=3)
    mine = torch.autograd.grad(
        ops.quantized_linear(x, q, bias, activation=activation), (x, bias), up
    )
    doubles = [t.detach().double().requires_grad_() for t in (x, bias)]
    y = FUNCTIONS[activation](F.linear(doubles[0], exact_weights(q), doubles[1]))
    for got, exact in zip(mine, torch.autograd.grad(y, doubles, up.double()), strict=True):
        torch.testing.assert_close(got.double(), exact, rtol=1e-5, atol=2e-5)


def test_scales_that_want_a_gradient_are_refused() -> None:
    q = ops.quantize(normal(4, 64), "int4")
    trained = Quantized(q.words, q.scales.requires_grad_(), None, q.scheme, q.group_size)
    with pytest.raises(RuntimeError, match="quantised weights have none"):
        ops.quantized_linear(normal(1, 64), trained)
    with pytest.raises(RuntimeError, match="anymetal::dequantize has no gradient"):
        trained.dequantize().sum().backward()
    with torch.no_grad():
        ops.quantized_linear(normal(1, 64), trained)


def test_checker_is_silent() -> None:
    with anymetal.check() as report:
        q = ops.quantize(normal(37, 160), "mlx_4bit", 32)
        ops.dequantize(q)
        for count in (3, 35):
            x = normal(count, 160).requires_grad_()
            bias = torch.ones(37, requires_grad=True)
            ops.quantized_linear(x, q, bias, activation="silu").sum().backward()
    assert not report.findings, report


def test_virtual_mps_gives_the_same(mps: torch.device) -> None:
    weight, x = normal(9, 128), normal(6, 128)
    for scheme in ("q4_0", "mlx_8bit", "int4_zero_point"):
        here, there = ops.quantize(weight, scheme), ops.quantize(weight.to(mps), scheme)
        assert there.words.is_mps
        assert torch.equal(there.words.cpu(), here.words)
        assert torch.equal(
            ops.quantized_linear(x.to(mps), there).cpu(), ops.quantized_linear(x, here)
        )
    assert torch.equal(ops.quantize(weight, "q4_0").to(mps).to_ggml().cpu(), _q4_0(weight))


def _q4_0(weight: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(gguf.quants.quantize(weight.numpy(), GGML["q4_0"]))


def test_products_that_cannot_be_say_why() -> None:
    q = ops.quantize(normal(4, 64), "int4")
    x = normal(2, 64)
    wrong: list[tuple[type[Exception], str, Any]] = [
        (ValueError, r"'input' expects rows of 64, the columns .* \[2, 60\]", (x[:, :60], q)),
        (TypeError, r"'scales' expects bfloat16, as 'input', got float32", (x.bfloat16(), q)),
        (TypeError, r"'bias' expects float32, got float16", (x, q, torch.ones(4).half())),
        (ValueError, r"'bias' expects shape \[4\] .*, got \[5\]", (x, q, torch.ones(5))),
        (ValueError, r"'input' expects rows of 64.* got shape \[\]", (torch.ones(()), q)),
    ]
    for error, message, args in wrong:
        with pytest.raises(error, match=f"quantized_linear: argument {message}"):
            ops.quantized_linear(*args)
    with pytest.raises(ValueError, match=r"'activation' expects None, .*, got 'relu'"):
        ops.quantized_linear(x, q, activation="relu")


def test_parts_that_do_not_fit_say_why() -> None:
    q = ops.quantize(normal(4, 128), "mlx_4bit")
    words, scales, biases = q.to_mlx()
    short, few = words[:, :15], scales[:, :1]
    wrong: list[tuple[type[Exception], str, Any]] = [
        (TypeError, r"'words' expects uint32, int32, got float32", (scales, scales, biases)),
        (ValueError, r"'scales' expects shape \[4, 2\] .* got \[4, 1\]", (words, few, biases)),
        (ValueError, r"'offsets' expects shape \[4, 2\] .* \[4, 1\]", (words, scales, few)),
        (TypeError, r"'offsets' expects float32, got float16", (words, scales, biases.half())),
        (ValueError, r"'group_size' expects 32, 64, 128 .* got 48", (words, scales, biases, 48)),
        (
            ValueError,
            r"'words' expects rows of whole groups of 64 .* \[4, 15\]",
            (short, scales, biases),
        ),
    ]
    for error, message, args in wrong:
        with pytest.raises(error, match=f"from_mlx: argument {message}"):
            Quantized.from_mlx(*args)
    with pytest.raises(ValueError, match=r"from_ggml: expects scheme 'q4_0' or 'q8_0', got 'q5_0'"):
        Quantized.from_ggml(torch.zeros(1, 18, dtype=torch.uint8), "q5_0")
    with pytest.raises(ValueError, match=r"rows of 18-byte blocks of q4_0, got shape \[1, 17\]"):
        Quantized.from_ggml(torch.zeros(1, 17, dtype=torch.uint8), "q4_0")
    with pytest.raises(
        ValueError, match=r"to_ggml: expects scheme 'q4_0' or 'q8_0', got 'mlx_4bit'"
    ):
        q.to_ggml()


def test_packed_parts_that_do_not_fit_say_why() -> None:
    data, scales = torch.zeros(2, 144, dtype=torch.uint8), torch.zeros(2)
    two, nine = (2, 256), (9, 64)
    wrong: list[tuple[type[Exception], str, Any]] = [
        (ValueError, "'format' expects one of q4_K, q6_K, nf4, got 'q5_K'", (data, "q5_K", two)),
        (TypeError, "'blocks' expects uint8, got float32", (scales, "q4_K", two)),
        (ValueError, "'columns' expects a multiple of 256 for q4_K, got 8", (data, "q4_K", (2, 8))),
        (ValueError, "'blocks' expects 420 bytes for 2x256 of q6_K, got 288", (data, "q6_K", two)),
        (ValueError, "q4_K takes no 'scales'", (data, "q4_K", two, scales)),
        (ValueError, "'scales' expects the blocks' absmax, got", (data, "nf4", nine, None, 64)),
        (ValueError, "a power of two from 32 on, got 48", (data, "nf4", nine, scales, 48)),
        (ValueError, r"'scales' expects shape \[9\] .*\[2\]", (data, "nf4", nine, scales, 64)),
    ]
    for error, message, parts in wrong:
        with pytest.raises(error, match=message):
            ops.PackedWeight(*parts).check()
    weight = ops.PackedWeight(data, "q4_K", (2, 256))
    with pytest.raises(ValueError, match=r"'input' expects rows of 256, got shape \[3, 250\]"):
        ops.packed_linear(normal(3, 250), weight)
    with pytest.raises(ValueError, match=r"'bias' expects shape \[2\] .*, got \[3\]"):
        ops.packed_linear(normal(3, 256), weight, torch.ones(3))
