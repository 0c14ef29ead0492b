"""All tests share one cache inside the checkout: the second run starts no compiler.

What takes long and has a neighbour that is much the same is left to `make thorough`.
"""

from __future__ import annotations

import gc
import os
import re
import zlib
from pathlib import Path

import pytest

CACHE = Path(__file__).parent.parent / ".anymetal" / "test-cache"

os.environ.setdefault("ANYMETAL_CACHE_DIR", str(CACHE))
os.environ.pop("PYTORCH_MPS_FAST_MATH", None)

# Beginnings of tests' ids.
LONG = re.compile(
    "|".join(
        (
            # Gradients by themselves: their operators have these tests, gradients included.
            r"tests/ops/test_operators\.py::test_(strided|offset|opcheck)\w*\[.*_backward\b",
            # test_device_evidence.py has every operator on mps against float64.
            r"tests/ops/test_operators\.py::test_virtual_mps_gives_the_same",
            r"tests/ops/test_attention\.py::test_masked_rows_are_torchs\[5-.*-True\]",
            r"tests/linalg/test_functions\.py::test_large_kernels_are_silent_under_the_checker",
            r"tests/msl/test_types\.py::test_every_swizzle_of_bools\w*\[checked",
            r"tests/msl/test_simdgroup_matrix\.py::test_products_of_all\w*\[checked-(half|float)\]",
            r"tests/msl/test_matrix\.py::test_products_and_sums\w*\[checked-half\]",
            # `make extension` has these: the first fetches torch for macOS and compiles for
            # minutes, the second compiles each template's project in a process of its own.
            r"tests/extension/test_extension_mac\.py",
            r"tests/extension/test_extension_projects\.py::test_new_project_works",
            r"tests/patch/test_patch_transformers\.py::test_padding_and_caches",
            r"tests/cli/test_cli\.py::test_public_names_need_no_other_import",
        )
    )
)
# Of these one in so many, always the same ones: parameters that do much the same side by side.
SAMPLED = {
    r"tests/msl/.*\[checked": 6,
    r"tests/msl/test_(simdgroup|quadgroup)\.py::test_every_function_matches_numpy": 4,
    r"tests/msl/test_vector_operators\.py::test_operators_agree_with_numpy": 2,
    r"tests/msl/test_integer\.py::test_(every_function|absdiff)": 2,
    r"tests/msl/test_conversions\.py::test_every_type_converts": 2,
    r"tests/msl/test_relational\.py::test_select": 2,
    r"tests/engines/test_simdgroups\.py::test_(whole|partial)_simdgroups": 2,
    r"tests/evidence/test_checked_kernels\.py::test_workload_is_silent": 3,
    r"tests/checker/test_bad_kernels\.py::test_findings_as_the_comment_says": 3,
    r"tests/checker/test_locals\.py::test_unset_locals": 2,
    r"tests/learn/test_examples\.py::test_example_on_the_cpu": 3,
    r"tests/fuzz/test_fuzz\.py::test_(engine_agrees|checker_agrees|the_checker)": 3,
    r"tests/linalg/test_linalg_operators\.py::test_(health|virtual_mps)": 8,
    r"tests/linalg/test_gallery\.py::test_ratios_are_those": 2,
    r"tests/linalg/test_linalg_gradients\.py::test_compiled_function": 2,
    r"tests/msl/test_types\.py::test_every_swizzle": 2,
    r"tests/ops/test_gpu_shapes\.py::": 6,
    r"tests/ops/test_operators\.py::test_(result|gradient)\w*\[(fp16|bf16)": 3,
    r"tests/ops/test_operators\.py::test_strided_inputs": 8,
    r"tests/ops/test_operators\.py::test_(offset_views|opcheck|compiled_call)": 5,
    r"tests/ops/test_operators\.py::test_checker_is_silent": 3,
    r"tests/ops/test_as_torch\.py::test_autocast": 5,
    r"tests/ops/test_as_torch\.py::test_(second_derivative|tangent)": 2,
    r"tests/ops/test_attention\.py::test_(masked_rows|wide_heads|two_phases)": 3,
    r"tests/ops/test_engines\.py::test_engines_agree": 2,
    r"tests/ops/test_norm\.py::test_(every_strategy|equal_elements|group_norm_strategies)": 6,
    r"tests/ops/test_(softmax|paged)\.py::test_each_strategy": 3,
    r"tests/ops/test_quant\.py::test_(product_is_within|gradient_is_that)": 3,
    r"tests/overrides/test_override_samples\.py::test_samples": 4,
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if os.environ.get("ANYMETAL_TEST_ALL"):
        return
    left_out = {item for item in items if _is_left_out(item.nodeid)}
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=list(left_out))


def pytest_collection_finish() -> None:
    """Modules and tests stay to the end: the collector need not walk over them again and again."""
    gc.freeze()


def _is_left_out(name: str) -> bool:
    shares = [share for pattern, share in SAMPLED.items() if re.match(pattern, name)]
    taken = zlib.crc32(name.encode()) % max(shares, default=1) == 0
    return not taken or LONG.match(name) is not None
