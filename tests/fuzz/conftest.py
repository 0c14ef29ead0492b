"""A kernel that never ends is a failure as well, and should not take a minute to be one."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def short_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANYMETAL_TIME_LIMIT", "20")
