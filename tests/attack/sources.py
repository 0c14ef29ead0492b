"""Hostile sources, made by rule: every way to spell a harmful thing, times the places it may stand.

Each row says how it must end; files in hostile/ are for what no rule makes.
"""

from __future__ import annotations

from collections.abc import Iterator

from .cases import HEADER, Hostile

_K = "kernel void k(device float* x, uint i [[thread_position_in_grid]])"


def generated() -> list[Hostile]:
    return [*_undefined(), *_addresses(), *_calls(), *_frames(), *_recursions(), *_bombs()]


def _kernel(body: str, before: str = "") -> str:
    return f"{HEADER}{before}\n{_K} {{ {body} }}\n"


def _undefined() -> Iterator[Hostile]:
    """Functions of the C library and of our runtime, declared in each way C++ has."""
    ways = {
        "plain": "int {name}(int a);",
        "external": 'extern "C" int {name}(int a);',
        "template": "template <class T> int {name}(T a);",
    }
    for way, declaration in ways.items():
        for name in ("system", "exit", "abort", "am_run", "dlopen", "nothing_at_all"):
            yield Hostile(
                f"undefined-{way}-{name}",
                _kernel(f"if (x[i] > 5) x[i] = {name}((int)i);", declaration.format(name=name)),
                refused=f"'{name}' is used but not defined",
            )


_FAULT = "KernelFault touched an address where there is no memory"


def _addresses() -> Iterator[Hostile]:
    """Reads, writes, atomics and copies at addresses that hold nothing, however they are made."""
    addresses = {
        "null": "(device {type}*)0",
        "constant": "(device {type}*)0xdead0000",
        "high": "(device {type}*)0x8000000000000000ul",
        "computed": "(device {type}*)((ulong)x[i] + 64)",
        "far": "(device {type}*)(x + ((ulong)(i + 1) << 44))",
        "member": "&((device Pair*)0)->{member}",
    }
    uses = {
        "read": ("float", "x[i] = *({0});"),
        "write": ("float", "*({0}) = i;"),
        "atomic": (
            "atomic_int",
            "atomic_fetch_add_explicit({0}, 1, memory_order_relaxed);",
        ),
        "copy": ("Big", "*({0}) = ((device Big*)x)[0];"),
        "vector": ("float4", "x[i] = (*({0})).y;"),
    }
    before = "struct Big { float a[16]; }; struct Pair { float f; atomic_int n; float4 v; Big b; };"
    members = {"float": "f", "atomic_int": "n", "float4": "v", "Big": "b"}
    for place, address in addresses.items():
        for use, (kind, text) in uses.items():
            body = text.format(address.format(type=kind, member=members[kind]))
            # Code behind an address that is null for the compiler too is its own to leave out.
            known_null = place in ("null", "member")
            yield Hostile(
                f"address-{place}-{use}",
                _kernel(body, before),
                plain="ends" if known_null else _FAULT,
                checked="out_of_bounds",
            )


def _calls() -> Iterator[Hostile]:
    """Calls of what is no function."""
    for name, address in {
        "small": "(F)((ulong)x[i] + 4096)",
        "data": "(F)(ulong)x",
        "stack": "(F)(ulong)&own",
        "high": "(F)((ulong)x[i] + 0x7000000000000000ul)",
    }.items():
        body = f"float own = i; F f = {address}; x[i] = f(own);"
        source = _kernel(body, "typedef float (*F)(float);")
        yield Hostile(f"call-{name}", source, plain=_FAULT, checked="out_of_bounds")
    # Behind the start of a function there is code, only no function: unchecked anything may happen.
    functions = (
        "typedef float (*F)(float);\n"
        "__attribute__((noinline)) float one(float a) { return a * 3; }\n"
        "__attribute__((noinline)) float two(float a) { return a - 1; }"
    )
    body = "F f = (F)((ulong)(i % 2 ? one : two) + {0}); x[i] = f(x[i]);"
    yield Hostile(
        "call-inside",
        _kernel(body.format("1"), functions),
        plain="skipped",
        checked="out_of_bounds",
    )
    yield Hostile("call-right", _kernel(body.format("0"), functions))


def _frames() -> Iterator[Hostile]:
    """Arrays and structures of a thread, with and without a barrier, around the limit."""
    barrier = "threadgroup_barrier(mem_flags::mem_device);"
    for size in (16, 256, 500, 600, 4096, 1 << 21):
        count = size * 256
        whole = f"float a[{count}]; for (uint j = 0; j < 64; j++) a[(j * 65537u) % {count}u] = j;"
        member = f"Big b; {whole.split(';', 1)[1].replace('a[', 'b.a[')}"
        for shape, text, name in (("array", whole, "a"), ("structure", member, "b.a")):
            for stop in ("", barrier):
                body = f"{text} {stop} x[i] = {name}[((i % 64) * 65537u) % {count}u];"
                runs = size <= 512
                yield Hostile(
                    f"frame-{shape}-{size}{'-barrier' if stop else ''}",
                    _kernel(body, f"struct Big {{ float a[{count}]; }};"),
                    plain="runs" if runs else "LimitError of one thread take",
                    checked="nothing" if runs else "limits",
                )


def _recursions() -> Iterator[Hostile]:
    """Functions that call themselves, or each other, for ever and with frames of any size."""
    overflow = "KernelFault of stack and was stopped"
    for size in (1, 64, 4096, 65536):
        own = f"float a[{size}]; for (uint j = 0; j < {size}u; j += 997u) a[j] = x[j % 64];"
        alone = f"float f(device float* x, uint n) {{ {own} return f(x, n + 1) + a[n % {size}]; }}"
        pair = (
            "float g(device float* x, uint n);"
            f"float f(device float* x, uint n) {{ {own} return g(x, n + 1) + a[n % {size}]; }}"
            "float g(device float* x, uint n) { return f(x, n * 2) + x[n % 64]; }"
        )
        for name, before in (("alone", alone), ("pair", pair)):
            yield Hostile(
                f"recursion-{name}-{size}",
                _kernel("x[i] = f(x, i);", before),
                plain=overflow,
                checked="limits",
            )


def _bombs() -> Iterator[Hostile]:
    """Sources that a compiler never gets done with: by time, by memory, by depth."""
    doubled = "\n".join(f"#define B{n} B{n - 1} B{n - 1}" for n in range(1, 60))
    yield Hostile(
        "bomb-macro",
        _kernel("x[i] = 1; B59", f"#define B0 x[i] += 1;\n{doubled}\n"),
        limit=5,
        refused="and was given up",
    )
    yield Hostile(
        "bomb-templates",
        _kernel(
            "x[i] = T<900, 1>::value + T<900, 0>::value;",
            "template <int N, int S> struct T { enum { value = (T<N - 1, S * 3 + 1>::value +"
            " T<N - 1, S * 3 + 2>::value) & 7 }; };\n"
            "template <int S> struct T<0, S> { enum { value = 1 }; };",
        ),
        limit=5,
        plain="ends",
        checked="ends",
    )
    yield Hostile(
        "bomb-template-depth",
        _kernel(
            "x[i] = T<0>::value;",
            "template <int N> struct T { enum { value = T<N + 1>::value }; };",
        ),
        refused="recursive template instantiation exceeded",
    )
    yield Hostile(
        "bomb-constexpr",
        _kernel(
            "x[i] = V;",
            "constexpr uint f() { uint s = 1; for (ulong j = 0; j < 1ul << 40; ++j) s = s * 3 + j;"
            " return s; }\nconstant uint V = f();",
        ),
        limit=5,
        plain="ends",
        checked="ends",
    )
    yield Hostile("bomb-include", HEADER + '#include "again.h"\n' * 3, refused="file not found")
    ends = {"plain": "ends", "checked": "ends"}
    changes = "\n".join(f"x[(i + {number}) % 64] += {number};" for number in range(50_000))
    yield Hostile("bomb-accesses", _kernel(changes), limit=20, **ends)
    choices = "\n".join(
        f"p = x[{number % 5}] > {number} ? p + 1 : p + (int(x[{number % 7}]) & 1);"
        for number in range(2_000)
    )
    yield Hostile(
        "bomb-pointers",
        _kernel(f"device float* p = x;\n{choices}\nx[i] = *p;"),
        limit=20,
        **ends,
    )
    for depth in (200, 2_000, 100_000):
        nested = "(" * depth + "1" + ")" * depth
        yield Hostile(f"bomb-brackets-{depth}", _kernel(f"x[i] = {nested};"), **ends)
        sums = "+".join(["x[i]"] * min(depth, 10_000))
        yield Hostile(f"bomb-sum-{depth}", _kernel(f"x[i] = {sums};"), limit=20, **ends)
        blocks = "{" * depth + "x[i] = 1;" + "}" * depth
        yield Hostile(f"bomb-blocks-{depth}", _kernel(blocks), **ends)
    for name, text in {
        "empty": "",
        "zero-bytes": "\0\0\0",
        "only-comment": "/* no end",
        "string": '"no end',
        "bytes": "\xff\xfe\x00kernel",
        "lone-surrogate": "// \ud800\nkernel void k(device float* x) { }",
        "backslashes": "\\\n" * 1000,
        "directive": "#" * 500,
        "attribute": _kernel("x[i] = 1;").replace("uint i", "uint i [[" * 50),
    }.items():
        yield Hostile(f"text-{name}", text, **ends)
