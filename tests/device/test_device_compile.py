"""torch.compile on the device: the eager backends, export, and inductor's Metal kernels."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from anymetal import check
from anymetal.checker.finding import Finding


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "aot_eager_decomp_partition"])
def test_backends_without_kernels(backend: str) -> None:
    net = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2)).to("mps")
    x = torch.randn(3, 4, device="mps")
    result = torch.compile(net, backend=backend)(x)
    assert torch.allclose(result, net(x), atol=1e-6)
    result.sum().backward()
    assert net[0].weight.grad.is_mps


def test_changes_in_place_are_kept() -> None:
    def change(a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        b = a.view(-1)
        b.add_(1)
        return a.sum() + b[0], a[:2]

    x = torch.zeros(2, 2, device="mps")
    total, part = torch.compile(change, backend="aot_eager")(x)
    assert x.tolist() == [[1, 1], [1, 1]]
    assert total.item() == 5
    assert part.data_ptr() == x.data_ptr()


def test_export() -> None:
    net = nn.Linear(4, 2).to("mps")
    x = torch.randn(3, 4, device="mps")
    program = torch.export.export(net, (x,))
    assert torch.allclose(program.module()(x), net(x), atol=1e-6)


def norm_and_reduce(x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A norm over the last dimension, an activation, and reductions over both."""
    scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
    y = torch.nn.functional.silu(x * scale * weight)
    return y, torch.softmax(y, -1).amax(0) + y.sum(0)


def test_inductor_emits_metal_for_dynamic_shapes() -> None:
    from torch._inductor.utils import run_and_get_code  # noqa: PLC0415  (it takes seconds)

    compiled = torch.compile(norm_and_reduce, dynamic=True, fullgraph=True)
    weight = torch.randn(65, device="mps")
    with check() as report:
        for rows in (7, 32, 50):
            x = torch.randn(rows, 65, device="mps")
            results, sources = run_and_get_code(compiled, x, weight)
            if sources:
                assert "kernel void" in "".join(sources)
            for mine, other in zip(results, norm_and_reduce(x.cpu(), weight.cpu()), strict=True):
                assert mine.is_mps
                torch.testing.assert_close(mine.cpu(), other, rtol=1e-4, atol=1e-5)
    assert sum(report.launches.values()) >= 3
    assert not report.errors, report
    assert [found for found in report.warnings if not torchs_own(found)] == []


def torchs_own(found: Finding) -> bool:
    """Habits of torch that are harmless and not ours to change.

    Its header for reductions calls simdgroup functions with the lanes that have work, and
    inductor's kernels let all threads of a threadgroup write its one result.
    """
    if found.kind == "collective_divergence":
        position = found.place.position
        return position is not None and position.file.endswith("c10/metal/reduction_utils.h")
    return found.kind == "race" and "write the same value" in found.message


def test_inductor_trains() -> None:
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.LayerNorm(16)).to("mps")
    x = torch.randn(5, 8, device="mps")
    net(x).square().mean().backward()
    expected = [p.grad.clone() for p in net.parameters()]
    net.zero_grad()
    torch.compile(net)(x).square().mean().backward()
    for parameter, gradient in zip(net.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-5)
