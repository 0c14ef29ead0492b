"""With asynchronous=True, results reach the host only where a Mac waits for its GPU."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

import pytest
import torch

import anymetal
from anymetal.device import enable
from anymetal.launch.virtual import command_queue

SOURCE = """
#include <metal_stdlib>
kernel void add_one(device float* x, uint i [[thread_position_in_grid]]) { x[i] += 1; }
kernel void spin(device float* x, constant long& turns, uint i [[thread_position_in_grid]]) {
  float v = x[i];
  for (long k = 0; k < turns; k++) v = metal::fma(v, 0.5f, 1.0f);
  x[i] = v;
}
"""


@pytest.fixture(autouse=True)
def queued(device: torch.device) -> None:
    enable(asynchronous=True)


@pytest.fixture(scope="module")
def lib(mps: torch.device) -> anymetal.ShaderLibrary:
    return torch.mps.compile_shader(SOURCE)  # type: ignore[no-any-return]


def host_view(x: torch.Tensor) -> torch.Tensor:
    return torch.empty(0).set_(torch.mps._host_alias_storage(x.untyped_storage()))


def test_alias_shows_kernel_results_after_synchronize(lib: anymetal.ShaderLibrary) -> None:
    x = torch.zeros(4, device="mps")
    seen = host_view(x)
    lib.add_one(x)
    assert seen.tolist() == [0] * 4
    torch.mps.synchronize()
    assert seen.tolist() == [1] * 4


def test_counts_and_profiles_are_of_the_launch_itself(mps: torch.device) -> None:
    lib = anymetal.compile_shader(SOURCE)
    x = torch.zeros(64, device=mps)
    lib.spin(x, 3_000_000)  # what is queued before goes first, and is not counted
    assert lib.add_one.count(x).device_bytes_written == 256
    assert lib.add_one.count(x).device_bytes_written == 256
    with anymetal.profile() as profile:
        lib.spin(x, 3)
        lib.add_one(x)
    assert profile["add_one"].total.bytes["device"] == 512
    assert torch.equal(x.cpu(), torch.full((64,), x[0].item()))


def test_alias_shows_operator_results_after_synchronize() -> None:
    x = torch.zeros(4, device="mps")
    seen = host_view(x)
    x.add_(5)
    assert seen.tolist() == [0] * 4
    assert x[0].item() == 5  # item() waits, as on a Mac
    assert seen.tolist() == [5] * 4


def test_writes_through_an_alias_reach_the_device() -> None:
    x = torch.zeros(4, device="mps")
    seen = host_view(x)
    seen[2] = 7
    torch.mps.synchronize()
    assert (x + 1).tolist() == [1, 1, 8, 1]


@pytest.mark.parametrize(
    "wait",
    [
        lambda x: torch.mps.synchronize(),
        lambda x: torch.accelerator.synchronize(),
        lambda x: x.cpu(),
        lambda x: x.sum().item(),
        lambda x: x.tolist(),
        lambda x: torch.nonzero(x),
        lambda x: repr(x),
        lambda x: bool(x.any()),
    ],
)
def test_points_where_a_mac_waits(
    lib: anymetal.ShaderLibrary, wait: Callable[[torch.Tensor], object]
) -> None:
    x = torch.zeros(4, device="mps")
    seen = host_view(x)
    lib.add_one(x)
    wait(x)
    assert seen.tolist() == [1] * 4


@pytest.mark.parametrize(
    "go_on", [lambda x: x + 1, lambda x: x.view(2, 2), lambda x: x.clone(), lambda x: x.relu()]
)
def test_points_where_a_mac_goes_on(
    lib: anymetal.ShaderLibrary, go_on: Callable[[torch.Tensor], object]
) -> None:
    x = torch.zeros(4, device="mps")
    seen = host_view(x)
    lib.add_one(x)
    go_on(x)
    assert seen.tolist() == [0] * 4


def test_copy_that_does_not_block_is_seen_late() -> None:
    x = torch.ones(4, device="mps")
    host = torch.zeros(4)
    host.copy_(x, non_blocking=True)
    x.zero_()
    assert host.tolist() == [0] * 4
    torch.mps.synchronize()
    assert host.tolist() == [1] * 4


def test_source_changed_too_early_is_found_out() -> None:
    host = torch.ones(4)
    x = host.to("mps", non_blocking=True)
    host.zero_()
    assert x.tolist() == [0] * 4


def test_copy_that_blocks_is_safe() -> None:
    host = torch.ones(4)
    x = host.to("mps")
    host.zero_()
    assert x.tolist() == [1] * 4
    assert x.to("cpu").tolist() == [1] * 4


def test_launches_keep_their_order_and_return_early(lib: anymetal.ShaderLibrary) -> None:
    x = torch.zeros(64, device="mps")
    for _ in range(20):
        lib.add_one(x)
    lib.spin(x, 1000)
    lib.add_one(x)
    assert torch.allclose(x.cpu(), torch.full((64,), 3.0))


def test_kernel_after_a_late_copy_reads_it(lib: anymetal.ShaderLibrary) -> None:
    x = torch.zeros(4, device="mps")
    x.copy_(torch.full((4,), 5.0), non_blocking=True)
    lib.add_one(x)
    assert x.tolist() == [6] * 4


def test_training_is_the_same() -> None:
    def losses(asynchronous: bool) -> list[float]:
        enable(asynchronous=asynchronous)
        torch.manual_seed(0)
        net = torch.nn.Linear(8, 8, device="mps")
        optimizer = torch.optim.Adam(net.parameters())
        x = torch.randn(4, 8, device="mps")
        found = []
        for _ in range(5):
            optimizer.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    assert losses(True) == losses(False)


def test_check_waits_for_what_is_queued(lib: anymetal.ShaderLibrary) -> None:
    """Also where the program never synchronises, and where a launch is late."""
    queue = command_queue()
    assert queue is not None
    wild = torch.mps.compile_shader(
        "#include <metal_stdlib>\n"
        "kernel void past(device float* x, uint i [[thread_position_in_grid]]) { x[i + 4] = 1; }"
    )
    with anymetal.check(outputs=()) as report:
        queue.submit(lambda: time.sleep(0.3))
        wild.past(torch.zeros(4, device="mps"), threads=4)
        assert not report.launches
    assert report.launches == {"past": 1}
    assert [finding.kind for finding in report.findings] == ["out_of_bounds"]


@pytest.mark.parametrize("wait", [torch.mps.synchronize, lambda: torch.ones(2, device="mps").cpu()])
def test_interrupt_while_waiting_is_raised(
    lib: anymetal.ShaderLibrary, wait: Callable[[], object]
) -> None:
    queue = command_queue()
    assert queue is not None
    queue.submit(lambda: time.sleep(2))
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        wait()
        time.sleep(1)  # the interrupt comes as soon as Python goes on
    assert time.monotonic() - start < 1.5
    queue.wait()
