"""Kernels, their names, their parameters and where those are bound."""

from __future__ import annotations

import pytest
import torch
from tests.msl.sources import HEADER, check_all, compile_program, compiled, kernel, prepared

import anymetal
from anymetal.errors import KernelSyntaxError
from anymetal.msl.builtins import BUILTINS
from anymetal.nouns import Parameter


def parameters_of(text: str, name: str = "k") -> dict[str, Parameter]:
    found = prepared(text).entry_points[name].parameters
    return {parameter.name: parameter for parameter in found}


def places(text: str) -> list[tuple[str, str, int | None]]:
    return [(p.name, p.role, p.index) for p in parameters_of(text).values()]


# ---- names --------------------------------------------------------------------------------------

TEMPLATE = "template <typename T, int N> {kernel} void f(device T* x) {{ x[0] = N; }}\n"


@pytest.mark.parametrize("word", ["kernel", "[[kernel]]", "[[kernel, maybe_unused]]"])
@pytest.mark.parametrize(
    "instance",
    [
        'template [[host_name("f_half")]] [[kernel]] decltype(f<half, 3>) f<half, 3>;',
        'template [[host_name("f_half")]] kernel void f<half, 3>(device half* x);',
        'template [[host_name("f_half")]] kernel void f<half, 3>(device half* x [[buffer(0)]]);',
        'template [[host_name("f_" "half")]] [[kernel]] void f<half, 3>(device half*);',
        "typedef decltype(f<half, 3>) f_t;\n"
        'template [[host_name("f_half")]] kernel f_t f<half, 3>;',
        '#define NAME "half"\n'
        'template [[host_name("f_" NAME), kernel]] decltype(f<half, 3>) f<half, 3>;',
    ],
)
def test_named_instance(word: str, instance: str) -> None:
    unit = prepared(TEMPLATE.format(kernel=word) + instance + "\n")
    assert list(unit.entry_points) == ["f_half"]
    check_all(unit)
    assert [a.type for a in compile_program(unit, "f_half").arguments] == ["half"]


def test_template_arguments_that_follow_from_the_parameters() -> None:
    source = "template <typename T> kernel void f(device T* x) { x[0] = 1; }\n"
    source += 'template [[host_name("f_int")]] kernel void f(device int* x);\n'
    assert compiled(source, "f_int").arguments[0].type == "int"


def test_instances_made_by_macros() -> None:
    source = """
      template <typename T> [[kernel]] void copy(device const T* a, device T* b) { b[0] = a[0]; }
      #define INSTANCE(type) \\
        template [[host_name("copy_" #type)]] [[kernel]] \\
        void copy<type>(device const type*, device type*);
      INSTANCE(float) INSTANCE(half)
      INSTANCE(bfloat)
    """
    assert list(prepared(source).entry_points) == ["copy_float", "copy_half", "copy_bfloat"]


def test_kernels_in_namespaces() -> None:
    source = """
      namespace a { namespace b {
        struct P { float v; };
        template <typename T> kernel void f(device T* x) { x[0].v = 4; }
        template [[host_name("fp")]] [[kernel]] decltype(f<P>) f<P>;
        kernel void g(device P* x) { x[0].v = 5; }
      } }
      template [[host_name("gp")]] [[kernel]] decltype(a::b::f<a::b::P>) a::b::f<a::b::P>;
      namespace { kernel void h(device float* x) { x[0] = 6; } }
    """
    library = anymetal.compile_shader(HEADER + source)
    assert sorted(dir(library)) == ["fp", "g", "gp", "h"]
    results = {}
    for name in dir(library):
        x = torch.zeros(1)
        getattr(library, name)(x, threads=1)
        results[name] = x.item()
    assert results == {"fp": 4.0, "g": 5.0, "gp": 4.0, "h": 6.0}


def test_kernel_with_a_host_name_of_its_own() -> None:
    source = '[[host_name("other")]] kernel void f(device float* x) {}\n'
    assert list(prepared(source).entry_points) == ["other"]


def test_template_without_an_instance_is_no_entry_point() -> None:
    assert prepared("template <typename T> kernel void f(device T* x) {}\n").entry_points == {}


def test_declaration_of_a_kernel_is_no_entry_point_twice() -> None:
    assert list(prepared("kernel void k(device float* x);\n" + kernel("")).entry_points) == ["k"]


# ---- parameters ---------------------------------------------------------------------------------


def test_indices_are_given_in_order_around_the_fixed_ones() -> None:
    source = kernel(
        "",
        "device float* a, device float* b [[buffer(1)]], constant uint& c, "
        "uint i [[thread_position_in_grid]], device float* d [[buffer(0)]], device float* e",
    )
    assert places(source) == [
        ("a", "buffer", 2),
        ("b", "buffer", 1),
        ("c", "buffer", 3),
        ("i", "builtin", None),
        ("d", "buffer", 0),
        ("e", "buffer", 4),
    ]


@pytest.mark.parametrize(
    ("before", "index"),
    [
        ("#define N 3\n", 3),
        ("#define N (1 + 2 * 3)\n", 7),
        ("#define N (1 << 3 | 1)\n", 9),
        ("#define N 0x1Fu - 030\n", 7),
        ("#define N -(-5) % 3\n", 2),
        ("enum { A, B = 4, N };\n", 5),
        ("enum class E { A, N };\n#define M E::N\n", None),
        ("constant constexpr int N = 6;\n", 6),
    ],
)
def test_index_from_a_constant_expression(before: str, index: int | None) -> None:
    name = "M" if index is None else "N"
    source = kernel("", f"device float* x [[buffer({name})]]", before)
    assert parameters_of(source)["x"].index == (1 if index is None else index)


def test_threadgroup_parameters() -> None:
    source = kernel(
        "", "device float* x, threadgroup float* a, threadgroup half* b [[threadgroup(0)]]"
    )
    assert places(source) == [("x", "buffer", 0), ("a", "threadgroup", 1), ("b", "threadgroup", 0)]


@pytest.mark.parametrize(
    ("declaration", "name", "space"),
    [
        ("const device float *p", "p", "device"),
        ("device const packed_float3 * const p", "p", "device"),
        ("constant float (&p)[4]", "p", "constant"),
        ("device float (*p)[4]", "p", "device"),
        ("constant metal::array<float, 4>& p", "p", "constant"),
        ("device atomic<uint>* p", "p", "device"),
        ("device unsigned* p", "p", "device"),
        ("constant array<device float*, 3>& p", "p", "constant"),
        ("device float* const device* p", "p", "device"),
        ("constant uint&", "", "constant"),
    ],
)
def test_declarators(declaration: str, name: str, space: str) -> None:
    found = next(iter(parameters_of(kernel("", declaration)).values()))
    assert (found.name, found.space, found.role, found.index) == (name, space, "buffer", 0)
    compiled(kernel("", declaration))


def test_positions_are_the_names() -> None:
    found = parameters_of(
        kernel("", "device float* first,\n    uint  second [[thread_position_in_grid]]")
    )
    assert (found["first"].position.line, found["first"].position.column) == (3, 29)
    assert (found["second"].position.line, found["second"].position.column) == (4, 11)


# ---- resolved types -----------------------------------------------------------------------------


def test_types_are_resolved() -> None:
    source = """
      struct Params { uint n; float scale; };
      template <typename T> using four = vec<T, 4>;
      template <typename T>
      kernel void f(device const four<T>* a, device T& b, constant Params& p, device void* v,
                    device packed_float3* q, constant array<device T*, 2>& t,
                    threadgroup T* s [[threadgroup(0)]], ushort2 i [[thread_position_in_grid]]) {}
      template [[host_name("k")]] [[kernel]] decltype(f<half>) f<half>;
    """
    found = {
        a.name: (a.type, a.element_size, a.element_align, a.is_pointer, a.is_const)
        for a in compiled(source).arguments
    }
    assert found == {
        "a": ("half4", 8, 8, True, True),
        "b": ("half", 2, 2, False, False),
        "p": ("Params", 8, 4, False, True),
        "v": ("void", 1, 1, True, False),
        "q": ("packed_float3", 12, 4, True, False),
        "t": ("array<half *, 2>", 16, 8, False, True),
        "s": ("half", 2, 2, True, False),
        "i": ("ushort2", 4, 4, False, False),
    }


def test_aliases_of_built_in_types() -> None:
    source = "using position = uint3;\n"
    source += kernel("", "device float* x, position p [[thread_position_in_grid]]")
    assert compiled(source).arguments[1].type == "uint3"


def test_member_alias_named_as_what_it_stands_for() -> None:
    source = (
        HEADER
        + """
      struct Plain { template <typename T> using Offset = T; };
      template <typename Kind>
      struct Pair { using Offset = typename Kind::template Offset<float>; };
      template <typename Kind>
      [[kernel]] void k(device typename Kind::template Offset<float>* x) {
        x[0] = typename Pair<Kind>::Offset(1);
      }
      template [[host_name("k")]] [[kernel]] decltype(k<Plain>) k<Plain>;
    """
    )
    assert compiled(source, "k").arguments[0].type == "float"


def test_alias_of_a_wrong_type_is_refused_by_name() -> None:
    source = "using position = float;\n"
    source += kernel("", "device float* x, position p [[thread_position_in_grid]]")
    with pytest.raises(KernelSyntaxError) as error:
        compiled(source)
    assert (
        "<shader>:4:41: error: type 'float' is not valid for attribute 'thread_position_in_grid'"
        in str(error.value)
    )


@pytest.mark.parametrize("type_", ["uint", "ushort"])
def test_every_builtin_compiles(type_: str) -> None:
    source = "".join(
        f"kernel void {name}_{n}(device {type_}{n}* x, {type_}{n} v [[{name}]]) {{ x[0] = v; }}\n"
        for name, takes_vectors in BUILTINS.items()
        for n in (["", "2", "3"] if takes_vectors else [""])
    )
    unit = prepared(source)
    check_all(unit)
    for builtin, length in (("thread_position_in_grid", "3"), ("threads_per_simdgroup", "")):
        argument = compile_program(unit, f"{builtin}_{length}").arguments[1]
        assert (argument.builtin, argument.type) == (builtin, type_ + length)


def test_values_of_builtins() -> None:
    names = [name for name in BUILTINS if name not in ("grid_origin", "grid_size")]
    parameters = ", ".join(f"uint{'3' if BUILTINS[n] else ''} {n} [[{n}]]" for n in names)
    stores = " ".join(
        f"x[{3 * place}] = {n}{'.x' if BUILTINS[n] else ''};" for place, n in enumerate(names)
    )
    stores += " ".join(f"x[{3 * p + 1}] = {n}.y;" for p, n in enumerate(names) if BUILTINS[n])
    condition = "if (all(thread_position_in_grid == uint3(40, 2, 0)))"
    x = torch.zeros(3 * len(names), dtype=torch.int32)
    source = kernel(f"{condition} {{ {stores} }}", f"device uint* x, {parameters}")
    anymetal.compile_shader(HEADER + source).k(x, threads=(41, 3, 1), group_size=(36, 2, 1))
    found = {n: tuple(x[3 * p : 3 * p + 2].tolist()) for p, n in enumerate(names)}
    assert found == {
        "thread_position_in_grid": (40, 2),
        "thread_position_in_threadgroup": (4, 0),
        "threadgroup_position_in_grid": (1, 1),
        "threads_per_threadgroup": (5, 1),
        "dispatch_threads_per_threadgroup": (36, 2),
        "threads_per_grid": (41, 3),
        "threadgroups_per_grid": (2, 2),
        "thread_index_in_threadgroup": (4, 0),
        "thread_index_in_simdgroup": (4, 0),
        "thread_index_in_quadgroup": (0, 0),
        "simdgroup_index_in_threadgroup": (0, 0),
        "quadgroup_index_in_threadgroup": (1, 0),
        "simdgroups_per_threadgroup": (1, 0),
        "quadgroups_per_threadgroup": (2, 0),
        "dispatch_simdgroups_per_threadgroup": (3, 0),
        "dispatch_quadgroups_per_threadgroup": (18, 0),
        "threads_per_simdgroup": (32, 0),
        "thread_execution_width": (32, 0),
    }


# ---- limits and dependencies --------------------------------------------------------------------


def test_limit_of_threads() -> None:
    source = """
      [[kernel, max_total_threads_per_threadgroup(256)]] void a(device float* x) {}
      template <typename T, int M, int N = 2>
      [[kernel]] [[max_total_threads_per_threadgroup(M * N * 32)]] void b(device T* x) {}
      template [[host_name("b3")]] [[kernel]] decltype(b<float, 3>) b<float, 3>;
      template [[host_name("b4")]] [[kernel]] decltype(b<float, 4, 4>) b<float, 4, 4>;
      kernel void c(device float* x) {}
    """
    unit = prepared(source)
    limits = {name: entry.max_total_threads for name, entry in unit.entry_points.items()}
    assert limits == {"a": 256, "c": None, "b3": 192, "b4": 512}
    assert compile_program(unit, "a").entry.max_total_threads == 256


def test_included_metal_headers_are_listed() -> None:
    assert "metal_stdlib" in prepared("").headers
    assert "metal_logging" not in prepared("").headers
