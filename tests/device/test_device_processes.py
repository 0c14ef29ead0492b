"""How a process gets the device: the command, the variable, the call; builds, workers, threads."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
import torch
from programs import ANYMETAL, run, run_text, write
from torch.utils.data import DataLoader, TensorDataset

from anymetal.device import building
from anymetal.errors import ToolchainError
from anymetal.store import fingerprint
from anymetal.store.cache import Store

PROGRAM = """
    import sys
    import torch

    class Numbers(torch.utils.data.Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, i):
            return torch.full((2,), float(i))

    if __name__ == "__main__":
        assert torch.backends.mps.is_available()
        loader = torch.utils.data.DataLoader(
            Numbers(), batch_size=4, num_workers=1, multiprocessing_context=sys.argv[1]
        )
        print(sum(batch.to("mps").sum().item() for batch in loader), sys.argv[1:], __name__)
        sys.exit(3)
    else:
        assert torch.ones(2, device="mps").is_mps  # a worker that was spawned has the device too
"""


def test_run_command_is_like_python(tmp_path: Path) -> None:
    program = str(write(tmp_path, PROGRAM))
    status, output, errors = run(*ANYMETAL, "run", program, "spawn", "--flag")
    assert (status, output) == (3, "56.0 ['spawn', '--flag'] __main__\n"), errors


def test_variable_enables_the_device(tmp_path: Path) -> None:
    program = str(write(tmp_path, PROGRAM))
    status, output, errors = run(program, "fork", ANYMETAL_DEVICE="1")
    assert (status, output) == (3, "56.0 ['fork'] __main__\n"), errors


def test_nothing_happens_without_the_variable() -> None:
    text = (
        "import torch, sys; print(torch.backends.mps.is_available(),"
        " 'anymetal.settings' in sys.modules, 'anymetal.launch' in sys.modules)"
    )
    assert run("-c", text)[:2] == (0, "False False False\n")


def test_options_come_from_the_environment() -> None:
    text = "import torch; torch.mode(torch.ones(2, device='mps'))"
    status, _, errors = run_text(text, ANYMETAL_DEVICE="1", ANYMETAL_DEVICE_MISSING="error")
    assert status == 1
    assert "NotImplementedError: The operator 'aten::mode'" in errors


def test_enabling_after_other_work() -> None:
    text = """
import torch
torch.ones(2, requires_grad=True).sum().backward()
assert not torch.backends.mps.is_available()
@torch.library.custom_op("before::same", mutates_args=())
def same(x: torch.Tensor) -> torch.Tensor:
    print(x.device)
    return x.clone()
import anymetal
anymetal.device.enable()
x = torch.ones(2, device="mps", requires_grad=True)
x.sum().backward()
same(x.detach())
print(x.grad.tolist(), anymetal.device.is_enabled())
"""
    assert run_text(text)[:2] == (0, "mps:0\n[1.0, 1.0] True\n")


def test_real_mps_is_left_alone() -> None:
    text = """
import torch
torch._C._has_mps = True
import anymetal.device
try:
    anymetal.device.enable()
except anymetal.device.DeviceError as error:
    print(error)
"""
    status, output, _ = run_text(text)
    assert status == 0
    assert output.startswith("This torch has a real MPS backend.")


def test_untried_torch_gets_a_warning() -> None:
    text = """
import warnings
import anymetal.device.enabling as enabling
enabling.TRIED = ((2, 7),)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    enabling.enable()
print(*(warning.message for warning in caught))
"""
    status, output, _ = run_text(text)
    assert status == 0
    assert "has been tried with CPU builds of torch 2.7, not with" in output


def test_no_compiler_says_what_to_install(tmp_path: Path) -> None:
    text = "import anymetal.device; anymetal.device.enable()"
    status, _, errors = run_text(text, PATH=str(tmp_path))
    assert status == 1
    assert "none of c++, g++, clang++ is on this machine" in errors
    assert "apt install g++" in errors


def test_compiler_that_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANYMETAL_CXX", "no-such-compiler")
    with pytest.raises(ToolchainError, match="ANYMETAL_CXX=no-such-compiler: no such program"):
        building.find_compiler()


def test_failed_build_shows_the_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "library.cpp").write_text("int f() { return undeclared; }")
    monkeypatch.setattr(building, "SOURCES", tmp_path)
    with pytest.raises(building.BuildError, match=r"(?s)does not compile against.*undeclared"):
        building.compile_library(building.find_compiler(), tmp_path / "library.so")


def test_key_depends_on_sources_and_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = building.find_compiler()
    keys = {building.library_key(compiler)}
    with monkeypatch.context() as patch:
        patch.setattr(torch, "__version__", "2.99.0")
        fingerprint.forget()
        keys.add(building.library_key(compiler))
    fingerprint.forget()
    (tmp_path / "library.cpp").write_text("")
    monkeypatch.setattr(building, "SOURCES", tmp_path)
    keys.add(building.library_key(compiler))
    assert len(keys) == 3


def test_threads_that_build_at_once_build_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builds: list[str] = []

    def compile_library(compiler: str, target: Path) -> None:
        builds.append(compiler)
        target.write_text("library")

    monkeypatch.setattr(building, "compile_library", compile_library)
    store = Store(tmp_path, limit=1 << 20)
    threads = [threading.Thread(target=building.library, args=(store,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(builds) == 1


def test_processes_that_start_at_once_wait_for_one_build(tmp_path: Path) -> None:
    """A compiler that is slow and counts its calls stands in for the real one."""
    compiler = tmp_path / "cxx"
    compiler.write_text(
        f"#!/bin/sh\n[ $1 = --version ] && echo slow && exit\necho x >> {tmp_path}/calls\n"
        'sleep 1\nfor last; do [ "$previous" = -o ] && echo library > $last; previous=$last; done\n'
        "exit 0\n"
    )
    compiler.chmod(0o755)
    variables = {"ANYMETAL_CXX": str(compiler), "ANYMETAL_CACHE_DIR": str(tmp_path / "cache")}
    text = """
import os
from anymetal.device import building
from anymetal.store.cache import default_store
child = os.fork()
print(building.library(default_store()).read_text().strip(), flush=True)
if child:
    assert os.waitpid(child, 0)[1] == 0
"""
    status, output, errors = run_text(text, **variables)
    assert (status, output) == (0, "library\nlibrary\n"), errors
    assert (tmp_path / "calls").read_text() == "x\n"


def test_build_command() -> None:
    status, output, _ = run_text(ANYMETAL[1], "device", "build")
    assert status == 0
    assert Path(output.split("  ")[0]).is_file()


def test_missing_command() -> None:
    status, output, _ = run(*ANYMETAL, "device", "missing")
    assert status == 0
    assert "aten::heaviside.out" in output.splitlines()


def test_loader_in_this_process() -> None:
    data = TensorDataset(torch.arange(32.0).view(16, 2), torch.arange(16))
    total = 0.0
    for values, _ in DataLoader(data, batch_size=4, num_workers=2, shuffle=True):
        total += values.to("mps", non_blocking=True).sum().item()
    assert total == sum(range(32))
    rows = [(row.to("mps"), i) for i, row in enumerate(data.tensors[0])]
    for values, _ in DataLoader(rows, batch_size=4):  # type: ignore[arg-type]
        assert values.is_mps


def test_threads_differentiate_at_once() -> None:
    sums: list[float] = []

    def work() -> None:
        x = torch.randn(8, device="mps", requires_grad=True)
        (x * 2).sum().backward()
        assert x.grad is not None
        sums.append(x.grad.sum().item())

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sums == [16.0] * 8


def test_forked_child_uses_the_device() -> None:
    torch.ones(2, device="mps").sum().item()
    child = os.fork()
    if child == 0:
        fine = (torch.ones(2, device="mps") + 1).tolist() == [2, 2]
        os._exit(0 if fine else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_program_may_end_with_a_backward_pass() -> None:
    """The thread of the pass must not need Python when it has ended; without waiting, most do."""
    text = """
import torch
leaves = (torch.randn(1, 2, 4, 8, device="mps", requires_grad=True) for _ in range(3))
torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=True).sum().backward()
"""
    for _ in range(2):
        status, _, errors = run_text(text, ANYMETAL_DEVICE="1")
        assert status == 0, errors


def test_forked_child_ends_after_its_parents_backward_pass() -> None:
    text = """
import os, sys, torch
torch.ones(2, device="mps", requires_grad=True).sum().backward()
child = os.fork()
if child:
    sys.exit(os.waitpid(child, 0)[1])
assert (torch.ones(2, device="mps") + 1).tolist() == [2, 2]
"""
    status, _, errors = run_text(text, ANYMETAL_DEVICE="1")
    assert status == 0, errors


def test_queued_kernels_end_before_the_program() -> None:
    text = """
import torch
source = "kernel void add(device float* x, uint i [[thread_position_in_grid]]) { x[i] += 1; }"
kernel, x = torch.mps.compile_shader(source).add, torch.zeros(4, device="mps")
for _ in range(100):
    kernel(x)
print("end")
"""
    status, output, errors = run_text(text, ANYMETAL_DEVICE="1", ANYMETAL_DEVICE_ASYNC="1")
    assert (status, output) == (0, "end\n"), errors
