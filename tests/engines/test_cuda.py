"""The CUDA engine without a GPU: the PTX that kernels become, and whether NVIDIA's assembler takes
it."""

from __future__ import annotations

import ctypes
import re
import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nvidia
import pytest
import torch

from anymetal import compile_shader
from anymetal.engines import choose, registry
from anymetal.engines.compiler import Compiler
from anymetal.engines.contract import PLAIN
from anymetal.engines.cuda import driver, early, launcher, messages
from anymetal.engines.cuda.assembly import lines_of
from anymetal.engines.cuda.block import Block, block_of
from anymetal.engines.cuda.executable import CudaExecutable, Text
from anymetal.errors import EngineError
from anymetal.machine.layout import LogKind, LogValue
from anymetal.nouns import Scalar, Source

HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"

SAMPLE = (
    HEAD
    + """
constant bool twice [[function_constant(0)]];
struct Numbers { float scale; uint count; };
struct Large { float values[40]; };

kernel void rows(device const float4* x [[buffer(0)]], device float4* y [[buffer(1)]],
                 constant Numbers& numbers [[buffer(2)]], constant Large& large [[buffer(3)]],
                 device bfloat* z [[buffer(4)]], device float* unused [[buffer(5)]],
                 threadgroup float* dynamic [[threadgroup(1)]],
                 uint i [[thread_position_in_grid]], uint j [[thread_index_in_threadgroup]]) {
  threadgroup float parts[32];
  float4 v = x[i] * numbers.scale;
  float total = simd_sum(v.x) + simd_prefix_inclusive_sum(v.y) + large.values[i % 40];
  parts[j / 32] = total;
  dynamic[j] = quad_max(total);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (simd_any(v.x > 0) && i < numbers.count) v += parts[j % 32] + dynamic[j ^ 1];
  z[i] = z[i] * z[i + 1] + z[i + 2];
  y[i] = twice ? v + v : v;
}

kernel void product(device const half* a, device const half* b, device float* c) {
  simdgroup_half8x8 left, right;
  simdgroup_float8x8 sum(0);
  simdgroup_load(left, a, 8);
  simdgroup_load(right, b, 8);
  simdgroup_multiply_accumulate(sum, left, right, sum);
  simdgroup_store(sum, c, 8);
}

kernel void atomics(device atomic_float* f, device atomic_uint* u, device atomic_ulong* l,
                    threadgroup atomic_int* t [[threadgroup(0)]],
                    uint i [[thread_position_in_grid]]) {
  atomic_fetch_add_explicit(f, 1.0f, memory_order_relaxed);
  atomic_fetch_max_explicit(u, i, memory_order_relaxed);
  atomic_fetch_or_explicit(t, 1, memory_order_relaxed);
  atomic_min_explicit(l, ulong(i), memory_order_relaxed);
}
"""
)


@pytest.fixture(scope="module")
def sample() -> Compiler:
    return Compiler(Source(SAMPLE))


def built(
    compiler: Compiler, kernel: str, constants: Mapping[str, Scalar] | None = None, engine: str = ""
) -> CudaExecutable:
    made = compiler.compile(kernel, constants or {}, PLAIN, engine or "cuda-sm80")
    assert isinstance(made, CudaExecutable)
    return made


def assemble(ptx: str, folder: Path, processor: str = "sm_90") -> str:
    """What ptxas says of registers, memory and spills; raises where it refuses the text."""
    (place,) = nvidia.__path__
    (assembler,) = Path(place).glob("cu*/bin/ptxas")
    (folder / "kernel.ptx").write_text(ptx)
    command = [assembler, "-v", f"-arch={processor}", "kernel.ptx", "-o", "kernel.cubin"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_accesses_name_their_memory(sample: Compiler) -> None:
    ptx = built(sample, "rows", {"twice": True}).ptx
    kinds = set(re.findall(r"\b(?:ld|st)\.(\w+)", ptx))
    assert kinds == {"global", "shared", "param"}, kinds
    assert "ld.global.nc.L2::cache_hint.v4.b32" in ptx  # x is only read
    assert re.search(r"ld\.global\.b16", ptx)  # z is written too
    assert "st.global.L2::cache_hint.v4.b32" in ptx


HINTS = (
    HEAD
    + """
#if __has_include(<anymetal/ahead.h>)
#include <anymetal/ahead.h>
#endif
kernel void hinted(device const uint4* x, device uint4* y, uint i [[thread_position_in_grid]]) {
  uint words[4];
  anymetal_fetch_ahead(x + i + 64);
  anymetal_read_once(words, x + i);
  anymetal_forget(words[0], words[1], words[2], words[3]);
  anymetal_write_once(y + i, words[0] + 1, words[1] + 1, words[2] + 1, words[3] + 1);
}
"""
)


def test_hints_about_memory_are_the_hardwares(tmp_path: Path) -> None:
    ptx = built(Compiler(Source(HINTS)), "hinted").ptx
    assert "prefetch.global.L2" in ptx
    assert "ld.global.nc.L1::no_allocate.L2::256B.v4.b32" in ptx
    assert "createpolicy.fractional.L2::evict_first.b64" in ptx
    assert "st.global.L2::cache_hint.v4.b32" in ptx
    assemble(ptx, tmp_path, "sm_80")


ASKING = (
    HEAD
    + """
#if __has_include(<anymetal/ahead.h>)
#include <anymetal/ahead.h>
#endif
kernel void asking(device const uint4* x, device uint4* y, constant uint& turns,
                   uint i [[thread_position_in_grid]]) {
#pragma unroll
  for (uint turn = 0; turn < 2; ++turn) {
    anymetal_ask(3, 64, turn, x + i + turn * 64);
    anymetal_asked();
  }
  for (uint turn = 0; turn < turns; ++turn) {
    anymetal_ask(3, 64, (turn + 2) % 3, x + i + min(turn + 2, turns - 1) * 64);
    anymetal_asked();
    anymetal_await(2);
    uint words[4];
    anymetal_take(words, 3, SOME, turn % 3, x + i + turn * 64);
    y[i + turn * 64] = uint4(words[0], words[1], words[2], words[3]) + 1;
  }
}
"""
)


def test_what_is_asked_for_comes_by_itself(tmp_path: Path) -> None:
    kernel = built(Compiler(Source(ASKING.replace("SOME", "64"))), "asking")
    order = [kernel.ptx.index(word) for word in ("cp.async.cg", "commit_group", "wait_group 2;")]
    assert order == sorted(order)
    assert kernel.ptx.count("cp.async.cg.shared.global") == 3
    assert "ld.shared.v4.b32" in kernel.ptx
    assert "ld.global.nc.v4" not in kernel.ptx
    assert kernel.asked_bytes == 3 * 64 * 16
    assemble(kernel.ptx, tmp_path, "sm_80")


def test_slots_are_the_same_wherever_they_are_named() -> None:
    with pytest.raises(EngineError, match=r"'asking' .* several numbers of slots .*3072, 6144"):
        built(Compiler(Source(ASKING.replace("SOME", "128"))), "asking")


def test_cpus_read_what_was_asked_for_when_it_is_taken() -> None:
    x = torch.arange(5 * 64 * 4, dtype=torch.int32)
    y = torch.zeros_like(x)
    kernel = compile_shader(ASKING.replace("SOME", "64")).asking
    kernel(x, y, 5, threads=64, group_size=64)
    assert torch.equal(y, x + 1)


def test_cpus_take_no_notice_of_hints() -> None:
    x, y = torch.arange(256, dtype=torch.int32), torch.zeros(256, dtype=torch.int32)
    compile_shader(HINTS).hinted(x, y, threads=64)
    assert torch.equal(y, x + 1)


FUNCTIONS = (
    HEAD
    + """
kernel void functions(device const float* x, device float* y, uint i [[thread_position_in_grid]]) {
  y[i] = EXP(x[i]);
}
kernel void held(device const float* x, device float* y, constant uint& n,
                 uint i [[thread_position_in_grid]]) {
  float kept[24];
  for (uint j = 0; j < 24; ++j) kept[j] = j < n ? x[i * 24 + j] : 0.0f;
  float sum = 0.0f;
  for (uint j = 0; j < 24; ++j) sum += precise::exp(kept[j]);
  for (uint j = 0; j < 24; ++j) y[i * 24 + j] = kept[j] / sum;
}
"""
)


@pytest.mark.parametrize(
    ("call", "fast_math", "hardware"),
    [
        ("exp", False, False),
        ("precise::exp", True, False),
        ("fast::exp", False, True),
        ("exp", True, True),
    ],
)
def test_fast_functions_are_the_hardwares(call: str, fast_math: bool, hardware: bool) -> None:
    compiler = Compiler(Source(FUNCTIONS, defines=(("EXP", call),), fast_math=fast_math))
    assert ("ex2.approx" in built(compiler, "functions").ptx) == hardware


def test_fast_quotients_beside_sums_of_products_of_vectors() -> None:
    source = """
#include <metal_stdlib>
using namespace metal;
kernel void blend(device float4* x, uint i [[thread_position_in_grid]]) {
  x[i] = x[i] * x[i + 1] + fast::divide(x[i].x, x[i].y);
}
"""
    ptx = built(Compiler(Source(source)), "blend").ptx
    assert ptx.count("div.full.f32") == 1
    assert ptx.count("fma.rn.f32") == 4


def test_arrays_of_a_thread_are_registers() -> None:
    ptx = built(Compiler(Source(FUNCTIONS, defines=(("EXP", "exp"),))), "held").ptx
    assert ".local" not in ptx


def test_bfloats_are_rounded_in_pairs_and_widened_by_shifts_and_masks() -> None:
    source = """
#include <metal_stdlib>
using namespace metal;
kernel void scale(device const uint* x, device uint* y, constant float& by,
                  uint i [[thread_position_in_grid]]) {
  const float2 values = float2(as_type<bfloat2>(x[i])) * by;
  y[i] = as_type<uint>(bfloat2(values));
}
"""
    ptx = built(Compiler(Source(source)), "scale").ptx
    assert ptx.count("cvt.rn.bf16x2.f32") == 1
    assert "cvt.rn.bf16.f32" not in ptx
    assert "-65536" in ptx  # the mask of the upper half
    assert "mov.b32 \t{" not in ptx  # nothing is taken apart


def test_halves_are_rounded_in_pairs() -> None:
    source = """
#include <metal_stdlib>
using namespace metal;
kernel void scale(device const float4* x, device uint2* y, constant float& by,
                  uint i [[thread_position_in_grid]]) {
  uint pairs[2];
  for (uint k = 0; k < 2; ++k)
    pairs[k] = as_type<uint>(half2(float2(x[i][k * 2], x[i][k * 2 + 1]) * by));
  y[i] = uint2(pairs[0], pairs[1]);
}
"""
    ptx = built(Compiler(Source(source)), "scale").ptx
    assert ptx.count("cvt.rn.f16x2.f32") == 2
    assert "cvt.rn.f16.f32" not in ptx


def test_pointers_that_may_be_of_either_buffer_are_not_read_only() -> None:
    text = (
        HEAD
        + """
kernel void either(device const float* x, device float* y, constant bool& which,
                   uint i [[thread_position_in_grid]]) {
  device const float* from = which ? x : y;
  float sum = 0.0f;
  for (uint j = 0; j < i; ++j, ++from) sum += *from;
  y[i] = sum;
}
"""
    )
    ptx = built(Compiler(Source(text)), "either").ptx
    assert "ld.global.nc" not in ptx.replace("ld.global.nc.b8", "")  # `which` itself


def test_collectives_are_shuffles_and_votes(sample: Compiler) -> None:
    ptx = built(sample, "rows", {"twice": True}).ptx
    for instruction in ("shfl.sync.idx", "vote.sync.ballot", "barrier.sync", "activemask"):
        assert instruction in ptx
    assert not re.search(r"\bcall\b", ptx)
    # A product and a sum that the author did not fuse must not be fused by the assembler.
    assert not re.search(r"\b(?:add|mul)\.f32", ptx)


def test_metadata_is_that_of_the_cpu_engines(sample: Compiler) -> None:
    constants = {"twice": False}
    made = built(sample, "rows", constants)
    reference = sample.compile("rows", constants, PLAIN, choose.REFERENCE)
    assert made.used_buffers == reference.used_buffers == {0, 1, 2, 3, 4}
    assert made.arguments == reference.arguments
    assert made.static_threadgroup_memory_length == reference.static_threadgroup_memory_length


def test_block_has_the_size_that_the_compiler_gives_it(sample: Compiler) -> None:
    made = built(sample, "rows", {"twice": True})
    block = block_of(made.arguments)
    assert (block.buffers, block.values, block.arrays) == (6, (2, 3), (1,))
    declared = re.search(r"am_entry_param_0\[(\d+)\]", made.ptx)
    assert declared is not None
    assert int(declared[1]) == block.size


@pytest.mark.parametrize("arrays", [0, 1, 2, 3])
def test_places_in_a_block_follow_one_another(arrays: int) -> None:
    block = Block(3, (1, 2), tuple(range(arrays)))
    assert block.addresses_at % 8 == block.values_at % 16 == 0
    assert block.buffer_at(block.addresses_at + 8) == 1
    assert block.buffer_at(block.values_at + block.value_bytes) == 2
    assert block.buffer_at(0) is None


def test_products_of_halves_run_on_tensor_cores(sample: Compiler, tmp_path: Path) -> None:
    ptx = built(sample, "product").ptx
    assert "mma.sync.aligned.m16n8k8" in ptx
    assert not re.search(r"\bam_(?:lanes_as_tiles|tile)\b", ptx)
    assemble(ptx, tmp_path)


def test_atomics_are_instructions(sample: Compiler, tmp_path: Path) -> None:
    ptx = built(sample, "atomics").ptx
    for instruction in ("atom", "add.f32", "max.u32", "or.b32", "min.u64"):
        assert instruction in ptx
    assert "atom.global." in ptx
    assert not re.search(r"atom\.(?!global|shared)", ptx)
    assemble(ptx, tmp_path)


@pytest.mark.parametrize(("engine", "processor"), [("cuda-sm80", "sm_80"), ("cuda-sm90", "sm_90")])
def test_sample_is_assembled_without_spills(
    sample: Compiler, engine: str, processor: str, tmp_path: Path
) -> None:
    said = assemble(built(sample, "rows", {"twice": True}, engine).ptx, tmp_path, processor)
    assert "0 bytes spill stores" in said
    assert "128 bytes smem" in said


LOOPS = (
    HEAD
    + """#include <metal_logging>
kernel void counted(device float* x, constant uint& n, threadgroup float* s [[threadgroup(0)]],
                    uint i [[thread_position_in_grid]], uint g [[threads_per_grid]],
                    uint t [[threads_per_threadgroup]], uint w [[simdgroups_per_threadgroup]]) {
  float a = 0;
  for (uint k = i; k < n; k += w * 32) a += x[k];
  for (uint k = i; k < n; k += g) a += x[k];
  for (uint k = i; k < n; k += t) a += x[k];
  for (int k = 99; k >= 0; --k) { s[k] = a; a += s[k + 1]; }
  for (uint k = 0; k < 90 && x[k] > 0; ++k) a += x[k];
  for (uint k = t / 2; k > 0; k >>= 1) {
    s[i] += s[i + k];
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  x[i] = a + s[0];
}
kernel void waiting(device atomic_uint* x) {
  while (atomic_load_explicit(x, memory_order_relaxed) == 0) {}
}
kernel void strided(device float* x, constant uint& n, constant uint& by,
                    uint i [[thread_position_in_grid]]) {
  for (uint k = i; k < n; k += by) x[k] *= 3;
}
kernel void talking(device float* x, uint i [[thread_position_in_grid]]) {
  os_log_default.log("%f of %u", x[i], i);
}
"""
)


@pytest.fixture(scope="module")
def loops() -> Compiler:
    return Compiler(Source(LOOPS))


@pytest.mark.parametrize(
    ("kernel", "watched"),
    [("counted", False), ("waiting", True), ("strided", True), ("talking", False)],
)
def test_loops_that_may_not_end_look_at_the_clock(
    loops: Compiler, kernel: str, watched: bool, tmp_path: Path
) -> None:
    made = built(loops, kernel)
    assert ("am_time_limit" in made.ptx) == watched
    assert ("%globaltimer" in made.ptx) == ("__assertfail" in made.ptx) == watched
    assert (f"kernel '{kernel}' takes longer" in _texts(made.ptx)) == watched
    assert made.metadata["uses_log"] == (kernel == "talking")
    assert "0 bytes spill stores" in assemble(made.ptx, tmp_path, "sm_90")


def _texts(ptx: str) -> str:
    """The strings that a module holds, which PTX writes as bytes."""
    lists = re.findall(r"\.b8 am_watch_text\[\d+\] = \{([\d, ]+)\}", ptx)
    return "".join(chr(int(byte)) for one in lists for byte in one.split(","))


def test_messages_of_kernels_are_told(caplog: pytest.LogCaptureFixture) -> None:
    value = bytes(LogValue(int(LogKind.UNSIGNED), 4, 1, (7, 0, 0, 0)))
    texts = b"sub" + b"" + b"got %u"
    size = -(-(40 + len(value) + len(texts)) // 8) * 8
    record = struct.pack("<IiI3II3I", size, 3, 1, 1, 0, 0, 4, 3, 0, 6) + value + texts
    data = struct.pack("<2I", size, 2) + record.ljust(size, b"\0") + bytes(64)
    # The second threadgroup in both directions of a grid of 11 x 7 is cut to 3 x 3; down, it is the
    # first of its part.
    messages.deliver(data, "k", (0, 1, 0), (11, 7, 1), (8, 4, 1))
    first, second = (one.getMessage() for one in caplog.records)
    assert first == "k thread (9, 5, 0): [sub] got 7"
    assert "2 messages were dropped" in second


@pytest.mark.parametrize("is_early", [False, True])
def test_bindings_are_filled_as_the_driver_reads_them(is_early: bool) -> None:
    seen: list[Any] = []

    class Recorder:
        def __getattr__(self, name: str) -> Any:
            return getattr(launcher.bindings(), name)

        def cuLaunchKernelEx(self, *arguments: Any) -> tuple[int]:
            seen.extend(arguments)
            return (0,)

    launch = launcher.Launch(0x1000, (5, 3, 2), 96, 48, 0x2000, 0x3000, is_early)
    queue = launcher.by_bindings(launch, Recorder())
    assert queue() == 0
    where, function, arguments, extra = seen
    assert (where.gridDimX, where.gridDimY, where.gridDimZ) == (5, 3, 2)
    assert (where.blockDimX, where.blockDimY, where.blockDimZ) == (96, 1, 1)
    assert (where.sharedMemBytes, int(where.hStream), where.numAttrs) == (48, 0x2000, int(is_early))
    if is_early:
        (attribute,) = where.attrs
        assert attribute.id.name == "CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION"
        assert attribute.value.programmaticStreamSerializationAllowed == 1
    assert int(function) == 0x1000
    assert ctypes.c_uint64.from_address(arguments).value == 0x3000
    assert not extra


def test_structures_are_those_of_the_bindings() -> None:
    """What goes through ctypes has the same bytes; the first field is that of the grid."""
    queued: list[Any] = []
    library: Any = SimpleNamespace(cuLaunchKernelEx=lambda *given: queued.append(given) or 0)
    launch = launcher.Launch(0x1000, (5, 3, 2), 96, 48, 0x2000, 0x3000, early=True)
    assert launcher.by_ctypes(launch, library)() == 0
    where = queued[0][0]._obj
    theirs = launcher.bindings().CUlaunchAttribute(ctypes.addressof(where.attributes.contents))
    assert theirs.id.name == "CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION"
    assert theirs.value.programmaticStreamSerializationAllowed == 1
    config = launcher.bindings().CUlaunchConfig(ctypes.addressof(where))
    assert (config.gridDimX, config.blockDimX, config.sharedMemBytes) == (5, 96, 48)
    assert config.numAttrs == 1


@pytest.mark.parametrize(("processor", "waits"), [("sm80", False), ("sm90", True)])
def test_kernels_wait_for_what_came_before_at_their_start(
    processor: str, waits: bool, tmp_path: Path
) -> None:
    text = (
        HEAD
        + "kernel void add(device float* x, uint i [[thread_index_in_threadgroup]]) { x[i] += 1; }"
    )
    ptx = built(Compiler(Source(text)), "add", engine=f"cuda-{processor}").ptx
    assert ptx.count(early.WAIT) == ptx.count(early.LET_COME) == waits
    body = ptx[ptx.index(".entry") :]
    if waits:
        opcodes = [line.opcode for line in lines_of(body) if line.opcode]
        assert opcodes.count(early.WAIT) == opcodes.count(early.LET_COME) == 1
        at = opcodes.index(early.WAIT)
        assert opcodes[at + 1] == early.LET_COME
        assert all(not one.startswith("ld.") or one.startswith("ld.param.") for one in opcodes[:at])
        assert any(one.startswith("ld.global") for one in opcodes[at:])
    assemble(ptx, tmp_path, processor.replace("sm", "sm_"))


@pytest.mark.parametrize(
    ("line", "comes_before"),
    [
        ("\tld.param.b64 \t%rd1, [am_entry_param_0+32];", True),
        ("\tmad.lo.s32 \t%r1, %r2, %r3, %r4;", True),
        ("\t// begin inline asm", True),
        ("\tmov.u64 \t%rd1, %globaltimer;", False),
        ("\tld.global.b32 \t%r1, [%rd1];", False),
        ("\tld.shared.b32 \t%r1, [%r2];", False),
        ("\tactivemask.b32 \t%r1;", False),
        ("\t@%p1 bra \t$L__BB0_2;", False),
        ("$L__BB0_1:", False),
    ],
)
def test_places_are_computed_before_what_came_before_has_ended(
    line: str, comes_before: bool
) -> None:
    head = ".visible .entry am_entry(\n)\n{\n\tmov.u32 \t%r2, %tid.x;"
    lines = early.wait_at_the_start(f"{head}\n{line}\n\tret;\n}}", "sm_90").split("\n")
    assert lines.index(f"\t{early.WAIT};") - lines.index(line) == (1 if comes_before else -2)
    assert lines.index(f"\t{early.LET_COME};") == lines.index(f"\t{early.WAIT};") + 1


@pytest.mark.parametrize(("said", "asked"), [("", [0, 1024]), ("512", [512])])
def test_kernels_that_name_their_threads_have_registers_for_so_many(
    monkeypatch: pytest.MonkeyPatch, said: str, asked: list[int]
) -> None:
    attribute = f", max_total_threads_per_threadgroup({said})" if said else ""
    text = f"{HEAD}[[kernel{attribute}]] void fill(device float* x [[buffer(0)]]) {{ x[0] = 1; }}"
    loaded: list[int] = []

    def load(ptx: str, name: str, device: int, *, threads: int = 0) -> SimpleNamespace:
        loaded.append(threads)
        return SimpleNamespace(max_threads=1024, registers=128, local_bytes=0)

    monkeypatch.setattr(driver, "load", load)
    built(Compiler(Source(text)), "fill")._load(0, 512, Text(False, ()))
    assert loaded == asked


def test_engine_follows_the_compute_capability() -> None:
    assert choose.for_cuda((8, 6)) == "cuda-sm80"
    assert choose.for_cuda((12, 0)) == "cuda-sm90"
    with pytest.raises(EngineError, match=r"7\.5"):
        choose.for_cuda((7, 5))
    names = [engine.name for engine in registry.ENGINES]
    assert not any(name.startswith("cuda") for name in names)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_cpu_tensors_stay_on_the_cpu() -> None:
    library = compile_shader(
        HEAD + "kernel void k(device float* x, uint i [[thread_position_in_grid]]) { x[i] += 1; }"
    )
    x = torch.zeros(3)
    library.k(x)
    assert x.tolist() == [1, 1, 1]


def test_recursive_functions_are_called(tmp_path: Path) -> None:
    text = """
uint steps(uint n) { return n < 2 ? n : steps(n - 1) + steps(n - 2); }
kernel void k(device uint* x, uint i [[thread_position_in_grid]]) { x[i] = steps(x[i]); }
"""
    assemble(built(Compiler(Source(HEAD + text)), "k").ptx, tmp_path)


def test_collective_in_a_recursive_function_is_refused() -> None:
    text = """
uint steps(uint n) { return n < 2 ? simd_sum(n) : steps(n - 1) + steps(n - 2); }
kernel void k(device uint* x, uint i [[thread_position_in_grid]]) { x[i] = steps(x[i]); }
"""
    with pytest.raises(EngineError, match=r"could not be inlined .* passed by .cpu"):
        built(Compiler(Source(HEAD + text)), "k")


INITIAL = (
    HEAD
    + """
kernel void begun(device int* x, uint i [[thread_position_in_grid]],
                  uint j [[thread_index_in_threadgroup]]) {
  if (j == 7) return;
  threadgroup int table[4] = {4, 5, 6, 7};
  x[i] = table[j & 3];
}
"""
)


def test_threadgroup_variables_have_their_values_before_the_kernel_starts(tmp_path: Path) -> None:
    """Metal's are static: no thread that reads one waits for another."""
    ptx = built(Compiler(Source(INITIAL)), "begun").ptx
    assemble(ptx, tmp_path)
    barrier = ptx.index("barrier.sync")
    assert ptx.rindex("st.shared") < barrier < ptx.index("ld.shared")
    assert ptx.count("st.shared") == 4 and "am_initial_value" not in ptx
