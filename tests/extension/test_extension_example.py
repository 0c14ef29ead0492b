"""The example extension: bit by bit what compile_shader gives, and float64 near by."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import by_compile_shader as plain
import pytest
import torch

import anymetal
import anymetal.device
from anymetal.extension import scaffold

PROGRAM = str(Path(__file__).parents[2] / "examples" / "extension_patterns.py")
SIZES = [1, 3, 4, 31, 32, 33, 257, 1021]


def same(one: torch.Tensor, other: torch.Tensor) -> None:
    assert one.dtype == other.dtype and one.shape == other.shape
    assert one.cpu().view(torch.uint8).equal(other.cpu().view(torch.uint8))


def test_program_ends_well(patterns: Any) -> None:
    runpy.run_path(PROGRAM, run_name="__main__")


@pytest.mark.parametrize("name", ["scale", "row_sums", "copy_blocks", "sgd_step", "gated_silu"])
def test_program_notices_a_wrong_operator(
    patterns: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(x: Any, *arguments: Any, **keywords: Any) -> Any:
        return x.sum(1) if name == "row_sums" and x.shape[1] == 33 else x * 1

    monkeypatch.setattr(patterns, name, wrong)
    with pytest.raises((AssertionError, TypeError)):
        runpy.run_path(PROGRAM, run_name="__main__")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_scale_is_the_same_by_both_ways(patterns: Any, dtype: torch.dtype) -> None:
    for columns in SIZES:
        x = torch.randn(3, columns).to("mps", dtype)
        bias = torch.randn(columns).to("mps", dtype)
        for chosen, clamped in ((None, False), (bias, True)):
            out = patterns.scale(x, chosen, 1.7, clamped)
            same(out, plain.scale(x, chosen, 1.7, clamped))
            exact = x.cpu().double() * 1.7 + (0 if chosen is None else bias.cpu().double())
            exact = exact.clamp(min=0) if clamped else exact
            torch.testing.assert_close(out.cpu(), exact.to(dtype))


@pytest.mark.parametrize("shape", [(1, 1), (3, 31), (2, 4096), (2, 4097), (3, 20011)])
def test_row_sums_are_the_same_in_one_phase_and_in_two(
    patterns: Any, shape: tuple[int, int]
) -> None:
    x = torch.randn(shape).to("mps")
    out = patterns.row_sums(x)
    same(out, plain.row_sums(x))
    same(out, patterns.row_sums(x))
    torch.testing.assert_close(out.cpu().double(), x.cpu().double().sum(1), atol=1e-3, rtol=1e-5)


def test_blocks_are_copied_after_kernels_that_write_them(patterns: Any) -> None:
    cache = torch.randn(8, 16, 4).to("mps")
    expected = cache.cpu() * 2
    doubled = patterns.scale(cache, None, 2.0)  # leaves torch's encoder open
    patterns.copy_blocks(doubled, [3, 1, 5], [0, 7, 5])
    expected[0], expected[7] = expected[3].clone(), expected[1].clone()
    same(doubled, expected.to("mps"))


def test_step_over_many_tensors_is_the_same(patterns: Any) -> None:
    sets = []
    for _ in range(2):
        torch.manual_seed(1)
        sets.append([[torch.randn(n).to("mps") for n in SIZES] for _ in range(3)])
    patterns.sgd_step(*sets[0], 0.1, 0.9)
    plain.sgd_step(*sets[1], 0.1, 0.9)
    for one, other in zip(sets[0], sets[1], strict=True):
        for mine, theirs in zip(one, other, strict=True):
            same(mine, theirs)


def test_gradients_are_the_same_and_right(patterns: Any) -> None:
    x, gate = (torch.randn(5, 33).to("mps").requires_grad_() for _ in range(2))
    grad = torch.randn(5, 33).to("mps")
    out = patterns.gated_silu(x, gate)
    same(out.detach(), plain.gated_silu(x.detach(), gate.detach()))
    out.backward(grad)
    grads = plain.gated_silu_backward(grad, x.detach(), gate.detach())
    exact = [t.detach().cpu().double().requires_grad_() for t in (x, gate)]
    (exact[0] * torch.nn.functional.silu(exact[1])).backward(grad.cpu().double())
    for tensor, ours, reference in zip((x, gate), grads, exact, strict=True):
        assert tensor.grad is not None and reference.grad is not None
        same(tensor.grad, ours)
        torch.testing.assert_close(tensor.grad.cpu().double(), reference.grad, rtol=1e-5, atol=1e-6)


def test_operators_pass_torchs_own_checks(patterns: Any) -> None:
    x, gate = (torch.randn(4, 8).to("mps").requires_grad_() for _ in range(2))
    # The fourth, of autograd's registration, torch has for CPU and CUDA only.
    checks = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
    ops = torch.ops.patterns
    torch.library.opcheck(ops.gated_silu.default, (x, gate), test_utils=checks)
    scaled = (x.detach(), None, 2.0, True)
    torch.library.opcheck(ops.scale.default, scaled, test_utils=checks)


def test_compiled_model_has_no_break_and_the_same_gradients(patterns: Any) -> None:
    def model(x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        return patterns.gated_silu(x + 1, gate).sum()

    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    grads = []
    for function in (model, compiled):
        torch.manual_seed(2)
        x, gate = (torch.randn(7, 5).to("mps").requires_grad_() for _ in range(2))
        function(x, gate).backward()
        grads.append((x.grad, gate.grad))
    same(grads[0][0], grads[1][0])
    same(grads[0][1], grads[1][1])


def test_views_empty_tensors_and_results_that_wait(patterns: Any) -> None:
    base = torch.randn(40).to("mps")
    anymetal.device.enable(missing="run", asynchronous=True)
    out = patterns.scale(base[7:], None, 3.0)
    again = patterns.scale(out, None, 0.5)
    same(again, (base.cpu()[7:] * 3 * 0.5).to("mps"))
    assert patterns.scale(base[:0], None, 2.0).shape == (0,)


def test_example_is_silent_under_the_checker(patterns: Any) -> None:
    with anymetal.check() as report:
        x = torch.randn(3, 33).to("mps")
        patterns.scale(x[1:], torch.randn(33).to("mps"), 2.0, True)
        patterns.row_sums(torch.randn(2, 4099).to("mps"))
        patterns.copy_blocks(torch.randn(4, 8).to("mps"), [0], [3])
        patterns.sgd_step(*([torch.randn(5).to("mps")] for _ in range(3)), 0.1, 0.9)
        y = x.clone().requires_grad_()
        patterns.gated_silu(y, x).sum().backward()
    assert not report.findings, str(report.findings)
    assert {"scale_float", "row_sums", "sgd_step", "gated_silu_backward"} <= set(report.kernels)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda p: p.scale(torch.ones(3, 4).to("mps").t()), "patterns::scale: x is not contig"),
        (lambda p: p.scale(torch.ones(3, dtype=torch.int32).to("mps")), "x is Int, expected"),
        (lambda p: p.row_sums(torch.ones(3).to("mps")), "row_sums: x has 1 dimensions, expected 2"),
        (lambda p: p.copy_blocks(torch.ones(2, 4).to("mps"), [2], [0]), "source 2 of 2 blocks"),
        (
            lambda p: p.gated_silu(torch.ones(3).to("mps"), torch.ones(2).to("mps")),
            "gate has sizes",
        ),
    ],
)
def test_bad_argument_is_named(patterns: Any, call: Any, words: str) -> None:
    with pytest.raises((RuntimeError, TypeError, IndexError), match=words):
        call(patterns)


def test_example_has_the_files_that_new_projects_get() -> None:
    folder = Path(__file__).parents[2] / "examples" / "extension"
    for name, text in scaffold.shared_files("patterns").items():
        assert (folder / name).read_text() == text, name
