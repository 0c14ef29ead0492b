"""The operators' kernels on every macOS that torch runs on: it compiles with Metal 3.1 on macOS 14.

What a version lacks is found in tokens, so that no kernel is compiled here.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import anymetal
from anymetal.engines.choose import checking_target
from anymetal.msl import prepare
from anymetal.msl.check_spaces import check_spaces
from anymetal.nouns import Source
from anymetal.ops.declare.kernel_file import KernelFile

PACKAGE = Path(anymetal.__file__).parent
FILES = sorted(path for path in PACKAGE.rglob("*.metal") if "cli" not in path.parts)
CHECKED = FILES if os.environ.get("ANYMETAL_TEST_ALL") == "1" else FILES[::6]


def test_kernels_are_right_in_the_lowest_version_that_torch_asks_for() -> None:
    assert len(FILES) > 25
    for path in FILES:
        text = KernelFile(path).text
        assert text.isascii(), path  # torch hands a source to Apple's compiler as ASCII
        assert prepare(Source(text, str(path), language="3.1")).warnings == ()


@pytest.mark.parametrize("path", CHECKED, ids=lambda path: path.stem)
def test_kernels_keep_their_pointers_in_their_spaces(path: Path) -> None:
    check_spaces(prepare(Source(KernelFile(path).text, str(path))), checking_target())
