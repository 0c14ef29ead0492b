"""check(): which check a kernel call belongs to, nested, in threads and for a whole process."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import timeit
from pathlib import Path

import pytest
import torch
from sightings import race, unwritten

import anymetal
from anymetal.checker.context import ActiveCheck, active, check
from anymetal.checker.report import Report
from anymetal.errors import CheckError

NANOSECOND = 1e-9


@pytest.fixture(autouse=True)
def nothing_around(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests look at the outermost check, also when the suite itself runs checked."""
    monkeypatch.setattr("anymetal.checker.context.entered", [])


def current_report() -> Report | None:
    check = active()
    return check.report if check else None


def test_active_is_none_outside() -> None:
    assert active() is None
    with check():
        assert active() is not None
    assert active() is None


def test_active_is_cheap_when_off() -> None:
    def nothing() -> None:
        return None

    calls = 10_000
    spent = min(timeit.repeat(active, number=calls, repeat=20)) / calls
    # A busy machine may need long for any call: three of them are as cheap as it gets there.
    empty = min(timeit.repeat(nothing, number=calls, repeat=20)) / calls
    assert spent < max(100 * NANOSECOND, 3 * empty)


def test_public_name_is_the_same() -> None:
    assert anymetal.check is check


def test_options_reach_the_active_check() -> None:
    tensor = torch.zeros(3)
    with check(outputs=[tensor], nan=True):
        current = active()
        assert current is not None
        assert current.nan
        assert current.outputs is not None
        assert current.outputs[0] is tensor
    with check():
        current = active()
        assert current is not None
        assert (current.outputs, current.nan) == (None, False)
    with check(outputs=()):
        current = active()
        assert current is not None
        assert current.outputs == ()


def test_one_tensor_as_outputs_is_refused() -> None:
    with pytest.raises(TypeError, match=r"outputs=\[tensor\]"):
        check(outputs=torch.zeros(3))
    with pytest.raises(TypeError, match="holds str"):
        check(outputs="out")


def test_severity_is_checked_and_applied() -> None:
    with pytest.raises(ValueError, match="no kind 'rase'"):
        check(severity={"rase": "off"})  # type: ignore[dict-item]
    with check(severity={"unwritten_output": "error"}) as report:
        current = active()
        assert current is not None
        current.report.add(unwritten())
    assert len(report.errors) == 1


def test_nested_innermost_gets_the_findings() -> None:
    with check() as outer:
        with check() as inner:
            assert current_report() is inner
            inner.add(race())
        assert current_report() is outer
    assert not outer
    assert len(inner) == 1


def test_one_check_object_can_be_entered_again() -> None:
    again = check()
    with again as one, again as two:
        assert current_report() is two
    with again as three:
        assert current_report() is three
    assert len({id(one), id(two), id(three)}) == 3
    assert active() is None


def test_check_ends_with_an_exception() -> None:
    with pytest.raises(KeyError), check():
        raise KeyError("x")
    assert active() is None


def in_thread(work: object) -> None:
    thread = threading.Thread(target=work)  # type: ignore[arg-type]
    thread.start()
    thread.join()


def test_thread_without_a_check_belongs_to_the_one_around() -> None:
    seen: list[Report | None] = []
    with check() as report:
        in_thread(lambda: seen.append(current_report()))
    in_thread(lambda: seen.append(current_report()))
    assert seen == [report, None]


def test_checks_of_two_threads_stay_apart() -> None:
    entered = threading.Barrier(2)
    ready_to_leave = threading.Barrier(2)
    seen: list[bool] = []

    def work() -> None:
        with check() as mine:
            entered.wait(10)
            seen.append(current_report() is mine)
            ready_to_leave.wait(10)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [True, True]
    assert active() is None


def test_checks_of_tasks_stay_apart() -> None:
    async def work() -> bool:
        with check() as mine:
            await asyncio.sleep(0.001)
            return current_report() is mine

    async def both() -> list[bool]:
        return list(await asyncio.gather(work(), work()))

    assert asyncio.run(both()) == [True, True]


def test_task_that_outlives_its_check_belongs_to_the_one_around() -> None:
    async def late() -> Report | None:
        await asyncio.sleep(0.01)
        return current_report()

    async def start() -> Report | None:
        with check():
            task = asyncio.create_task(late())
        return await task

    assert asyncio.run(start()) is None
    with check() as report:
        assert asyncio.run(start()) is report


def test_leaving_out_of_order_keeps_the_other() -> None:
    one, two = ActiveCheck(Report()), ActiveCheck(Report())
    one.__enter__()
    two.__enter__()
    one.__exit__()
    assert active() is two
    two.__exit__()
    assert active() is None


PROGRAM = """
import sys
sys.path.insert(0, {tests!r})
from sightings import overrun, race, unwritten
from anymetal.checker.context import active
check = active()
if check:
    check.report.launch("fill")
    check.report.add(overrun())
    print("after the error", file=sys.stderr)
    check.report.add(overrun())
    check.report.add(unwritten())
sys.exit(7)
"""


def run_program(
    pytestconfig: pytest.Config, **environment: str
) -> subprocess.CompletedProcess[str]:
    """A program that sees an error twice and a warning, and exits with 7."""
    tests = str(pytestconfig.rootpath / "tests" / "checker")
    env = {name: value for name, value in os.environ.items() if name != "GITHUB_ACTIONS"}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM.format(tests=tests)],
        env={**env, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_process_prints_to_stderr_and_keeps_its_status(pytestconfig: pytest.Config) -> None:
    done = run_program(pytestconfig, ANYMETAL_CHECK="1")
    assert done.returncode == 7
    assert done.stdout == ""
    first, rest = done.stderr.split("after the error\n")
    assert first.startswith("error[out_of_bounds] in fill: ")
    error, warning = rest.splitlines()[:2]
    assert error.startswith("error[out_of_bounds] in fill: ")
    assert error.endswith("kernels/softmax_rows.metal:7:5, seen 2 times")
    assert warning.startswith("warning[unwritten_output] in fill: ")
    assert rest.endswith("anymetal check: 1 kernel, 1 launch, 1 error, 1 warning\n")


def test_process_annotates_in_a_workflow(pytestconfig: pytest.Config) -> None:
    done = run_program(pytestconfig, ANYMETAL_CHECK="1", GITHUB_ACTIONS="true")
    assert [line.split(" ")[0] for line in done.stderr.splitlines()[-2:]] == [
        "::error",
        "::warning",
    ]


@pytest.mark.parametrize("value", ["0", ""])
def test_process_off(pytestconfig: pytest.Config, value: str) -> None:
    done = run_program(pytestconfig, ANYMETAL_CHECK=value)
    assert (done.returncode, done.stdout, done.stderr) == (7, "", "")


def test_importing_the_context_is_light() -> None:
    program = (
        "import sys; import anymetal.checker.context;"
        "print([name for name in ('torch', 'llvmlite', 'rich', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_errors_are_raised_on_request() -> None:
    with pytest.raises(CheckError, match=r"error.race. in softmax_rows") as caught:  # noqa: SIM117
        with check(raise_on_error=True) as report:
            report.add(race())
            report.add(unwritten())
    assert caught.value.report is report
    with check(raise_on_error=True) as report:
        report.add(unwritten())
    with pytest.raises(KeyError), check(raise_on_error=True) as report:
        report.add(race())
        raise KeyError


KEPT = """
import torch, anymetal
library = anymetal.compile_shader('''
#include <metal_stdlib>
#include <metal_logging>
using namespace metal;
kernel void kept(device bfloat* y, uint i [[thread_position_in_grid]]) {
  if (i == 3) os_log_default.log("thread %u", i);
  y[i] = bfloat(y[i] * 1.5f);
}
''')
with anymetal.check() as report:
    library.kept(torch.ones(8, dtype=torch.bfloat16))
assert not report.findings, report.findings
"""


def test_first_kernel_of_a_process_is_checked_from_the_cache(tmp_path: Path) -> None:
    """It calls functions of the runtime, which nothing has started before."""
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", KEPT],
            env={**os.environ, "ANYMETAL_CACHE_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "kept thread 3: thread 3\n")
