"""AIR written by hand in the shape that Apple's compiler gives it, and metallibs made of it."""

from __future__ import annotations

import re
from collections.abc import Sequence

import llvmlite.binding as llvm

from anymetal.air.container import Constant, LibraryFunction, write_metallib

HEAD = """target datalayout = "e-p:64:64:64-i64:64:64-v96:128:128-v128:128:128-n8:16:32"
target triple = "air64_v26-apple-macosx14.0.0"
"""


def buffer(
    number: int, name: str, type_: str = "float", *, space: int = 1, size: int = 4, more: str = ""
) -> str:
    """The node of a buffer: read-only in constant memory or where `more` does not say otherwise."""
    access = "air.read" if space == 2 or "const" in more else "air.read_write"
    reference = f'!"air.buffer_size", i32 {size}, ' if "reference" in more else ""
    return (
        f'!{{i32 {number}, !"air.buffer", {reference}!"air.location_index", i32 {number}, i32 1,'
        f' !"{access}", !"air.address_space", i32 {space}, !"air.arg_type_size", i32 {size},'
        f' !"air.arg_type_align_size", i32 {size}, !"air.arg_type_name", !"{type_}",'
        f' !"air.arg_name", !"{name}"}}'
    )


def builtin(number: int, kind: str, name: str, type_: str = "uint") -> str:
    return (
        f'!{{i32 {number}, !"air.{kind}", !"air.arg_type_name", !"{type_}", !"air.arg_name",'
        f' !"{name}"}}'
    )


def module(kernel: str, body: str, parameters: Sequence[str], more: str = "") -> str:
    """A module with one kernel and its notes; `parameters` are their nodes."""
    rows = "\n".join(f"!{100 + n} = {text}" for n, text in enumerate(parameters))
    listed = ", ".join(f"!{100 + n}" for n in range(len(parameters)))
    return f"""{HEAD}
{body}
!air.kernel = !{{!10}}
!10 = !{{ptr @{kernel}, !11, !12}}
!11 = !{{}}
!12 = !{{{listed}}}
{rows}
{more}
"""


def function(
    kernel: str,
    text: str,
    *,
    air: tuple[int, int] = (2, 6),
    constants: tuple[Constant, ...] = (),
) -> LibraryFunction:
    bitcode = llvm.parse_assembly(text, llvm.create_context()).as_bitcode()
    return LibraryFunction(kernel, bitcode, air, (3, 1), constants=constants)


def metallib(*functions: LibraryFunction) -> bytes:
    return write_metallib(functions)


# out[row] = mean(x[row]): each simdgroup sums, and one thread adds what two of them left.
ROW_MEAN = module(
    "row_mean",
    """
@_ZZ8row_meanE8partials = internal addrspace(3) global [32 x float] undef, align 4
declare float @air.simd_sum.f32(float)
declare void @air.wg.barrier(i32, i32)
declare float @air.convert.f.f32.u.i32(i32)

define void @row_mean(ptr addrspace(1) noundef "air-buffer-no-alias" %x, ptr addrspace(1) %out,
    ptr addrspace(2) %columns, i32 %row, i32 %in_group, i32 %lane, i32 %simd, i32 %threads) {
  %count = load i32, ptr addrspace(2) %columns, align 4
  %start = mul nsw i32 %row, %count
  br label %head

head:
  %column = phi i32 [ %in_group, %0 ], [ %next, %add ]
  %own = phi float [ 0.0, %0 ], [ %more, %add ]
  %inside = icmp ult i32 %column, %count
  br i1 %inside, label %add, label %summed

add:
  %at = add i32 %start, %column
  %wide = zext i32 %at to i64
  %from = getelementptr inbounds float, ptr addrspace(1) %x, i64 %wide
  %value = load float, ptr addrspace(1) %from, align 4
  %more = fadd float %own, %value
  %next = add nuw nsw i32 %column, %threads
  br label %head, !llvm.loop !50

summed:
  %total = tail call float @air.simd_sum.f32(float %own)
  %leads = icmp eq i32 %lane, 0
  br i1 %leads, label %leave, label %together

leave:
  %place = zext i32 %simd to i64
  %to = getelementptr inbounds [32 x float], ptr addrspace(3) @_ZZ8row_meanE8partials, i64 0,
    i64 %place
  store float %total, ptr addrspace(3) %to, align 4
  br label %together

together:
  BARRIER
  %first = icmp eq i32 %in_group, 0
  br i1 %first, label %last, label %done

last:
  %a = load float, ptr addrspace(3) @_ZZ8row_meanE8partials, align 4
  %b = load float, ptr addrspace(3) getelementptr inbounds ([32 x float], ptr addrspace(3)
    @_ZZ8row_meanE8partials, i64 0, i64 1), align 4
  %sum = fadd float %a, %b
  %size = tail call float @air.convert.f.f32.u.i32(i32 %count)
  %mean = fdiv float %sum, %size
  %wide_row = zext i32 %row to i64
  %result = getelementptr inbounds float, ptr addrspace(1) %out, i64 %wide_row
  store float %mean, ptr addrspace(1) %result, align 4
  br label %done

done:
  ret void
}
""",
    [
        buffer(0, "x", more="const"),
        buffer(1, "out"),
        buffer(2, "columns", "uint", space=2, more="reference"),
        builtin(3, "threadgroup_position_in_grid", "row"),
        builtin(4, "thread_position_in_threadgroup", "in_group"),
        builtin(5, "thread_index_in_simdgroup", "lane"),
        builtin(6, "simdgroup_index_in_threadgroup", "simd"),
        builtin(7, "threads_per_threadgroup", "threads"),
    ],
    '!50 = distinct !{!50, !51}\n!51 = !{!"llvm.loop.mustprogress"}',
)
_BARRIER = "tail call void @air.wg.barrier(i32 2, i32 1)"
RACING = ROW_MEAN.replace("BARRIER", "").replace("row_mean", "row_race")
ROW_MEAN = ROW_MEAN.replace("BARRIER", _BARRIER)
ROW_MEAN_SOURCE = """#include <metal_stdlib>
using namespace metal;
kernel void row_mean(device const float* x, device float* out, constant uint& columns,
                     uint row [[threadgroup_position_in_grid]],
                     uint in_group [[thread_position_in_threadgroup]],
                     uint lane [[thread_index_in_simdgroup]],
                     uint simd [[simdgroup_index_in_threadgroup]],
                     uint threads [[threads_per_threadgroup]]) {
  threadgroup float partials[32];
  float own = 0;
  for (uint column = in_group; column < columns; column += threads)
    own += x[row * columns + column];
  own = simd_sum(own);
  if (lane == 0) partials[simd] = own;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (in_group == 0) out[row] = (partials[0] + partials[1]) / float(columns);
}
"""

# out[i] = scale * x[i], and + bias[i] where a function constant says so; values have no names.
SCALED = module(
    "scaled",
    """
@_Z5scale.MTL_FC_INIT_3_f = internal addrspace(2) externally_initialized constant float undef,
  section "air.fc_initializer", align 4
@_Z8has_bias.MTL_FC_INIT_7_b = internal addrspace(2) externally_initialized constant i8 undef,
  section "air.fc_initializer", align 1
@_ZL5scale = internal addrspace(2) global float undef, align 4
@_ZL8has_bias = internal addrspace(2) global i8 undef, align 1
@__metal_implicit_fc_pred_0 = internal addrspace(2) global i8 0, align 1
@llvm.global_ctors = appending global [1 x { i32, ptr, ptr }]
  [{ i32, ptr, ptr } { i32 65535, ptr @init, ptr null }]
declare i8 @air.normalize_function_constant_predicate.i8(i8)

define internal void @init() section "air.static_init" {
  %1 = load float, ptr addrspace(2) @_Z5scale.MTL_FC_INIT_3_f, align 4
  store float %1, ptr addrspace(2) @_ZL5scale, align 4
  %2 = load i8, ptr addrspace(2) @_Z8has_bias.MTL_FC_INIT_7_b, align 1
  store i8 %2, ptr addrspace(2) @_ZL8has_bias, align 1
  %3 = call i8 @air.normalize_function_constant_predicate.i8(i8 %2)
  store i8 %3, ptr addrspace(2) @__metal_implicit_fc_pred_0, align 1
  ret void
}

define void @scaled(ptr addrspace(1) %0, ptr addrspace(1) %1, ptr addrspace(1) %2, i32 %3) {
  %5 = zext i32 %3 to i64
  %6 = getelementptr inbounds float, ptr addrspace(1) %0, i64 %5
  %7 = load float, ptr addrspace(1) %6, align 4
  %8 = load float, ptr addrspace(2) @_ZL5scale, align 4
  %9 = fmul float %7, %8
  %10 = load i8, ptr addrspace(2) @_ZL8has_bias, align 1
  %11 = icmp eq i8 %10, 0
  br i1 %11, label %16, label %12

12:
  %13 = getelementptr inbounds float, ptr addrspace(1) %1, i64 %5
  %14 = load float, ptr addrspace(1) %13, align 4
  %15 = fadd float %9, %14
  br label %16

16:
  %17 = phi float [ %9, %4 ], [ %15, %12 ]
  %18 = getelementptr inbounds float, ptr addrspace(1) %2, i64 %5
  store float %17, ptr addrspace(1) %18, align 4
  ret void
}
""",
    [
        buffer(0, "x", more="const"),
        buffer(1, "bias", more="const").replace(
            '!"air.buffer"', '!"air.function_constant", !60, !"air.buffer"'
        ),
        buffer(2, "out"),
        builtin(3, "thread_position_in_grid", "i"),
    ],
    """!air.function_constants = !{!61, !62}
!60 = !{ptr addrspace(2) @__metal_implicit_fc_pred_0, !"bool", !"has_bias"}
!61 = !{ptr addrspace(2) @_Z5scale.MTL_FC_INIT_3_f, !"float", !"scale", i32 3, i1 true}
!62 = !{ptr addrspace(2) @_Z8has_bias.MTL_FC_INIT_7_b, !"bool", !"has_bias", i32 7, i1 true}""",
)
SCALED_CONSTANTS = (
    Constant("scale", "float", 3, is_required=True),
    Constant("has_bias", "bool", 7, is_required=True),
)


WEIGHTED = module(
    "weighted",
    """
@_Z7weights.MTL_FC_INIT_0_Dv3_f = external addrspace(2) externally_initialized constant <3 x float>
@_Z2on.MTL_FC_INIT_1_Dv2_b = external addrspace(2) externally_initialized constant <2 x i8>
@_ZL7weights = internal addrspace(2) global <3 x float> undef, align 16
@_ZL2on = internal addrspace(2) global <2 x i8> undef, align 2
@llvm.global_ctors = appending global [1 x { i32, ptr, ptr }]
  [{ i32, ptr, ptr } { i32 65535, ptr @init, ptr null }]

define internal void @init() section "air.static_init" {
  %1 = load <3 x float>, ptr addrspace(2) @_Z7weights.MTL_FC_INIT_0_Dv3_f, align 16
  store <3 x float> %1, ptr addrspace(2) @_ZL7weights, align 16
  %2 = load <2 x i8>, ptr addrspace(2) @_Z2on.MTL_FC_INIT_1_Dv2_b, align 2
  store <2 x i8> %2, ptr addrspace(2) @_ZL2on, align 2
  ret void
}

define void @weighted(ptr addrspace(1) %0, i32 %1) {
  %3 = load <3 x float>, ptr addrspace(2) @_ZL7weights, align 16
  %4 = load <2 x i8>, ptr addrspace(2) @_ZL2on, align 2
  %5 = extractelement <2 x i8> %4, i64 1
  %6 = icmp eq i8 %5, 0
  %7 = extractelement <3 x float> %3, i64 0
  %8 = extractelement <3 x float> %3, i64 2
  %9 = select i1 %6, float %7, float %8
  %10 = zext i32 %1 to i64
  %11 = getelementptr inbounds float, ptr addrspace(1) %0, i64 %10
  store float %9, ptr addrspace(1) %11, align 4
  ret void
}
""",
    [buffer(0, "out"), builtin(1, "thread_position_in_grid", "i")],
    """!air.function_constants = !{!61, !62}
!61 = !{ptr addrspace(2) @_Z7weights.MTL_FC_INIT_0_Dv3_f, !"float3", !"weights", i32 0, i1 true}
!62 = !{ptr addrspace(2) @_Z2on.MTL_FC_INIT_1_Dv2_b, !"bool2", !"on", i32 1, i1 true}""",
)
WEIGHTED_CONSTANTS = (
    Constant("weights", "float3", 0, is_required=True),
    Constant("on", "bool2", 1, is_required=True),
)


def matrices(air: tuple[int, int]) -> str:
    """out = a * b for 8x8 matrices: how loads and stores are called depends on the version."""
    strided = air >= (2, 8)
    types = "<2 x i64>, <2 x i64>, <2 x i64>" if strided else "i64, <2 x i64>, i1"
    given = (
        "<2 x i64> <i64 8, i64 8>, <2 x i64> <i64 1, i64 8>, <2 x i64> zeroinitializer"
        if strided
        else "i64 8, <2 x i64> zeroinitializer, i1 false"
    )
    matrix, stem = "<64 x float>", "air.simdgroup_matrix_8x8"
    product = f"{stem}_multiply_accumulate.v64f32.v64f32.v64f32.v64f32"
    pointer = "ptr addrspace(1)"
    return module(
        "product",
        f"""
declare {matrix} @{stem}_load.v64f32.p1f32({pointer}, {types})
declare void @{stem}_store.v64f32.p1f32({matrix}, {pointer}, {types})
declare {matrix} @{product}({matrix}, {matrix}, {matrix})

define void @product({pointer} %a, {pointer} %b, {pointer} %out) {{
  %1 = call {matrix} @{stem}_load.v64f32.p1f32({pointer} %a, {given})
  %2 = call {matrix} @{stem}_load.v64f32.p1f32({pointer} %b, {given})
  %3 = shufflevector {matrix} %2, {matrix} poison, <2 x i32> <i32 0, i32 1>
  %4 = shufflevector <2 x float> %3, <2 x float> poison, <64 x i32> <{_spread(64)}>
  %5 = call {matrix} @{product}({matrix} %1, {matrix} %4, {matrix} zeroinitializer)
  call void @{stem}_store.v64f32.p1f32({matrix} %5, {pointer} %out, {given})
  ret void
}}
""",
        [buffer(0, "a", more="const"), buffer(1, "b", more="const"), buffer(2, "out")],
    )


def tensor_product(transpose_left: bool, transpose_right: bool) -> str:
    """out += left * right by matmul2d (16, 32, 16): 8, 16 and 16 elements of each lane, which lie
    one behind the other in the buffers."""
    stem, flags = (
        "__tensorops_impl_matmul2d_op",
        f"i8 {int(transpose_left)}, i8 {int(transpose_right)}",
    )
    shape = f"i32 16, i32 32, i32 16, {flags}, i8 1, i32 1"
    types = "i32 268435488, i32 268435488, i32 268435488"
    pointer, moved = "ptr addrspace(1)", ""
    for operand, (name, count) in enumerate((("left", 8), ("right", 16), ("out", 16))):
        moved += f"""
  %{name}.bytes = call i64 @{stem}_cooperative_tensor_data_size(i32 {operand}, {shape},
    {types}, i32 32)
  %{name}.data = alloca i8, i64 %{name}.bytes, align 16
  %{name}.first = mul i64 %wide, {4 * count}
  %{name}.place = getelementptr inbounds i8, {pointer} %{name}, i64 %{name}.first
  %{name}.to = call ptr @{stem}_cooperative_tensor_get_element_pointer(i32 {operand}, {shape},
    ptr %{name}.data, i16 -1, {types})
  call void @llvm.memcpy.p0.p1.i64(ptr %{name}.to, {pointer} %{name}.place, i64 {4 * count},
    i1 false)"""
    described = "i32, i32, i32, i32, i8, i8, i8, i32"
    return module(
        "product",
        f"""
%descriptor = type {{ i32, i32, i32, i8, i8, i8, i32 }}
declare i64 @{stem}_cooperative_tensor_data_size({described}, i32, i32, i32, i32)
declare ptr @{stem}_cooperative_tensor_get_element_pointer({described}, ptr, i16, i32, i32, i32)
declare void @{stem}_run_cooperative_f32_f32_f32(ptr, ptr, ptr, ptr, i32)
declare void @llvm.memcpy.p0.p1.i64(ptr, ptr addrspace(1), i64, i1)
declare void @llvm.memcpy.p1.p0.i64(ptr addrspace(1), ptr, i64, i1)

define void @product({pointer} %left, {pointer} %right, {pointer} %out, i32 %lane) {{
  %wide = zext i32 %lane to i64
  %d = alloca %descriptor, align 4
  store %descriptor {{ {shape} }}, ptr %d, align 4{moved}
  call void @{stem}_run_cooperative_f32_f32_f32(ptr %d, ptr %left.to, ptr %right.to, ptr %out.to,
    i32 32)
  call void @llvm.memcpy.p1.p0.i64({pointer} %out.place, ptr %out.to, i64 64, i1 false)
  ret void
}}
""",
        [
            buffer(0, "left", more="const"),
            buffer(1, "right", more="const"),
            buffer(2, "out"),
            builtin(3, "thread_index_in_simdgroup", "lane"),
        ],
    )


def tensors_in_memory() -> str:
    """out += left * right by matmul2d (16, 32, 16), where all matrices are smaller: 9 x 13 numbers
    in rows of 15, and 13 x 20 from (1, 4) on of 16 x 24."""
    stem = "__tensorops_impl_matmul2d_op"
    shape = "i32 16, i32 32, i32 16, i8 0, i8 0, i8 1, i32 1"
    types = "i32 268435488, i32 268435488, i32 268435488"
    pointer, described = "ptr addrspace(1)", "i32, i32, i32, i32, i8, i8, i8, i32"
    lines, moved = "", f"ptr %sums, ptr %out.view, i32 2{{}}, {types}, i32 32"
    numbers = {"left": (13, 9, 1, 15), "right": (24, 16, 1, 24), "part": (4, 1, 20, 13)}
    for name, (a, b, c, d) in (numbers | {"out": (20, 9, 1, 20)}).items():
        lines += f"""
  %{name}.view = alloca i8, i64 %size, align 8
  %{name}.first = alloca [2 x i32], align 4
  %{name}.second = alloca [2 x i32], align 4
  store [2 x i32] [i32 {a}, i32 {b}], ptr %{name}.first, align 4
  store [2 x i32] [i32 {c}, i32 {d}], ptr %{name}.second, align 4"""
        given = f"ptr %{name}.first, ptr %{name}.second"
        if name == "part":
            lines += f"""
  call void @air.slice_private_tensor_private_tensor.s.i32(ptr %part.view, ptr %right.view, i16 2,
    {given})
  %width = call i32 @air.get_extent_private_tensor.i32(ptr %part.view, i16 2, i16 0)"""
            continue
        if name == "out":
            lines += f"\n  store i32 %width, ptr %{name}.first, align 4"
        lines += f"""
  call void @air.init_strided_private_tensor.i32.global(ptr %{name}.view, i16 2,
    {pointer} %{name}, {given}, i8 0)"""
    return module(
        "memory",
        f"""
%descriptor = type {{ i32, i32, i32, i8, i8, i8, i32 }}
declare i16 @air.get_descriptor_size_tensor(i16, i16)
declare void @air.init_strided_private_tensor.i32.global(ptr, i16, {pointer}, ptr, ptr, i8)
declare void @air.slice_private_tensor_private_tensor.s.i32(ptr, ptr, i16, ptr, ptr)
declare i32 @air.get_extent_private_tensor.i32(ptr, i16, i16)
declare i64 @{stem}_cooperative_tensor_data_size({described}, i32, i32, i32, i32)
declare void @{stem}_cooperative_tensor_load_dv_f32({described}, ptr, ptr, i32, i32, i32, i32, i32,
  i32)
declare void @{stem}_cooperative_tensor_store_dv_f32({described}, ptr, ptr, i32, i32, i32, i32, i32)
declare void @{stem}_run_cooperative_dv_f32_dv_f32_f32(ptr, ptr, i32, ptr, i32, ptr, i32)

define void @memory({pointer} %left, {pointer} %right, {pointer} %out) {{
  %short = call i16 @air.get_descriptor_size_tensor(i16 2, i16 4)
  %size = zext i16 %short to i64
  %d = alloca %descriptor, align 4
  store %descriptor {{ {shape} }}, ptr %d, align 4{lines}
  %bytes = call i64 @{stem}_cooperative_tensor_data_size(i32 2, {shape}, {types}, i32 32)
  %sums = alloca i8, i64 %bytes, align 16
  call void @{stem}_cooperative_tensor_load_dv_f32(i32 2, {shape}, {moved.format(", i32 2")})
  call void @{stem}_run_cooperative_dv_f32_dv_f32_f32(ptr %d, ptr %left.view, i32 2,
    ptr %part.view, i32 2, ptr %sums, i32 32)
  call void @{stem}_cooperative_tensor_store_dv_f32(i32 2, {shape}, {moved.format("")})
  ret void
}}
""",
        [buffer(0, "left", more="const"), buffer(1, "right", more="const"), buffer(2, "out")],
    )


def _spread(count: int) -> str:
    return ", ".join(["i32 0", "i32 1", *["i32 poison"] * (count - 2)])


def calls(kernel: str, declared: str, line: str) -> str:
    """out[i] = a function of x[i], which `line` computes as %y; float4 each."""
    return module(
        kernel,
        f"""
{declared}
define void @{kernel}(ptr addrspace(1) %x, ptr addrspace(1) %out, <3 x i16> %position) {{
  %i = extractelement <3 x i16> %position, i32 0
  %wide = zext i16 %i to i64
  %from = getelementptr inbounds <4 x float>, ptr addrspace(1) %x, i64 %wide
  %v = load <4 x float>, ptr addrspace(1) %from, align 16
  {line}
  %to = getelementptr inbounds <4 x float>, ptr addrspace(1) %out, i64 %wide
  store <4 x float> %y, ptr addrspace(1) %to, align 16
  ret void
}}
""",
        [
            buffer(0, "x", "float4", size=16, more="const"),
            buffer(1, "out", "float4", size=16),
            builtin(2, "thread_position_in_grid", "position", "ushort3"),
        ],
    )


# The same, with the author's places: as a library compiled with debug information has them.
def with_debug_information(text: str, file: str, line: int) -> str:
    """Every load gets one place of a file."""
    found = [
        f"{row}, !dbg !92" if re.search(r"(= load float|i64 0, i64 1\)).*, align 4$", row) else row
        for row in text.split("\n")
    ]
    scoped = "\n".join(found).replace("i32 %threads) {", "i32 %threads) !dbg !91 {")
    return (
        scoped
        + f"""
!llvm.dbg.cu = !{{!90}}
!llvm.module.flags = !{{!95}}
!89 = !DIFile(filename: "{file}", directory: "/")
!90 = distinct !DICompileUnit(language: DW_LANG_C_plus_plus, file: !89, emissionKind: FullDebug)
!91 = distinct !DISubprogram(name: "k", scope: !89, file: !89, line: 1, type: !93, unit: !90,
  spFlags: DISPFlagDefinition)
!92 = !DILocation(line: {line}, column: 5, scope: !91)
!93 = !DISubroutineType(types: !94)
!94 = !{{}}
!95 = !{{i32 2, !"Debug Info Version", i32 3}}
"""
    )
