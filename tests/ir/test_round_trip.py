"""Every instruction of real kernels taken apart, written anew and read by LLVM: the same module."""

from __future__ import annotations

from pathlib import Path

import llvmlite.binding as llvm
import pytest
from tests.msl.sources import compile_program

from anymetal.ir import Instruction, Module, UnknownInstruction, parse
from anymetal.msl.prepare import prepare
from anymetal.nouns import Source

KERNELS = Path(__file__).parent.parent.parent / "benchmarks" / "kernels"
NAMES = ("attention", "histogram", "scan", "simdgroup_matmul", "softmax")


def canonical(text: str) -> str:
    return str(llvm.parse_assembly(text, llvm.create_context()))


def written_anew(text: str) -> Module:
    """A module of which no instruction and no signature is kept as text."""
    module = parse(text)
    for function in module.functions:
        assert function.signature.name == function.name
        for instruction in function.instructions():
            instruction.operands = instruction.operands
    return module


@pytest.mark.parametrize("optimise", [True, False], ids=["optimised", "with_debug_info"])
@pytest.mark.parametrize("name", NAMES)
def test_kernel_means_the_same(name: str, optimise: bool) -> None:
    prepared = prepare(Source((KERNELS / f"{name}.metal").read_text()))
    name = next(iter(prepared.entry_points))
    ir = compile_program(prepared, name, optimise=optimise).ir
    assert canonical(str(written_anew(ir))) == canonical(ir)


RARE = """
%pair = type { i32, float }
@table = internal unnamed_addr constant [2 x i32] [i32 1, i32 -2], align 4
declare void @marks(...)
declare void @"quoted name"(ptr)
define weak dso_local i32 @f(ptr noundef %p, <4 x float> %v, i32 %n) local_unnamed_addr nounwind {
entry:
  %a = atomicrmw volatile add ptr %p, i32 1 syncscope("agent") monotonic, align 4
  %c = cmpxchg weak volatile ptr %p, i32 %a, i32 %n acq_rel monotonic, align 4
  %old = extractvalue { i32, i1 } %c, 0
  fence seq_cst
  %l = load atomic volatile i32, ptr %p acquire, align 4
  store atomic i32 %l, ptr %p release, align 4
  %w = load i32, ptr %p, align 4, !invariant.load !0, !range !1
  %s = shufflevector <4 x float> %v, <4 x float> poison, <3 x i32> <i32 3, i32 poison, i32 0>
  %e = extractelement <3 x float> %s, i32 %n
  %m = fmul reassoc nnan contract float %e, 0x7FF8000000000000
  %k = fcmp fast ogt float %m, -1.500000e+00
  %t = select nnan i1 %k, float %m, float 0x3FB99999A0000000
  %g = getelementptr inbounds nuw %pair, ptr %p, i64 1, i32 1
  store float %t, ptr %g, align 4
  call void (...) @marks(i32 signext range(i32 0, 5) %w, ptr align 8 dereferenceable(4) @table)
  tail call void @"quoted name"(ptr nonnull getelementptr inbounds (i8, ptr @table, i64 4)) nounwind
  %d = alloca i32, i32 %n, align 16
  %b = insertvalue { i32, [2 x float] } poison, float %t, 1, 0
  %y = zext nneg i32 %n to i64
  %z = or disjoint i64 %y, 4294967296
  %x = icmp samesign ult i64 %z, 12
  %u = freeze i1 %x
  br i1 %u, label %one, label %"a label"
one:
  switch i32 %n, label %"a label" [
    i32 1, label %two
    i32 -2, label %two
  ]
two:
  %q = phi i32 [ %w, %one ], [ %w, %one ]
  ret i32 %q
"a label":
  unreachable
}
!0 = !{}
!1 = !{i32 0, i32 9}
"""


def test_rare_forms_mean_the_same() -> None:
    assert canonical(str(written_anew(canonical(RARE)))) == canonical(RARE)


def test_an_unknown_instruction_keeps_its_text_and_has_no_parts() -> None:
    unknown = Instruction("%r = va_arg ptr %list, i32")
    assert (unknown.opcode, unknown.result, unknown.callee) == ("va_arg", "%r", None)
    assert unknown.text == "%r = va_arg ptr %list, i32"
    with pytest.raises(UnknownInstruction, match="va_arg"):
        _ = unknown.operands
