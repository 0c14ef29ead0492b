"""Function constants: values baked in, defaults, what is unset, and parameters that vanish."""

from __future__ import annotations

import pytest
import torch
from tests.msl.sources import HEADER, check_all, compile_program, compiled, kernel, prepared

import anymetal
from anymetal.errors import KernelSyntaxError, UnsetConstantError

CONSTANTS = """
constant bool use_mask [[function_constant(0)]];
constant int rows [[function_constant(1)]];
constant float scale [[function_constant(2)]];
constant half small [[function_constant(3)]];
constant uint first [[function_constant(4 + 1)]];
constant int twice = rows * 2;
constant int rows_or_seven = is_function_constant_defined(rows) ? rows : 7;
constant bool both = use_mask && rows > 2;
"""


def value(expression: str, **constants: bool | int | float) -> float:
    source = HEADER + CONSTANTS + f"kernel void k(device float* y) {{ y[0] = {expression}; }}\n"
    y = torch.zeros(1)
    anymetal.compile_shader(source).specialize("k", constants)(y, threads=1)
    return float(y.item())


def test_constants_are_reflected() -> None:
    found = prepared(CONSTANTS).function_constants
    assert {name: (c.index, c.type) for name, c in found.items()} == {
        "use_mask": (0, "bool"),
        "rows": (1, "int"),
        "scale": (2, "float"),
        "small": (3, "half"),
        "first": (5, "uint"),
    }
    assert (found["rows"].position.line, found["rows"].position.column) == (5, 14)


@pytest.mark.parametrize(
    ("expression", "constants", "expected"),
    [
        ("use_mask ? 1 : 2", {"use_mask": True}, 1),
        ("use_mask ? 1 : 2", {"use_mask": False}, 2),
        ("rows", {"rows": -5}, -5),
        ("twice", {"rows": 4}, 8),
        ("scale", {"scale": 0.1}, torch.tensor(0.1).item()),
        ("small", {"small": 0.5}, 0.5),
        ("first", {"first": 2**32 - 1}, 2.0**32),
        ("rows_or_seven", {}, 7),
        ("rows_or_seven", {"rows": 3}, 3),
        ("both", {"use_mask": True, "rows": 3}, 1),
        ("metal::is_function_constant_defined(scale)", {}, 0),
        ("is_function_constant_defined(scale)", {"scale": 1.0}, 1),
        ("scale", {"scale": float("inf")}, float("inf")),
    ],
)
def test_value(expression: str, constants: dict[str, float], expected: float) -> None:
    assert value(expression, **constants) == expected


def test_constant_by_index() -> None:
    unit = prepared(CONSTANTS + kernel("x[i] = rows;"))
    assert compile_program(unit, "k", {1: 5}).ir == compile_program(unit, "k", {"rows": 5}).ir
    assert compile_program(unit, "k", {1: 5}).ir != compile_program(unit, "k", {1: 6}).ir


def test_unset_constant_that_is_used_is_named() -> None:
    with pytest.raises(UnsetConstantError, match=r"'rows' \(index 1\)"):
        compiled(CONSTANTS + kernel("x[i] = twice;"))


def test_unset_constant_that_is_not_used_is_no_error() -> None:
    program = compiled(CONSTANTS + kernel("x[i] = use_mask ? rows : 3;"), use_mask=False)
    assert "am_unset_constant" not in program.ir


def test_branch_of_a_constant_is_gone() -> None:
    program = compiled(CONSTANTS + kernel("if (use_mask) x[i] = 12345;"), use_mask=False)
    assert "store" not in program.ir.partition("am_group_main")[0]


def test_unknown_name_is_an_error() -> None:
    with pytest.raises(KernelSyntaxError, match="no function constant is called 'columns'"):
        compiled(CONSTANTS + kernel(""), columns=3)


def test_parameter_vanishes_with_its_constant() -> None:
    parameters = (
        "device float* x [[buffer(0)]], "
        "device const float* mask [[buffer(1), function_constant(use_mask)]], "
        "device const float* more [[buffer(2)]] [[function_constant(both)]], "
        "uint i [[thread_position_in_grid]]"
    )
    source = CONSTANTS + kernel(
        "x[i] = use_mask ? mask[i] : -1; if (both) x[i] += more[i];", parameters
    )
    unit = prepared(source)
    check_all(unit)
    found = [p.function_constant for p in unit.entry_points["k"].parameters]
    assert found == [None, "use_mask", "both", None]

    def names(**constants: bool | int) -> list[str]:
        return [a.name for a in compile_program(unit, "k", constants).arguments]

    assert names(use_mask=False, rows=1) == ["x", "i"]
    assert names(use_mask=True, rows=1) == ["x", "mask", "i"]
    assert names(use_mask=True, rows=3) == ["x", "mask", "more", "i"]
    with pytest.raises(UnsetConstantError, match="use_mask"):
        names()


def test_constants_made_by_a_macro_and_in_namespaces() -> None:
    source = """
      #define FLAG(name, n) static constant constexpr const bool name [[function_constant(n)]];
      namespace config { constant bool inner [[function_constant(11)]]; }
      FLAG(outer, 10)
    """.replace("constexpr ", "")
    program = compiled(
        source + kernel("x[i] = outer ? 1 : config::inner ? 2 : 3;"), outer=False, inner=True
    )
    assert "am_unset" not in program.ir


def test_vector_type_with_a_comma() -> None:
    source = "constant vec<int, 2> couple [[function_constant(0)]];\n"
    assert prepared(source).function_constants["couple"].type == "vec<int, 2>"
    compiled(source + kernel("x[i] = couple.x + couple.y;"), couple=3)


WRITTEN = """
constant bool bias [[function_constant(0)]];
constant float scale [[ function_constant(1) ]];
constant unsigned int rounds [[function_constant(2)]];
constant uint count = is_function_constant_defined(rounds) ? rounds : 3;
kernel void act(device float* x [[buffer(0)]],
                device const float* b [[buffer(1), function_constant(bias)]],
                device const float* c [[function_constant(bias)]],
                uint i [[thread_position_in_grid]]) {
  for (uint k = 0; k < count; k++) x[i] = x[i] * scale + (bias ? b[i] + c[i] : 0);
}
"""


@pytest.mark.parametrize("rounds", [None, 2])
@pytest.mark.parametrize("bias", [False, True])
def test_constants_written_into_the_source(bias: bool, rounds: int | None) -> None:
    constants: dict[int | str, bool | int | float] = {"bias": bias, 1: 0.1}
    if rounds is not None:
        constants["rounds"] = rounds
    start, b, c = torch.randn(3, 8)
    found, wanted = start.clone(), start.clone()
    anymetal.compile_shader(anymetal.with_constants(WRITTEN, constants)).act(found, b, c)
    lib = anymetal.compile_shader(WRITTEN)
    lib.specialize("act", constants)(wanted, *((b, c) if bias else ()))
    assert torch.equal(found, wanted)


COMPUTED = """
#define FIRST 100
constant metal::vec<float, 3> weights [[function_constant(FIRST + 0)]];
constant bool2 on [[function_constant(FIRST + 1)]];
kernel void sum(device float* x, uint i [[thread_position_in_grid]]) {
  x[i] = (on.x ? weights.x : 0) + (on.y ? weights.y : 0) + weights.z;
}
"""


def test_vectors_and_computed_indices_are_written_into_the_source() -> None:
    """As llama.cpp declares its constants: by a macro and a number."""
    source = f"#include <metal_stdlib>\nusing namespace metal;{COMPUTED}"
    for constants in (
        {"weights": (0.5, 2.0, -1.0), "on": (True, False)},
        {100: [0.5, 2.0, -1.0], 101: [True, False]},
    ):
        x = torch.zeros(2)
        anymetal.compile_shader(anymetal.with_constants(source, constants)).sum(x)
        assert x.tolist() == [-0.5, -0.5]
    with pytest.raises(ValueError, match=r"it has weights \(FIRST \+ 0\), on \(FIRST \+ 1\)"):
        anymetal.with_constants(source, {102: 1})
    with pytest.raises(TypeError, match="'on' is \\('a', 'b'\\), expected a number, or a vector's"):
        anymetal.with_constants(source, {"on": ("a", "b")})  # type: ignore[dict-item]


def test_constants_that_are_not_there_are_refused() -> None:
    with pytest.raises(ValueError, match=r"no function constant 'width'; it has bias \(0\)"):
        anymetal.with_constants(WRITTEN, {"width": 1})
    with pytest.raises(ValueError, match="no function constant 7"):
        anymetal.with_constants(WRITTEN, {7: 1})
    with pytest.raises(TypeError, match="'bias' is 'yes'"):
        anymetal.with_constants(WRITTEN, {"bias": "yes"})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="'bias' is None, expected a number"):
        anymetal.with_constants(WRITTEN, {"bias": None})  # type: ignore[dict-item]
