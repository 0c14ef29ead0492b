"""What NVIDIA's driver is asked, and what its refusals lead to; it is not here."""

from __future__ import annotations

import ctypes
import functools
from types import SimpleNamespace
from typing import Any

import pytest
from cuda.bindings import driver as bindings

from anymetal.engines.cuda import driver
from anymetal.errors import EngineError, LimitError


def test_memory_beyond_what_all_launches_have_is_asked_of_the_driver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A device that has less is named, and so is the kernel."""
    allowed: list[int] = []

    class Library:
        def cuFuncGetAttribute(self, value: Any, number: int, _: Any) -> int:
            value._obj.value = 1024 if number == 1 else 0  # of its own
            return 0

        def cuFuncSetAttribute(self, _: Any, number: int, size: int) -> int:
            allowed.append(size)
            return 1 if size > 100_000 else 0

        def cuGetErrorString(self, *_: Any) -> None:
            pass

        def cuLaunchKernelEx(self, *_: Any) -> int:
            return 0

    monkeypatch.setattr(driver, "_library", Library)
    function = driver.Function(ctypes.c_void_p(), ctypes.c_void_p(), 0, "asking", early=False)
    for size in (0, 47 * 1024, 47 * 1024 + 16, 48 * 1024, 48 * 1024):
        function.prepared((1, 1, 1), 32, size, 0, 0)
    assert allowed == [47 * 1024 + 16, 48 * 1024]
    with pytest.raises(LimitError, match=r"'asking' needs 200000 bytes .* device 0 has"):
        function.prepared((1, 1, 1), 32, 200_000, 0, 0)


@pytest.mark.parametrize("refusals", [0, 1, 2])
def test_text_that_is_not_assembled_is_tried_without_optimisation(
    monkeypatch: pytest.MonkeyPatch, refusals: int
) -> None:
    option = bindings.CUjit_option
    asked: list[dict[int, int]] = []

    class Library:
        def cuModuleLoadDataEx(self, _m: Any, _t: bytes, count: int, keys: Any, values: Any) -> int:
            asked.append({keys[i]: values[i] for i in range(count)})
            ctypes.memmove(asked[-1][option.CU_JIT_ERROR_LOG_BUFFER], b"no predicates", 13)
            return 218 if len(asked) <= refusals else 0

        def __getattr__(self, name: str) -> Any:
            return lambda *_: 0

    monkeypatch.setattr(driver, "_library", Library)
    loaded = functools.partial(driver.load, "", "large", 0, threads=512)
    if refusals < 2:
        assert loaded().max_threads == 0
    else:
        with pytest.raises(EngineError, match=r"'large' was not assembled: .*\n.*no predicates"):
            loaded()
    levels = [one.get(option.CU_JIT_OPTIMIZATION_LEVEL) for one in asked]
    assert levels == [None, 1][: min(refusals, 1) + 1]
    assert all(one[option.CU_JIT_MAX_REGISTERS] == 128 for one in asked)


@pytest.mark.parametrize(("version", "can"), [(12020, False), (12030, True), (13000, True)])
def test_drivers_that_cannot_record_early_launches_have_none(
    version: int, can: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tell(found: Any) -> int:
        found._obj.value = version
        return 0

    monkeypatch.setattr(driver, "_library", lambda: SimpleNamespace(cuDriverGetVersion=tell))
    assert driver._can_start_early() == can


def test_bytes_are_sent_by_a_thread_without_a_context(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new thread has none until it calls CUDA's runtime."""
    sent: list[tuple[int, bytes, int, int]] = []
    entered: list[int] = []

    class Library:
        def cuMemcpyHtoDAsync_v2(self, to: Any, data: bytes, size: Any, stream: Any) -> int:
            sent.append((to.value, data, size.value, stream.value))
            return 0 if entered else 201

    monkeypatch.setattr(driver, "_library", Library)
    monkeypatch.setattr(driver, "enter", entered.append)
    driver.send(4096, b"some", 7, 1)
    assert sent == [(4096, b"some", 4, 7)] * 2
    assert entered == [1]


def test_graph_that_is_recorded_forbids_nothing_outside_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    modes = [0]  # the thread's, as the driver has it

    class Library:
        def cuThreadExchangeStreamCaptureMode(self, mode: Any) -> int:
            modes.append(mode._obj.value)
            mode._obj.value = modes[-2]
            return 0

    monkeypatch.setattr(driver, "_library", Library)
    with pytest.raises(ValueError, match="inside"), driver.outside_recordings():
        assert modes[-1] == bindings.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        raise ValueError("inside")
    assert modes[-1] == bindings.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL == 0
