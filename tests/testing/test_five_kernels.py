"""GEMM, attention, top-k, scan and depthwise convolution: each compared, tuned and profiled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import conv1d, scaled_dot_product_attention

import anymetal
from anymetal.profiler.hints import hints

SOURCE = (Path(__file__).parent / "five.metal").read_text()
K = 3


@dataclass(frozen=True)
class Example:
    """A kernel's launch, its reference in torch, and the shapes of its arguments."""

    name: str
    sizes: Callable[..., tuple[int, int, int]]
    result: Callable[..., tuple[int, ...]]
    threads: Callable[..., int]
    reference: Callable[..., torch.Tensor]
    shapes: str
    hint: str  # a kind that the profile must find; empty: no reads far apart


def _depthwise(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    channels = x.shape[0]
    if not x.numel():
        return torch.zeros_like(x)
    return conv1d(x[None], w[:, None], padding=w.shape[1] // 2, groups=channels)[0]


def _attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return scaled_dot_product_attention(q[None], k[None], v[None])[0]


def _topk(x: torch.Tensor) -> torch.Tensor:
    return x.topk(K, dim=1).values


EXAMPLES = [
    Example("gemm", lambda a, b: (a.shape[0], b.shape[1], a.shape[1]),
            lambda a, b: (a.shape[0], b.shape[1]), lambda a, b: a.shape[0] * b.shape[1],
            lambda a, b: a @ b, "m k, k n", ""),
    Example("attention", lambda q, k, v: (q.shape[0], *k.shape), lambda q, k, v: q.shape,
            lambda q, k, v: 32 * q.shape[0], _attention, "5 8, 37 8, 37 8", "coalescing"),
    Example("topk", lambda x: (*x.shape, K), lambda x: (x.shape[0], K), lambda x: x.shape[0],
            _topk, "m 33", "coalescing"),
    Example("scan", lambda x: (*x.shape, 0), lambda x: x.shape, lambda x: 32 * x.shape[0],
            lambda x: x.cumsum(1), "m n", ""),
    Example("depthwise", lambda x, w: (*x.shape, w.shape[1]), lambda x, w: x.shape,
            lambda x, w: x.numel(), _depthwise, "7 n, 7 3", ""),
]  # fmt: skip


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_compared_tuned_and_profiled(
    example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = getattr(anymetal.compile_shader(SOURCE, name="five.metal"), example.name)

    def call(*tensors: torch.Tensor, group_size: int = 64) -> torch.Tensor:
        dense = [tensor.contiguous() for tensor in tensors]
        out = torch.zeros(example.result(*dense))
        size = dict(zip("mnk", example.sizes(*dense), strict=True))
        threads = example.threads(*dense)
        kernel(*dense, out, size, threads=threads, group_size=group_size)
        return out

    anymetal.testing.compare(
        call, example.reference, shapes=example.shapes, layouts=["dense", "strided"], special=False
    )
    rounds = [s.split() for s in example.shapes.split(",")]
    sizes = [[int(w) if w.isdigit() else {"m": 33, "n": 64, "k": 24}[w] for w in s] for s in rounds]
    tensors = [torch.randn(size) for size in sizes]
    exact = example.reference(*(tensor.double() for tensor in tensors))
    monkeypatch.setenv("ANYMETAL_CACHE_DIR", str(tmp_path))
    configs = [{"group_size": size} for size in (32, 64, 4096)]
    tuned = anymetal.autotune(configs=configs, seconds=0.005)(call)
    torch.testing.assert_close(tuned(*tensors).double(), exact, rtol=1e-5, atol=1e-5)
    trials = tuned.tuned(*tensors).trials
    assert [trial.failure is None for trial in trials] == [True, True, False]
    monkeypatch.undo()
    with anymetal.profile() as found:
        out = call(*tensors)
    torch.testing.assert_close(out.double(), exact, rtol=1e-5, atol=1e-5)
    profile: Any = found[example.name]
    assert not profile.unprofiled and profile.total.writes["device"] == out.numel()
    kinds = {hint.kind for hint in hints(profile)}
    assert example.hint in kinds if example.hint else "coalescing" not in kinds
