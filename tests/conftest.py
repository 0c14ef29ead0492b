"""All tests share one cache inside the checkout: the second run starts no compiler.

What takes long and has a neighbour that is much the same is left to `make thorough`.
"""

from __future__ import annotations

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
            r"tests/patch/test_patch_transformers\.py::test_padding_and_caches",
        )
    )
)
# Of these a third, always the same one.
SAMPLED = re.compile(r"tests/test_docs\.py::test_code_blocks_run\[skill/references/")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if os.environ.get("ANYMETAL_TEST_ALL"):
        return
    left_out = {item for item in items if _is_left_out(item.nodeid)}
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=list(left_out))


def _is_left_out(name: str) -> bool:
    if SAMPLED.match(name):
        return zlib.crc32(name.encode()) % 3 != 0
    return LONG.match(name) is not None
