"""Findings about the host: each misuse is found at its line, and its right twin is silent."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import anymetal
from anymetal import extension
from anymetal.checker.kinds import ROWS

HOST = Path(__file__).parent / "host"
SOURCE = HOST / "csrc" / "host.mm"

# The operator and what its wrong form does; those that a Mac ends the process for raise.
MISUSES = {
    "stale_encoder": ("stale_encoder", True),
    "kept_encoder": ("stale_encoder", True),
    "owned_encoder": ("owned_by_torch", True),
    "owned_buffer": ("owned_by_torch", True),
    "second_encoder": ("open_encoder", True),
    "blit": ("open_encoder", True),
    "waits": ("host_wait", False),
    "own_queue_waits": ("host_wait", False),
    "own_queue_unordered": ("unordered_buffers", False),
    "own_queue_unseen": ("unordered_buffers", False),
    "held_allocation": ("held_allocation", False),
    "operator_in_block": ("held_allocation", True),
    "threadgroup_length": ("threadgroup_length", True),
    "unbound": ("argument_size", True),
    "bound_before": ("argument_size", False),
    "too_small": ("argument_size", True),
    "view_offset": ("view_offset", False),
    "data_pointer": ("view_offset", True),
    "many_threads": ("limits", True),
    "freed_buffer": ("freed_buffer", True),
    "freed_before": ("freed_buffer", True),
    "outside_queue": ("stream_queue", False),
    "nested_block": ("stream_queue", True),
    "thrown": ("stream_queue", True),
}
# Their findings are about the operator as a whole.
WITHOUT_LINE = {"own_queue_unseen"}


@pytest.fixture(scope="session")
def host() -> Any:
    """The project's operators. Its script that embeds kernels is the example's."""
    extension.load(HOST)
    return torch.ops.host


def view() -> torch.Tensor:
    """64 numbers in the middle of a storage."""
    return torch.randn(100).to("mps")[20:84]


def expected_line(operator: str, kind: str) -> int:
    """Where the operator's text, or that of what it calls, says that the kind is found."""
    text = SOURCE.read_text()
    inner = "own_queue" if operator.startswith("own_queue") else operator
    begin = re.search(rf"\n\w+ {inner}\(", text)
    assert begin
    return text[: text.index(f"finds: {kind}", begin.start())].count("\n") + 1


@pytest.mark.parametrize("operator", MISUSES)
def test_misuse_is_found_at_its_line_and_the_right_twin_is_silent(host: Any, operator: str) -> None:
    kind, raises = MISUSES[operator]
    x = view()
    with anymetal.check() as right:
        out = getattr(host, operator)(x, False)
    assert not right.findings, str(right.findings)
    torch.testing.assert_close(out.cpu(), 2 * x.cpu())
    x = view()
    host.view_offset(x, False)  # leaves torch's encoder open, with bindings
    with anymetal.check() as wrong:
        if raises:
            with pytest.raises(RuntimeError):
                getattr(host, operator)(x, True)
        else:
            getattr(host, operator)(x, True)
        torch.mps.synchronize()
    found = [finding for finding in wrong.findings if finding.kind == kind]
    assert found, str(wrong.findings)
    finding = found[0]
    assert finding.hint and finding.kernel == f"host::{operator}"
    if operator in WITHOUT_LINE:
        return
    assert finding.place.position is not None
    assert Path(finding.place.position.file).name == "host.mm"
    assert finding.line == expected_line(operator, kind)
    assert finding.place.excerpt.strip()


def test_every_kind_about_the_host_has_a_pair() -> None:
    found = {kind for kind, _ in MISUSES.values()}
    assert {row.name for row in ROWS if row.about == "host"} <= found


def test_misuse_that_ends_a_mac_raises_without_a_check(host: Any) -> None:
    with pytest.raises(RuntimeError, match=r"host\.mm:\d+: endEncoding: .*torch's stream"):
        host.owned_encoder(view(), True)
    with pytest.raises(RuntimeError, match=r"takes 1 to 1024"):
        host.many_threads(view(), True)
    assert host.waits(view(), True).shape == (64,)


def test_kernels_findings_have_lines_of_metal(host: Any) -> None:
    x = torch.randn(64).to("mps")
    with anymetal.check() as report:
        host.kernel_mistake(x, False)
        host.by_address(x)
    assert not report.findings, str(report.findings)
    with anymetal.check() as report:
        host.kernel_mistake(x, True)
    finding = report.findings[0]
    assert finding.kind == "out_of_bounds" and finding.place.excerpt.endswith("// one too far")
    assert finding.place.position is not None
    assert Path(finding.place.position.file).name == "host.metal"


def test_rest_of_metal_does_what_it_says(host: Any, capfd: pytest.CaptureFixture[str]) -> None:
    x = view()
    with anymetal.check() as report:
        out = host.everything(x)
    assert not report.findings, str(report.findings)
    torch.testing.assert_close(out.cpu(), 2 * x.cpu())
    assert "a capture needs a Mac with Xcode" in capfd.readouterr().err


def test_function_constants_may_be_vectors(host: Any) -> None:
    x = view()
    torch.testing.assert_close(host.by_constants(x).cpu(), 2 * x.cpu())


TWICE = """
define void @twice(ptr addrspace(1) %x, ptr addrspace(1) %y, i32 %i) {
  %wide = zext i32 %i to i64
  %from = getelementptr inbounds float, ptr addrspace(1) %x, i64 %wide
  %value = load float, ptr addrspace(1) %from, align 4
  %sum = fadd float %value, %value
  %to = getelementptr inbounds float, ptr addrspace(1) %y, i64 %wide
  store float %sum, ptr addrspace(1) %to, align 4
  ret void
}
"""


def test_metallib_runs_as_it_is(host: Any) -> None:
    place = Path(__file__).parents[1] / "air" / "modules.py"
    spec = importlib.util.spec_from_file_location("air_modules", place)
    assert spec and spec.loader
    modules = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(modules)
    parameters = [
        modules.buffer(0, "x", more="const"),
        modules.buffer(1, "y"),
        modules.builtin(2, "thread_position_in_grid", "i"),
    ]
    text = modules.module("twice", TWICE, parameters)
    data = modules.metallib(modules.function("twice", text))
    x = view()
    out = host.from_metallib(x, torch.frombuffer(bytearray(data), dtype=torch.uint8))
    torch.testing.assert_close(out.cpu(), 2 * x.cpu())
    with pytest.raises(RuntimeError, match="metallib"):
        host.from_metallib(x, torch.frombuffer(bytearray(b"MTLB"), dtype=torch.uint8))


pytest_plugins = ("pytester",)


def test_metal_check_fails_a_test_with_what_the_host_does(
    host: Any, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile(
        """
        import torch

        def test_one():
            torch.ops.host.waits(torch.ones(4).to("mps"), True)

        def test_two():
            torch.ops.host.held_allocation(torch.ones(4).to("mps"), True)
        """
    )
    result = pytester.runpytest_inprocess("--metal-check", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*error[[]held_allocation[]] in host::held_allocation*"])
    result.stdout.fnmatch_lines(["*warning[[]host_wait[]] in host::waits*"])
