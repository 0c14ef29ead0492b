"""Rotary embedding: both kinds of pairs, tables and bases, positions, and the way back."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from judging import judge

from anymetal import ops
from anymetal.launch.guarded import watched


def halves_turned(x: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat((-second, first), -1)


def as_models_write_it(
    q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The usual composition: tables of [batch, sequence, dim], heads before the sequence."""
    cos, sin = cos[:, None], sin[:, None]
    return q * cos + halves_turned(q) * sin, k * cos + halves_turned(k) * sin


def angles(positions: torch.Tensor, dim: int, base: float = 10000.0) -> torch.Tensor:
    frequencies = base ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    return positions[..., None].double() * frequencies


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_split_halves_are_what_models_write(dtype: torch.dtype) -> None:
    q, k = torch.randn(2, 4, 9, 16).to(dtype), torch.randn(2, 2, 9, 16).to(dtype)
    table = angles(torch.randint(0, 50, (2, 9)), 16).repeat(1, 1, 2)
    cos, sin = table.cos().to(dtype), table.sin().to(dtype)
    judge(
        ops.rope(q, k, cos, sin),
        as_models_write_it(*(t.double() for t in (q, k, cos, sin))),
        as_models_write_it(q, k, cos, sin),
        "rope",
    )


def test_interleaved_is_a_complex_product() -> None:
    x = torch.randn(2, 3, 5, 8)
    turned = torch.view_as_complex(x.double().unflatten(-1, (-1, 2))) * torch.polar(
        torch.ones(5, 4, dtype=torch.float64), angles(torch.arange(5), 8)
    )
    expected = torch.view_as_real(turned).flatten(-2)
    mine = ops.rope(x, interleaved=True)
    torch.testing.assert_close(mine.double(), expected, rtol=0, atol=1e-6)


def test_far_positions_keep_their_angles() -> None:
    """At position 10 million a float32 angle is off by half a radian: the kernel's is not."""
    x = torch.randn(1, 1, 3, 64)
    positions = torch.tensor([131071, 1_000_003, 10_000_019])
    mine = ops.rope(x, positions=positions)
    table = angles(positions, 64)
    first, second = x.double().chunk(2, -1)
    cos, sin = table.cos(), table.sin()
    exact = torch.cat((first * cos - second * sin, second * cos + first * sin), -1)
    assert (mine.double() - exact).abs().max() < 1e-6


def test_offset_continues_a_sequence() -> None:
    q, k = torch.randn(1, 2, 6, 8), torch.randn(1, 1, 6, 8)
    whole_q, whole_k = ops.rope(q, k)
    last_q, last_k = ops.rope(q[:, :, 4:], k[:, :, 4:], offset=4)
    assert torch.equal(last_q, whole_q[:, :, 4:])
    assert torch.equal(last_k, whole_k[:, :, 4:])


def test_all_ways_to_say_a_position_agree() -> None:
    x = torch.randn(2, 3, 4, 8)
    expected = ops.rope(x, offset=2)
    table = angles(torch.arange(10), 8)
    cos, sin = table.cos().float(), table.sin().float()
    ids = torch.arange(2, 6)
    for mine in (
        ops.rope(x, positions=ids),
        ops.rope(x, positions=ids.int().expand(2, -1)),
        ops.rope(x, frequencies=[10000 ** (-i / 4) for i in range(4)], positions=ids),
        ops.rope(x, None, cos, sin, offset=2),
        ops.rope(x, None, cos, sin, positions=ids),
        ops.rope(x, None, cos[2:6], sin[2:6]),
        ops.rope(x, None, cos[None, 2:6], sin[None, 2:6]),
        ops.rope(x, None, cos[2:6].expand(2, 4, 4), sin[2:6].expand(2, 4, 4)),
        ops.rope(x, None, cos.repeat(1, 2), sin.repeat(1, 2), offset=2),
    ):
        torch.testing.assert_close(mine, expected, rtol=0, atol=1e-6)


def test_wide_interleaved_tables_repeat_each_angle() -> None:
    x = torch.randn(2, 4, 8)
    table = angles(torch.arange(4), 8).repeat_interleave(2, -1).float()
    mine = ops.rope(x, None, table.cos(), table.sin(), interleaved=True)
    torch.testing.assert_close(mine, ops.rope(x, interleaved=True), rtol=0, atol=1e-6)


def test_sequence_before_heads_is_the_same() -> None:
    q, k = torch.randn(2, 4, 5, 8), torch.randn(2, 2, 5, 8)
    mine = ops.rope(q.transpose(1, 2), k.transpose(1, 2), sequence_dim=-3)
    for there, here in zip(mine, ops.rope(q, k), strict=True):
        assert torch.equal(there.transpose(1, 2), here)


def test_slices_of_a_fused_projection_are_not_copied() -> None:
    """q and k as views of one tensor, heads after the sequence: read where they stand."""
    fused = torch.randn(2, 5, 3 * 16)
    q = fused[..., :32].unflatten(-1, (4, 8)).transpose(1, 2)
    k = fused[..., 32:].unflatten(-1, (2, 8)).transpose(1, 2)
    with watched(counting=True) as launches:
        mine = ops.rope(q, k)
    assert len(launches) == 1
    expected = ops.rope(q.contiguous(), k.contiguous())
    assert all(torch.equal(a, b) for a, b in zip(mine, expected, strict=True))


def test_results_keep_the_order_of_heads_in_memory() -> None:
    x = torch.randn(2, 5, 4, 8).transpose(1, 2)
    assert ops.rope(x).stride() == x.stride()


def test_elements_after_the_rotary_ones_stay() -> None:
    for dim, rotary in ((24, 16), (14, 6)):
        x = torch.randn(2, 3, 4, dim)
        mine = ops.rope(x, rotary_dim=rotary)
        assert torch.equal(mine[..., rotary:], x[..., rotary:])
        assert torch.equal(mine[..., :rotary], ops.rope(x[..., :rotary].contiguous()))


@pytest.mark.parametrize("interleaved", [False, True])
def test_gradient_turns_back(interleaved: bool) -> None:
    """The rotation keeps lengths, so the gradient of half the squares is the input itself."""
    q = torch.randn(2, 3, 5, 16, requires_grad=True)
    k = torch.randn(2, 1, 5, 16, requires_grad=True)
    turned_q, turned_k = ops.rope(q, k, interleaved=interleaved, rotary_dim=8)
    (turned_q.square().sum() / 2 + turned_k.square().sum() / 2).backward()
    torch.testing.assert_close(q.grad, q.detach(), rtol=0, atol=2e-6)
    torch.testing.assert_close(k.grad, k.detach(), rtol=0, atol=2e-6)


def test_learned_tables_get_gradients() -> None:
    """Also where two tokens share a row of the tables, and a row has no token."""
    ids = torch.tensor([[0, 2, 2], [2, 4, 0]])

    def run(dtype: torch.dtype, own: bool) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(3)
        leaves = [
            torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
            for shape in ((2, 2, 3, 8), (2, 1, 3, 8), (6, 4), (6, 4))
        ]
        if own:
            q, k, cos, sin = leaves
            wide = [t[ids].repeat(1, 1, 2) for t in (cos, sin)]
            results = as_models_write_it(q, k, *wide)
        else:
            results = ops.rope(*leaves, positions=ids)
        return list(torch.autograd.grad([r.square().sum() for r in results], leaves))

    judge(run(torch.float32, False), run(torch.float64, True), run(torch.float32, True), "tables")


def test_q_and_k_go_in_one_launch() -> None:
    with watched() as launches:
        ops.rope(torch.randn(1, 4, 3, 16), torch.randn(1, 2, 3, 16))
    assert [launch.kernel for launch in launches] == ["rope_split_base_vec4_float"]
    assert ops.variants.last() == "rope/fp32/elementwise/vec4"


def test_infinity_stays_in_its_pair() -> None:
    x = torch.randn(1, 8)
    expected = ops.rope(x, offset=3)
    x[0, 1] = math.inf
    mine = ops.rope(x, offset=3)
    changed = ~torch.isfinite(mine[0])
    assert changed.nonzero().flatten().tolist() == [1, 5]
    assert torch.equal(mine[0, ~changed], expected[0, ~changed])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rotary_dim": 5}, r"rope: argument 'rotary_dim' expects an even number .* got 5"),
        ({"rotary_dim": 10}, r"rope: argument 'rotary_dim' .* from 2 to 8, .* got 10"),
        ({"cos": torch.ones(4, 4)}, r"rope: arguments 'cos' and 'sin' come together"),
        (
            {"cos": torch.ones(2, 4), "sin": torch.ones(2, 4)},
            r"rope: argument 'cos' has 2 positions, but the call needs 0 to 2",
        ),
        (
            {"positions": torch.arange(4)},
            r"rope: argument 'positions' expects shape \[3\] or \[1, 3\] .* got \[4\]",
        ),
        ({"positions": torch.arange(3), "offset": 1}, r"rope: argument 'offset' is 1, but"),
        ({"frequencies": [1.0]}, r"rope: argument 'frequencies' expects one for each of 4 pairs"),
        ({"sequence_dim": 1}, r"rope: argument 'sequence_dim' expects -2 .* got 1"),
        ({"k": torch.randn(1, 2, 4, 8)}, r"rope: argument 'k' .* got \[1, 2, 4, 8\]"),
        (
            {
                "cos": torch.ones(5, 4),
                "sin": torch.ones(5, 4),
                "positions": torch.tensor([0, 5, 1]),
            },
            r"rope: argument 'positions' holds 0 to 5, but the tables have 5 rows",
        ),
    ],
)
def test_wrong_arguments_say_what_was_expected(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ops.rope(torch.randn(1, 2, 3, 8), **arguments)


def test_positions_must_be_whole() -> None:
    with pytest.raises(TypeError, match=r"rope: argument 'positions' expects int64, int32, got f"):
        ops.rope(torch.randn(3, 8), positions=torch.rand(3))


def test_virtual_mps_tensors_give_the_same(mps: torch.device) -> None:
    q, k = torch.randn(1, 2, 3, 16), torch.randn(1, 1, 3, 16)
    there = ops.rope(q.to(mps), k.to(mps), positions=torch.tensor([4, 0, 9], device=mps))
    here = ops.rope(q, k, positions=torch.tensor([4, 0, 9]))
    assert all(torch.equal(a.cpu(), b) for a, b in zip(there, here, strict=True))


def test_a_position_without_a_row_is_nan_on_a_device(mps: torch.device) -> None:
    """The host cannot look at positions there without waiting for the device."""
    table = torch.ones(4, 4, device=mps)
    x = torch.randn(1, 3, 8).to(mps)
    mine = ops.rope(x, None, table, table, positions=torch.tensor([0, 4, -1], device=mps)).cpu()
    assert mine.isnan().any(-1).tolist() == [[False, True, True]]
