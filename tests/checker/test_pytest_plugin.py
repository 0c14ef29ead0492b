"""The pytest plugin: who is checked, who fails, what is printed, with and without workers."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

# What a checked launch does, without the launch: the findings are made by hand.
LAUNCHES = """
import pytest
from sightings import overrun, race, unwritten
from anymetal.checker.context import active

def launch(kernel, *findings):
    check = active()
    if check:
        check.report.launch(kernel)
        for finding in findings:
            check.report.add(finding)
"""
CLEAN = LAUNCHES + "\ndef test_clean(): launch('clean')\n"
BAD = LAUNCHES + "\ndef test_bad(): launch('fill', overrun())\n"
DOUBTFUL = LAUNCHES + "\ndef test_doubtful(): launch('fill', unwritten())\n"
# hypothesis is imported anew for each run inside, which takes two seconds.
QUICK = ["-p", "no:cacheprovider", "-p", "no:hypothesispytest"]


@pytest.fixture(autouse=True)
def inner(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests inside find the hand-made findings, and do not think they run on GitHub."""
    pytester.syspathinsert(Path(__file__).parent)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    monkeypatch.delenv("ANYMETAL_CHECK", raising=False)


def run(pytester: pytest.Pytester, text: str, *options: str) -> pytest.RunResult:
    pytester.makepyfile(text)
    return pytester.runpytest_inprocess(*QUICK, "--strict-markers", *options)


def test_entry_point_is_installed() -> None:
    (entry,) = entry_points(group="pytest11", name="anymetal")
    assert entry.value == "anymetal.pytest_plugin"


def test_without_the_option_nothing_is_checked(pytester: pytest.Pytester) -> None:
    result = run(pytester, BAD)
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*anymetal*check:*")


def test_option_fails_the_test_with_its_findings(pytester: pytest.Pytester) -> None:
    result = run(pytester, BAD, "--metal-check")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*test_bad*",
            "error?out_of_bounds? in fill: write of 4 bytes outside device 'out', at element 1200",
            "  write  thread 176 of threadgroup 4, lane 16  *:7:5  out?in_grid? = value;",
            "anymetal check: 1 kernel, 1 launch, 1 error",
        ]
    )
    result.stdout.no_fnmatch_line("*pytest_plugin.py*")


def test_option_passes_a_clean_test(pytester: pytest.Pytester) -> None:
    result = run(pytester, CLEAN, "--metal-check")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["anymetal check: 1 kernel, 1 launch, nothing found"])


def test_option_says_when_no_kernel_ran(pytester: pytest.Pytester) -> None:
    result = run(pytester, "def test_nothing(): pass", "--metal-check")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["anymetal check: no kernel was launched"])
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_option_lets_single_tests_launch_nothing(pytester: pytest.Pytester) -> None:
    result = run(pytester, CLEAN + "\ndef test_nothing(): pass\n", "--metal-check")
    result.assert_outcomes(passed=2)
    assert result.ret == pytest.ExitCode.OK


def test_marked_test_that_launches_nothing_fails(pytester: pytest.Pytester) -> None:
    text = LAUNCHES + (
        "\nfrom anymetal import check\n"
        "\n@pytest.mark.metal_check\ndef test_nothing(): pass\n"
        "\n@pytest.mark.metal_check(enabled=False)\ndef test_kept_out(): pass\n"
        "\n@pytest.mark.metal_check\ndef test_looks_itself():\n"
        "    with check(): launch('clean')\n"
        "\n@pytest.mark.metal_check\ndef test_fails_by_itself(): assert 1 == 2\n"
    )
    result = run(pytester, text)
    result.assert_outcomes(failed=2, passed=2)
    result.stdout.fnmatch_lines(["*no kernel was launched, and the marker metal_check asks*"])


def test_warning_is_shown_and_fails_only_when_strict(pytester: pytest.Pytester) -> None:
    result = run(pytester, DOUBTFUL, "--metal-check")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["warning?unwritten_output? in fill:*", "anymetal check: 1 kernel, 1 launch, 1 warning"]
    )
    run(pytester, DOUBTFUL, "--metal-check", "--metal-check-strict").assert_outcomes(failed=1)


def test_finding_in_a_fixture_is_an_error_of_its_test(pytester: pytest.Pytester) -> None:
    text = LAUNCHES + (
        "\n@pytest.fixture(scope='module')\ndef data(): launch('fill', overrun())\n"
        "def test_first(data): launch('scan')\n"
        "def test_second(data): launch('scan')\n"
    )
    run(pytester, text, "--metal-check").assert_outcomes(errors=1, passed=1)


def test_finding_in_teardown_is_an_error(pytester: pytest.Pytester) -> None:
    text = LAUNCHES + (
        "\n@pytest.fixture\ndef data():\n    yield\n    launch('fill', overrun())\n"
        "def test_first(data): pass\n"
    )
    run(pytester, text, "--metal-check").assert_outcomes(errors=1, passed=1)


def test_findings_are_shown_when_the_test_fails_by_itself(pytester: pytest.Pytester) -> None:
    text = LAUNCHES + "\ndef test_bad():\n    launch('fill', overrun())\n    assert 1 == 2\n"
    result = run(pytester, text, "--metal-check")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*assert 1 == 2*", "*metal check*", "error?out_of_bounds?*"])


def test_unittest_case_is_checked(pytester: pytest.Pytester) -> None:
    text = LAUNCHES + (
        "\nimport unittest\nclass TestKernels(unittest.TestCase):\n"
        "    def test_bad(self): launch('fill', overrun())\n"
    )
    run(pytester, text, "--metal-check").assert_outcomes(failed=1)


def test_expected_failure_stays_expected(pytester: pytest.Pytester) -> None:
    text = LAUNCHES + "\n@pytest.mark.xfail\ndef test_bad(): launch('fill', overrun())\n"
    run(pytester, text, "--metal-check").assert_outcomes(xfailed=1)


def test_check_inside_the_test_keeps_its_findings(pytester: pytest.Pytester) -> None:
    text = LAUNCHES + (
        "\nfrom anymetal import check\ndef test_looks_itself():\n"
        "    with check() as report: launch('fill', overrun())\n"
        "    assert report.errors\n"
    )
    run(pytester, text, "--metal-check").assert_outcomes(passed=1)


def test_marker_checks_without_the_option(pytester: pytest.Pytester) -> None:
    text = LAUNCHES + (
        "\n@pytest.mark.metal_check\ndef test_bad(): launch('fill', overrun())\n"
        "def test_unmarked(): launch('fill', overrun())\n"
    )
    result = run(pytester, text)
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["anymetal check: 1 kernel, 1 launch, 1 error"])


@pytest.mark.parametrize(
    ("arguments", "outcome"),
    [
        ("strict=True", {"failed": 1}),
        ("strict=False", {"passed": 1}),
        ("severity={'unwritten_output': 'error'}", {"failed": 1}),
        ("enabled=False", {"passed": 1}),
        ("speed=3", {"errors": 1}),
        ("False", {"errors": 1}),
        ("severity={'rase': 'off'}", {"errors": 1}),
    ],
)
def test_marker_options(pytester: pytest.Pytester, arguments: str, outcome: dict[str, int]) -> None:
    text = LAUNCHES + (
        f"\n@pytest.mark.metal_check({arguments})\n"
        "def test_doubtful(): launch('fill', unwritten())\n"
    )
    run(pytester, text).assert_outcomes(**outcome)


def test_marker_keeps_a_test_out(pytester: pytest.Pytester) -> None:
    text = LAUNCHES + (
        "\n@pytest.mark.metal_check(enabled=False)\ndef test_bad():\n    assert active() is None\n"
    )
    # The suite itself may run checked; then the check around it is the active one.
    pytester.makepyfile(text)
    pytester.runpytest_subprocess(*QUICK, "--metal-check").assert_outcomes(passed=1)


def test_options_reach_the_check(pytester: pytest.Pytester) -> None:
    text = LAUNCHES + (
        "\n@pytest.mark.metal_check(outputs=())\ndef test_outputs():\n"
        "    assert active().outputs == () and active().nan\n    launch('clean')\n"
        "\ndef test_plain():\n    assert active().outputs is None and active().nan\n"
    )
    run(pytester, text, "--metal-check", "--metal-check-nan").assert_outcomes(passed=2)


def test_fixture_hands_the_findings_to_the_test(pytester: pytest.Pytester) -> None:
    text = LAUNCHES + (
        "\ndef test_judges(metal_report):\n"
        "    launch('fill', overrun())\n"
        "    assert [found.kind for found in metal_report] == ['out_of_bounds']\n"
        "    assert metal_report.launches == {'fill': 1}\n"
    )
    for options in ([], ["--metal-check"]):
        result = run(pytester, text, *options)
        result.assert_outcomes(passed=1)
        result.stdout.fnmatch_lines(["anymetal check: 1 kernel, 1 launch, nothing found"])


def test_fixture_with_the_marker_still_fails(pytester: pytest.Pytester) -> None:
    text = LAUNCHES + (
        "\n@pytest.mark.metal_check\ndef test_bad(metal_report):\n"
        "    launch('fill', overrun())\n    assert metal_report.errors\n"
    )
    run(pytester, text).assert_outcomes(failed=1)


def test_fixture_asked_for_by_name(pytester: pytest.Pytester) -> None:
    text = LAUNCHES + (
        "\ndef test_late(request):\n"
        "    report = request.getfixturevalue('metal_report')\n"
        "    launch('fill', overrun())\n    assert report.errors\n"
    )
    run(pytester, text).assert_outcomes(passed=1)


def test_files_are_written(pytester: pytest.Pytester) -> None:
    run(
        pytester,
        BAD,
        *["--metal-check", "--metal-check-json=found.json", "--metal-check-sarif=found.sarif"],
    )
    found = json.loads((pytester.path / "found.json").read_text())
    assert found["summary"]["errors"] == 1
    log = json.loads((pytester.path / "found.sarif").read_text())
    assert log["runs"][0]["results"][0]["ruleId"] == "out_of_bounds"


def test_file_that_cannot_be_written_is_known_first(pytester: pytest.Pytester) -> None:
    result = run(pytester, BAD, "--metal-check-json=gone/found.json")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--metal-check-json gone/found.json: no such folder: gone"])


def test_annotations_in_a_workflow(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    result = run(pytester, BAD, "--metal-check")
    result.stdout.fnmatch_lines(["::error file=kernels/softmax_rows.metal,line=7,*"])


def test_workers_send_their_findings(pytester: pytest.Pytester) -> None:
    text = LAUNCHES + (
        "\n@pytest.mark.parametrize('number', range(8))\ndef test_some(number):\n"
        "    launch(f'kernel_{number % 4}', *([overrun()] if number < 2 else []))\n"
    )
    pytester.makepyfile(text)
    options = ["--metal-check", "-n", "2", "--metal-check-json=found.json"]
    result = pytester.runpytest_subprocess(*QUICK, *options)
    result.assert_outcomes(failed=2, passed=6)
    result.stdout.fnmatch_lines(
        ["error?out_of_bounds? in fill:*", "anymetal check: 4 kernels, 8 launches, 1 error"]
    )
    found = json.loads((pytester.path / "found.json").read_text())
    assert [finding["count"] for finding in found["findings"]] == [2]


def test_plugin_is_light_when_nothing_is_checked(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "import sys\ndef test_light():\n"
        "    heavy = [name for name in sys.modules if name in ('torch', 'llvmlite', 'rich')]\n"
        "    heavy += [name for name in sys.modules if name.startswith('anymetal.')]\n"
        "    assert heavy == ['anymetal.pytest_plugin']\n"
    )
    pytester.runpytest_subprocess(*QUICK).assert_outcomes(passed=1)


KERNELS = '''
import anymetal
import pytest
import torch

SOURCE = """
#include <metal_stdlib>
using namespace metal;
kernel void shift(device float* out, constant uint& by, uint i [[thread_position_in_grid]]) {
  out[i + by] = 1.0f;
}
"""

@pytest.mark.parametrize("by", [0, 1])
def test_shift(by):
    anymetal.compile_shader(SOURCE).shift(torch.zeros(33), by)
'''


def test_real_kernel_fails_and_passes(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(KERNELS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *QUICK, "--metal-check"],
        capture_output=True,
        text=True,
        check=False,
        cwd=pytester.path,
    )
    assert "1 failed, 1 passed" in done.stdout
    assert "error[out_of_bounds] in shift" in done.stdout
    assert "anymetal check: 1 kernel, 2 launches, 1 error, 1 warning" in done.stdout
