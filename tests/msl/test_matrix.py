"""Matrices of every shape against numpy in float64: layout, constructors, operators, functions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from vector_model import HEADER, Array, accepted, array, blank, samples, tensor, values_of

import anymetal

SHAPES = tuple(itertools.product((2, 3, 4), repeat=2))  # columns, rows
EPSILON = {"half": 2.0**-11, "float": 2.0**-24}


def matrices(scalar: str, columns: int, rows: int, seed: int) -> Array:
    """Numbers near one, as kernels read them: column after column, three rows padded to four."""
    values = samples(scalar, (columns, 4 if rows == 3 else rows), seed).astype(np.float64)
    return (values / 4).astype(np.float16 if scalar == "half" else np.float32)


def mathematical(columns: Array, rows: int) -> Array:
    """Rows by columns, in float64."""
    return columns[:, :rows].T.astype(np.float64)


def close(scalar: str, got: Array, expected: Array, magnitude: Array, terms: int) -> bool:
    """Within the rounding errors of a sum of products of that magnitude."""
    error = np.abs(got.astype(np.float64) - expected)  # type: ignore[operator]
    bound = EPSILON[scalar] * (terms + 1) * (magnitude + 1e-3)  # type: ignore[operator]
    return bool(np.all(error <= bound))


def test_matrices_have_the_size_and_alignment_of_the_specification() -> None:
    names = [f"{scalar}{c}x{r}" for scalar in EPSILON for c, r in SHAPES]
    bytes_of = {"half": 2, "float": 4}
    alignments = [bytes_of[s] * (2 if r == 2 else 4) for s in EPSILON for c, r in SHAPES]
    expected = [a * c for a, (c, r) in zip(alignments, SHAPES * 2, strict=True)]
    assert values_of("uint", [f"sizeof({name})" for name in names]).tolist() == expected
    assert values_of("uint", [f"alignof(metal::{name})" for name in names]).tolist() == alignments


@pytest.mark.parametrize("scalar", EPSILON)
def test_products_and_sums_of_every_shape_agree_with_numpy(scalar: str) -> None:
    """m * v, v * m, m * n, sums, and products with scalars; one kernel for all nine shapes."""
    statements, tensors, parameters, checks = [], [], [], []
    at = 0
    for number, (c, r) in enumerate(SHAPES):
        kind = f"{scalar}{c}x{r}"
        m, n = matrices(scalar, c, r, number), matrices(scalar, c, r, number + 50)
        k = matrices(scalar, 3, c, number + 100)
        parameters += [f"device const {kind}* m{number}", f"device const {scalar}3x{c}* k{number}"]
        tensors += [tensor(scalar, np.concatenate([m, n])), tensor(scalar, k)]
        a, b, other = mathematical(m, r), mathematical(n, r), mathematical(k, c)
        column, row = f"{scalar}{r}(m[1][0])", f"k{number}[0][1]"
        results = [
            (f"(m[0] * {row})", r, 1, a @ other[:, 1:2], np.abs(a) @ np.abs(other[:, 1:2])),
            (f"({column} * m[0])", c, 1, b[:, :1].T @ a, np.abs(b[:, :1].T) @ np.abs(a)),
            (f"(m[0] * k{number}[0])", r, 3, a @ other, np.abs(a) @ np.abs(other)),
            ("(m[0] + m[1])", r, c, a + b, np.abs(a) + np.abs(b)),
            ("(m[0] - m[1])", r, c, a - b, np.abs(a) + np.abs(b)),
            (f"(m[0] * {scalar}(3))", r, c, a * 3, np.abs(a) * 3),
            ("(2 * m[0])", r, c, a * 2, np.abs(a) * 2),
            ("(m[0] / 4)", r, c, a / 4, np.abs(a)),
            ("(-m[0])", r, c, -a, np.abs(a)),
            ("transpose(m[0])", c, r, a.T, np.abs(a.T)),
        ]
        statements.append(f"  {{ device const {kind}* m = m{number};")
        for text, height, width, expected, magnitude in results:
            statements.append(f"    {{ auto r = {text};")
            if expected.shape[0] == 1 or expected.shape[1] == 1:
                count = expected.size
                parts = [f"r[{index}]" for index in range(count)]
            else:
                count = height * width
                parts = [f"r[{x}][{y}]" for x in range(width) for y in range(height)]
            statements += [f"      out[{at + i}] = {part};" for i, part in enumerate(parts)]
            statements.append("    }")
            checks.append((f"{kind}: {text}", at, expected, magnitude))
            at += count
        statements.append("  }")
    lists = ", ".join(parameters)
    source = f"{HEADER}kernel void run({lists}, device {scalar}* out) {{\n"
    source += "\n".join(statements) + "\n}\n"
    output = blank(scalar, at)
    anymetal.compile_shader(source).run(*tensors, output, threads=1)
    got = array(scalar, output)
    for name, start, expected, magnitude in checks:
        values = got[start : start + expected.size].reshape(expected.shape, order="F")
        assert close(scalar, values, expected, magnitude, terms=4), name


@pytest.mark.parametrize("scalar", EPSILON)
def test_determinants_agree_with_numpy(scalar: str) -> None:
    parameters = ", ".join(f"device const {scalar}{n}x{n}* m{n}" for n in (2, 3, 4))
    body = " ".join(f"out[i * 3 + {n - 2}] = determinant(m{n}[i]);" for n in (2, 3, 4))
    source = f"{HEADER}kernel void run({parameters}, device {scalar}* out,\n"
    source += f"uint i [[thread_position_in_grid]]) {{ {body} }}\n"
    stacks = [np.stack([matrices(scalar, n, n, seed) for seed in range(20)]) for n in (2, 3, 4)]
    output = blank(scalar, 60)
    anymetal.compile_shader(source).run(
        *(tensor(scalar, stack) for stack in stacks), output, threads=20
    )
    got = array(scalar, output).reshape(20, 3)
    for column, (n, stack) in enumerate(zip((2, 3, 4), stacks, strict=True)):
        exact = np.stack([mathematical(m, n) for m in stack])
        magnitude = np.array([permanent(np.abs(m)) for m in exact])
        assert close(scalar, got[:, column], np.linalg.det(exact), magnitude, terms=8), n


def permanent(m: Array) -> float:
    """The sum of all products that a determinant adds and subtracts."""
    n = m.shape[0]
    rows = np.arange(n)
    return float(sum(np.prod(m[rows, list(order)]) for order in itertools.permutations(range(n))))


def test_constructors_and_columns() -> None:
    prelude = """
constant float2x3 m = float2x3(1, 2, 3, 4, 5, 6);
constant float3x2 from_columns = float3x2(float2(1, 2), float2(3, 4), float2(5, 6));
constant float2x2 listed = {{1, 2}, {3, 4}};
"""
    expressions = {
        "m[0][2]": 3,
        "m[1].y": 5,
        "from_columns[2][0]": 5,
        "listed[1][0]": 3,
        "float4x4(2)[2][2]": 2,
        "float4x4(2)[2][1]": 0,
        "float3x4(7)[1][1]": 7,
        "float3x4(7)[2][3]": 0,
        "float(half2x3(m)[1][2])": 6,
        "float2x3(half2x3(m))[0][1]": 2,
        "matrix<float, 2, 3>(m)[1][0]": 4,
        "transpose(m)[2][1]": 6,
        "m == m": 1,
        "m != float2x3(1)": 1,
        "float2x2(1) == float2x2(1, 0, 0, 1)": 1,
        "float2x2{1, 2, 3, 4}[1][1]": 4,
    }
    got = values_of("float", list(expressions), prelude)
    assert got.tolist() == [float(value) for value in expressions.values()]


def test_matrices_in_memory_are_changed_by_column_and_component() -> None:
    source = f"""{HEADER}
kernel void run(device float3x3* m, device float* out) {{
  m[0] = float3x3(1);
  m[0][1] = float3(4, 5, 6);
  m[0][2].xy = m[0][1].yx;
  m[0][0][2] += 9;
  m[0] += m[0];
  m[0] *= 0.5f;
  m[0] -= float3x3(1);
  m[0] *= float3x3(0, 1, 0, 1, 0, 0, 0, 0, 2);
  m[0] /= 2;
  for (uint c = 0; c < 3; ++c) for (uint r = 0; r < 3; ++r) out[c * 3 + r] = m[0][c][r];
}}
"""
    memory, output = blank("float", 12), blank("float", 9)
    anymetal.compile_shader(source).run(memory, output, threads=1)
    start = np.array([[1, 0, 9], [4, 5, 6], [5, 4, 1]], float).T - np.eye(3)
    other = np.array([[0, 1, 0], [1, 0, 0], [0, 0, 2]], float).T
    expected = (start @ other / 2).T.reshape(-1)
    assert array("float", output).tolist() == expected.tolist()


def test_matrices_refuse_what_metal_refuses() -> None:
    statements = [
        "float2x2 m = 1.0f;",
        "float2x2 m(1, 2, 3);",
        "float2x2 m(1, 2);",
        "float2x3 m(float2(1), 1, float2(1), 1);",
        "float4x4 m(1, 2, 3, 4);",
        "float2x2 m(float3(1), float3(1));",
        "float3x3 m = float3x3(float2x2(1));",
        "float2x2 m = half2x2(1);",
        "auto v = float2x3(1) * float3(1);",
        "auto v = float2(1) * float2x3(1);",
        "auto v = float2x3(1) * float2x3(1);",
        "auto v = float2x3(1) + float3x2(1);",
        "auto v = float2x2(1) + 1;",
        "auto v = determinant(float2x3(1));",
        "matrix<int, 2, 2> m(1);",
        "matrix<float, 5, 2> m(1);",
    ]
    assert accepted(statements) == []
