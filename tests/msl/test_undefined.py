"""What a kernel uses and nobody defines is refused when it is compiled, never met at a launch."""

from __future__ import annotations

import pytest
import torch
from tests.msl.sources import HEADER

import anymetal

K = "kernel void k(device float* x, uint i [[thread_position_in_grid]])"

# A declaration, its use, the name in the message, and a definition that mends it.
ROWS = [
    ("float ease(float a);", "x[i] = ease(x[i]);", "ease", "float ease(float a) { return a; }"),
    ("int system(constant char* c);", "x[i] = system(0);", "system", ""),
    ('extern "C" int system(constant char* c);', "x[i] = system(0);", "system", ""),
    ('extern "C" void abort();', "if (x[i] > 9) abort();", "abort", ""),
    (
        "template <class T> T same(T a);",
        "x[i] = same(x[i]);",
        "same",
        "template <class T> T same(T a) { return a; }",
    ),
    (
        "struct S { float a; float get() const thread; };",
        "S s = {1}; x[i] = s.get();",
        "get",
        "float S::get() const thread { return a; }",
    ),
    ("namespace n { float one(); }", "x[i] = n::one();", "one", "float n::one() { return 1; }"),
    ("extern constant float table[4];", "x[i] = table[i & 3];", "table", ""),
    ('extern "C" void am_run();', "am_run(); x[i] = 1;", "am_run", ""),
]


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize(("declaration", "use", "name", "definition"), ROWS)
def test_undefined_name_is_refused_at_its_line(
    declaration: str, use: str, name: str, definition: str, checked: bool
) -> None:
    text = f"{HEADER}{declaration}\n{K} {{ {use} }}\n"
    message = f"<shader>:3:{declaration.index(name) + 1}: error: '{name}' is used but not defined"
    with pytest.raises(SyntaxError) as error:
        if checked:
            with anymetal.check():
                anymetal.compile_shader(text).k(torch.zeros(4))
        else:
            anymetal.compile_shader(text).k  # noqa: B018
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("declaration", "use", "definition"),
    [(declaration, use, definition) for declaration, use, _, definition in ROWS if definition],
)
def test_name_that_is_defined_later_is_fine(declaration: str, use: str, definition: str) -> None:
    text = f"{HEADER}{declaration}\n{K} {{ {use} }}\n{definition}\n"
    x = torch.ones(4)
    anymetal.compile_shader(text).k(x)
    assert x.tolist() == [1] * 4


def test_declaration_that_nobody_uses_is_fine() -> None:
    anymetal.compile_shader(f"{HEADER}float f(float a);\n{K} {{ x[i] = 1; }}\n").k(torch.ones(1))
