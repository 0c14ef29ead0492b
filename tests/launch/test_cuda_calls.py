"""Calls on `cuda` tensors, with a driver that notes launches and CPU tensors that pass as `cuda`:
the short way of later calls gives a launch the bytes, the shape and the errors of the long way."""

from __future__ import annotations

import contextlib
import ctypes
import struct
import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
import torch
from tests.cuda.pretended import cuda_tensors

import anymetal
from anymetal.engines.cuda import driver
from anymetal.engines.cuda.executable import CudaExecutable
from anymetal.errors import EngineError, LimitError
from anymetal.launch import constants, cuda, recorded
from anymetal.launch.cuda import CudaKernel
from anymetal.launch.error_buffer import ErrorBuffer
from anymetal.launch.kernel import Kernel
from anymetal.launch.structs import Fixed

TEXT = """#include <metal_stdlib>
struct Numbers { float scale; uint count; uint steps[2]; bool flag; };
struct Inner { uint row; float by; };
struct Outer { Inner inner; uint n; };
struct Wide { float values[32]; };
struct Rows { uint first[2]; uint n; uint second[2]; };
kernel void plain(device float* x, constant float& f, constant long& i) { x[i] = f; }
kernel void named(device float* x, constant Numbers& n) { x[n.count] = n.scale + n.steps[1]; }
kernel void nested(device float* x, constant Outer& o) { x[o.n] = o.inner.by; }
kernel void rows(device float* x, constant Rows& r) { x[r.n] = r.first[1] + r.second[1]; }
kernel void wide(device float* x, constant Wide& w) { x[0] = w.values[1]; }
kernel void written(device float* x, device Wide& w) { w.values[1] = x[0]; }
kernel void quads(device metal::float4* x, constant metal::float4& f) { x[0] = f; }
kernel void reports(device float* x, device uint* errors) { errors[0] = x[0]; }
"""
NUMBERS: dict[str, Any] = {"scale": 1.5, "count": 7, "steps": (2, 3), "flag": True}


@dataclass(frozen=True)
class Numbers:
    scale: float
    count: int
    steps: tuple[int, ...]
    flag: bool


@dataclass(frozen=True)
class More(Numbers):
    other: int = 0


class Tuple(NamedTuple):
    scale: float
    count: int
    steps: tuple[int, ...]
    flag: bool


class Launch(NamedTuple):
    """What a kernel finds in its block, and where it runs."""

    shape: bytes
    arguments: list[int | bytes]  # addresses, and values where those are 0
    groups: tuple[int, int, int]
    width: int
    stream: int


@dataclass
class Driver:
    """Notes launches; `meanwhile` happens before the driver looks at a block."""

    stream: int = 0
    status: int = 0
    launches: list[Launch] = field(default_factory=list)
    meanwhile: Callable[[], object] = lambda: None


DRIVER = Driver()  # one for all tests: compiled kernels outlive them


@dataclass
class Function:
    """A compiled kernel; reads the block where a launch of it is queued."""

    executable: CudaExecutable

    def prepared(
        self, groups: tuple[int, int, int], width: int, memory: int, stream: int, block: int
    ) -> Callable[[], int]:
        def put() -> int:
            DRIVER.meanwhile()
            data = ctypes.string_at(block, self.executable.block.size)
            noted = Launch(data[:24], self.read(data), groups, width, stream)
            DRIVER.launches.append(noted)
            return DRIVER.status

        return put

    def read(self, data: bytes) -> list[int | bytes]:
        block = self.executable.block
        found: list[int | bytes] = list(
            struct.unpack_from(f"<{block.buffers}Q", data, block.addresses_at)
        )
        for place, index in enumerate(block.values):
            at = block.values_at + place * block.value_bytes
            size = next(a.element_size for a in self.executable.arguments if a.index == index)
            if found[index] == 0:
                found[index] = data[at : at + size]
        return found

    def again(self, status: int, put: Callable[[], int]) -> None:
        raise EngineError(f"status {status}")


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> Driver:
    """One `cuda` device: all CPU tensors are on it, and those of `meta` are elsewhere."""
    DRIVER.stream = DRIVER.status = 0
    for owner, name, value in cuda_tensors((8, 0)):
        monkeypatch.setattr(owner, name, value, raising=False)
    monkeypatch.setattr(DRIVER, "meanwhile", lambda: None)
    monkeypatch.setattr(driver, "current", lambda device: DRIVER.stream)
    monkeypatch.setattr(CudaExecutable, "_load", lambda self, *_: Function(self))
    monkeypatch.setattr(driver, "memory", lambda device, size: 1 << 20)
    monkeypatch.setattr(driver, "send", lambda *_: None)
    return DRIVER


def short(kernel: Kernel) -> CudaKernel:
    return kernel._cuda._by_device[0]


class Pair:
    """A kernel whose calls go the short way where they can, and one that has only the long one."""

    def __init__(self, there: Driver, name: str) -> None:
        self.there = there
        self.quick, self.slow = (getattr(anymetal.compile_shader(TEXT), name) for _ in range(2))
        assert self.quick is not self.slow

    def __call__(self, *args: Any, threads: Any = 4, group_size: Any = 4) -> bool:
        """Makes a call both ways; whether the short way took it."""
        self.slow._quickly = None
        found, taken = [], []
        way = self.quick._quickly
        if way is not None:
            self.quick._quickly = lambda *given: taken.append(way(*given)) or taken[-1]
        for kernel in (self.slow, self.quick):
            self.there.launches.clear()
            try:
                kernel(*args, threads=threads, group_size=group_size)
            except Exception as error:
                found.append((type(error), str(error)))
            else:
                found.append(self.there.launches[:])
        assert found[0] == found[1]
        return bool(taken and taken[0])


@pytest.fixture
def pair(there: Driver) -> Callable[[str], Pair]:
    return lambda name: Pair(there, name)


@pytest.fixture
def plain(pair: Callable[[str], Pair]) -> Pair:
    made = pair("plain")
    made(torch.zeros(4), 2.5, 3)
    return made


@pytest.fixture
def named(pair: Callable[[str], Pair]) -> Pair:
    made = pair("named")
    made(torch.zeros(4), NUMBERS)
    return made


def test_later_calls_go_the_short_way(plain: Pair) -> None:
    x = torch.zeros(4)
    assert plain(x, 2.5, 3)
    assert plain(x, 2.5, 3)
    assert plain(torch.nn.Parameter(x), 2.5, 3)
    assert plain(x, 2.5, 3, threads=(4, 2), group_size=(2, 1))


def test_changed_arguments_are_written(plain: Pair) -> None:
    x, y = torch.zeros(4), torch.zeros(4)
    assert plain(x, 2.5, 3)
    assert plain(y, 4.5, -3)
    # A number stands where a tensor was before, and again. Code for usual launches reads numbers
    # alone, so that the first tensor goes the long way.
    assert not plain(x, y, 3)
    assert plain(x, 4.5, 3)
    assert plain(x, y, y)
    assert plain(x, 4.5, 3)
    assert plain(x, 5, 3)


def test_arguments_of_the_long_way_are_written_again(plain: Pair) -> None:
    x = torch.zeros(4)
    assert plain(x, 2.5, 3)
    assert not plain(x, 1e300, 3)
    assert plain(x, 2.5, 3)
    assert not plain(x, [9.0], 3)
    assert plain(x, 2.5, 3)
    assert not plain(x, True, 3, threads=8)
    assert plain(x, 2.5, 3)


@pytest.mark.parametrize(
    "odd",
    [
        torch.zeros(4, dtype=torch.float64),
        torch.eye(2).to_sparse(),
        torch.zeros(4, device="meta"),
        torch.zeros(4, dtype=torch.complex128),
        *(None, "x", [], 1 << 70, True, float("nan"), {"a": 1}, Numbers(1.0, 2, (3, 4), True)),
    ],
)
@pytest.mark.parametrize("place", [0, 1])
def test_unusual_argument_after_a_right_one_gives_the_errors_of_the_long_way(
    plain: Pair, odd: Any, place: int
) -> None:
    right: list[Any] = [torch.zeros(4), 2.5, 3]
    wrong = [*right[:place], odd, *right[place + 1 :]]
    assert plain(*right)
    assert not plain(*wrong)
    assert plain(*right)


def test_number_of_arguments_is_checked_at_each_call(plain: Pair) -> None:
    x = torch.zeros(4)
    assert plain(x, 2.5, 3)
    assert not plain(x, 2.5)
    assert not plain(x, 2.5, 3, 4)
    assert not plain(*[x] * 40)


def test_shapes_are_those_of_the_call(plain: Pair) -> None:
    x = torch.zeros(4)
    for threads, group_size in (
        *((64, 32), (64, 64), (65, 64), ((64,), (32,)), ((8, 8), (8, 4)), ((8, 8), (4, 8))),
        *(((8, 8, 1), (8, 4, 1)), (64, 32), ((8, 8), (8, 4)), (1000, 500), (1000, 500)),
    ):
        assert plain(x, 2.5, 3, threads=threads, group_size=group_size)


@pytest.mark.parametrize(
    ("threads", "group_size"),
    [
        *((0, 4), ((0, 4), (1, 4)), (4.0, 4), (4, 4.0), ((4.0, 1), (4, 1)), ((4, 1), (4, 1.0))),
        *(((4, 1), 4), (4, (4,)), ((4, 1), (4,)), ((), ()), ((1, 1, 1, 1), (1, 1, 1, 1))),
        *((-4, 4), (4, 0), (4, -4), ((4, 1), (0, 1)), (4, 2048), (1 << 40, 4), ("4", 4)),
        *((None, 4), (4, None), (True, 4), ((True, 1), (4, 1)), ([4, 1], [4, 1])),
    ],
)
def test_unusual_shape_after_an_equal_one_is_that_of_the_long_way(
    plain: Pair, threads: Any, group_size: Any
) -> None:
    x = torch.zeros(4)
    assert plain(x, 2.5, 3, threads=4, group_size=4)
    assert plain(x, 2.5, 3, threads=(4, 1), group_size=(4, 1))
    plain(x, 2.5, 3, threads=threads, group_size=group_size)
    assert plain(x, 2.5, 3, threads=4, group_size=4)


def test_changed_list_is_another_shape(plain: Pair) -> None:
    x, threads = torch.zeros(4), [8, 2]
    plain(x, 2.5, 3, threads=threads, group_size=(4, 1))
    threads[0] = 12
    plain(x, 2.5, 3, threads=threads, group_size=(4, 1))


def test_launch_goes_to_the_stream_that_is_current(plain: Pair, there: Driver) -> None:
    x = torch.zeros(4)
    for stream in (0, 77, 1 << 40, (1 << 40) + 1, 0):
        there.stream = stream
        assert plain(x, 2.5, 3)
        assert [launch.stream for launch in there.launches] == [stream]


def test_launch_that_is_refused_raises(plain: Pair, there: Driver) -> None:
    there.status = 700
    with pytest.raises(EngineError, match="status 700"):
        plain.quick(torch.zeros(4), 2.5, 3, threads=4, group_size=4)
    there.status = 0
    assert plain(torch.zeros(4), 2.5, 3)


@pytest.mark.parametrize("keyword", ["arg_casts", "error_buf_idx", "threadgroup_memory"])
def test_other_keywords_go_the_long_way(plain: Pair, keyword: str) -> None:
    value = {"arg_casts": {1: "none"}, "error_buf_idx": 40, "threadgroup_memory": {0: 16}}[keyword]
    with pytest.raises((RuntimeError, ValueError)):
        plain.quick(torch.zeros(4), 2.5, 3, threads=4, group_size=4, **{keyword: value})


def test_two_threads_at_once_have_a_block_each(plain: Pair, there: Driver) -> None:
    x, barrier = torch.zeros(4), threading.Barrier(2, timeout=20)
    assert plain(x, 2.5, 3)
    kernel, there.meanwhile = plain.quick, barrier.wait
    there.launches.clear()

    def launch(number: int) -> None:
        for step in range(50):
            kernel(x, 0.5, number + step, threads=4, group_size=4)

    workers = [threading.Thread(target=launch, args=(start,)) for start in (1000, 2000)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    numbers = [int.from_bytes(bytes(one.arguments[2]), "little") for one in there.launches]
    assert sorted(numbers) == [*range(1000, 1050), *range(2000, 2050)]
    assert len(short(kernel)._blocks) == 2


def test_structs_go_the_short_way(named: Pair) -> None:
    x = torch.zeros(4)
    assert named(x, NUMBERS)
    assert named(x, {**NUMBERS, "count": 8})
    assert named(x, Numbers(2.5, 9, (4, 5), False))
    assert named(x, dict(reversed(NUMBERS.items())))
    assert not named(x, Tuple(2.5, 9, (4, 5), False))


def test_struct_that_changed_is_written_again(named: Pair) -> None:
    x, numbers = torch.zeros(4), dict(NUMBERS)
    assert named(x, numbers)
    numbers["count"] = 11
    assert named(x, numbers)


def test_fixed_struct_is_written_once(named: Pair) -> None:
    x, fixed, other = torch.zeros(4), Fixed(NUMBERS), Fixed({**NUMBERS, "count": 1})
    for one in (fixed, fixed, other, fixed, NUMBERS, fixed):
        assert named(x, one)
    block = short(named.quick)._blocks[-1]
    assert block.values[1] is fixed


@pytest.mark.parametrize(
    "change",
    [
        *({"count": -1}, {"count": 1.5}, {"count": "1"}, {"scale": 1e300}, {"scale": None}),
        *({"steps": (1,)}, {"steps": 1}, {"steps": (1, 2, 3)}, {"steps": (1, 2.5)}, {"flag": 1}),
        {"more": 1},
    ],
)
def test_wrong_struct_after_a_right_one_gives_the_errors_of_the_long_way(
    named: Pair, change: dict[str, Any]
) -> None:
    x = torch.zeros(4)
    assert named(x, NUMBERS)
    assert not named(x, {**NUMBERS, **change})
    assert not named(x, Fixed({**NUMBERS, **change}))
    if "more" not in change:
        assert not named(x, Numbers(**{**NUMBERS, **change}))
    assert named(x, NUMBERS)


def test_struct_with_other_fields_is_refused(named: Pair) -> None:
    x, right = torch.zeros(4), Numbers(2.5, 9, (4, 5), False)
    assert named(x, right)
    assert not named(x, More(2.5, 9, (4, 5), False))
    assert not named(x, {name: NUMBERS[name] for name in ("scale", "count", "steps")})
    assert not named(x, {**{n: NUMBERS[n] for n in ("scale", "count", "steps")}, "flog": True})
    with pytest.raises(TypeError, match="has no field 'other'"):
        named.quick(x, More(2.5, 9, (4, 5), False), threads=4, group_size=4)
    assert named(x, right)


def test_nested_struct_goes_the_short_way(pair: Callable[[str], Pair]) -> None:
    nested, x = pair("nested"), torch.zeros(4)
    right = {"inner": {"row": 1, "by": 2.5}, "n": 3}
    assert not nested(x, right)
    assert nested(x, right)
    right["inner"] = {"row": 2, "by": 4.5}
    assert nested(x, right)
    assert not nested(x, {"inner": {"row": -1, "by": 2.5}, "n": 3})
    assert nested(x, right)


def test_arrays_of_a_struct_have_their_lengths(pair: Callable[[str], Pair]) -> None:
    rows, x = pair("rows"), torch.zeros(4)
    assert not rows(x, {"first": (1, 2), "n": 3, "second": [4, 5]})
    assert rows(x, {"first": [6, 7], "n": 8, "second": (9, 10)})
    assert not rows(x, {"first": (1,), "n": 3, "second": (4, 5, 6)})


def test_large_struct_is_found_on_the_device(pair: Callable[[str], Pair], there: Driver) -> None:
    wide, x = pair("wide"), torch.zeros(4)
    right, other = ({"values": [start + i for i in range(32)]} for start in (0.5, 99.5))
    assert not wide(x, right)
    assert wide(x, right)
    assert not wide(x, {"values": [1.0]})
    wide.slow._cuda.call(0, None, (x, other), 4, 4, None, None, None)
    assert wide(x, other)
    there.stream = 5  # memory belongs to the stream that it was copied on
    assert not short(wide.quick).quickly((x, right), 4, 4)
    assert wide(x, torch.zeros(32))


def test_large_struct_that_is_written_is_copied_at_each_call(there: Driver) -> None:
    library, x = anymetal.compile_shader(TEXT), torch.zeros(4)
    for _ in range(3):
        library.wide(x, {"values": [0.25] * 32}, threads=4, group_size=4)
        library.written(x, {"values": [0.25] * 32}, threads=4, group_size=4)
    assert not short(library.written).quickly((x, {"values": [0.25] * 32}), 4, 4)


def test_limit_of_a_threadgroup_holds_on_the_short_way(plain: Pair) -> None:
    with pytest.raises(LimitError):
        short(plain.quick).quickly((torch.zeros(4), 2.5, 3), 4096, 4096)


def test_tensor_that_is_not_aligned_goes_the_long_way_to_a_text_of_its_own(
    pair: Callable[[str], Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = []
    function = CudaExecutable._load
    monkeypatch.setattr(
        CudaExecutable, "_load", lambda *args: [texts.append(args[-1]), function(*args)][1]
    )
    quads, whole = pair("quads"), torch.zeros(12)
    assert not quads(whole, whole[1:5])  # a value is read word by word
    assert quads(whole[4:], whole[1:5])
    for _ in range(2):
        for start in (1, 2, 3):
            assert not quads(whole[start:], whole[1:5])
            quads.quick(whole[start:], whole[1:5], threads=4, group_size=4)
    assert [text.apart for text in texts] == [(), ((0, 4),), ((0, 8),)]


def test_tensor_whose_elements_are_not_aligned_is_refused(pair: Callable[[str], Pair]) -> None:
    halves = torch.zeros(9, dtype=torch.half)
    with pytest.raises(RuntimeError, match=r"'x' .*float16 with storage_offset 1, .* 4 bytes"):
        anymetal.compile_shader(TEXT).plain(halves[1:], 2.5, 3)
    quads = pair("quads")
    assert not quads(halves[1:], torch.zeros(4))
    with pytest.raises(RuntimeError, match=r"'x' .*float16 .* float4 can .* 4 bytes"):
        quads.quick(halves[1:], torch.zeros(4), threads=4, group_size=4)


def test_large_grid_is_queued_in_parts(plain: Pair, there: Driver) -> None:
    for group_size in ((2, 1), (2, 1)):
        there.launches.clear()
        plain.quick(torch.zeros(4), 2.5, 3, threads=(4, 200_000), group_size=group_size)
        assert [one.groups for one in there.launches] == [(2, 65535, 1)] * 3 + [(2, 3395, 1)]
    assert plain(torch.zeros(4), 2.5, 3, threads=(4, 200_000), group_size=(2, 1))


class Recording:
    """A CUDA graph is being recorded while `on`; what must stay on the device is noted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.on = False
        self.placed: list[bytes] = []
        monkeypatch.setattr(recorded, "is_recording", lambda: self.on)
        monkeypatch.setattr(constants, "_lasting", defaultdict(dict))
        monkeypatch.setattr(recorded, "_errors", [])
        monkeypatch.setattr(driver, "memory", self.place)
        monkeypatch.setattr(driver, "store", lambda _, data: self.placed.append(data))
        monkeypatch.setattr(driver, "outside_recordings", contextlib.nullcontext)
        monkeypatch.setattr(
            cuda,
            "_new_errors",
            lambda: torch.zeros(ctypes.sizeof(ErrorBuffer), dtype=torch.uint8),
        )

    def place(self, device: int, size: int) -> int:
        return 4096 * (len(self.placed) + 1) if size == 128 else 1 << 20


@pytest.fixture
def recording(monkeypatch: pytest.MonkeyPatch) -> Recording:
    return Recording(monkeypatch)


def test_constants_of_recorded_launches_stay(there: Driver, recording: Recording) -> None:
    library, x = anymetal.compile_shader(TEXT), torch.zeros(4)
    values = [{"values": [start] * 32} for start in (7.0, 8.0)]
    library.wide(x, values[0], threads=4, group_size=4)  # where it may be dropped
    recording.on = True
    for number in (0, 1, 0):
        there.launches.clear()
        library.wide(x, values[number], threads=4, group_size=4)
        assert there.launches[0].arguments[1] == 4096 * (number + 1)
    assert recording.placed == [struct.pack("<32f", *one["values"]) for one in values]
    with pytest.raises(RuntimeError, match=r"'w' .* is written by the kernel: what a CUDA graph"):
        library.written(x, values[0], threads=4, group_size=4)


def test_recorded_launch_reports_at_the_next(there: Driver, recording: Recording) -> None:
    """Nothing waits while a graph is recorded: its kernels run later, and often."""
    kernel, x = anymetal.compile_shader(TEXT).reports, torch.zeros(4)
    monitored: list[str] = []
    there.meanwhile = lambda: monitored.append("queued")
    recording.on = True
    kernel(x, threads=4, group_size=4, error_buf_idx=1)
    recording.on = False
    assert monitored == ["queued"]
    ((_, errors),) = recorded._errors
    assert there.launches[-1].arguments[1] == errors.data_ptr()
    for number in (1, 2):
        found = ErrorBuffer.from_address(errors.data_ptr())
        found.count, found.messages[0].text = number, b"too large"
        with pytest.raises(RuntimeError, match="too large\\nreports, recorded in a CUDA graph"):
            kernel(x, threads=4, group_size=4, error_buf_idx=1)
        assert found.count == 0
    assert len(monitored) == 1


def test_reports_that_nobody_raised_are_logged_at_the_end(
    there: Driver, recording: Recording, caplog: pytest.LogCaptureFixture
) -> None:
    kernel = anymetal.compile_shader(TEXT).reports
    recording.on = True
    for _ in range(2):
        kernel(torch.zeros(4), threads=4, group_size=4, error_buf_idx=1)
    found = ErrorBuffer.from_address(recorded._errors[1][1].data_ptr())
    found.count, found.messages[0].text = 1, b"too large"
    recorded.tell_the_rest()
    (record,) = caplog.records
    assert record.getMessage().startswith("too large\nreports, recorded in a CUDA graph: reported")


TALKING = """#include <metal_stdlib>
#include <metal_logging>
kernel void talks(device float* x) { metal::os_log_default.log("%f", x[0]); }
"""


def test_kernel_with_messages_is_not_recorded(
    there: Driver, recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    there.launches.clear()
    recording.on = True
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(EngineError, match=r"'talks' sends messages .* CUDA graph cannot record"):
        anymetal.compile_shader(TALKING).talks(torch.zeros(4), threads=4, group_size=4)
    assert there.launches == []
