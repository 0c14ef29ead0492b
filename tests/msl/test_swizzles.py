"""Swizzles next to operators of the author's own, in templates: what clang alone refuses."""

from __future__ import annotations

import numpy as np
from vector_model import HEADER, array, blank, refusal, tensor

import anymetal

COMPLEX = """
struct Complex { float re, im; };
inline Complex operator+(Complex a, Complex b) { return {a.re + b.re, a.im + b.im}; }
inline Complex operator*(Complex a, float b) { return {a.re * b, a.im * b}; }
inline Complex operator-(Complex a) { return {-a.re, -a.im}; }
inline thread Complex& operator+=(thread Complex& a, Complex b) { return a = a + b; }
inline thread Complex& operator*=(thread Complex& a, float b) { return a = a * b; }
inline thread Complex& operator>>=(thread Complex& a, int b) { return a; }
"""


def test_swizzles_work_in_templates_beside_operators_of_the_author() -> None:
    source = f"""{HEADER}{COMPLEX}
template <typename T> void change(device vec<T, 4>* p, device vec<int, 4>* k) {{
  vec<T, 2> sum = p->xy + p->zw;
  p->zw = -p->xy;
  p->xy = p->xy * 2 + sum;
  p->wz += p->xy;
  p->rgb *= 2;
  k->xz >>= 1;
  k->yw++;
  k->x += k->a;
}}
kernel void run(device float4* p, device int4* k, device Complex* c) {{
  change(p, k);
  Complex t = c[0];
  t += c[1];
  c[0] = t * 2.0f;
}}
"""
    values = np.array([1, 2, 3, 4], np.float32)
    floats, integers = tensor("float", values), tensor("int", np.array([8, 9, 10, 11], np.int32))
    complexes = tensor("float", values)
    anymetal.compile_shader(source).run(floats, integers, complexes, threads=1)
    assert array("float", floats).tolist() == [12, 20, 18, 4]
    assert array("int", integers).tolist() == [16, 10, 5, 12]
    assert array("float", complexes).tolist() == [8, 12, 3, 4]


def test_members_that_only_look_like_swizzles_are_left_alone() -> None:
    source = f"""{HEADER}{COMPLEX}
struct Box {{ float xy; int bar; float2 rg; float ab() {{ return 7; }} }};
kernel void run(device float* out) {{
  Box box = {{1, 2, float2(3, 4)}};
  box.xy += 5;
  box.bar++;
  box.rg += 1;
  out[0] = box.xy * 1; out[1] = box.bar; out[2] = box.rg.x * 1; out[3] = box.ab();
}}
"""
    results = blank("float", 4)
    anymetal.compile_shader(source).run(results, threads=1)
    assert array("float", results).tolist() == [6, 3, 4, 7]


def test_a_wrong_swizzle_is_still_an_error_beside_operators() -> None:
    assert refusal("float2 v(1); out[0] = v.xz.x;", COMPLEX) is not None
    assert refusal("float4 v(1); v.xx += 1;", COMPLEX) is not None
    assert refusal("float4 v(1); out[0] = v.xy.x;", COMPLEX) is None


def test_messages_name_neither_setters_nor_types_of_our_headers() -> None:
    for swizzle, value in (("xx", "float2(1)"), ("xyx", "1"), ("rgbr", "float4(1)")):
        message = str(refusal(f"float4 v(1); v.{swizzle} = {value}; out[0] = v.x;"))
        assert "vector is not assignable (contains duplicate components)" in message
        assert "repeated" not in message
    message = str(refusal("float4 v(1); float one = v.xy; out[0] = one;"))
    assert "no viable conversion from 'float2' to 'float'" in message
