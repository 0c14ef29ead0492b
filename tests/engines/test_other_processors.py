"""Vector code for processors that this machine does not have: LLVM takes it and calls nothing.

That it computes the right thing there, only such a machine can show.
"""

from __future__ import annotations

import re

import llvmlite.binding as llvm
import pytest
from simdgroup_cases import source

from anymetal.engines.cpu.simdgroups.engine import SimdgroupEngine
from anymetal.engines.cpu.target import HOST
from anymetal.msl.compile import compile_program
from anymetal.msl.prepare import prepare
from anymetal.nouns import Source
from anymetal.passes.simdgroup import matrix, outlined, scaling
from anymetal.passes.simdgroup.rules import GroupShape

PROCESSORS = {
    "apple": ("aarch64-apple-darwin", "apple-m1"),
    "arm": ("aarch64-unknown-linux-gnu", "generic"),
    "intel": ("x86_64-unknown-linux-gnu", "x86-64-v3"),
}
BODIES = {
    "numbers": """
  const half h = half(w) * half(v) + half(index);
  const bfloat b = bfloat(w) * bfloat(h) - bfloat(lane);
  const float f = exp(w) + log(w) + sin(w) * cos(w) + pow(w, 1.5f) + fmod(w, 3.0f) + tanh(w);
  const long l = long(v) * long(i) / long(lane + 1) + long(mulhi(v, 77u)) + popcount(v) + clz(v);
  out[i] = uint(simd_sum(float(h) + float(b) + f)) + uint(l) + simd_prefix_inclusive_sum(v);""",
    "lanes_apart": """
  threadgroup atomic_uint bins[16];
  if (index < 16) atomic_store_explicit(&bins[index], 0, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint k = 0; k < v % 7; ++k) {
    atomic_fetch_add_explicit(&bins[(v + k) % 16], 1, memory_order_relaxed);
    if (simd_any(k > lane)) break;
  }
  atomic_fetch_add_explicit(&counters[v % 16], 1, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = x[v % 512] + atomic_load_explicit(&bins[index % 16], memory_order_relaxed);""",
    "matrices": """
  threadgroup float tile[64];
  tile[lane] = w;
  tile[lane + 32] = w * 2;
  simdgroup_barrier(mem_flags::mem_threadgroup);
  simdgroup_float8x8 a, b(0.0f);
  simdgroup_load(a, tile, 8);
  simdgroup_multiply_accumulate(b, a, a, b);
  simdgroup_store(b, tile, 8);
  simdgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = as_type<uint>(tile[lane]);""",
}
# Directly, through a table of addresses, or by an address in a register.
CALLED = r"(?:\bbl\t|\bcallq\t|movabsq\t\$|adrp\tx\d+, )([a-zA-Z_][\w.]*)(?!@PAGE|[\w.])"
ROUNDING = {"__truncsfbf2"}  # engines/cpu/runtime.cpp has it, for processors without bfloat


def made_for(text: str, triple: str, processor: str) -> str:
    """Assembly; what the text says of this machine is taken out."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    text = re.sub(r'"target-(?:cpu|features)"="[^"]*"', "", text)
    text = re.sub(r"^target (?:datalayout|triple) = .*$", "", text, flags=re.MULTILINE)
    target = llvm.Target.from_triple(triple)
    machine = target.create_target_machine(cpu=processor, opt=1)
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = triple, str(machine.target_data)
    return machine.emit_assembly(module)


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("name", BODIES)
def test_vector_code_is_complete(
    name: str, processor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (matrix, outlined):
        monkeypatch.setattr(module, "IN_REGISTERS", "ccc")  # the other is for x86 alone
    monkeypatch.setattr(scaling, "has_instruction", lambda: False)
    program = compile_program(prepare(Source(source(BODIES[name]))), "f", {}, HOST)
    written = SimdgroupEngine().compile(program).written_for(GroupShape(32, complete=True))
    assembly = made_for(str(written.module), *PROCESSORS[processor])
    named = set(re.findall(CALLED, assembly)) - ROUNDING
    if processor == "apple":
        named = {name.removeprefix("_") for name in named}
    defined = set(re.findall(r"^_?([\w.]+):", assembly, flags=re.MULTILINE))
    assert named <= defined
