"""The versions of the language: what each refuses, what each means, and what torch asks for."""

from __future__ import annotations

import re
from typing import Any, get_args

import pytest
import torch
from tests.msl.sources import HEADER, kernel

import anymetal
from anymetal.engines.cpu.target import HOST
from anymetal.errors import KernelSyntaxError
from anymetal.msl import check_all, compile_program, prepare
from anymetal.nouns import Language, Source

LAMBDA = HEADER + kernel("auto twice = [](float a) { return 2 * a; }; x[i] = twice(x[i]);")
FENCE = HEADER + kernel("atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst);")
COHERENT = HEADER + kernel(
    "x[i] = 1;", "coherent(device) device float* x, uint i [[thread_position_in_grid]]"
)
LOGGED = "#include <metal_logging>\n" + HEADER + kernel('os_log_default.log("%d", i);')
SINCE_3_2 = {
    "lambda expressions are not supported in Metal": LAMBDA,
    "use of undeclared identifier 'atomic_thread_fence'": FENCE,
    "coherent": COHERENT,
    "os_log_default": LOGGED,
}
NAMESPACE = """
#include <metal_stdlib>
#include <metal_tensor>
#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>
using namespace metal;
using namespace mpp;
kernel void k(device float* x) { x[0] = 1; }
"""


@pytest.mark.parametrize("word", SINCE_3_2)
def test_what_came_with_3_2_is_refused_in_3_1(word: str) -> None:
    with pytest.raises(KernelSyntaxError, match=word):
        check_all(prepare(Source(SINCE_3_2[word], language="3.1")), HOST)
    for language in ("3.2", "4.0"):
        check_all(prepare(Source(SINCE_3_2[word], language=language)), HOST)


def test_subscripts_and_bindings_are_no_lambdas() -> None:
    body = (
        "float rows[2][2] = {{1, 2}, {3, 4}}; metal::array<float, 2> both = {1, 2};\n"
        "  auto [first, second] = both; x[i] = rows[0][(i)] + (x)[i] + first + second;"
    )
    check_all(prepare(Source(HEADER + kernel(body), language="3.1")), HOST)


def test_tensors_are_there_from_4_0_on() -> None:
    check_all(prepare(Source(NAMESPACE, language="4.0")), HOST)
    for language in ("3.1", "3.2"):
        with pytest.raises(KernelSyntaxError, match="expected namespace name"):
            check_all(prepare(Source(NAMESPACE, language=language)), HOST)


def test_version_macro_and_the_scope_of_a_simdgroup_barrier() -> None:
    text = HEADER + kernel(
        "simdgroup_barrier(mem_flags::mem_none); x[i] = __METAL_VERSION__;\n"
        "#ifdef __HAVE_TENSOR__\nx[i] += 0.5f;\n#endif"
    )
    found = {}
    for language in get_args(Language):
        prepared = prepare(Source(text, language=language))
        program = compile_program(prepared, "k", {}, HOST)
        (word,) = {
            match[1] for match in re.finditer(r"@am_suspend\(i32 (?:noundef )?(\d+)\)", program.ir)
        }
        found[language] = int(word) >> 12
        x = torch.zeros(4)
        anymetal.compile_shader(text, language=language).k(x)
        assert x.tolist() == [{"3.1": 310, "3.2": 320, "4.0": 400.5}[language]] * 4
    assert found == {"3.1": 1, "3.2": 1, "4.0": 4}


@pytest.mark.parametrize("language", ["3.0", "3", "", 3.2, None])
def test_other_versions_are_refused_by_name(language: Any) -> None:
    with pytest.raises(ValueError, match=r"language is .*expected one of '3.1', '3.2', '4.0'"):
        anymetal.compile_shader(LAMBDA, language=language)


def test_versions_do_not_share_a_compilation() -> None:
    text = HEADER + kernel("x[i] = __METAL_VERSION__;")
    x = torch.zeros(1)
    for language in ("3.2", "3.1", "3.2"):
        anymetal.compile_shader(text, language=language).k(x)
        assert x.item() == int(language.replace(".", "")) * 10
