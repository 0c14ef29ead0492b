"""The check for macOS: the example passes it, and what only a Mac would refuse does not.

`make extension` runs these: torch for macOS is fetched, and zig builds its C++ library once.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from anymetal.extension import mac_check
from anymetal.extension.compiling import ExtensionError
from anymetal.extension.project import read_project
from anymetal.store.cache import default_store

EXAMPLE = Path(__file__).parents[2] / "examples" / "extension"
START = """
#include <ATen/core/Tensor.h>
#include <ATen/mps/MPSStream.h>

#include <algorithm>
"""


def check(source: Path) -> str:
    return mac_check.check(default_store(), read_project(source))


def test_example_compiles_and_links_for_macos() -> None:
    assert "linked against torch" in check(EXAMPLE)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("int64_t f(const at::Tensor& t) { return std::max(t.numel(), 1L); }", "does not compile"),
        (
            "namespace at::mps { void no_such_function(int); }\n"
            "void f() { at::mps::no_such_function(1); }",
            "no_such_function",
        ),
        (
            "namespace at::mps { MPSStream* getCurrentMPSStream(int device); }\n"
            "void* f() { return at::mps::getCurrentMPSStream(0); }",
            "getCurrentMPSStream",
        ),
    ],
    ids=["long", "missing symbol", "wrong signature"],
)
def test_mistake_that_linux_does_not_see_is_found(text: str, words: str, tmp_path: Path) -> None:
    source = tmp_path / "mistake.mm"
    source.write_text(START + text + "\n")
    with pytest.raises(ExtensionError, match=words):
        check(source)
