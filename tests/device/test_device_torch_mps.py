"""torch.mps and torch.accelerator: memory, random numbers, events, profiler."""

from __future__ import annotations

import gc
import time

import pytest
import torch


@pytest.fixture
def before() -> int:
    gc.collect()
    return torch.mps.current_allocated_memory()


def grown(before: int) -> int:
    return torch.mps.current_allocated_memory() - before


def test_memory_counts_what_lives(before: int) -> None:
    x = torch.ones(1 << 20, device="mps")
    assert grown(before) == 4 << 20
    view = x[10:].view(2, -1)
    assert grown(before) == 4 << 20
    del x
    assert grown(before) == 4 << 20
    del view
    assert grown(before) == 0


def test_memory_counts_results_of_operators(before: int) -> None:
    x = torch.ones(1 << 20, device="mps")
    y = x + x
    assert grown(before) == 8 << 20
    z = torch.split(y.relu(), 1 << 10)
    assert grown(before) == 12 << 20
    values, indices = torch.sort(x)
    assert grown(before) == 24 << 20
    del y, z, values, indices
    assert grown(before) == 4 << 20


def test_memory_counts_resized_and_grown_tensors(before: int) -> None:
    x = torch.empty(0, device="mps")
    x.resize_(1 << 20)
    assert grown(before) == 4 << 20
    out = torch.empty(0, device="mps")
    torch.add(x, 1, out=out)
    assert grown(before) == 8 << 20
    x.set_()
    assert grown(before) == 4 << 20
    del out
    assert grown(before) == 0


def test_memory_counts_gradients(before: int) -> None:
    weight = torch.ones(1 << 20, device="mps", requires_grad=True)
    (weight * 2).sum().backward()
    assert grown(before) == 8 << 20
    weight.grad = None
    assert grown(before) == 4 << 20


def test_many_steps_leave_nothing_behind(before: int) -> None:
    net = torch.nn.Linear(64, 64, device="mps")
    for _ in range(50):
        net.zero_grad()
        net(torch.ones(8, 64, device="mps")).square().mean().backward()
    del net
    gc.collect()
    assert grown(before) == 0


def test_driver_memory_is_given_back_by_empty_cache(before: int) -> None:
    torch.mps.empty_cache()
    start = torch.mps.driver_allocated_memory()
    x = torch.ones(1 << 20, device="mps")
    assert torch.mps.driver_allocated_memory() >= start + (4 << 20)
    del x
    assert torch.mps.driver_allocated_memory() >= start + (4 << 20)
    torch.mps.empty_cache()
    assert torch.mps.driver_allocated_memory() == start


def test_memory_fraction_is_a_limit() -> None:
    total = torch.mps.recommended_max_memory()
    assert total > 1 << 30
    x = torch.ones(1 << 10, device="mps")
    torch.mps.set_per_process_memory_fraction((1 << 20) / total)
    try:
        with pytest.raises(torch.OutOfMemoryError, match="MPS backend out of memory"):
            torch.ones(1 << 20, device="mps")
        with pytest.raises(torch.OutOfMemoryError, match="MPS backend out of memory"):
            x.repeat(1 << 10)
    finally:
        torch.mps.set_per_process_memory_fraction(0.0)
    assert torch.ones(1 << 20, device="mps").sum().item() == 1 << 20


def test_seeds_repeat_random_numbers() -> None:
    torch.mps.manual_seed(3)
    first = torch.randn(4, device="mps")
    torch.mps.manual_seed(3)
    assert torch.equal(first, torch.randn(4, device="mps"))
    torch.manual_seed(3)
    assert torch.equal(first, torch.randn(4, device="mps"))
    torch.mps.seed()
    assert not torch.equal(first, torch.randn(4, device="mps"))


def test_random_state_is_saved_and_restored() -> None:
    state = torch.mps.get_rng_state()
    first = torch.rand(3, device="mps")
    torch.mps.set_rng_state(state)
    assert torch.equal(first, torch.rand(3, device="mps"))
    with torch.random.fork_rng(devices=[], device_type="mps"):
        torch.rand(3)


def test_generators_are_independent() -> None:
    generator = torch.Generator(device="mps").manual_seed(5)
    assert generator.device.type == "mps"
    first = torch.rand(3, device="mps", generator=generator)
    torch.rand(3, device="mps")
    assert torch.equal(first, torch.rand(3, device="mps", generator=generator.manual_seed(5)))
    twin = generator.clone_state() if hasattr(generator, "clone_state") else generator
    assert twin.initial_seed() == 5
    values = torch.empty(1000, device="mps").normal_(generator=generator)
    assert abs(values.mean().item()) < 0.2
    assert torch.bernoulli(torch.full((9,), 0.5, device="mps"), generator=generator).is_mps
    weights = torch.ones(4, device="mps")
    assert torch.multinomial(weights, 2, generator=generator).is_mps


def test_events_measure_time() -> None:
    start, end = torch.mps.Event(enable_timing=True), torch.mps.Event(enable_timing=True)
    start.record()
    time.sleep(0.01)
    end.record()
    end.synchronize()
    end.wait()
    assert end.query()
    assert 9 <= start.elapsed_time(end) < 5000


def test_event_that_was_not_recorded() -> None:
    start, end = torch.mps.Event(enable_timing=True), torch.mps.Event(enable_timing=True)
    start.record()
    with pytest.raises(RuntimeError, match="was not recorded"):
        start.elapsed_time(end)


def test_accelerator() -> None:
    assert torch.accelerator.is_available()
    assert torch.accelerator.device_count() == 1
    current = torch.accelerator.current_accelerator()
    assert current is not None
    assert current.type == "mps"
    assert torch.accelerator.current_device_index() == 0
    torch.accelerator.synchronize()
    event = torch.Event("mps")
    event.record()
    event.synchronize()
    assert event.query()
    assert torch.get_device_module("mps") is torch.mps


def test_profilers_accept_calls() -> None:
    x = torch.ones(3, device="mps")
    with torch.mps.profiler.profile(mode="interval", wait_until_completed=False):
        x + 1
    assert not torch.mps.profiler.is_metal_capture_enabled()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        x * 2
    assert "aten::mul" in {event.key for event in profile.key_averages()}
    torch.mps.synchronize()


def test_storage_on_the_device() -> None:
    storage = torch.UntypedStorage(8, device="mps")
    assert storage.device.type == "mps"
    storage.copy_(torch.arange(8, dtype=torch.uint8).untyped_storage())
    assert storage.cpu().tolist() == list(range(8))
    assert torch.UntypedStorage([1, 2], device="mps").cpu().tolist() == [1, 2]
    with pytest.raises(RuntimeError, match="expected a storage on mps"):
        torch.mps._host_alias_storage(torch.UntypedStorage(8))


def test_host_alias_shares_memory() -> None:
    x = torch.zeros(4, device="mps")
    alias = torch.mps._host_alias_storage(x.untyped_storage())
    seen = torch.empty(0).set_(alias)
    x.fill_(7)
    torch.mps.synchronize()
    assert seen.tolist() == [7] * 4
    seen[1] = 2
    assert x.tolist() == [7, 2, 7, 7]
    address = seen.data_ptr()
    x.resize_(100000)  # the alias keeps the old memory
    assert seen.data_ptr() == address
    assert seen.tolist() == [7, 2, 7, 7]
