"""What is seen of os_log, and assertions of kernels that do not hold."""

from __future__ import annotations

import logging

import pytest
import torch

import anymetal
from anymetal.errors import KernelAssertion

HEADER = "#include <metal_stdlib>\n#include <metal_logging>\nusing namespace metal;"
NOTED = f"""{HEADER}
kernel void noted(device float* x, constant uint& n, uint2 at [[thread_position_in_grid]]) {{
  if (at.x == 35) os_log_default.log("n is %u", n);
  assert(at.x < n && n != 0);
  if (at.y == 0) x[at.x] = at.x;
}}"""


def test_messages_are_seen_where_nobody_set_up_logging(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel = anymetal.compile_shader(NOTED).noted
    kernel(torch.ones(40), 40, threads=(40, 2))
    assert capsys.readouterr().err == ""  # pytest has set it up
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    kernel(torch.ones(40), 40, threads=(40, 2))
    assert sorted(capsys.readouterr().err.splitlines()) == [
        "noted thread (35, 1, 0): n is 40" if row else "noted thread 35: n is 40" for row in (1, 0)
    ]


@pytest.mark.parametrize("engine", ["simdgroup", "coroutine"])
def test_failing_assert_is_an_error(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANYMETAL_ENGINE", engine)
    kernel = anymetal.compile_shader(NOTED).noted
    assert kernel.engine == engine
    with pytest.raises(KernelAssertion) as caught:
        kernel(torch.ones(40), 38, threads=40)
    assert str(caught.value) == (
        "kernel 'noted': assertion failed: at.x < n && n != 0, at <shader>:6, in thread 38 of the"
        " grid, and 1 more"
    )
    assert [failure.thread for failure in caught.value.failures] == [(38, 0, 0), (39, 0, 0)]


def test_assert_is_not_evaluated_with_ndebug() -> None:
    anymetal.compile_shader(NOTED, defines={"NDEBUG": 1}).noted(torch.ones(40), 38, threads=40)
