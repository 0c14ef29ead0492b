"""Rounding to bfloat by integers: the bits that torch gives, and nothing left to call."""

from __future__ import annotations

import ctypes

import pytest
import torch

from anymetal.engines.cpu.jit import LoadedCode, object_code
from anymetal.ir import parse
from anymetal.passes.lower.bfloat_rounding import round_in_integers

TRUNCATED = "%r = fptrunc KIND %x to BKIND"
NARROWED = "%a = fptrunc KIND %x to BKIND\n  %b = fptrunc KIND %y to BKIND\n  "
OPERATIONS = {
    "add": ("fadd contract BKIND %a, %b", torch.add),
    "subtract": ("fsub BKIND %a, %b", torch.sub),
    "multiply": ("fmul contract BKIND %a, %b", torch.mul),
    "divide": ("fdiv BKIND %a, %b", torch.div),
    "root": ("call BKIND @llvm.sqrt.SUFFIX(BKIND %a)", lambda a, b: a.sqrt()),
    "fused": (
        "call BKIND @llvm.fma.SUFFIX(BKIND %a, BKIND %b, BKIND %b)",
        lambda a, b: torch.addcmul(b.float(), a.float(), b.float()).bfloat16(),
    ),
}
Kinds = pytest.mark.parametrize("width", [1, 8])


def run(body: str, width: int, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The body for every `width` elements of x and y; it makes %r, of bfloats."""
    float_kind, kind = (
        ("float", "bfloat") if width == 1 else (f"<{width} x float>", f"<{width} x bfloat>")
    )
    suffix = "bf16" if width == 1 else f"v{width}bf16"
    body = body.replace("BKIND", kind).replace("KIND", float_kind).replace("SUFFIX", suffix)
    text = f"""declare {kind} @llvm.sqrt.{suffix}({kind})
declare {kind} @llvm.fma.{suffix}({kind}, {kind}, {kind})
define void @f(ptr %in.x, ptr %in.y, ptr %out) {{
entry:
  %x = load {float_kind}, ptr %in.x, align 4
  %y = load {float_kind}, ptr %in.y, align 4
  {body}
  store {kind} %r, ptr %out, align 2
  ret void
}}
"""
    module = parse(text)
    round_in_integers(module)
    assert " fptrunc " not in str(module)
    code = LoadedCode(object_code(str(module)))
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)(code.address("f"))
    out = torch.zeros(x.numel(), dtype=torch.bfloat16)
    for start in range(0, x.numel(), width):
        function(*(t.data_ptr() + start * t.element_size() for t in (x, y, out)))
    return out


def bits(tensor: torch.Tensor) -> list[int]:
    return tensor.view(torch.int16).tolist()


@Kinds
def test_rounding_is_torchs(width: int) -> None:
    patterns = torch.randint(-(2**31), 2**31 - 1, (4096,), dtype=torch.int64).to(torch.int32)
    ties = (torch.arange(1024, dtype=torch.int32) << 16) | 0x8000
    special = [0.0, -0.0, float("inf"), -float("inf"), 3.4e38, -3.4e38, 1e-40, 1.0]
    x = torch.cat([patterns.view(torch.float32), ties.view(torch.float32), torch.tensor(special)])
    found, expected = run(TRUNCATED, width, x, x), x.bfloat16()
    assert torch.equal(found.isnan(), x.isnan())
    assert bits(found[~x.isnan()]) == bits(expected[~x.isnan()])


@Kinds
@pytest.mark.parametrize("name", OPERATIONS)
def test_arithmetic_is_torchs(name: str, width: int) -> None:
    operation, reference = OPERATIONS[name]
    x, y = torch.randn(512).abs() * 4, torch.randn(512) * 4
    found = run(f"{NARROWED}%r = {operation}", width, x, y)
    assert bits(found) == bits(reference(x.bfloat16(), y.bfloat16()))


@Kinds
def test_integers_are_converted(width: int) -> None:
    integers = "i32" if width == 1 else f"<{width} x i32>"
    body = f"%i = fptosi KIND %x to {integers}\n  %r = sitofp {integers} %i to BKIND"
    x = torch.randint(-100000, 100000, (256,)).float()
    assert bits(run(body, width, x, x)) == bits(x.bfloat16())
