"""Messages are about the author's text: file, line, column, the line itself and a caret."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.msl.sources import HEADER, check_all, compile_program, kernel

from anymetal.errors import KernelSyntaxError, UnsupportedError
from anymetal.msl import prepare
from anymetal.msl.diagnostics import clean, parse_messages
from anymetal.nouns import Source


def message(text: str, **options: object) -> str:
    with pytest.raises(KernelSyntaxError) as error:
        check_all(prepare(Source(HEADER + text, **options)))  # type: ignore[arg-type]
    return str(error.value)


def test_text_is_that_of_a_compiler() -> None:
    assert message(kernel("x[i] = y;")) == (
        "<shader>:4:10: error: use of undeclared identifier 'y'\n"
        "  x[i] = y;\n"
        "         ^\n"
        "1 error generated."
    )


def test_caret_stands_below_tabs() -> None:
    assert "\n\tx[i] =\ty;\n\t      \t^\n" in message(kernel("").replace("  \n", "\tx[i] =\ty;\n"))


def test_all_errors_are_listed() -> None:
    text = message(kernel("x[i] = a;\n  x[i] = b;\n  x[i] = c;"))
    assert [f":{line}:10: error:" in text for line in (4, 5, 6)] == [True] * 3
    assert text.endswith("3 errors generated.")


def test_column_behind_rewritten_words() -> None:
    text = message(kernel("threadgroup float t[4], u[4]; x[i] = (half)0.5 + undeclared;"))
    assert "<shader>:4:52: error: use of undeclared identifier 'undeclared'" in text


def test_error_inside_a_macro_is_where_it_is_used() -> None:
    text = message(kernel("x[i] = 1 + BAD(2);", before="#define BAD(a) ((a) + undeclared)\n"))
    assert "<shader>:5:14: error: use of undeclared identifier 'undeclared'" in text


def test_error_in_a_template_names_the_instantiation() -> None:
    text = message("template <typename T> void f(T a) { a.missing(); }\n" + kernel("f(x[i]);"))
    assert "<shader>:3:38: error: member reference base type 'float'" in text
    assert "<shader>:5:3: note: in instantiation of function template specialization" in text


def test_error_in_a_kernel_template_names_its_instance() -> None:
    source = (
        "template <typename T> kernel void f(device T* x) { x[0] = x[0].missing; }\n"
        'template [[host_name("a")]] [[kernel]] decltype(f<float>) f<float>;\n'
    )
    text = message(source)
    assert "<shader>:3:63: error: member reference base type 'float'" in text
    assert (
        "<shader>:4:1: note: in instantiation of function template specialization 'f<float>'"
        in text
    )


def test_templates_are_checked_even_when_nobody_asks_for_them() -> None:
    source = (
        "template <typename T> kernel void f(device T* x) { x[0].missing(); }\n"
        'template [[host_name("a")]] [[kernel]] decltype(f<float>) f<float>;\n' + kernel("")
    )
    unit = prepare(Source(HEADER + source))
    compile_program(unit, "k")
    check_all(unit, instantiate=False)
    with pytest.raises(KernelSyntaxError):
        check_all(unit)


def test_instance_that_fits_no_kernel() -> None:
    source = (
        "template <typename T> kernel void f(device T* x) {}\n"
        'template [[host_name("a")]] [[kernel]] decltype(f<float, 3>) f<float, 3>;\n'
    )
    assert "<shader>:4:1: error: no kernel matches this instantiation" in message(source)


def test_places_in_our_headers_become_the_authors_line() -> None:
    text = message(kernel("x[i] = simd_sum(x);"))
    assert "<shader>:4:10: error: no matching function for call to 'simd_sum'" in text
    assert "<shader>:4:10: note: candidate" in text
    assert "include" not in text


@pytest.mark.parametrize(
    "body",
    [
        "threadgroup float t[4]; t = x;",
        "threadgroup float t[4]; float f = t;",
        "struct S { int a; }; S s; x[i] = (half)s;",
        "struct S { int a; }; S s; x[i] = static_cast<bfloat>(s);",
        "uint requires = 1; requires.x = 2;",
        "x[i] = simd_sum(x);",
        "half4 h = half4(1); h.missing = 1;",
        "metal::exp(x);",
        "bfloat b = 1.0h;",
    ],
)
def test_no_internal_names_are_shown(body: str) -> None:
    text = message(kernel(body))
    for word in ("am_", "_Float16", "__bf16", "AM_", "anymetal-input"):
        assert word not in text


def test_types_read_as_metals() -> None:
    assert clean("no conversion from 'metal::vec<_Float16, 4>' to 'unsigned int'") == (
        "no conversion from 'half4' to 'uint'"
    )
    assert clean("'uint' (aka 'unsigned int')") == "'uint'"
    assert clean("array type 'am_type_3' (aka 'float[4]')") == "array type 'threadgroup float[4]'"


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ("if (i) {", "<shader>:3:82: error: expected '}' to match this '{'"),
        ("x[i] = (1;", "<shader>:4:10: error: expected ')' to match this '('"),
        ("x[i] = 1);", "<shader>:4:11: error: extraneous closing bracket (')')"),
    ],
)
def test_brackets_without_partners(body: str, place: str) -> None:
    assert place in message(kernel(body))


def test_missing_include() -> None:
    text = message('  #include "nowhere.h"\n')
    assert "<shader>:3:12: error: 'nowhere.h' file not found\n  #include \"nowhere.h\"\n" in text


def test_error_directive() -> None:
    assert '<shader>:3:2: error: "stop here"' in message('#error "stop here"\n')


def test_error_in_an_included_file(tmp_path: Path) -> None:
    (tmp_path / "part.h").write_text("// first line\ninline float f() { return missing; }\n")
    text = message('#include "part.h"\n' + kernel(""), include_dirs=(tmp_path,))
    path = tmp_path / "part.h"
    assert f"{path}:2:27: error: use of undeclared identifier 'missing'\ninline float f()" in text


def test_name_of_the_source_is_used() -> None:
    assert message(kernel("y;"), name="shaders/my kernel.metal").startswith(
        "shaders/my kernel.metal:4:3: error:"
    )


def test_header_beside_the_source_is_found(tmp_path: Path) -> None:
    (tmp_path / "part.h").write_text("#define ONE 1\n")
    main = tmp_path / "main.metal"
    main.write_text(HEADER + '#include "part.h"\n' + kernel("x[i] = ONE;"))
    unit = prepare(Source(main.read_text(), name=str(main)))
    check_all(unit)
    assert [Path(path).name for path, _ in unit.dependencies] == ["part.h"]


def test_defines_reach_the_preprocessor() -> None:
    source = Source(HEADER + kernel("x[i] = SIZE;"), defines=(("SIZE", "3"),))
    check_all(prepare(source))


def test_unsupported_header_is_named() -> None:
    with pytest.raises(UnsupportedError, match="not supported by anymetal"):
        prepare(Source("#include <metal_raytracing>\n"))


def test_messages_are_parsed() -> None:
    found = parse_messages("a b:1:2: error: x: y\nnoise\nc:3:4: fatal error: z\nc:5:6: note: w\n")
    assert [(m.file, m.line, m.column, m.severity, m.text) for m in found] == [
        ("a b", 1, 2, "error", "x: y"),
        ("c", 3, 4, "error", "z"),
        ("c", 5, 6, "note", "w"),
    ]
