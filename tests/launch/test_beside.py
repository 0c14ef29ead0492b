"""Launches that run beside the code that makes them."""

import threading

import pytest
import torch

from anymetal import compile_shader
from anymetal.errors import KernelTimeout
from anymetal.launch.beside import at_once, beside, wait_for_launches

SOURCE = """
#include <metal_stdlib>
using namespace metal;
kernel void twice_and_one(device float* x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  x[i] = 2.0f * x[i] + 1.0f;
}
kernel void endless(device uint* x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  while (((volatile device uint*)x)[i] == 0) {}
}
"""


@pytest.fixture(autouse=True)
def _two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def library():
    return compile_shader(SOURCE)


def test_beside_runs_launches_in_their_order(library):
    x = torch.zeros(33)
    with beside():
        for _ in range(20):
            library.twice_and_one(x)
        wait_for_launches()
        assert (x == 2.0**20 - 1).all()
        library.twice_and_one(x)
    assert (x == 2.0**21 - 1).all()


def test_beside_does_not_wait_for_a_launch(library):
    held = torch.zeros(1, dtype=torch.int32)
    with beside():
        library.endless(held)
        held.fill_(1)  # a launch that were waited for would not end
    assert held.item() == 1


def test_beside_keeps_arguments_until_they_are_used(library):
    held, x = torch.zeros(1, dtype=torch.int32), torch.zeros(5)
    with beside():
        library.endless(held)
        library.twice_and_one(x[2:])
        held.fill_(1)
    assert x.tolist() == [0, 0, 1, 1, 1]


def test_beside_raises_at_the_end_what_a_launch_raised(library, monkeypatch):
    monkeypatch.setenv("ANYMETAL_TIME_LIMIT", "0.2")
    x = torch.zeros(3)
    with pytest.raises(KernelTimeout, match="endless"), beside():
        library.endless(torch.zeros(1, dtype=torch.int32))
        library.twice_and_one(x)
    assert x.tolist() == [1, 1, 1]


def test_at_once_waits_for_what_was_launched_before(library):
    x = torch.zeros(3)
    with beside():
        library.twice_and_one(x)
        with at_once():
            library.twice_and_one(x)
            assert x.tolist() == [3, 3, 3]
        library.twice_and_one(x)
    assert x.tolist() == [7, 7, 7]


def test_beside_is_of_its_thread(library):
    x = torch.zeros(3)
    with beside():
        thread = threading.Thread(target=lambda: library.twice_and_one(x))
        thread.start()
        thread.join()
        assert x.tolist() == [1, 1, 1]


def test_one_thread_launches_where_it_is_called(library):
    torch.set_num_threads(1)
    x = torch.zeros(3)
    with beside():
        library.twice_and_one(x)
        assert x.tolist() == [1, 1, 1]
