"""The walker finds declarations in code it was not written for."""

from __future__ import annotations

import pytest

from anymetal.msl.structure import Structure, read_structure, starts_statement
from anymetal.msl.tokens import TokenRange, tokenize_line


def structure_of(text: str) -> Structure:
    tokens = [
        token
        for number, line in enumerate(text.split("\n"))
        for token in tokenize_line(line, number)
    ]
    return read_structure(TokenRange(tokens))


def function_names(text: str) -> list[str]:
    found = structure_of(text)
    return [found.tokens.spell(*function.name) for function in found.functions]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("void f() {}", ["f"]),
        ("vec<T, 4> f(vec<T, 4> x) { return x; }", ["f"]),
        ("enable_if_t<(N > 4), T> f(T x) { return x; }", ["f"]),
        ("template <typename T, int N = 4> inline T f(T x) { return x; }", ["f"]),
        ("template <> half f<half>(half x) { return x; }", ["f<half>"]),
        ("auto f(float x) -> decltype(g(x)) { return g(x); }", ["f"]),
        ("T A<T>::get(int i) const { return v[i]; }", ["A<T>::get"]),
        ("bool operator<(A a, A b) { return a.v < b.v; }", ["operator<"]),
        ("struct F { float operator()(float x) const { return x; } };", ["operator()"]),
        ("struct F { operator float() const { return v; } };", ["operator float"]),
        ("struct F { F(int a) : a(a), b{a} { run(); } int a, b; };", ["F"]),
        ("struct F { F() = default; F(const F&) = delete; ~F() {} };", ["F", "F", "~F"]),
        ("[[kernel]] __attribute__((hot)) void f(int a [[buffer(0)]]) {}", ["f"]),
        ("namespace a { namespace b { void f(); } void g() {} }", ["f", "g"]),
        ("namespace a::b { void f() {} }", ["f"]),
        ('extern "C" { void f() {} }', ["f"]),
        ("constant float x = f(1); constant int y{2}; void g() {}", ["g"]),
        ("constant float x[] = {1, 2}; void g() {}", ["g"]),
        ("void (*pointer)(int) = 0; void g() {}", ["g"]),
        ("typedef struct { int a; } S; void g() {}", ["g"]),
        ("enum class E : uint { A, B = 2 }; void g() {}", ["g"]),
        ('static_assert(sizeof(int) == 4, ""); void g() {}', ["g"]),
        (
            "void f() { struct L { int get() { return 1; } }; L().get(); } void g() {}",
            ["f", "get", "g"],
        ),
        ("template <typename T> struct A { template <typename U> void f(U u) {} };", ["f"]),
        ("struct alignas(16) A : B<int> { void f() {} };", ["f"]),
    ],
)
def test_functions_of(text: str, names: list[str]) -> None:
    assert sorted(function_names(text)) == sorted(names)


def test_scopes_are_recorded() -> None:
    found = structure_of("namespace a { struct S { void f() {} }; void g() {} }")
    scopes = {found.tokens.text(f.name[0]): (f.scope.kind, f.scope.path) for f in found.functions}
    assert scopes == {"f": ("class", ("a", "S")), "g": ("namespace", ("a",))}


def test_template_parameters_reach_methods() -> None:
    found = structure_of("template <typename T> struct S { template <class U> void f(U u) {} };")
    assert found.functions[0].template_parameters == {"T", "U"}


def test_explicit_instantiations_are_no_functions() -> None:
    found = structure_of('template [[host_name("a")]] [[kernel]] decltype(f<int>) f<int>;')
    assert (len(found.instantiations), len(found.functions)) == (1, 0)


def test_bodies_end_where_they_end() -> None:
    found = structure_of("void f() { if (a) { b(); } } constant int x = 1;")
    body = found.functions[0].body
    assert body is not None
    assert found.tokens.spell(body[0], body[1] + 1) == "{ if (a) { b(); } }"
    assert len(found.variables) == 1


@pytest.mark.parametrize(
    ("text", "is_start"),
    [
        ("{ @x; }", True),
        ("{ a; @x; }", True),
        ("{ if (a) @x; }", True),
        ("{ if constexpr (a) @x; }", True),
        ("{ else @x; }", True),
        ("{ case 1: @x; }", True),
        ("{ label: @x; }", True),
        ("{ a ? b : @x; }", False),
        ("{ f(a) @x; }", False),
        ("{ a = @x; }", False),
    ],
)
def test_starts_of_statements(text: str, is_start: bool) -> None:
    tokens = TokenRange(list(tokenize_line(text.replace("@", ""))))
    assert starts_statement(tokens, tokens.texts.index("x")) is is_start
