"""What is said where the tools for Objective-C++ are missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from anymetal.errors import ToolchainError
from anymetal.extension import toolchain


def test_missing_tools_are_named_with_the_command_that_installs_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(toolchain.shutil, "which", lambda name: None)
    with pytest.raises(ToolchainError, match=r"clang 16 .*apt-get install .*libobjc-12-dev"):
        toolchain.find_toolchain.__wrapped__()


def test_continuous_integration_installs_the_same_packages() -> None:
    script = (Path(__file__).parents[2] / ".ci" / "run").read_text()
    assert " ".join(toolchain.PACKAGES) in script
