"""The sample operator with its launch policy, and nothing of the user's own configuration.

The benchmarks and the conformance run are no part of the package: they are found by their place.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT), str(ROOT / "benchmarks")]

POLICY = """
version = 1
[[policy]]
operator = ["sample_square", "sample_square_backward"]
strategy = "elementwise"
group_size = 128
candidates = { group_size = [32, 64, 128] }
"""


@pytest.fixture
def sample(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ModuleType]:
    """The module of the sample operator, which is the only one there is while a test runs."""
    import sample as module  # noqa: PLC0415

    import anymetal.linalg  # noqa: F401, PLC0415  (declares its operators now, not in the test)
    from anymetal.ops.declare import OPERATORS  # noqa: PLC0415
    from anymetal.policy import policy  # noqa: PLC0415

    text = policy.PACKAGE_FILE.read_text() + POLICY.replace("version = 1\n", "")
    package = tmp_path / "policies.toml"
    package.write_text(text)
    monkeypatch.setattr(policy, "PACKAGE_FILE", package)
    monkeypatch.setattr(policy, "user_file", lambda: tmp_path / "none.toml")
    monkeypatch.delenv("ANYMETAL_POLICY", raising=False)
    others = dict(OPERATORS)
    OPERATORS.clear()
    OPERATORS.update({op.name: op for op in (module.square, module.square_backward)})
    policy.forget()
    yield module
    OPERATORS.clear()
    OPERATORS.update(others)
    for name in ("added", "only_group_size", "out_of_bounds", "raises"):
        setattr(module.Mistakes, name, None if name in ("only_group_size", "raises") else 0)
    monkeypatch.undo()
    policy.forget()
